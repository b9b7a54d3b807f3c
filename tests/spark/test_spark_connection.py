"""A link against a peer that sends answers of any size, in pieces of any size."""

from __future__ import annotations

import random
import socket
import threading

import pytest

from mqcore.codes import ResponseCode
from mqcore.errors import FrameError, RemotingSendError
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.link import BUFFER_SIZE, BlockingLink

DEADLINE_S = 60.0
SIZES = (0, 1, BUFFER_SIZE // 3, BUFFER_SIZE - 200, BUFFER_SIZE, 3 * BUFFER_SIZE)


def sent_to_link(stream: bytes, pieces: random.Random) -> tuple[BlockingLink, threading.Thread]:
    """Return a link whose peer sends *stream* and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def peer() -> None:
        with listener, listener.accept()[0] as accepted:
            at = 0
            while at < len(stream):
                size = pieces.choice((1, 3, 4096, BUFFER_SIZE, 2 * BUFFER_SIZE))
                accepted.sendall(stream[at : at + size])
                at += size

    thread = threading.Thread(target=peer)
    thread.start()
    return BlockingLink(f"127.0.0.1:{listener.getsockname()[1]}", DEADLINE_S), thread


@pytest.mark.parametrize("_round", range(5))
def test_answers_of_any_size_come_whole_and_in_order(_round: int, chance: random.Random) -> None:
    bodies = [chance.randbytes(chance.choice(SIZES)) for _ in range(25)]
    request = RemotingCommand(ResponseCode.SUCCESS)
    stream = b"".join(request.reply(body=body).encode() for body in bodies)
    link, thread = sent_to_link(stream, chance)
    try:
        assert [link.receive().body for _ in bodies] == bodies
        assert not link.has_answer
        with pytest.raises(RemotingSendError, match="closed the connection"):
            link.receive()
    finally:
        link.close()
        thread.join(DEADLINE_S)


@pytest.mark.parametrize("length", [-1, 0, 1 << 30])
def test_a_bad_frame_length_is_an_error_and_takes_no_memory(length: int, chance: random.Random) -> None:
    link, thread = sent_to_link(length.to_bytes(4, "big", signed=True), chance)
    try:
        with pytest.raises(FrameError, match=f"bad frame length from .*got {length}"):
            link.receive()
    finally:
        link.close()
        thread.join(DEADLINE_S)
