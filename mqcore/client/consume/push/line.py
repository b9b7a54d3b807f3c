"""What threads take from to call plain handlers, and what came of the calls; the fast twin is mqcore._fast.client.line.

What one pull has brought stands in line as one stretch. A thread takes the next of its messages by moving a number, and
notes there that they are done, so that a message that a fast handler is done with costs no object of ours. The event
loop collects what is done, of many messages at once when they come fast. Whatever else comes of a call (failures, other
outcomes than that all is done) goes its way by itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from mqcore import clock
from mqcore.client.errors import ClientStateError
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.outcome import Done
from mqcore.client.model.process_queue import ProcessQueue
from mqcore.client.session.inside import CALL, HandlerCall, HasHub

MS: Final = 1000.0

Collected = tuple["HandlerStretch", list[ReceivedMessage], list[float], int]
"""A stretch, its messages that are done since it was collected last, the ms of each call for them, and how many were
passed over, as their queue has been given up."""


class HandlerStretch:
    """Messages of *held* in line, in order. Those before *taken* have been handed out, *back* of them given back.

    With *is_odd* what comes of each call for them is told by itself. Whoever collects counts *back*, in the event loop.
    """

    __slots__ = ("back", "count", "done", "held", "is_noted", "is_odd", "messages", "passed", "taken", "times_ms")

    def __init__(
        self, held: ProcessQueue[ReceivedMessage], messages: Sequence[ReceivedMessage], *, is_odd: bool = False
    ) -> None:
        self.held = held
        self.messages = messages
        self.is_odd = is_odd
        self.count = len(messages)
        self.taken = self.back = self.passed = 0
        self.done: list[ReceivedMessage] = []
        self.times_ms: list[float] = []
        self.is_noted = False

    @property
    def in_hand(self) -> int:
        return self.taken - self.back


class HandlerLine:
    """Calls *function* for what is put in, in order, in threads, with at most *limit* calls under way at once.

    It takes one message with a *size* of 0, else a list of so many at most. *start* has a thread run what it is given,
    and raises RuntimeError if there is none. *tell* is called when there is something to collect, once until that has
    happened. *other* is told of what is more than done: the stretch, the messages, what the handler returned, the
    exception or None, and the ms it took. Any thread may call the methods, ``collect`` one at a time.
    """

    def __init__(
        self,
        function: Callable[[Any], object],
        size: int,
        limit: int,
        membership: HasHub,
        *,
        start: Callable[[Callable[[], None]], object],
        tell: Callable[[], object],
        other: Callable[[HandlerStretch, list[ReceivedMessage], object, BaseException | None, float], object],
        failed: Callable[[Exception], object],
    ) -> None:
        self._function = function
        self._size = size
        self._limit = limit
        self._membership = membership
        self._start_thread = start
        self._tell = tell
        self._other = other
        self._failed = failed
        self._line: deque[HandlerStretch] = deque()
        self._alive = 0
        self._is_starting = False  # a thread is alive that has not taken anything yet
        self._is_halted = False
        self._is_told = False
        self._noted: list[HandlerStretch] = []
        self._lock = threading.Lock()

    @property
    def alive(self) -> int:
        """How many threads live."""
        return self._alive

    def put(self, stretch: HandlerStretch) -> None:
        """Put *stretch* in line. Raises RuntimeError when it waits there and no thread can be started for it."""
        with self._lock:
            if not self._is_halted:
                self._line.append(stretch)
                self._see_to_start()

    def start(self) -> None:
        """See to it that what waits is taken, as ``put`` does."""
        with self._lock:
            self._see_to_start()

    def set_limit(self, limit: int) -> None:
        """Let *limit* calls run at once from now on. Those under way end as they would have."""
        with self._lock:
            self._limit = limit
            self._see_to_start()

    def halt(self) -> int:
        """Take nothing more, and return how many messages nobody has taken; calls under way go on."""
        with self._lock:
            self._is_halted = True
            left = sum(stretch.count - stretch.taken for stretch in self._line)
            self._line.clear()
        return left

    def after_fork(self) -> None:
        """In a forked child: a lock that somebody held is made anew, and what stands in line is the parent's."""
        self._lock = threading.Lock()
        self._line.clear()

    def collect(self) -> list[Collected]:
        """Return what is done since the last time."""
        with self._lock:
            self._is_told = False
            noted, self._noted = self._noted, []
            found: list[Collected] = []
            for stretch in noted:
                found.append((stretch, stretch.done, stretch.times_ms, stretch.passed))
                stretch.is_noted = False
                stretch.done, stretch.times_ms, stretch.passed = [], [], 0
        return found

    def _see_to_start(self) -> None:
        # One at a time: it sees to the next when it takes something. So fast work is mostly done by one thread, while
        # one that waits for something lets the next begin.
        if self._first() is None or self._is_starting or self._alive >= self._limit:
            return
        self._is_starting = True
        self._alive += 1
        try:
            self._start_thread(self._live)
        except RuntimeError:
            self._is_starting = False
            self._alive -= 1
            if not self._alive:
                raise  # else those that live take what there is

    def _first(self) -> HandlerStretch | None:
        while self._line and self._line[0].taken == self._line[0].count:
            self._line.popleft()
        return self._line[0] if self._line else None

    def _live(self) -> None:
        is_first = True
        while (found := self._take(is_first)) is not None:
            is_first = False
            stretch, messages = found
            try:
                if stretch.held.dropped:
                    self._note(stretch, (), 0.0, passed=len(messages))
                else:
                    self._call(stretch, messages)
            except ClientStateError:  # the loop has ended, and nobody wants to know
                self.halt()
            except Exception as error:  # a thread that ended here would be counted for ever
                self._failed(error)

    def _take(self, is_first: bool) -> tuple[HandlerStretch, list[ReceivedMessage]] | None:
        """Return the next messages for a thread that lives; None when the thread is to end."""
        with self._lock:
            if is_first:
                self._is_starting = False
            stretch = self._first()
            if stretch is None or self._alive > self._limit:
                self._alive -= 1
                return None
            begin = stretch.taken
            stretch.taken = min(begin + max(self._size, 1), stretch.count)
            self._see_to_start()
            return stretch, list(stretch.messages[begin : stretch.taken])

    def _call(self, stretch: HandlerStretch, messages: list[ReceivedMessage]) -> None:
        started_s = clock.now_s()
        for message in messages:
            message.consume_started_s = started_s
        call = HandlerCall(self._membership)
        before = CALL.set(call)
        begin_s, result, raised = clock.monotonic_s(), None, None
        try:
            result = self._function(messages if self._size else messages[0])
        except BaseException as error:  # SystemExit too: a handler does not end the program's other threads
            raised = error
        finally:
            call.is_over = True
            CALL.reset(before)
        time_ms = (clock.monotonic_s() - begin_s) * MS
        if raised is None and not stretch.is_odd and not isinstance(result, Done):
            self._note(stretch, messages, time_ms)
        else:
            self._other(stretch, messages, result, raised, time_ms)

    def _note(self, stretch: HandlerStretch, done: Sequence[ReceivedMessage], time_ms: float, passed: int = 0) -> None:
        with self._lock:
            stretch.done.extend(done)
            if done:
                stretch.times_ms.append(time_ms)
            stretch.passed += passed
            if not stretch.is_noted:
                stretch.is_noted = True
                self._noted.append(stretch)
            if not self._is_told:
                self._tell()
                self._is_told = True
