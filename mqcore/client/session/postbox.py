"""Many small notes from other threads to an event loop, for one wake-up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from mqcore.client.session import forks
from mqcore.client.session.loop_thread import LoopThread

T = TypeVar("T")


class Postbox(Generic[T]):
    """Gives the loop what was put in, in order; *deliver* gets all that came while the loop had not yet looked.

    Nothing waits for more to come: the first item wakes the loop, as ``LoopThread.post`` would, and the items that are
    put in before it runs go along. What is put in is delivered before anything that the same thread posts later.
    """

    def __init__(self, thread: LoopThread, deliver: Callable[[list[T]], object]) -> None:
        self._thread = thread
        self._deliver = deliver
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._is_called = False
        forks.watch(self)

    def put(self, item: T) -> None:
        """Add *item*; raises what ``LoopThread.post`` raises when there is no loop any more."""
        # Without the lock a thread could rely on a call that another one is only about to make.
        with self._lock:
            self._items.append(item)
            if not self._is_called:
                self._thread.post(self._empty)
                self._is_called = True

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child: a lock that somebody held is made anew, and a call that was made is the parent's."""
        self._lock = threading.Lock()
        self._is_called = False

    def _empty(self) -> None:
        with self._lock:
            self._is_called = False
            taken, self._items = self._items, deque()
        self._deliver(list(taken))
