"""Notes from threads to a loop: none is lost, all are in order, and many wake the loop once."""

from __future__ import annotations

import threading

import pytest

from mqcore.client.errors import ClientClosedError
from mqcore.client.session.loop_thread import LoopThread
from mqcore.client.session.postbox import Postbox

COUNT = 5000
THREADS = 4


async def nothing() -> None:
    """Be a call that comes after everything that was posted."""


def test_what_waits_is_delivered_together_before_a_later_call() -> None:
    thread = LoopThread()
    delivered: list[list[int]] = []
    box: Postbox[int] = Postbox(thread, delivered.append)
    is_busy, go_on = threading.Event(), threading.Event()

    def work() -> None:
        is_busy.set()
        assert go_on.wait(60)

    try:
        thread.post(work)
        assert is_busy.wait(60)
        for number in range(COUNT):
            box.put(number)
        go_on.set()
        thread.call(nothing())
        assert delivered == [list(range(COUNT))]
        box.put(-1)
        thread.call(nothing())
        assert delivered[1:] == [[-1]]
    finally:
        go_on.set()
        thread.stop()


def test_nothing_that_several_threads_put_in_is_lost_or_late() -> None:
    thread = LoopThread()
    delivered: list[tuple[int, int]] = []
    box: Postbox[tuple[int, int]] = Postbox(thread, delivered.extend)
    seen: list[int] = []

    def put(name: int) -> None:
        for number in range(COUNT):
            box.put((name, number))
        thread.call(nothing())
        seen.append(sum(1 for who, _ in list(delivered) if who == name))

    try:
        writers = [threading.Thread(target=put, args=(name,)) for name in range(THREADS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
        assert seen == [COUNT] * THREADS
        for name in range(THREADS):
            assert [number for who, number in delivered if who == name] == list(range(COUNT))
    finally:
        thread.stop()


def test_a_closed_client_says_so_each_time() -> None:
    thread = LoopThread()
    box: Postbox[int] = Postbox(thread, lambda items: None)
    box.put(1)
    thread.call(nothing())
    thread.stop()
    for _ in range(2):
        with pytest.raises(ClientClosedError):
            box.put(2)
