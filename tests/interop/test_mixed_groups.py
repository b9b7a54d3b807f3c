"""One group of Java 4.9.8, Java 5.3.3 and Python members, while members join, leave and are killed.

After each change every queue has exactly one owner; no message is lost; one comes twice only when its queue changed
hands before its offset was committed.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from mqcore import aio
from tests.rigs import JavaConsumer, JavaDriver, QueueName, ReceivedMessage, RunningBroker, wire
from tests.rigs.process import Child
from tests.rigs.reports import read_received
from tests.rigs.talkers import arguments
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 8
POLL_MS = 500
SETTLED_DEADLINE_S = 120.0
LOOKS = 3
"""So many looks in a row must find the queues shared out."""

PHASE_MESSAGES = 150
SEND_PAUSE_S = 0.004
COMMIT_INTERVAL_MS = 5_000
REPEAT_GAP_MAX_MS = COMMIT_INTERVAL_MS + 25_000
"""What was delivered so long ago was committed, also on a busy machine."""

LOCK_LIFE_MS = 60_000
"""For so long a broker keeps the locks of an orderly member that was killed: nobody else has its queues before."""


class Member(NamedTuple):
    """A process in the group, of whatever language, and where it reports."""

    name: str
    process: JavaConsumer
    report: Path


class Delivery(NamedTuple):
    at_ms: int
    member: str
    message: ReceivedMessage


class Sender:
    """Sends numbered messages all the time, in a thread of its own, until it is stopped."""

    def __init__(self, name_server: str, topic: str) -> None:
        self._name_server = name_server
        self._topic = topic
        self._stop = threading.Event()
        self.stored: list[str] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sender")
        self._thread.start()

    def stop(self) -> list[str]:
        """Return the keys of what was stored."""
        self._stop.set()
        self._thread.join(SETTLED_DEADLINE_S)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure
        return self.stored

    def _run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:
            self.failure = error

    async def _send(self) -> None:
        async with aio.Client(self._name_server) as mq, mq.producer("P") as producer:
            for number in itertools.count():
                if self._stop.is_set():
                    return
                message = aio.Message(self._topic, f"body {number}".encode(), keys=[f"L{number}"])
                await producer.send(message, timeout_s=30)
                self.stored.append(f"L{number}")
                await asyncio.sleep(SEND_PAUSE_S)


class Group:
    """The members that are there, and what all that ever were have reported."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.members: dict[str, Member] = {}
        self._reports: dict[str, Path] = {}

    def join(self, member: Member) -> None:
        self.members[member.name] = member
        self._reports[member.name] = member.report

    def leave(self, name: str) -> None:
        """In order, as a deployment would."""
        self.members.pop(name).process.stop()

    def kill(self, name: str) -> None:
        self.members.pop(name).process.child.kill()

    def await_one_owner_each(self, what: str) -> None:
        """Wait until each queue has one owner and nobody two shares too many, several times in a row."""
        everything = [QueueName("broker-a", queue_id) for queue_id in range(QUEUES)]
        good_looks = 0

        def is_shared() -> bool:
            nonlocal good_looks
            owned = sorted(queue for member in self.members.values() for queue in member.process.queues())
            good_looks = good_looks + 1 if owned == everything else 0
            return good_looks >= LOOKS

        wait_until(is_shared, SETTLED_DEADLINE_S, f"each queue has one owner after: {what}")
        before = len(self.sender.stored)
        wait_until(lambda: len(self.sender.stored) >= before + PHASE_MESSAGES, SETTLED_DEADLINE_S, "messages sent")

    def deliveries(self) -> list[Delivery]:
        """Everything that was reported, in the order of time."""
        rows = [
            Delivery(int(message.outcome.rpartition("@")[2]), name, message)
            for name, path in self._reports.items()
            for message in read_received(path)
        ]
        return sorted(rows, key=lambda row: row.at_ms)

    def await_all(self, keys: Sequence[str]) -> list[Delivery]:
        wanted = set(keys)
        found: list[Delivery] = []

        def all_came() -> bool:
            found[:] = self.deliveries()
            return wanted <= {row.message.key for row in found}

        wait_until(all_came, SETTLED_DEADLINE_S, "no message is lost")
        return found


