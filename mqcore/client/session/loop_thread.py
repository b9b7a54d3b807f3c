"""One event loop in one background thread, for programs that have none of their own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from mqcore.client.errors import ClientClosedError, ClientStateError
from mqcore.client.session import forks

STOP_DEADLINE_S: Final = 10.0
CLOSED: Final = "the client is closed"
CLOSED_MEANWHILE: Final = "the client was closed while this call was under way"
CANCEL_DEADLINE_S: Final = 5.0
"""How long what still runs at the end may take to give up."""

T = TypeVar("T")


class Calls:
    """What other threads wait for. When the loop ends, so does every wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waited_for: set[Future[Any]] = set()
        self._is_over = False

    def wait(self, coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        """Run *coroutine* in *loop* and return its result. Raises ClientClosedError when the loop ends before."""
        with self._lock:
            if self._is_over:
                coroutine.close()
                raise ClientClosedError(CLOSED)
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
            self._waited_for.add(future)
        try:
            return future.result()
        except CancelledError:
            if self._is_over:
                raise ClientClosedError(CLOSED_MEANWHILE) from None
            raise
        finally:
            self._waited_for.discard(future)
            future.cancel()

    def end(self) -> None:
        """Let everybody go who waits, also for what the loop has not begun."""
        with self._lock:
            self._is_over = True
            for future in tuple(self._waited_for):
                future.cancel()


class LoopThread:
    """Runs coroutines for other threads.

    The thread begins with the first call. A forked child has the object but not the thread: there every call raises
    ClientStateError, and ``stop`` leaves the connections, which are the parent's, alone; only a thread that had not
    begun can begin in the child.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._begin_lock = threading.Lock()
        self._end_lock = threading.Lock()
        self._begun: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None
        self._calls = Calls()
        forks.watch(self)

    @property
    def is_open(self) -> bool:
        """Whether calls can be made: not stopped, and not the parent's."""
        if self._begun is None:
            return True
        loop, thread = self._begun
        return self._pid == os.getpid() and not loop.is_closed() and thread.is_alive()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* in the loop and return its result; an interrupt of the waiting thread cancels it.

        Raises ClientClosedError when the loop has ended, or ends before the coroutine does.
        """
        try:
            loop = self._running_loop()
        except ClientStateError:
            coroutine.close()
            raise
        return self._calls.wait(coroutine, loop)

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run *callback* in the loop soon, and do not wait for it."""
        self._running_loop().call_soon_threadsafe(callback, *arguments)

    def end_with(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run *work* as the last there is, and end the thread. A second caller waits until the first has done it."""
        with self._end_lock:
            if self.is_open:
                self.call(work())
                self.stop()

    def stop(self) -> None:
        """End the thread. Without effect in a forked child, and when it has ended."""
        if self._begun is None or not self.is_open:
            return
        loop, thread = self._begun
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_DEADLINE_S)

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child: a lock that somebody held is made anew, and the parent's loop is left alone."""
        self._begin_lock = threading.Lock()
        self._end_lock = threading.Lock()
        self._calls = Calls()
        forks.keep(self._begun)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, begun if it has not been; raise ClientStateError when it cannot be used from here."""
        if self._begun is None:
            with self._begin_lock:
                if self._begun is None:
                    self._begun = self._begin()
        loop, thread = self._begun
        if self._pid != os.getpid():
            raise forks.belongs_to(self._pid)
        if not self.is_open:
            raise ClientClosedError(CLOSED)
        if threading.current_thread() is thread:
            raise ClientStateError("a call of mqcore.client from inside its own event loop would wait for itself")
        return loop

    def _begin(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        self._pid = os.getpid()
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop, self._calls), name="mqcore client", daemon=True)
        thread.start()
        return loop, thread


def _run(loop: asyncio.AbstractEventLoop, calls: Calls) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        calls.end()
        loop.run_until_complete(_cancel_all())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_DEADLINE_S)
