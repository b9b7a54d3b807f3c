"""The broker process's end of a link: what is written in a turn of the event loop leaves together, in order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from mqcore import layout
from mqcore.broker import links
from mqcore.broker.links import WorkerLink

HEAD = layout.LINK_HEAD
DEADLINE_S = 30.0


def message(kind: int, connection_id: int, payload: bytes) -> bytes:
    return HEAD.struct.pack(len(payload), kind, connection_id) + payload


@pytest.fixture
async def pair() -> AsyncIterator[tuple[WorkerLink, socket.socket]]:
    """A link, and the worker's end of it: each of its reads gives what was sent in one go."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.setblocking(False)
    link = await WorkerLink.open("send-0", ours, lambda *_: None, lambda _: None)
    yield link, theirs
    link.close()
    theirs.close()


async def read(end: socket.socket) -> bytes:
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.get_running_loop().sock_recv(end, 1 << 20)


async def test_messages_of_a_turn_leave_together_and_in_order(pair: tuple[WorkerLink, socket.socket]) -> None:
    link, end = pair
    for number in range(5):
        assert link.write(3, number, b"%d" % number)
    with pytest.raises(BlockingIOError):
        end.recv(1)  # the turn is not over
    assert await read(end) == b"".join(message(3, number, b"%d" % number) for number in range(5))
    assert link.write(4, 9, b"")
    assert await read(end) == message(4, 9, b"")


async def test_what_was_written_is_sent_before_a_link_is_closed(pair: tuple[WorkerLink, socket.socket]) -> None:
    link, end = pair
    assert link.write(1, 2, b"last")
    link.close()
    assert not link.write(1, 2, b"too late")
    assert await read(end) == message(1, 2, b"last")
    assert await read(end) == b""


async def test_a_worker_that_does_not_read_is_not_written_to_without_end(
    pair: tuple[WorkerLink, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    link, _ = pair
    monkeypatch.setattr(links, "WRITE_BUFFER_MAX", 1000)
    # Also within a turn, before anything is handed to the transport.
    taken = [link.write(1, 1, bytes(300)) for _ in range(10)]
    assert taken == [True] * 4 + [False] * 6


async def test_a_link_whose_worker_is_gone_refuses(pair: tuple[WorkerLink, socket.socket]) -> None:
    link, end = pair
    end.close()
    async with asyncio.timeout(DEADLINE_S):
        while link.is_open:
            await asyncio.sleep(0)
    assert not link.write(1, 1, b"nobody")
