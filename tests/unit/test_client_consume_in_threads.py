"""Threads take messages from one line: in order, so many at once, and none is left lying or handed out after a halt."""

from __future__ import annotations

import contextvars
import gc
import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from types import ModuleType
from typing import Any

import pytest

from mqcore.client.consume.push import line as twin
from mqcore.client.errors import ClientClosedError
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.outcome import Done
from mqcore.client.model.process_queue import ProcessQueue
from mqcore.client.session.handler_threads import HandlerThreads
from mqcore.client.session.inside import CALL, is_inside
from mqcore.extensions import PURE
from mqcore.protocol.message import MessageQueue
from mqcore.testing import message
from tests.waiting import wait_until

if PURE:
    KINDS = [twin]
else:
    from mqcore._fast.client import line as fast

    KINDS = [twin, fast]

DEADLINE_S = 60.0
COUNT = 2000
QUEUE = MessageQueue("T", "a", 0)


class Member:
    """Stands for the membership that handlers' calls are known by."""

    hub = object()


def messages(numbers: Sequence[int]) -> list[ReceivedMessage]:
    return [message(b"", topic="T", queue_offset=number) for number in numbers]


def offsets(found: Sequence[ReceivedMessage]) -> list[int]:
    return [one.queue_offset for one in found]


class Rig:
    """A line whose handler waits at a gate while it is closed, and what it has done. Collecting is the test's."""

    def __init__(self, kind: ModuleType, limit: int, pool: Executor | None = None, size: int = 0) -> None:
        self.kind = kind
        self.pool = pool or HandlerThreads(100, "mqcore test")
        self.gate = threading.Event()
        self.begun: deque[int] = deque()
        self.sizes: deque[int] = deque()
        self.ended = self.most = 0
        self.lock = threading.Lock()
        self.member = Member()
        self.held: ProcessQueue[ReceivedMessage] = ProcessQueue(QUEUE)
        self.told = 0
        self.others: deque[tuple[list[int], object, BaseException | None]] = deque()
        self.failures: deque[Exception] = deque()
        self.done: list[int] = []
        self.passed = self.times = 0
        self.closed = False
        self.then: Callable[[list[int]], object] = lambda _: None
        self.line = kind.HandlerLine(
            self._work, size, limit, self.member,
            start=self.pool.submit, tell=self._tell, other=self._other, failed=self.failures.append,
        )  # fmt: skip

    def put(self, numbers: Sequence[int], *, is_odd: bool = False) -> Any:
        stretch = self.kind.HandlerStretch(self.held, messages(numbers), is_odd=is_odd)
        self.held.in_line.append(stretch)
        self.line.put(stretch)
        return stretch

    def _tell(self) -> None:
        if self.closed:
            raise ClientClosedError("the client is closed")
        self.told += 1

    def _work(self, taken: ReceivedMessage | list[ReceivedMessage]) -> object:
        numbers = offsets(taken if isinstance(taken, list) else [taken])
        assert is_inside(self.member)
        with self.lock:
            self.begun.extend(numbers)
            self.sizes.append(len(numbers))
            self.most = max(self.most, len(self.begun) - self.ended)
        self.gate.wait(DEADLINE_S)
        with self.lock:
            self.ended += len(numbers)
        return self.then(numbers)

    def _other(
        self, _: object, found: list[ReceivedMessage], result: object, error: BaseException | None, time_ms: float
    ) -> None:
        assert time_ms >= 0
        self.others.append((offsets(found), result, error))

    def collect(self) -> None:
        for stretch, done, times_ms, passed in self.line.collect():
            self.done.extend(offsets(done))
            assert all(time_ms >= 0 for time_ms in times_ms)
            self.times += len(times_ms)
            self.passed += passed
            self.held.hand_back_in_line(stretch, len(done) + passed)

    def await_begun(self, count: int) -> None:
        wait_until(lambda: len(self.begun) == count, DEADLINE_S, f"{count} calls have begun")

    def await_done(self, count: int) -> None:
        def is_done() -> bool:
            self.collect()
            return len(self.done) == count

        wait_until(is_done, DEADLINE_S, f"{count} are done")


NewRig = Callable[..., Rig]


