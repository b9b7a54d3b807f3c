"""The loop's thread ends, and with it every wait of other threads: each has its result, or hears that it is over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import pytest

from mqcore.client.errors import ClientClosedError
from mqcore.client.plain.calls import PlainFace, until_closed
from mqcore.client.session.loop_thread import LoopThread

DEADLINE_S = 60.0
THREADS = 8


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.stop()


@pytest.fixture
def callers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


async def answer() -> int:
    return 42


async def nothing() -> None:
    pass


class Endless:
    """A call that never ends by itself."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.was_cancelled = False

    async def __call__(self) -> None:
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


def test_who_waits_hears_that_the_client_was_closed(thread: LoopThread, callers: ThreadPoolExecutor) -> None:
    endless = Endless()
    call = callers.submit(lambda: thread.call(endless()))
    assert endless.has_begun.wait(DEADLINE_S)
    thread.stop()
    with pytest.raises(ClientClosedError, match="closed while this call was under way"):
        call.result(DEADLINE_S)
    assert endless.was_cancelled


class Ended:
    """Something that a program waits for, and that only its client ends."""

    def __init__(self) -> None:
        self.wait = Endless()

    async def wait_closed(self) -> None:
        await self.wait()


class PlainEnded(PlainFace[Ended]):
    wait_closed = until_closed(Ended.wait_closed)


@pytest.mark.parametrize("is_waiting", [True, False], ids=["meanwhile", "before"])
def test_who_waits_for_the_end_is_not_told_that_it_came(
    thread: LoopThread, callers: ThreadPoolExecutor, is_waiting: bool
) -> None:
    face = PlainEnded(thread, ended := Ended())
    if is_waiting:
        waiting = callers.submit(face.wait_closed)
        assert ended.wait.has_begun.wait(DEADLINE_S)
        thread.stop()
    else:
        thread.call(nothing())
        thread.stop()
        waiting = callers.submit(face.wait_closed)
    waiting.result(DEADLINE_S)


def test_what_the_loop_has_not_begun_is_over_too(thread: LoopThread, callers: ThreadPoolExecutor) -> None:
    is_busy, go_on = threading.Event(), threading.Event()

    def work() -> None:
        is_busy.set()
        assert go_on.wait(DEADLINE_S)

    thread.post(work)
    assert is_busy.wait(DEADLINE_S)
    stopping = callers.submit(thread.stop)
    calls = [callers.submit(lambda: thread.call(answer())) for _ in range(THREADS - 1)]
    go_on.set()
    stopping.result(DEADLINE_S)
    assert {outcome_of(call) for call in calls} <= {42, "closed"}


def test_each_of_many_calls_has_an_end_whenever_the_loop_ends(callers: ThreadPoolExecutor) -> None:
    for _ in range(20):
        thread = LoopThread()
        thread.call(nothing())
        go = threading.Barrier(THREADS)
        calls = [callers.submit(call_again_and_again, thread, go.wait) for _ in range(THREADS - 1)]
        go.wait(DEADLINE_S)
        thread.stop()
        assert [outcome_of(call) for call in calls] == ["closed"] * (THREADS - 1)


def call_again_and_again(thread: LoopThread, begin: Callable[[float], object]) -> None:
    begin(DEADLINE_S)
    while True:
        assert thread.call(answer()) == 42


def outcome_of(call: Future[int] | Future[None]) -> object:
    try:
        return call.result(DEADLINE_S)
    except ClientClosedError:
        return "closed"


def test_a_call_that_is_cancelled_by_its_own_work_is_not_taken_for_the_end(thread: LoopThread) -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        thread.call(gives_up())
    assert thread.call(answer()) == 42
