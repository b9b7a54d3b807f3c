"""The log of a failover group among whole brokers. The test stands for whoever decides who leads and who follows."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mqcore import layout
from mqcore.broker.failover.facts import LeaderFacts
from mqcore.broker.segment.group_log import SharedGroupLog
from mqcore.broker.server import BrokerServer
from mqcore.codes import ResponseCode
from mqcore.config import Settings, load
from mqcore.protocol.topic_config import TopicConfig
from mqcore.store.failover_files import FailoverFiles, Identity
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log_cut import cut_log, empty_store
from mqcore.store.paths import StorePaths
from tests.compat import apache_requests as requests
from tests.rigs import free_broker_ports, free_port
from tests.rigs.wire import SUCCESS, Answer
from tests.waiting import wait_until

TOPIC = "Grouped"
FILE_SIZE = 1 << 18
DEADLINE_S = 60.0
T = TypeVar("T")
Start = Callable[[int], "list[Broker]"]


class Decider:
    """The thread that all brokers of a test live in."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()


class Broker:
    """One broker of the group, in life after life."""

    def __init__(self, decider: Decider, member: int, root: Path) -> None:
        self.member = member
        self.nonce = 0
        self._decider = decider
        self.port = free_broker_ports().listen
        self.address = f"127.0.0.1:{self.port}"
        self.settings: Settings = load(
            overrides={
                "storePathRootDir": str(root), "storePathCommitLog": str(root / "commitlog"), "brokerName": "group",
                "listenPort": str(self.port), "namesrvAddr": f"127.0.0.1:{free_port()}", "bindAddress": "127.0.0.1",
                "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "brokerRole": "SYNC_MASTER",
                "mappedFileSizeCommitLog": str(FILE_SIZE), "failoverEtcd": "127.0.0.1:1", "slaveTimeout": "60000",
                "haSendHeartbeatInterval": "100",
            },
            environment={},
        )  # fmt: skip
        self.paths = StorePaths.of(self.settings.store)
        self.files = FailoverFiles(self.paths)
        self._server: BrokerServer | None = None
        self._log: SharedGroupLog | None = None

    @property
    def log(self) -> SharedGroupLog:
        assert self._log is not None
        return self._log

    @property
    def server(self) -> BrokerServer:
        assert self._server is not None
        return self._server

    def start(self) -> None:
        """Begin a life."""
        if self.files.read_identity() is None:
            self.files.write_identity(Identity("c", "group", self.member, f"uuid-{self.member}"))
        self._decider.run(self._start())

    async def _start(self) -> None:
        server = BrokerServer(self.settings)
        await server.start()
        self._server = server
        await server.core.broker.topics.update(TopicConfig(TOPIC, 1, 1))
        (ha,) = server.supervisor.of_kind("ha")
        self._log = SharedGroupLog(
            server.settings, server.segment, ha.row, lambda: server.supervisor.wake(ha), self._wake_all
        )
        self.nonce += 1000 + self.member
        self._log.introduce(self.member, self.nonce)

    def _wake_all(self) -> None:
        for worker in self.server.supervisor.workers:
            self.server.supervisor.wake(worker)

    def stop(self) -> None:
        if self._server is not None:
            self._decider.run(self._server.stop())
            self._server = self._log = None

    def word(self, name: str) -> int:
        return self.server.segment.get(name)

    def follow(self, master: Broker, term: int, start: int = 0) -> None:
        self._call(self.log.follow, "127.0.0.1", master.port + 1, term, start)

    def stop_following(self) -> None:
        self._decider.run(self.log.stop_following())

    def lead(self, term: int, *members: Broker, required: tuple[Broker, ...] = ()) -> int:
        """Lead *term*; *members* may copy, and those in *required* must have what is confirmed."""
        self.know(*members)
        start = self._decider.run(self.log.lead(term))
        self.require(1, *required)
        return start

    def know(self, *members: Broker) -> None:
        self._call(self.log.know, {broker.member: broker.nonce for broker in members})

    def require(self, generation: int, *members: Broker) -> None:
        self._call(self.log.require, generation, frozenset({self.member, *(broker.member for broker in members)}))
        wait_until(lambda: self.word("required_seen") == generation, DEADLINE_S, "the set is in use")

    def stop_leading(self) -> None:
        self._decider.run(self.log.stop_leading())

    def facts(self, *isr: Broker) -> LeaderFacts:
        return self._call(self.log.leader_facts, frozenset(broker.member for broker in isr))

    def _call(self, what: Any, *arguments: Any) -> Any:
        async def call() -> Any:
            return what(*arguments)

        return self._decider.run(call())

    def send(self, body: bytes, waits: str = "true") -> Answer:
        return requests.send(self.address, TOPIC, 0, body, int(time.time() * 1000), {"WAIT": waits})

    def store(self, body: bytes) -> None:
        """Send a message that waits for nobody."""
        assert self.send(body, "false").code == SUCCESS

    def stored(self, at: int = 0) -> list[bytes]:
        """The bodies that can be pulled from queue offset *at* on, as long as there are some at once."""
        found: list[bytes] = []
        while True:
            answer = requests.pull(self.address, TOPIC, 0, at + len(found))
            if answer.code != SUCCESS:
                return found
            for record in requests.split_records(answer.body):
                size = int.from_bytes(record[84:88], "big")
                found.append(record[88 : 88 + size])

    def log_bytes(self, end: int) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.paths.commit_log.iterdir()))[:end]


