"""The broker process's own appends, and its event loop, while somebody else has the put lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from fast_rig import Mortals, RawSegment, mortals, shared_segment

from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.ports import InnerMessage, PutStatus
from mqcore.broker.segment.shared_ports import SharedSink
from mqcore.config import load
from mqcore.protocol.message_id import HostAddress
from tests.waiting import wait_until

HELD_S = 0.6
STOP_MAX_S = 0.2
MESSAGES = 3


@pytest.fixture
def children() -> Iterator[Mortals]:
    with mortals() as found:
        yield found


def denied_s() -> float:
    """How long the threads of this process have waited for a processor so far, which is no waiting of theirs."""
    waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            waited += int(path.read_text().split()[1])
    return waited / 1e9


async def longest_stop_s(work: Awaitable[object]) -> float:
    """Await *work*, and return how long the event loop did nothing else at most, though processors were free."""
    longest = 0.0
    task = asyncio.ensure_future(work)
    while not task.done():
        before, denied = time.monotonic(), denied_s()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - before - max(0.0, denied_s() - denied))
    await task
    return longest


async def test_the_event_loop_goes_on_while_an_append_waits_for_the_put_lock(tmp_path: Path, children: Mortals) -> None:
    settings = load(
        overrides={
            "bindAddress": "127.0.0.1", "storePathRootDir": str(tmp_path), "mappedFileSizeCommitLog": str(1 << 20),
            "osPageCacheBusyTimeOutMills": "30000",
        },
        environment={},
    )  # fmt: skip
    host = HostAddress("127.0.0.1", 10911)
    with shared_segment() as segment:
        (tmp_path / "commitlog").mkdir()
        sink = SharedSink(settings, segment, host)
        children.begin(segment, "keep_put_lock")
        board = RawSegment(segment.fd).board
        wait_until(lambda: board["locked_since"] != 0, describe="the child has the put lock")
        (pid,) = children.pids()
        asyncio.get_running_loop().call_later(HELD_S, os.kill, pid, signal.SIGKILL)
        messages = [InnerMessage("T", 0, b"%d" % number, 1, host, host) for number in range(MESSAGES)]
        began = time.monotonic()
        puts = asyncio.gather(*(sink.put(message) for message in messages))
        assert await longest_stop_s(puts) < STOP_MAX_S
        assert time.monotonic() - began >= HELD_S
        assert [result.status for result in puts.result()] == [PutStatus.PUT_OK] * MESSAGES
        assert sorted(result.queue_offset for result in puts.result()) == list(range(MESSAGES))
        assert children.finish() == [-9]
        sink.close()


# Waiting for disk and slaves -------------------------------------------------------------------------------------

STORED = 1 << 40


def sink_of(directory: Path, segment: SharedSegment, **overrides: str) -> SharedSink:
    (directory / "commitlog").mkdir()
    given = {
        "bindAddress": "127.0.0.1", "storePathRootDir": str(directory), "mappedFileSizeCommitLog": str(1 << 20),
        "brokerRole": "SYNC_MASTER", "syncFlushTimeout": "1", "slaveTimeout": "1",
    }  # fmt: skip
    return SharedSink(load(overrides=given | overrides, environment={}), segment, HostAddress("127.0.0.1", 10911))


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize(
    ("has_slave", "is_copied", "status"),
    [
        (True, True, PutStatus.PUT_OK),
        (True, False, PutStatus.FLUSH_SLAVE_TIMEOUT),
        (False, False, PutStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_what_is_said_of_slaves_goes_before_what_is_said_of_the_disk(
    tmp_path: Path, flush: str, has_slave: bool, is_copied: bool, status: PutStatus
) -> None:
    host = HostAddress("127.0.0.1", 10911)
    with shared_segment() as segment, contextlib.closing(sink_of(tmp_path, segment, flushDiskType=flush)) as sink:
        segment.set("slave_count", int(has_slave))
        segment.set("replicated_offset", STORED * is_copied)
        result = await sink.put(InnerMessage("T", 0, b"x", 1, host, host))
        if status is PutStatus.PUT_OK and flush == "SYNC_FLUSH":
            status = PutStatus.FLUSH_DISK_TIMEOUT
        assert (result.status, result.is_stored) == (status, True)
        result = await sink.put(InnerMessage("T", 0, b"x", 1, host, host, wait_store_ok=False))
        assert result.status is PutStatus.PUT_OK


async def test_a_put_waits_until_a_slave_has_it(tmp_path: Path) -> None:
    host = HostAddress("127.0.0.1", 10911)
    with (
        shared_segment() as segment,
        contextlib.closing(sink_of(tmp_path, segment, slaveTimeout="60000")) as sink,
    ):
        segment.set("slave_count", 1)
        asyncio.get_running_loop().add_reader(sink.wake, sink.on_wake)
        put = asyncio.ensure_future(sink.put(InnerMessage("T", 0, b"x", 1, host, host)))
        while not segment.worker_word(0, "sleeping"):
            await asyncio.sleep(0)
        assert not put.done()
        segment.set("replicated_offset", STORED)
        os.eventfd_write(sink.wake, 1)
        assert (await put).status is PutStatus.PUT_OK
        assert segment.worker_word(0, "sleeping") == 0
        asyncio.get_running_loop().remove_reader(sink.wake)


async def test_no_put_waits_for_slaves_that_lag_too_far(tmp_path: Path) -> None:
    host = HostAddress("127.0.0.1", 10911)
    with (
        shared_segment() as segment,
        contextlib.closing(sink_of(tmp_path, segment, slaveTimeout="60000", haSlaveFallbehindMax="100")) as sink,
    ):
        segment.set("slave_count", 1)
        result = await sink.put(InnerMessage("T", 0, bytes(1000), 1, host, host))
        assert result.status is PutStatus.SLAVE_NOT_AVAILABLE
