"""Threads take items from one line: in order, so many at once, and none is left lying or handed out after a halt."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from mqcore.client.consume.push.in_threads import ThreadWorkers
from mqcore.client.errors import ClientClosedError
from mqcore.client.session.handler_threads import HandlerThreads
from tests.waiting import wait_until

DEADLINE_S = 60.0
COUNT = 2000


class Rig:
    """Workers whose calls wait at a gate while it is closed, and what they have done."""

    def __init__(self, limit: int, pool: Executor | None = None) -> None:
        self.pool = pool or HandlerThreads(100, "mqcore test")
        self.gate = threading.Event()
        self.begun: deque[int] = deque()
        self.reports: deque[tuple[int, str]] = deque()
        self.ended = self.most = 0
        self.lock = threading.Lock()
        self.taken: deque[int] = deque()
        self.workers: ThreadWorkers[int, str] = ThreadWorkers(
            self.pool, self.taken.append, self._work, self.reports.append, limit
        )

    def _work(self, item: int) -> str:
        with self.lock:
            self.begun.append(item)
            self.most = max(self.most, len(self.begun) - self.ended)
        self.gate.wait(DEADLINE_S)
        with self.lock:
            self.ended += 1
        return f"done {item}"

    def await_begun(self, count: int) -> None:
        wait_until(lambda: len(self.begun) == count, DEADLINE_S, f"{count} calls have begun")

    def await_reports(self, count: int) -> None:
        wait_until(lambda: len(self.reports) == count, DEADLINE_S, f"{count} reports")


@pytest.fixture
def new_rig() -> Iterator[Callable[..., Rig]]:
    rigs: list[Rig] = []

    def make(*arguments: Any) -> Rig:
        rigs.append(Rig(*arguments))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.gate.set()
        rig.workers.halt()
        rig.pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("limit", [1, 3, 20])
def test_all_items_are_worked_on_once_and_reported(new_rig: Callable[..., Rig], limit: int) -> None:
    rig = new_rig(limit)
    rig.gate.set()
    for first in range(0, COUNT, 50):
        rig.workers.put(range(first, first + 50))
    rig.await_reports(COUNT)
    assert list(rig.taken) == list(range(COUNT))
    assert sorted(rig.begun) == list(range(COUNT))
    assert sorted(rig.reports) == sorted((item, f"done {item}") for item in range(COUNT))
    if limit == 1:
        assert list(rig.begun) == list(range(COUNT))


def test_as_many_as_the_limit_says_are_under_way_in_the_order_of_the_line(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(4)
    rig.workers.put(range(10))
    rig.await_begun(4)
    assert sorted(rig.begun) == [0, 1, 2, 3]
    rig.gate.set()
    rig.await_reports(10)
    assert rig.most == 4


def test_the_limit_may_rise_and_fall(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(2)
    rig.workers.put(range(6))
    rig.await_begun(2)
    rig.workers.set_limit(5)
    rig.await_begun(5)
    rig.workers.set_limit(1)
    rig.gate.set()
    rig.await_reports(6)
    rig.gate.clear()
    rig.workers.put(range(6, 9))
    rig.await_begun(7)
    assert rig.workers.halt() == [7, 8]


def test_after_a_halt_nothing_is_taken_and_what_was_left_is_returned(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(2)
    rig.workers.put(range(10))
    rig.await_begun(2)
    assert rig.workers.halt() == list(range(2, 10))
    assert rig.workers.halt() == []
    rig.workers.put([10])
    rig.gate.set()
    rig.await_reports(2)
    assert sorted(rig.begun) == [0, 1]


def test_threads_end_when_the_line_is_empty_and_begin_again(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(3)
    rig.gate.set()
    for first in range(200):
        rig.workers.put([first])
        rig.await_reports(first + 1)


def test_items_that_come_just_when_a_thread_ends_are_not_left_lying(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(2)
    rig.gate.set()
    for item in range(COUNT):  # without waiting: each finds the threads in another state
        rig.workers.put([item])
        if item % 7 == 0:
            time.sleep(0)
    rig.await_reports(COUNT)


class StubbornPool(Executor):
    """A pool that cannot start a thread *refusals* times."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self._pool = HandlerThreads(10, "mqcore test")

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.refusals:
            self.refusals -= 1
            raise RuntimeError("can't start new thread")
        return self._pool.submit(function, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(cancel_futures=cancel_futures)


def test_without_a_thread_items_wait_and_the_caller_is_told(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(3, StubbornPool(2))
    rig.gate.set()
    for item in range(2):
        with pytest.raises(RuntimeError, match="can't start new thread"):
            rig.workers.put([item])
    rig.workers.put([])
    rig.await_reports(2)


def test_one_thread_does_the_work_of_those_that_cannot_be_started(new_rig: Callable[..., Rig]) -> None:
    pool = StubbornPool(0)
    rig = new_rig(3, pool)
    rig.workers.put([0])
    rig.await_begun(1)
    pool.refusals = 1000
    rig.workers.put(range(1, 10))
    rig.gate.set()
    rig.await_reports(10)


def test_threads_end_when_nobody_takes_their_reports() -> None:
    pool = HandlerThreads(10, "mqcore test of reports")
    begun: list[int] = []

    def report(_report: tuple[int, None]) -> None:
        raise ClientClosedError("the client is closed")

    workers: ThreadWorkers[int, None] = ThreadWorkers(pool, lambda _: None, begun.append, report, 1)
    workers.put(range(5))
    wait_until(lambda: bool(begun) and not workers._alive, DEADLINE_S, "the thread has ended")
    assert begun == [0]
    pool.shutdown(cancel_futures=True)


def test_a_thread_that_could_not_be_started_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = HandlerThreads(1, "mqcore test of starts")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda _self: (_ for _ in ()).throw(RuntimeError("no thread")))
        with pytest.raises(RuntimeError, match="no thread"):
            pool.submit(divmod, 7, 2)
    assert pool.submit(divmod, 7, 2).result(DEADLINE_S) == (3, 1)
    pool.shutdown(cancel_futures=True)
