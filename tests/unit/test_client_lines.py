"""The connections that sends keep: each is in one hand at a time, and none is forgotten, though no lock guards them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from mqcore.client.produce.blocking import KEPT_IDLE_S, SOCKETS_MAX, TIDY_EVERY_S, Line, Lines
from mqcore.errors import RemotingConnectError
from tests.rigs.certificates import trusting

THREADS = 6
ROUNDS = 3000
DEADLINE_S = 60.0


@pytest.fixture
def address() -> Iterator[str]:
    """Where a listener takes any connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=2 * SOCKETS_MAX) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def taken(lines: Lines, address: str) -> Line:
    line = lines.take(address, time.monotonic() + DEADLINE_S)
    assert line is not None
    return line


def is_closed(line: Line) -> bool:
    return line._socket.fileno() < 0


def test_what_was_put_back_is_taken_again_the_last_used_first(address: str) -> None:
    lines = Lines()
    first, second = taken(lines, address), taken(lines, address)
    assert first is not second
    lines.put_back(address, first)
    lines.put_back(address, second)
    assert [taken(lines, address), taken(lines, address)] == [second, first]
    assert lines.count == 2
    lines.discard(address, first)
    assert (lines.count, is_closed(first)) == (1, True)
    lines.put_back(address, second)
    lines.close()
    assert (lines.count, is_closed(second)) == (0, True)


def test_there_are_no_more_than_the_limit(address: str) -> None:
    lines = Lines()
    held = [taken(lines, address) for _ in range(SOCKETS_MAX)]
    assert lines.take(address, time.monotonic() + DEADLINE_S) is None
    lines.put_back(address, held.pop())
    held.append(taken(lines, address))
    for line in held:
        lines.discard(address, line)
    assert lines.count == 0


def test_what_nobody_has_needed_for_long_is_closed_by_a_later_send(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Lines()
    idle, used = taken(lines, address), taken(lines, address)
    lines.put_back(address, idle)
    now_s = time.monotonic()
    monkeypatch.setattr("mqcore.clock.monotonic_s", lambda: now_s + KEPT_IDLE_S + 2 * TIDY_EVERY_S)
    lines.put_back(address, used)
    assert (lines.count, is_closed(idle), is_closed(used)) == (1, True, False)
    assert taken(lines, address) is used
    lines.discard(address, used)


def test_what_is_in_use_at_the_close_is_closed_when_it_comes_back(address: str) -> None:
    lines = Lines()
    line = taken(lines, address)
    lines.close()
    assert not is_closed(line)
    assert lines.take(address, time.monotonic() + DEADLINE_S) is None
    lines.put_back(address, line)
    assert (lines.count, is_closed(line)) == (0, True)


def test_a_connection_that_fails_leaves_its_place(address: str) -> None:
    lines = Lines()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen: nobody else can on this port
        nobody = f"127.0.0.1:{silent.getsockname()[1]}"
        for _ in range(SOCKETS_MAX + 1):
            with pytest.raises(RemotingConnectError, match=f"connect to {nobody} failed: .*refused"):
                lines.take(nobody, time.monotonic() + DEADLINE_S)
    assert lines.count == 0


def test_a_handshake_that_nobody_answers_takes_the_time_of_the_send_and_no_more(address: str) -> None:
    lines = Lines(trusting())
    begin_s = time.monotonic()
    with pytest.raises(RemotingConnectError, match=r"in the TLS handshake \(does the peer know TLS"):
        lines.take(address, begin_s + 0.2)
    assert 0.2 <= time.monotonic() - begin_s < DEADLINE_S
    assert lines.count == 0


@pytest.mark.parametrize("tidy_every_s", [0.0, TIDY_EVERY_S])
def test_no_line_is_in_two_hands_and_none_is_lost(
    address: str, tidy_every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqcore.client.produce.blocking.TIDY_EVERY_S", tidy_every_s)
    lines = Lines()
    in_hand: set[int] = set()
    twice: list[int] = []

    def work() -> None:
        for _ in range(ROUNDS):
            line = taken(lines, address)
            if id(line) in in_hand:
                twice.append(id(line))
            in_hand.add(id(line))
            in_hand.discard(id(line))
            lines.put_back(address, line)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert twice == []
    assert 1 <= lines.count <= THREADS
    lines.close()
    assert lines.count == 0
