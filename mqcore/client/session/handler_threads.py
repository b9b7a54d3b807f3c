"""Threads for an application's functions: handlers, checks of transactions, callbacks.

They are daemons. A handler that never returns is given up when its consumer has been closed, and must not keep the
process alive after that: with the pool of concurrent.futures the interpreter waits for every thread, however long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[], None]


class HandlerThreads(Executor):
    """At most *count_max* threads. One is started when there is work and no other is idle; it stays until shutdown."""

    def __init__(self, count_max: int, name: str) -> None:
        self._count_max = count_max
        self._name = name
        self._line: SimpleQueue[tuple[Future[object], Work] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0  # threads that wait, less the work that has been put in for them
        self._is_shut_down = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run *function* in a thread. Raises RuntimeError after ``shutdown``, or when no thread can be started."""
        future: Future[T] = Future()

        def work() -> None:
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # whoever waits for the future is told
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            if self._is_shut_down:
                raise RuntimeError(f"the threads called {self._name} have been shut down")
            self._line.put((future, work))  # type: ignore[arg-type]
            if self._idle:
                self._idle -= 1
            elif self._count < self._count_max:
                self._count += 1
                try:
                    threading.Thread(target=self._run, name=f"{self._name}_{self._count}", daemon=True).start()
                except RuntimeError:
                    self._count -= 1
                    future.cancel()  # whichever thread finds it passes over it
                    raise
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Take no more work; threads end when they have done theirs, or with *cancel_futures* what they have in hand.

        It never waits for them, whatever *wait* says: nobody knows for how long.
        """
        with self._lock:
            self._is_shut_down = True
            if cancel_futures:
                self._cancel_waiting()
            for _ in range(self._count):
                self._line.put(None)

    def _cancel_waiting(self) -> None:
        try:
            while True:
                waiting = self._line.get_nowait()
                if waiting is not None:
                    waiting[0].cancel()
        except Empty:
            pass

    def _run(self) -> None:
        while (found := self._line.get()) is not None:
            future, work = found
            if future.set_running_or_notify_cancel():
                work()
            del future, work, found  # an idle thread keeps nothing of the application alive
            with self._lock:
                self._idle += 1
