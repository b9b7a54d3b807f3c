"""mqcore.testing: the broker that it starts is real, obeys, and leaves nothing behind, however the tests end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from mqcore import aio
from mqcore.client import Client, Message, ReceivedMessage
from mqcore.testing import (
    BrokerStartError,
    RunningBroker,
    assert_consumed,
    assert_dead_letters,
    assert_nothing_received,
    assert_received,
    client_clock,
    received,
    running_broker,
)
from mqcore.testing import leftovers as leftovers_module
from mqcore.testing.leftovers import PREFIX, make_directory, remove_stale_directories
from tests.waiting import wait_until

DEADLINE_S = 60.0
HOLDER = """
import sys, time
from mqcore.testing import running_broker
with running_broker() as broker:
    print(broker.pid, broker.store.parent, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(settings={"recallMessageEnable": "true"}, topics={"Orders": 2}) as broker:
        yield broker


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "_").replace("]", "")
    broker.create_topic(name, queues=1)
    return name


def send(broker: RunningBroker, *messages: Message) -> None:
    with Client(broker.name_server) as mq, mq.producer("sender") as producer:
        for message in messages:
            producer.send(message)


def directories() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob(PREFIX + "*"))


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_topics_are_there_when_the_block_begins(broker: RunningBroker) -> None:
    with Client(broker.name_server) as mq:
        assert len(mq.queues("Orders")) == 2


def test_a_store_survives_a_restart_and_a_kill(broker: RunningBroker, topic: str) -> None:
    send(broker, Message(topic, b"first"))
    before = broker.name_server, broker.address
    broker.restart()
    assert_received(broker, topic, ["first"])
    workers = [worker.pid for worker in psutil.Process(broker.pid).children(recursive=True)]
    broker.kill()
    assert not broker.is_running
    assert all(has_ended(pid) for pid in workers)
    broker.start()
    send(broker, Message(topic, b"second"))
    assert_received(broker, topic, ["first", "second"], in_order=True)
    assert (broker.name_server, broker.address) == before


def test_a_delayed_message_comes_when_time_is_advanced_and_not_before(broker: RunningBroker, topic: str) -> None:
    send(broker, Message(topic, b"in two hours", delay_level=18), Message(topic, b"now"))
    assert_received(broker, topic, ["now"])
    broker.advance(hours=1, minutes=59)
    send(broker, Message(topic, b"two hours later", delay_level=18))
    broker.advance(minutes=1)
    assert_received(broker, topic, ["now", "in two hours"])
    broker.restart()
    broker.advance(timedelta(hours=1, minutes=59))
    assert_received(broker, topic, ["now", "in two hours", "two hours later"])


def test_timers_come_when_time_is_advanced_and_not_before(broker: RunningBroker, topic: str) -> None:
    in_three_hours = time.time_ns() // 1_000_000 + 3 * 3_600_000
    with Client(broker.name_server) as mq, mq.producer("calendar") as producer:
        producer.send(Message(topic, b"in 90 minutes", delay=timedelta(minutes=90)))
        producer.send(Message(topic, b"in 3 hours", deliver_at=in_three_hours))
        # It is stored anew after two days, the longest that the wheel keeps it.
        producer.send(Message(topic, b"in 70 hours", delay=timedelta(hours=70)))
        receipt = producer.send(Message(topic, b"never", delay=timedelta(minutes=100)))
        assert receipt.recall_handle is not None
        broker.advance(minutes=80)
        producer.send(Message(topic, b"90 minutes later", delay=timedelta(minutes=90)))
        producer.recall(topic, receipt.recall_handle)
        broker.advance(minutes=10)
        assert_received(broker, topic, ["in 90 minutes"])
        broker.restart()
        broker.advance(minutes=70)
        assert_received(broker, topic, ["in 90 minutes"])
        broker.advance(minutes=10)
        assert_received(broker, topic, ["in 90 minutes", "90 minutes later"])
        broker.advance(minutes=10)
        assert_received(broker, topic, ["in 90 minutes", "90 minutes later", "in 3 hours"])
        broker.advance(timedelta(hours=67))
        assert_received(broker, topic, ["in 90 minutes", "90 minutes later", "in 3 hours", "in 70 hours"])
        # Time goes on for who sends now.
        producer.send(Message(topic, b"in a moment", delay=0.2))
        assert_received(broker, topic, [b"in a moment"], exactly=False)