@pytest.fixture
def decider() -> Iterator[Decider]:
    with contextlib.closing(Decider()) as made:
        yield made


@pytest.fixture
def start(decider: Decider, tmp_path: Path) -> Iterator[Start]:
    """Starts so many brokers in their first lives, each a slave without a master."""
    brokers: list[Broker] = []

    def start(count: int) -> list[Broker]:
        for member in range(count):
            brokers.append(Broker(decider, member, tmp_path / f"store-{member}"))
            brokers[-1].start()
        return brokers

    try:
        yield start
    finally:
        for broker in brokers:
            broker.stop()


def await_copy(master: Broker, *slaves: Broker) -> None:
    for slave in slaves:
        wait_until(lambda slave=slave: slave.log.end == master.log.end, DEADLINE_S, "the log is copied")  # type: ignore[misc]


def await_joined(*slaves: Broker) -> None:
    for slave in slaves:
        wait_until(lambda slave=slave: slave.log.master_seen_ms >= 0, DEADLINE_S, "the master is heard")  # type: ignore[misc]


def store_with_and_without(first: Broker, second: Broker, body: bytes, more: bytes) -> int:
    """Store *body* on both, led by the first, and *more* where only the first has it; gives where that begins."""
    first.lead(1, second, required=(second,))
    second.follow(first, 1)
    await_joined(second)
    assert first.send(body).code == SUCCESS
    end = first.log.end
    second.stop_following()
    first.store(more)
    return end


def test_only_what_all_required_members_have_is_acknowledged_and_read(start: Start) -> None:
    first, second, third = start(3)
    assert first.send(b"early").code == ResponseCode.SERVICE_NOT_AVAILABLE
    first.lead(1, second, third, required=(second,))
    second.follow(first, 1)
    await_joined(second)
    assert first.send(b"both").code == SUCCESS
    assert first.log.confirmed == first.log.end
    third.follow(first, 1)
    await_copy(first, third)
    wait_until(lambda: first.stored() == [b"both"], DEADLINE_S, "it can be read")
    wait_until(lambda: second.word("dispatched_offset") == first.log.end, DEADLINE_S, "also of the slave")
    # A member outside of the set holds nobody up, one inside of it everybody.
    third.stop_following()
    assert first.send(b"without the third").code == SUCCESS
    second.stop_following()
    end = first.log.end
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(first.send, b"without the second")
        wait_until(lambda: first.log.end > end, DEADLINE_S, "it is stored")
        assert first.stored() == [b"both", b"without the third"]
        assert not waiting.done()
        # One whose copy has ended is not in the way once it is not required any more.
        first.require(2)
        assert waiting.result(DEADLINE_S).code == SUCCESS
    wait_until(
        lambda: first.stored() == [b"both", b"without the third", b"without the second"], DEADLINE_S, "confirmed"
    )


def test_a_master_is_told_who_has_what(start: Start) -> None:
    first, second, third = start(3)
    start = first.lead(1, second, third, required=(second,))
    second.follow(first, 1)
    await_joined(second)
    assert first.send(b"one").code == SUCCESS
    wait_until(lambda: first.facts(second, third).members[1].acked == first.log.end, DEADLINE_S, "it is heard of")
    facts = first.facts(second, third)
    assert (facts.epoch_start, facts.confirmed, facts.required_seen) == (start, first.log.end, 1)
    assert facts.members[1].connected
    assert (facts.members[2].connected, facts.members[2].acked) == (False, -1)
    second.stop_following()
    wait_until(lambda: not first.facts(second).members[1].connected, DEADLINE_S, "it is missed")
    first.store(b"two")
    wait_until(lambda: first.facts(second).members[1].behind_ms > 300, DEADLINE_S, "it is behind")


