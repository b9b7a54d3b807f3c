"""Messages that wait for a time, and a slave that becomes the master: each comes once, from whoever delivers it.

Our slave keeps no wheel: it has its master's log, and what of that was delivered stands there. RocketMQ's slave keeps
one, and asks its master how far that has come (requests 60 and 61).
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from pathlib import Path

import pytest

from mqcore.client import Client
from mqcore.layout import TIMER_CHECK
from mqcore.store.timer.checkpoint import TimerCheck
from tests.interop.test_replicas_of_both import await_copy, log_end
from tests.rigs import ApacheBroker, ApacheServer, MqcoreBroker, RunningBroker, maven, wire
from tests.rigs.wire import SUCCESS
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

TOPIC = "Timed"
EARLY, LATE, RECALLED = 30, 60, 5
EARLY_MS = 2_000
"""Enough for a busy machine to take a message before it is due."""
LATE_MS = 20_000
"""Enough for a busy machine to have them all copied before the first is due."""
SPAN_MS = 3_000
DEADLINE_S = 120.0
SEND_MESSAGE, RECALL_MESSAGE, GET_TIMER_CHECK_POINT, GET_TIMER_METRICS = 10, 370, 60, 61
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "haSendHeartbeatInterval": "200",
    "recallMessageEnable": "true",
    "timerFlushIntervalMs": "100",
    "brokerIP2": "127.0.0.1",
    "haSyncFromFirstFile": "true",
}
AS_SLAVE = {"brokerId": "1", "brokerRole": "SLAVE"}

_readers = itertools.count()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send(broker: RunningBroker, key: str, due: int) -> str:
    """The recall handle of a message that is due at *due*, ms."""
    properties = {"UNIQ_KEY": key, "TIMER_DELIVER_MS": str(due)}
    header = {
        "producerGroup": "G", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": str(now_ms()), "flag": "0", "reconsumeTimes": "0", "unitMode": "false",
        "batch": "false", "properties": "\x02".join(f"{name}\x01{value}" for name, value in properties.items()),
    }  # fmt: skip
    answer = wire.call(broker.broker_address, SEND_MESSAGE, header, key.encode())
    assert answer.code == SUCCESS, answer
    return answer.ext_fields["recallHandle"]


def received(name_server: str, wanted: set[str]) -> Counter[str]:
    """What the topic has once all that is *wanted* is there, and a look for more."""
    found: Counter[str] = Counter()
    deadline = time.monotonic() + DEADLINE_S
    with (
        Client(name_server) as mq,
        mq.pull_consumer(f"readers-{next(_readers)}", TOPIC, from_where="earliest") as consumer,
    ):
        while not wanted <= set(found) and time.monotonic() < deadline:
            found.update(message.body.decode() for message in consumer.poll(timeout_s=0.2))
        quiet_at = time.monotonic() + 1.5
        while time.monotonic() < quiet_at:
            found.update(message.body.decode() for message in consumer.poll(timeout_s=0.2))
    return found


def fill(master: RunningBroker) -> set[str]:
    """Have some messages delivered, some wait and some taken back; the keys of what is to come or has come."""
    wire.create_topic(master.broker_address, TOPIC, queues=1)
    early = {f"early{number}" for number in range(EARLY)}
    for key in sorted(early):
        send(master, key, now_ms() + EARLY_MS)
    first = now_ms() + LATE_MS
    late = [f"late{number}" for number in range(LATE)]
    handles = {key: send(master, key, first + SPAN_MS * number // LATE) for number, key in enumerate(late)}
    for key in late[:RECALLED]:
        answer = wire.call(master.broker_address, RECALL_MESSAGE, {"topic": TOPIC, "recallHandle": handles[key]})
        assert answer.code == SUCCESS, answer
    assert received(master.name_server, early) == Counter(early)
    return early | set(late[RECALLED:])


def assert_delivered_once_by_its_slave(master: RunningBroker, store: Path) -> None:
    """A slave of ours with the store *store* copies *master*, which dies, and is made the master."""
    with MqcoreBroker(store, {**SETTINGS, **AS_SLAVE, "namesrvAddr": master.name_server}) as slave:
        wanted = fill(master)
        await_copy(master, slave.broker_address, store)
        # It has nothing to tell, and says so as a broker without messages that wait.
        assert wire.call(slave.broker_address, GET_TIMER_METRICS).json()["timingCount"] == {}
        wait_until(lambda: wire.is_dispatched(slave.broker_address), DEADLINE_S, "the slave has its queues")
        wait_until(lambda: f'"{TOPIC}"' in (store / "config" / "topics.json").read_text(), DEADLINE_S, "the topic")
        master.kill()
        slave.stop()
    with MqcoreBroker(store, SETTINGS) as promoted:
        assert received(promoted.name_server, wanted) == Counter(wanted)
        promoted.stop()


def test_our_slave_delivers_once_what_waited_when_it_is_made_the_master(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "master", SETTINGS) as master:
        assert_delivered_once_by_its_slave(master, tmp_path / "slave")


@pytest.mark.slow
@pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}")
def test_our_slave_of_rocketmq_delivers_once_what_waited_when_it_is_made_the_master(tmp_path: Path) -> None:
    """The copies of RocketMQ's master do not say of what; they are known by topic, key and slot."""
    with ApacheServer("5.3.3", tmp_path / "master", SETTINGS) as master:
        assert_delivered_once_by_its_slave(master, tmp_path / "slave")


@pytest.mark.slow
@pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}")
def test_rocketmqs_slave_of_ours_delivers_once_what_waited_when_it_is_made_the_master(tmp_path: Path) -> None:
    store = tmp_path / "slave"
    with MqcoreBroker(tmp_path / "master", SETTINGS) as master:
        slave = ApacheBroker("5.3.3", store, master.name_server, SETTINGS | AS_SLAVE)
        try:
            slave.await_service()
            wanted = fill(master)
            over = now_ms()
            end = log_end(master.broker_address)
            wait_until(lambda: log_end(slave.address) >= end, DEADLINE_S, "the slave has the log")
            # What it has asked its master for: up to where everything is delivered.
            wait_until(
                lambda: check_point(slave.address).read_time > over, DEADLINE_S, "the slave knows how far its master is"
            )
            # It asks for topics now and then.
            wait_until(lambda: f'"{TOPIC}"' in (store / "config" / "topics.json").read_text(), DEADLINE_S, "the topic")
            # And what waits is in a wheel of its own.
            count = wire.max_offset(master.broker_address, "rmq_sys_wheel_timer", 0)
            wait_until(
                lambda: check_point(slave.address).queue_offset == count, DEADLINE_S, "all that waits is in its wheel"
            )
            master.kill()
            slave.stop()
        finally:
            slave.kill()
    with ApacheServer("5.3.3", store, SETTINGS) as promoted:
        assert received(promoted.name_server, wanted) == Counter(wanted)


def check_point(address: str) -> TimerCheck:
    """How far the broker's timers are, by its answer to request 60."""
    return TimerCheck(*TIMER_CHECK.struct.unpack(wire.call(address, GET_TIMER_CHECK_POINT).body))
