"""An event loop whose time is a number: it goes to the next timer when nobody has anything left to do now.

What runs here is the product as it is; it asks the loop and ``mqcore.clock`` what time it is, and both show the loop's
time. A run is decided by its seed: timers are late by a random moment, as they are on real machines, so that those set
for the same time go off in any order. What asyncio promises to be in order (``call_soon``) is in order.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tests.sim.network import Network

T = TypeVar("T")

LATE_MAX_S = 0.001
TURNS_MAX = 20_000
"""So many turns in which no time passes are a loop of the product that never waits."""

THREAD_MAX_S = 0.002
ROUNDS_MAX = 10


class NothingLeftError(AssertionError):
    """Everybody waits for something that nobody will do."""


class NoTimePassesError(AssertionError):
    """Somebody goes round and round without waiting."""


class Host:
    """A machine with one process on it. Tasks and connections belong to the host in whose context they were made."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.is_alive = True
        self.is_gone = False  # dead, and no kernel there that would tell anybody
        self.tasks: dict[asyncio.Task[Any], None] = {}  # in the order in which they were made

    def __repr__(self) -> str:
        return f"Host({self.name})"

    def run(self, make: Callable[..., T], *args: Any) -> T:
        """Call *make* as this host: what it begins belongs to it."""
        context = contextvars.copy_context()
        context.run(HOST.set, self)
        return context.run(make, *args)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self.run(asyncio.get_running_loop().create_task, work)


HOST: contextvars.ContextVar[Host | None] = contextvars.ContextVar("HOST", default=None)
"""On which host the code that asks runs; None is the test itself."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs on no selector. ``network`` is what sockets are made of; without one there are none."""

    def __init__(self, seed: int | str, *, late_max_s: float = LATE_MAX_S) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.network: Network | None = None
        self.failures: list[dict[str, Any]] = []
        self._late_max_s = late_max_s
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._now_s = 0.0
        self._turns = 0
        self.set_exception_handler(lambda _, context: self._fail(context))

    def time(self) -> float:
        return self._now_s

    def _fail(self, context: dict[str, Any]) -> None:
        """Note an exception that nobody took, and end the run."""
        self.failures.append(context)
        self.stop()

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        when += self.random.random() * self._late_max_s
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        host = HOST.get() if context is None else context.get(HOST)
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if host is not None:
            host.tasks[task] = None
            task.add_done_callback(lambda ended: host.tasks.pop(ended, None))
            if not host.is_alive:
                task.cancel()
        return task

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call *func* now and tell its outcome a moment later: there are no threads, which nobody could seed."""
        future: asyncio.Future[T] = self.create_future()
        try:
            outcome, error = func(*args), None
        except Exception as raised:
            outcome, error = None, raised

        def tell() -> None:
            if future.done():
                return
            if error is None:
                future.set_result(outcome)
            else:
                future.set_exception(error)

        self.call_later(self.random.random() * THREAD_MAX_S, tell)
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        assert self.network is not None
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, start_serving: bool = True, **_: Any
    ) -> Any:
        assert self.network is not None
        listener = self.network.listen(protocol_factory, host, port)
        listener.is_serving = start_serving
        return listener

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not ready and not self._stopping:
            if not timers:
                raise NothingLeftError("nobody has anything to do, now or later")
            self._now_s = max(self._now_s, timers[0][0])
            self._turns = 0
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise NoTimePassesError(f"{TURNS_MAX} turns at {self._now_s} s: {ready[0]!r}")
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def close(self) -> None:
        self._timers.clear()
        super().close()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""


def run(loop: VirtualLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end, then end every task that is still there, and close *loop*."""
    try:
        return loop.run_until_complete(work)
    finally:
        try:
            _end_all(loop)
        finally:
            loop.close()


def _end_all(loop: VirtualLoop) -> None:
    for _ in range(ROUNDS_MAX):
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        if not left:
            return
        for task in left:
            task.cancel()
        loop._turns = 0
        loop.run_until_complete(_gathered(left))
    raise AssertionError(f"tasks that do not end when they are cancelled: {left}")


async def _gathered(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks, timeout=60)
