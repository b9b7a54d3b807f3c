"""One event loop in one background thread, for programs that have none of their own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from mqcore.client.errors import ClientClosedError, ClientStateError

STOP_DEADLINE_S = 10.0

T = TypeVar("T")

_of_the_parent: list[object] = []
"""In a forked child: the loops of the parent, kept so that nothing closes what still belongs to it."""

_living: set[LoopThread] = set()


class LoopThread:
    """Runs coroutines for other threads.

    A forked child has the object but not the thread: there every call raises ClientStateError, and ``stop`` leaves the
    connections, which are the parent's, alone. The child makes a client of its own.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mqcore client", daemon=True)
        self._thread.start()
        _living.add(self)

    @property
    def is_open(self) -> bool:
        """Whether calls can be made: not stopped, and not the parent's."""
        return self._pid == os.getpid() and not self._loop.is_closed() and self._thread.is_alive()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* in the loop and return its result; an interrupt of the waiting thread cancels it."""
        try:
            self._check()
        except ClientStateError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run *callback* in the loop soon, and do not wait for it."""
        self._check()
        self._loop.call_soon_threadsafe(callback, *arguments)

    def stop(self) -> None:
        """End the thread. Without effect in a forked child, and when it has ended."""
        if not self.is_open:
            return
        _living.discard(self)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_DEADLINE_S)

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ClientStateError(
                f"this client belongs to process {self._pid} and cannot be used in its forked child {os.getpid()}: "
                "make a new client after the fork"
            )
        if not self.is_open:
            raise ClientClosedError("the client is closed")
        if threading.current_thread() is self._thread:
            raise ClientStateError("a call of mqcore.client from inside its own event loop would wait for itself")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


def _forget_in_child() -> None:
    _of_the_parent.extend(living._loop for living in _living)
    _living.clear()


os.register_at_fork(after_in_child=_forget_in_child)