@pytest.fixture(params=KINDS, ids=lambda kind: "twin" if kind is twin else "fast")
def new_rig(request: pytest.FixtureRequest) -> Iterator[NewRig]:
    rigs: list[Rig] = []

    def make(*arguments: Any, **options: Any) -> Rig:
        rigs.append(Rig(request.param, *arguments, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.gate.set()
        rig.line.halt()
        rig.pool.shutdown(cancel_futures=True)
        assert list(rig.failures) == []


@pytest.mark.parametrize("limit", [1, 3, 20])
def test_all_messages_are_worked_on_once_and_collected(new_rig: NewRig, limit: int) -> None:
    rig = new_rig(limit)
    rig.gate.set()
    for first in range(0, COUNT, 50):
        rig.put(range(first, first + 50))
    rig.await_done(COUNT)
    assert sorted(rig.done) == sorted(rig.begun) == list(range(COUNT))
    assert rig.times == COUNT
    if limit == 1:
        assert list(rig.begun) == rig.done == list(range(COUNT))
    assert (rig.held.in_hand, rig.held.in_line, list(rig.others)) == (0, [], [])


def test_a_handler_of_lists_gets_so_many_of_one_pull(new_rig: NewRig) -> None:
    rig = new_rig(1, size=4)
    rig.gate.set()
    rig.put(range(10))
    rig.put(range(10, 12))
    rig.await_done(12)
    assert list(rig.sizes) == [4, 4, 2, 2]
    assert (rig.done, rig.times) == (list(range(12)), 4)


def test_as_many_as_the_limit_says_are_under_way_in_the_order_of_the_line(new_rig: NewRig) -> None:
    rig = new_rig(4)
    rig.put(range(3))
    rig.put(range(3, 10))
    rig.await_begun(4)
    assert sorted(rig.begun) == [0, 1, 2, 3]
    assert rig.held.in_hand == 4
    rig.gate.set()
    rig.await_done(10)
    assert rig.most == 4


def test_the_limit_may_rise_and_fall(new_rig: NewRig) -> None:
    rig = new_rig(2)
    rig.put(range(6))
    rig.await_begun(2)
    rig.line.set_limit(5)
    rig.await_begun(5)
    rig.line.set_limit(1)
    rig.gate.set()
    rig.await_done(6)
    wait_until(lambda: rig.line.alive <= 1, DEADLINE_S, "the others have ended")
    rig.gate.clear()
    rig.put(range(6, 9))
    rig.await_begun(7)
    assert rig.line.halt() == 2


def test_after_a_halt_nothing_is_taken(new_rig: NewRig) -> None:
    rig = new_rig(2)
    rig.put(range(10))
    rig.await_begun(2)
    assert rig.line.halt() == 8
    assert rig.line.halt() == 0
    rig.put([10])
    rig.gate.set()
    rig.await_done(2)
    wait_until(lambda: rig.line.alive == 0, DEADLINE_S, "the threads have ended")
    assert sorted(rig.begun) == [0, 1]
    assert rig.held.in_hand == 0


def test_threads_end_when_the_line_is_empty_and_begin_again(new_rig: NewRig) -> None:
    rig = new_rig(3)
    rig.gate.set()
    for first in range(200):
        rig.put([first])
        rig.await_done(first + 1)


def test_messages_that_come_just_when_a_thread_ends_are_not_left_lying(new_rig: NewRig) -> None:
    rig = new_rig(2)
    rig.gate.set()
    for number in range(COUNT):  # without waiting: each finds the threads in another state
        rig.put([number])
        if number % 7 == 0:
            time.sleep(0)
    rig.await_done(COUNT)


class Finalized:
    """Garbage that runs Python code when it is collected, so another thread may go on in the middle of anything."""

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def threads_change_all_the_time() -> Iterator[None]:
    interval_s, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(3, 2, 2)
    yield
    sys.setswitchinterval(interval_s)
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("threads_change_all_the_time")
def test_each_message_is_done_once_wherever_threads_change(new_rig: NewRig) -> None:
    rig = new_rig(6)
    rig.gate.set()

    def answer(numbers: list[int]) -> object:
        Finalized()
        return Done(0) if numbers[0] % 11 == 0 else None

    rig.then = answer
    for first in range(0, COUNT, 5):
        rig.put(range(first, first + 5))
        rig.collect()
        if first % 500 == 0:
            rig.line.set_limit(1 + first // 500 % 6)
    odd = list(range(0, COUNT, 11))
    rig.await_done(COUNT - len(odd))
    wait_until(lambda: len(rig.others) == len(odd), DEADLINE_S, "all others are told")
    assert sorted(rig.begun) == list(range(COUNT))
    assert sorted(rig.done + odd) == list(range(COUNT))
    assert sorted(numbers[0] for numbers, _, _ in rig.others) == odd
    assert rig.held.in_hand == len(odd)


def test_it_is_told_once_until_somebody_collects(new_rig: NewRig) -> None:
    rig = new_rig(1)
    rig.gate.set()
    rig.put(range(20))
    wait_until(lambda: rig.line.alive == 0, DEADLINE_S, "the thread has ended")
    assert rig.told == 1
    rig.collect()
    assert rig.done == list(range(20))
    assert rig.line.collect() == []
    rig.put([20])
    wait_until(lambda: rig.told == 2, DEADLINE_S, "it is told again")


def test_what_is_more_than_done_is_told_by_itself(new_rig: NewRig) -> None:
    rig = new_rig(1)
    rig.gate.set()
    failure, partly, nothing = ValueError("bad"), Done(0), "anything"
    answers = {1: failure, 2: partly, 3: nothing, 4: SystemExit(3)}

    def answer(numbers: list[int]) -> object:
        found = answers.get(numbers[0])
        if isinstance(found, BaseException):
            raise found
        return found

    rig.then = answer
    rig.put(range(6))
    rig.await_done(3)
    assert rig.done == [0, 3, 5]
    assert list(rig.others) == [([1], None, failure), ([2], partly, None), ([4], None, answers[4])]
    assert rig.held.in_hand == 3, "who hears of them gives them back"


def test_each_message_of_an_odd_stretch_is_told_by_itself(new_rig: NewRig) -> None:
    rig = new_rig(1)
    rig.gate.set()
    rig.put(range(3), is_odd=True)
    wait_until(lambda: len(rig.others) == 3, DEADLINE_S, "all are told")
    assert list(rig.others) == [([number], None, None) for number in range(3)]
    assert rig.line.collect() == []


def test_a_queue_that_was_given_up_is_passed_over(new_rig: NewRig) -> None:
    rig = new_rig(1)
    rig.put(range(5))
    rig.await_begun(1)
    rig.held.dropped = True
    rig.gate.set()
    rig.await_done(1)

    def are_passed() -> bool:
        rig.collect()
        return rig.passed == 4

    wait_until(are_passed, DEADLINE_S, "the others are passed over")
    assert (list(rig.begun), rig.held.in_hand, rig.held.in_line) == ([0], 0, [])


def test_messages_say_since_when_they_are_worked_on(new_rig: NewRig) -> None:
    rig = new_rig(1)
    rig.gate.set()
    (one,) = messages([7])
    before_s = time.time()
    rig.line.put(rig.kind.HandlerStretch(rig.held, [one]))
    wait_until(lambda: rig.line.alive == 0, DEADLINE_S, "the thread has ended")
    assert before_s - 1 <= one.consume_started_s <= time.time() + 1


def test_what_a_call_leaves_behind_is_outside_of_later_calls(new_rig: NewRig) -> None:
    rig = new_rig(1)
    rig.gate.set()
    left: list[contextvars.Context] = []
    rig.then = lambda _: left.append(contextvars.copy_context())
    rig.put(range(3))
    rig.await_done(3)
    calls = [context[CALL] for context in left]
    assert len(set(map(id, calls))) == 3
    assert all(call.is_over for call in calls)
    assert [context.run(is_inside, rig.member) for context in left] == [False] * 3


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


def test_without_a_thread_messages_wait_and_the_caller_is_told(new_rig: NewRig) -> None:
    rig = new_rig(3, StubbornPool(3))
    rig.gate.set()
    for number in range(2):
        with pytest.raises(RuntimeError, match="can't start new thread"):
            rig.put([number])
    with pytest.raises(RuntimeError, match="can't start new thread"):
        rig.line.start()
    rig.line.start()
    rig.await_done(2)


def test_one_thread_does_the_work_of_those_that_cannot_be_started(new_rig: NewRig) -> None:
    pool = StubbornPool(0)
    rig = new_rig(3, pool)
    rig.put([0])
    rig.await_begun(1)
    pool.refusals = 1000
    rig.put(range(1, 10))
    rig.gate.set()
    rig.await_done(10)


def test_threads_end_when_nobody_collects_any_more(new_rig: NewRig) -> None:
    rig = new_rig(1)
    rig.closed = True
    rig.gate.set()
    rig.put(range(5))
    wait_until(lambda: rig.begun and not rig.line.alive, DEADLINE_S, "the thread has ended")
    assert list(rig.begun) == [0]


def test_a_fault_while_something_is_told_costs_no_thread(new_rig: NewRig) -> None:
    rig = new_rig(1)
    rig.gate.set()
    fault = LookupError("a fault of ours")
    rig.then = lambda numbers: Done(0) if numbers == [1] else None
    plain = rig._other
    calls = itertools.count()

    def other(*arguments: Any) -> None:
        if next(calls) == 0:
            raise fault
        plain(*arguments)

    rig.line = rig.kind.HandlerLine(
        rig._work, 0, 1, rig.member, start=rig.pool.submit, tell=rig._tell, other=other, failed=rig.failures.append
    )
    rig.put(range(3))
    rig.await_done(2)
    assert list(rig.failures) == [fault]
    rig.failures.clear()


def test_a_thread_that_could_not_be_started_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = HandlerThreads(1, "mqcore test of starts")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda _self: (_ for _ in ()).throw(RuntimeError("no thread")))
        with pytest.raises(RuntimeError, match="no thread"):
            pool.submit(divmod, 7, 2)
    assert pool.submit(divmod, 7, 2).result(DEADLINE_S) == (3, 1)
    pool.shutdown(cancel_futures=True)
