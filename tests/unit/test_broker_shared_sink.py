"""The broker process's own appends, and its event loop, while somebody else has the put lock."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from fast_rig import Mortals, RawSegment, mortals, shared_segment

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


async def longest_stop_s(work: Awaitable[object]) -> float:
    """Await *work*, and return how long the event loop did nothing else at most."""
    longest = 0.0
    task = asyncio.ensure_future(work)
    while not task.done():
        before = time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - before)
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
