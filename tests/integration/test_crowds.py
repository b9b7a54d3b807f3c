"""Crowds of connections that ask and never read: memory stays within its budgets, and who behaves is served.

The long form has ten thousand of them.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from mqcore.layout import WORKER_CAPACITY
from mqcore.workers.send import WRITE_BUDGET_BYTES
from tests.fault.rig import DEADLINE_S, SMALL_FILES, attach_segment, find_worker, start_broker
from tests.fault.talker import Talker, max_offset_request, pull_request, send_request
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC = "Crowded"
MIB = 1 << 20
ROOM = 64 * MIB
"""What a send worker has besides: tables, connections of a KiB each, and what the allocator keeps."""

BODY = 2048
MESSAGES = 64
ANSWER = 32 * BODY
WRITE_BUFFER = 1 << 17
READ_SIZE = 1 << 18
WINDOW = 2304
"""Bytes that a client's system takes for it; the rest stays at the broker."""

FEW, MANY = 100, 10_000
PULLS = {FEW: 60, MANY: 24}
"""What each asks for at first is more than its system and the broker's keep of it, 2.4 MiB; of ten thousand they keep
less."""

SERVED_S = 20.0
"""Within which a bystander must have his answer, on a machine that has much else to do."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreBroker]:
    properties = {**SMALL_FILES, "connectionWriteBufferBytes": str(WRITE_BUFFER), "mappedFileSizeCommitLog": str(MIB)}
    with start_broker(tmp_path, properties) as running:
        wire.create_topic(running.broker_address, TOPIC, queues=1)
        fill(running)
        yield running
        running.stop()


def fill(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address) as talker:
        for _ in range(MESSAGES):
            assert talker.call(send_request(TOPIC, 0, bytes(BODY))).code == ResponseCode.SUCCESS
        wait_until(
            lambda: talker.call(max_offset_request(TOPIC, 0)).ext_fields == {"offset": str(MESSAGES)},
            DEADLINE_S,
            "the messages are readable",
        )


@contextlib.contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 1000:
        pytest.skip(f"no {count} connections with {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ask_again(crowd: list[socket.socket], ask: bytes) -> None:
    """What the kernel takes of answers grows with time: those that it took in the end leave nothing with the broker."""
    for connection in crowd:
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            connection.send(ask, socket.MSG_DONTWAIT)


def deaf(address: str, asks: bytes) -> socket.socket:
    """A connection that has asked, and will not read."""
    host, _, port = address.rpartition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
    connection.settimeout(DEADLINE_S)
    connection.connect((host, int(port)))
    connection.sendall(asks)
    return connection


class Watch:
    """How much the send worker has grown, and how long a bystander waits, at most."""

    def __init__(self, broker: MqcoreBroker) -> None:
        self._worker = find_worker(broker, "send")
        self._before = self._worker.memory_info().rss
        self.talker = Talker(broker.broker_address)
        self.grown, self.buffered, self.waited_s = 0, 0, 0.0
        self._segment = attach_segment(broker)
        rows = range(WORKER_CAPACITY)
        (self._row,) = [row for row in rows if self._segment.worker_word(row, "pid") == self._worker.pid]

    def look(self) -> None:
        began = time.monotonic()
        assert self.talker.call(send_request(TOPIC, 0, b"x"), DEADLINE_S).code == ResponseCode.SUCCESS
        self.waited_s = max(self.waited_s, time.monotonic() - began)
        self.buffered = max(self.buffered, self._segment.worker_word(self._row, "buffered"))
        self.grown = max(self.grown, self._worker.memory_info().rss - self._before)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_who_never_reads_costs_no_more_than_the_budget(broker: MqcoreBroker, count: int) -> None:
    ask = pull_request(TOPIC, 0, 0, count=32).encode()
    asks = ask * PULLS[count]
    allowed = min(WRITE_BUDGET_BYTES, count * (WRITE_BUFFER + 4096)) + ROOM
    assert count * PULLS[count] * ANSWER > 2 * allowed, "or nothing would have to be kept small"
    watch = Watch(broker)
    with many_descriptors(count), contextlib.ExitStack() as stack:
        stack.enter_context(watch.talker)
        crowd = []
        for number in range(count):
            crowd.append(stack.enter_context(deaf(broker.broker_address, asks)))
            if number % 50 == 0:
                watch.look()
        wait_until(
            lambda: ask_again(crowd, ask) or watch.look() or watch.buffered > count * 1024,
            DEADLINE_S,
            "answers are left with the broker",
        )
        for _ in range(50):
            watch.look()
            time.sleep(0.02)
        print(f"{count} connections: grown {watch.grown / MIB:.0f} MiB of {allowed / MIB:.0f}, "
              f"{watch.buffered / MIB:.0f} MiB in buffers, "
              f"a bystander waited {watch.waited_s * 1000:.0f} ms at most")  # fmt: skip
        assert watch.buffered < min(WRITE_BUDGET_BYTES, count * (WRITE_BUFFER + 4096)) + READ_SIZE
        assert watch.grown < allowed
        assert watch.waited_s < SERVED_S
    with Talker(broker.broker_address) as talker:
        assert talker.call(send_request(TOPIC, 0, b"x")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_a_limit_of_connections_holds_against_a_crowd(broker: MqcoreBroker, count: int) -> None:
    limit = count // 5
    body = f"connectionsMax={limit}\n".encode()
    assert wire.call(broker.broker_address, 25, body=body).code == wire.SUCCESS
    with many_descriptors(count), Talker(broker.broker_address) as inside, contextlib.ExitStack() as stack:
        assert inside.call(send_request(TOPIC, 0, b"x")).code == ResponseCode.SUCCESS
        crowd = []
        for _ in range(count):
            with contextlib.suppress(OSError):
                crowd.append(stack.enter_context(deaf(broker.broker_address, b"\0")))
        wait_until(lambda: sum(map(is_open, crowd)) < limit, DEADLINE_S, "the others are closed")
        assert sum(map(is_open, crowd)) >= limit * 0.9
        assert inside.call(send_request(TOPIC, 0, b"x")).code == ResponseCode.SUCCESS


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False