def check_repeats(deliveries: Sequence[Delivery], gap_max_ms: int) -> int:
    """A repeated message went to another owner of its queue, soon; return how many there were."""
    by_queue: defaultdict[int, list[Delivery]] = defaultdict(list)
    last: dict[str, Delivery] = {}
    repeats = 0
    for row in deliveries:
        queue, key = by_queue[row.message.queue_id], row.message.key
        if key in last:
            repeats += 1
            first = last[key]
            between = {other.member for other in queue[queue.index(first) :]} | {row.member}
            assert between != {first.member}, f"{key} came twice to the only owner of its queue, {first.member}"
            assert row.at_ms - first.at_ms <= gap_max_ms, f"{key} came again though it was committed long ago"
        last[key] = row
        queue.append(row)
    return repeats


@pytest.fixture
def topic(mq_broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    wire.create_topic(mq_broker.broker_address, name, queues=QUEUES)
    wait_until(lambda: wire.has_route(mq_broker.name_server, name), describe=f"route to {name}")
    return name


@pytest.fixture
def group(mq_broker: RunningBroker, topic: str) -> Iterator[Group]:
    sender = Sender(mq_broker.name_server, topic)
    group = Group(sender)
    try:
        yield group
    finally:
        sender.stop()
        for member in group.members.values():
            member.process.child.kill()


class Starter:
    """Starts members of one group."""

    def __init__(self, broker: RunningBroker, topic: str, directory: Path, **options: object) -> None:
        self._broker = broker
        self._topic = topic
        self._directory = directory
        self._options = {"poll_ms": POLL_MS, **options}

    def java(self, name: str, driver: JavaDriver) -> Member:
        process = driver.consumer(
            self._broker.name_server, self._topic, f"G_{self._topic}", instance=name, live=1, **self._options
        )
        return Member(name, process, process.report)

    def python(self, name: str) -> Member:
        report = self._directory / f"{name}.tsv"
        options = {
            "name_server": self._broker.name_server,
            "topic": self._topic,
            "group": f"G_{self._topic}",
            "report": report,
            **self._options,
        }
        child = Child(
            [sys.executable, "-m", "tests.interop.python_member", *arguments(options)],
            log=self._directory / f"{name}.log",
            talks=True,
        )
        return Member(name, JavaConsumer(child, report), report)


def roll(group: Group, start: Starter, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver, *, is_orderly: bool) -> None:
    """Members of all kinds join, leave and are killed in turn, while messages are sent all the time."""
    group.join(start.java("four", java_4_9_8))
    group.join(start.python("python-1"))
    group.await_one_owner_each("the first two joined")
    group.join(start.java("five", java_5_3_3))
    group.join(start.python("python-2"))
    group.await_one_owner_each("two more joined")
    group.leave("four")
    group.await_one_owner_each("Java 4.9.8 left")
    group.kill("python-1")
    group.await_one_owner_each("Python was killed")
    group.join(start.java("four-again", java_4_9_8))
    group.leave("python-2")
    group.await_one_owner_each("one joined while another left")
    group.join(start.python("python-3"))
    group.kill("five")
    group.await_one_owner_each("one joined while Java 5.3.3 was killed")
    keys = group.sender.stop()
    deliveries = group.await_all(keys)
    for name in list(group.members):
        group.leave(name)
    deliveries = group.deliveries()
    assert {row.message.key for row in deliveries} == set(keys)
    assert {row.member for row in deliveries} == {"four", "five", "four-again", "python-1", "python-2", "python-3"}
    repeats = check_repeats(deliveries, REPEAT_GAP_MAX_MS + (LOCK_LIFE_MS if is_orderly else 0))
    print(f"{len(keys)} messages, {repeats} of them came twice")


@pytest.mark.parametrize("listener", ["concurrent", pytest.param("orderly", marks=pytest.mark.slow)])
@pytest.mark.parametrize("strategy", ["AVG", pytest.param("CONSISTENT_HASH", marks=pytest.mark.slow)])
def test_members_of_all_kinds_come_and_go_and_nothing_is_lost(
    mq_broker: RunningBroker,
    topic: str,
    group: Group,
    java_4_9_8: JavaDriver,
    java_5_3_3: JavaDriver,
    tmp_path: Path,
    listener: str,
    strategy: str,
) -> None:
    start = Starter(mq_broker, topic, tmp_path, listener=listener, strategy=strategy)
    roll(group, start, java_4_9_8, java_5_3_3, is_orderly=listener == "orderly")