def test_a_member_takes_over_and_what_was_not_confirmed_is_readable_when_it_is_and_keeps_its_offsets(
    start: Start,
) -> None:
    first, second, third = start(3)
    first.lead(1, second, third, required=(second, third))
    second.follow(first, 1)
    third.follow(first, 1)
    await_joined(second, third)
    assert first.send(b"confirmed").code == SUCCESS
    third.stop_following()
    first.store(b"not by the third")
    await_copy(first, second)
    second.stop_following()
    confirmed = second.log.confirmed
    assert confirmed < second.log.end
    start = second.lead(2, third, required=(third,))
    assert start == second.log.end
    assert second.stored() == [b"confirmed"]
    # Whoever has read on from the master before waits here, and is not sent back.
    with ThreadPoolExecutor() as pool:
        held = pool.submit(requests.pull, second.address, TOPIC, 0, 2, suspend_ms=60_000)
        assert requests.pull(second.address, TOPIC, 0, 2).code == ResponseCode.PULL_NOT_FOUND
        third.follow(second, 2)
        await_joined(third)
        assert second.send(b"of the second").code == SUCCESS
        assert held.result(DEADLINE_S).code == SUCCESS
    wait_until(
        lambda: second.stored() == [b"confirmed", b"not by the third", b"of the second"], DEADLINE_S, "all is read"
    )
    await_copy(second, third)
    assert third.log_bytes(third.log.end) == second.log_bytes(second.log.end)


def test_sends_that_wait_for_a_master_that_ends_are_sent_on(start: Start) -> None:
    first, second = start(2)
    first.lead(1, second, required=(second,))
    with ThreadPoolExecutor() as pool:
        waiting: list[Future[Answer]] = [pool.submit(first.send, b"%d" % number) for number in range(4)]
        wait_until(lambda: first.log.end > 0, DEADLINE_S, "something is stored")
        first.stop_leading()
        answers = [future.result(DEADLINE_S) for future in waiting]
    assert {answer.code for answer in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    end = first.log.end
    assert first.send(b"late").code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert first.log.end == end


def test_too_few_members_refuse_sends_with_the_cause(start: Start) -> None:
    (first,) = start(1)
    first.lead(1)
    flag = layout.constants("StoreFlag")["NOT_ENOUGH_REPLICAS"]
    first.server.segment.set_flags(flag)
    answer = first.send(b"refused")
    assert (answer.code, first.log.end) == (ResponseCode.SYSTEM_ERROR, 0)
    assert "in-sync replicas not enough" in answer.remark
    first.server.segment.clear_flags(flag)
    assert first.send(b"taken").code == SUCCESS


def test_a_tail_that_was_not_confirmed_is_cut_and_the_broker_follows(start: Start) -> None:
    first, second = start(2)
    common = store_with_and_without(first, second, b"of both", b"of the first alone")
    first.stop_leading()
    first.stop()
    second.lead(2, required=())
    assert second.send(b"of the second").code == SUCCESS
    cut_log(first.paths, StoreGeometry.of(first.settings.store), common)
    first.start()
    assert first.log.end == common
    second.know(first)
    first.follow(second, 2)
    await_copy(second, first)
    assert first.log_bytes(first.log.end) == second.log_bytes(second.log.end)
    second.require(2, first)
    assert second.send(b"of both again").code == SUCCESS
    wait_until(lambda: second.stored() == [b"of both", b"of the second", b"of both again"], DEADLINE_S, "it is read")
    wait_until(lambda: first.word("dispatched_offset") == second.log.end, DEADLINE_S, "on both")


def test_a_store_that_has_nothing_in_common_begins_anew_at_the_masters_first_file(
    start: Start,
) -> None:
    first, second = start(2)
    first.lead(1)
    for _ in range(3):
        assert first.send(b"x" * 100_000).code == SUCCESS
    second.lead(1)
    assert second.send(b"of another history").code == SUCCESS
    second.stop()
    empty_store(second.paths, StoreGeometry.of(second.settings.store))
    second.start()
    assert (second.log.end, second.log.confirmed) == (0, 0)
    first.know(second)
    second.follow(first, 1, start=FILE_SIZE)
    await_copy(first, second)
    start = second.word("min_offset")
    assert start == FILE_SIZE
    assert second.log_bytes(second.log.end - start) == first.log_bytes(first.log.end)[start:]


def test_a_restart_reads_what_was_confirmed_and_the_rest_when_the_group_has_it(
    start: Start,
) -> None:
    first, second = start(2)
    confirmed = store_with_and_without(first, second, b"confirmed", b"in doubt")
    first.stop()
    first.start()
    assert (first.log.confirmed, first.word("readable_offset")) == (confirmed, confirmed)
    assert first.log.end > confirmed
    first.lead(2, second)
    wait_until(
        lambda: first.stored() == [b"confirmed", b"in doubt"], DEADLINE_S, "it is the only one that must have it"
    )
