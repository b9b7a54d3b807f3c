"""Waiting for files and sockets."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator

import pytest

from mqcore.readiness import WRITABLE, wait_ready


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(3)]
    yield made
    for pair in made:
        for one in pair:
            one.close()


def test_those_that_can_be_read_are_given_in_their_order(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    pairs[2][1].send(b"x")
    pairs[0][1].close()
    near = [pair[0] for pair in pairs]
    assert wait_ready(near, 5) == [near[0], near[2]]
    assert wait_ready([near[2].fileno()], 5) == [near[2].fileno()]


def test_nothing_is_ready_after_the_time(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    began = time.monotonic()
    assert wait_ready([pairs[0][0]], 0.0301) == []
    assert time.monotonic() - began >= 0.03
    assert wait_ready([pairs[0][0]], 0) == []


def test_what_can_be_written_is_another_question(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    assert wait_ready([pairs[0][0]], 5, WRITABLE) == [pairs[0][0]]


def test_descriptors_from_1024_on_are_waited_for(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    high = fcntl.fcntl(pairs[0][0], fcntl.F_DUPFD_CLOEXEC, 1024)
    try:
        assert wait_ready([high], 0) == []
        pairs[0][1].send(b"x")
        assert wait_ready([high], 5) == [high]
    finally:
        os.close(high)


def test_a_closed_file_is_told_by_name(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    pairs[0][0].close()
    with pytest.raises(ValueError, match="the file is closed"):
        wait_ready([pairs[0][0]], 0)