def test_a_failed_message_comes_again_when_time_is_advanced(broker: RunningBroker, topic: str) -> None:
    tries: list[int] = []

    def handler(message: ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        raise ValueError("not today")

    send(broker, Message(topic, b"bad"))
    group = "G_" + topic
    with (
        Client(broker.name_server) as mq,
        mq.consumer(group, topic, handler=handler, from_where="earliest", max_reconsume_times=2),
    ):
        for times in range(2):
            wait_until(lambda times=times: len(tries) == times + 1, DEADLINE_S, "the next try")
            assert_received(broker, "SCHEDULE_TOPIC_XXXX", [b"bad"] * (times + 1), exactly=False)
            broker.advance(minutes=1)
        assert_dead_letters(broker, group, ["bad"])
    assert tries == [0, 1, 2]
    assert_consumed(broker, group, topic)


def test_the_clients_clock_moves_their_messages_and_comes_back(broker: RunningBroker, topic: str) -> None:
    with client_clock() as clock:
        clock.advance(days := timedelta(days=400))
        send(broker, Message(topic, b"from the future"))
        clock.advance(hours=1)
        assert clock.now_ms() - time.time() * 1000 > days.total_seconds() * 1000
    send(broker, Message(topic, b"from now"))
    first, second = assert_received(broker, topic, ["from the future", "from now"], in_order=True)
    assert first.born_timestamp - second.born_timestamp > timedelta(days=399).total_seconds() * 1000
    assert second.store_timestamp >= first.store_timestamp


def test_assertions_say_what_is_missing_and_what_is_too_much(broker: RunningBroker, topic: str) -> None:
    assert_nothing_received(broker, topic)
    send(broker, Message(topic, b"a", tag="x"), Message(topic, b"b", tag="y"), Message(topic, b"a"))
    assert_received(broker, topic, ["a", "b", "a"], in_order=True)
    (message,) = assert_received(broker.name_server, topic, [b"b"], tag="y")
    assert message.body == b"b"
    assert [message.body for message in received(broker, topic)] == [b"a", b"b", b"a"]
    assert_received(broker, topic, ["b", "a"], exactly=False)
    with pytest.raises(AssertionError, match=r"missing \[b'c'\], got \[b'a', b'b', b'a'\]"):
        assert_received(broker, topic, ["a", "b", "a", "c"], timeout_s=0.1)
    with pytest.raises(AssertionError, match=r"got \[b'a'\] besides"):
        assert_received(broker, topic, ["a", "b"])
    with pytest.raises(AssertionError, match="wanted the order"):
        assert_received(broker, topic, ["a", "a", "b"], in_order=True)
    with pytest.raises(AssertionError, match="wanted nothing"):
        assert_nothing_received(broker, topic)
    with pytest.raises(AssertionError, match="queue 0: 3"):
        assert_consumed(broker, "nobody", topic, timeout_s=0.1)


async def test_the_async_form_lets_the_loop_run(tmp_path: Path) -> None:
    async with running_broker(store=tmp_path / "store", topics=["Kept"]) as broker:
        async with aio.Client(broker.name_server) as mq, mq.producer("p") as producer:
            await producer.send(aio.Message("Kept", b"1"))
            await broker.restart()
            await producer.send(aio.Message("Kept", b"2"), timeout_s=DEADLINE_S)
            await producer.send(aio.Message("Kept", b"3", delay_level=18))
            await broker.advance(hours=2)
        await asyncio.to_thread(assert_received, broker, "Kept", ["1", "2", "3"])
    assert (tmp_path / "store" / "commitlog").is_dir()
    with running_broker(store=tmp_path / "store") as again:
        assert_received(again, "Kept", ["1", "2", "3"])


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # In the machine's own directory others, too, may make and remove some.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(BrokerStartError, match="maxMesageSize"), running_broker(settings={"maxMesageSize": 1}):
        pass
    assert directories() == set()


def test_settings_and_a_single_topic_reach_the_broker() -> None:
    settings = {"autoCreateTopicEnable": False, "messageDelayLevel": "1s 9h"}
    with running_broker(settings=settings, topics="Slow") as broker:
        log = broker.log
        send(broker, Message("Slow", b"in nine hours", delay_level=2))
        broker.advance(hours=9)
        assert_received(broker, "Slow", ["in nine hours"])
        with Client(broker.name_server) as mq:
            assert mq.queues("Unknown") == []
    assert not log.exists()


WAYS_TO_END = [(number, is_stopped) for number in (signal.SIGKILL, signal.SIGTERM) for is_stopped in (False, True)]


@pytest.mark.parametrize("way", ["any", *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS_TO_END)], ids=str)
def test_a_test_process_that_is_killed_leaves_no_process_and_no_directory(way: Any, chance: random.Random) -> None:
    """By either signal, with a worker that is stopped and cannot end by itself, or with none."""
    number, worker_is_stopped = chance.choice(WAYS_TO_END) if way == "any" else way
    print(f"ended by {number.name}, a worker is stopped: {worker_is_stopped}")
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        pid, directory = holder.stdout.readline().split()
        workers = [worker.pid for worker in psutil.Process(int(pid)).children(recursive=True)]
        assert workers
        if worker_is_stopped:
            os.kill(workers[0], signal.SIGSTOP)
        holder.send_signal(number)
    wait_until(lambda: all(has_ended(process) for process in [int(pid), *workers]), DEADLINE_S, "all processes ended")
    wait_until(lambda: not Path(directory).exists(), DEADLINE_S, "the directory is removed")


def test_a_forked_child_leaves_the_broker_alone(broker: RunningBroker) -> None:
    child = os.fork()
    if child == 0:
        try:
            broker.close()
            try:
                broker.stop()
            except BrokerStartError:
                os._exit(0)
            os._exit(1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert broker.is_running


def test_directories_of_runs_that_were_killed_are_removed_and_those_in_use_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(leftovers_module, "STALE_AFTER_S", 0.0)
    in_use, lock = make_directory()
    stale, stale_lock = make_directory()
    stale_lock.close()
    (tmp_path / (PREFIX + "without_lock")).mkdir()
    with lock:
        remove_stale_directories()
        assert in_use.exists()
    assert not stale.exists()
