"""A store in which messages wait for their time, taken over by Apache's broker 5.3.3, and the other way round."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mqcore.client import Client
from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.command import RemotingCommand
from mqcore.store.timer.checkpoint import TimerCheck
from mqcore.store.timer.log import read_units
from tests.fault.talker import Talker
from tests.rigs.apache import ApacheServer
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import call, max_offset
from tests.waiting import wait_until

VERSION = "5.3.3"
LOG_FILE_SIZE = 52 * 200 + 20
PROPERTIES_OF_APACHE = {"mappedFileSizeTimerLog": str(LOG_FILE_SIZE)}
CHECKPOINTS = {"timerFlushIntervalMs": "2000"}
"""Who is killed has written down where it was; not each second, as Apache does: each time it copies 39 MB of wheel."""
PROPERTIES = PROPERTIES_OF_APACHE | {"timerFlushIntervalMs": "100"}
TOPIC = "Waiting"
ENDINGS = ("stopped", "killed")
COUNT = 300
REHEARSED = 30
AHEAD_MS, AHEAD_TIMES = 4_000, 5
"""How long before the first is due they are sent, beyond so many times what sending takes: all are to wait then."""
PATIENCE_S = 60.0
"""Behind the moment at which the last is due."""

pytestmark = pytest.mark.compat


def send_all(address: str) -> int:
    """Send COUNT messages, due every 20 ms from a moment on by which a machine as busy as now has them all waiting.

    Returns when the last is due, ms: far ahead if the rehearsal was slow.
    """
    with Talker(address) as talker:
        began = time.monotonic()
        send(talker, "Rehearsed", [{}] * REHEARSED)
        each_ms = (time.monotonic() - began) * 1000 / REHEARSED
        first_ms = now_ms() + AHEAD_MS + int(AHEAD_TIMES * COUNT * each_ms)
        send(talker, TOPIC, [{"TIMER_DELIVER_MS": str(first_ms + 20 * number)} for number in range(COUNT)])
    return first_ms + 20 * COUNT


def left_s(due_ms: int) -> float:
    """How long may be waited for what is due then."""
    return max(0, due_ms - now_ms()) / 1000 + PATIENCE_S


def send(talker: Talker, topic: str, more: Sequence[Mapping[str, str]]) -> None:
    """Send a message for each of *more*, its further properties, all at once."""
    talker.send(request(topic, number, properties) for number, properties in enumerate(more))
    for _ in more:
        answer = talker.receive()
        assert answer.code == ResponseCode.SUCCESS, answer.remark


def request(topic: str, number: int, more: Mapping[str, str]) -> RemotingCommand:
    properties = {"UNIQ_KEY": f"key{number}", **more}
    header = {
        "producerGroup": "G", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": str(number % 4), "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "reconsumeTimes": "0",
        "unitMode": "false", "batch": "false",
        "properties": "\x02".join(f"{name}\x01{value}" for name, value in properties.items()),
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE, ext_fields=header, body=b"%d" % number)


def waiting(address: str) -> int:
    count: int = call(address, RequestCode.GET_TIMER_METRICS).json()["timingCount"].get(TOPIC, {}).get("count", 0)
    return count


def bodies(name_server: str, due_ms: int) -> list[int]:
    """Every message of the topic once there are COUNT, and what comes within a second behind them."""
    found: list[int] = []
    deadline = time.monotonic() + left_s(due_ms)
    with Client(name_server) as client, client.pull_consumer("readers", TOPIC, from_where="earliest") as consumer:
        while len(set(found)) < COUNT and time.monotonic() < deadline:
            found += [int(message.body) for message in consumer.poll(timeout_s=0.2)]
        quiet_at = time.monotonic() + 1
        while time.monotonic() < quiet_at:
            found += [int(message.body) for message in consumer.poll(timeout_s=0.2)]
    return sorted(found)


def test_apache_delivers_what_waits_in_our_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MqcoreBroker(store, PROPERTIES) as ours:
        due_ms = send_all(ours.broker_address)
        wait_until(lambda: waiting(ours.broker_address) >= COUNT, describe="all are in the wheel")
        ours.stop()
    assert sum(1 for _ in read_units(store / "timerlog", LOG_FILE_SIZE)) == COUNT
    with ApacheServer(VERSION, store, PROPERTIES_OF_APACHE) as apache:
        assert bodies(apache.name_server, due_ms) == list(range(COUNT))


@pytest.mark.parametrize("ending", ["either", *(pytest.param(ending, marks=pytest.mark.slow) for ending in ENDINGS)])
def test_we_deliver_what_waits_in_apaches_store_and_not_again_what_it_has_delivered(
    tmp_path: Path, ending: str, chance: random.Random
) -> None:
    chosen = chance.choice(ENDINGS) if ending == "either" else ending
    print(f"Apache's broker was {chosen}")
    (behind_a_stop if chosen == "stopped" else behind_a_kill)(tmp_path / "store")


def behind_a_stop(store: Path) -> None:
    with ApacheServer(VERSION, store, PROPERTIES_OF_APACHE) as apache:
        due_ms = send_all(apache.broker_address)
        wait_until(lambda: waiting(apache.broker_address) >= COUNT, describe="all are in the wheel")
        apache.stop()
    check = TimerCheck.read(store / "config" / "timercheck")
    assert check.queue_offset > 0
    with MqcoreBroker(store, PROPERTIES) as ours:
        assert bodies(ours.name_server, due_ms) == list(range(COUNT))
        wait_until(lambda: waiting(ours.broker_address) == 0, describe="none waits any more")
        ours.stop()


def behind_a_kill(store: Path) -> None:
    with ApacheServer(VERSION, store, PROPERTIES_OF_APACHE | CHECKPOINTS) as apache:
        due_ms = send_all(apache.broker_address)
        wait_until(lambda: delivered(apache.broker_address) >= COUNT // 4, left_s(due_ms), "it has delivered some")
        apache.kill()
        # What nobody says of what was delivered since its last checkpoint, the log says.
    with MqcoreBroker(store, PROPERTIES) as ours:
        assert bodies(ours.name_server, due_ms) == list(range(COUNT))
        ours.stop()


def delivered(address: str) -> int:
    return sum(max_offset(address, TOPIC, queue_id) for queue_id in range(4))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
