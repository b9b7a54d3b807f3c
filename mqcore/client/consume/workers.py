"""Tasks that consume: a group of tasks, and workers that take batches from one line, so many at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from mqcore.cause_log import CauseLog
from mqcore.client.session.tasks import cancel_and_wait

logger = logging.getLogger(__name__)
log = CauseLog(logger)

TURN_S = 0.01
"""After so long a worker lets others have the event loop."""

T = TypeVar("T")


class TaskGroup:
    """The tasks of a service. Unlike asyncio's, one that fails does not end the others."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}  # a dict as an ordered set

    def spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        task = asyncio.create_task(self._run(work, name), name=f"mqcore {name}")
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

    async def close(self, timeout_s: float) -> None:
        """Wait at most *timeout_s* for all to end, then cancel the rest."""
        mine = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not mine]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        if late:
            logger.warning("cancelling %d handlers that did not end within %s s", len(late), timeout_s)
            await cancel_and_wait(*late)

    @staticmethod
    async def _run(work: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            await work()
        except Exception as error:
            log.error("task failed", exc_info=error, name=name)


class Workers(Generic[T]):
    """Calls *work* for each item put in, in order, with at most *limit* calls under way at once.

    A worker is a task that lives while there are items. How many live is counted here and not by asyncio: a task counts
    as alive until the event loop has run its callbacks, and an item put in between its last look at the line and that
    moment would be left lying, with nobody to take it and nobody to start a worker for it.
    """

    def __init__(self, name: str, work: Callable[[T], Awaitable[None]], limit: int) -> None:
        self._name = name
        self._work = work
        self._limit = limit
        self._line: deque[T] = deque()
        self._alive = 0
        self._starting = 0  # alive, and about to take a first item
        self._tasks = TaskGroup()
        self._closed = False

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def waiting(self) -> int:
        """How many items nobody has taken yet."""
        return len(self._line)

    def set_limit(self, limit: int) -> None:
        """Let *limit* calls run at once from now on. Those under way end as they would have."""
        self._limit = limit
        self._start()

    def put(self, items: Iterable[T]) -> None:
        self._line.extend(items)
        self._start()

    def halt(self) -> None:
        """Take nothing more; calls under way go on."""
        self._closed = True
        self._line.clear()

    async def close(self, timeout_s: float) -> None:
        """Halt, wait at most *timeout_s* for the calls under way, then cancel them."""
        self.halt()
        await self._tasks.close(timeout_s)

    def _start(self) -> None:
        # One at a time: it sees to the next when it takes an item. So work that never waits is done by one worker.
        if self._line and self._starting == 0 and self._alive < self._limit and not self._closed:
            self._alive += 1
            self._starting += 1
            self._tasks.spawn(self._live, self._name)

    async def _live(self) -> None:
        self._starting -= 1
        now_s = asyncio.get_running_loop().time
        turn_ends_s = now_s() + TURN_S
        try:
            while self._line and self._alive <= self._limit and not self._closed:
                item = self._line.popleft()
                self._start()
                await self._do(item)
                if now_s() >= turn_ends_s:
                    await asyncio.sleep(0)  # work that never waits must not keep heart-beats waiting
                    turn_ends_s = now_s() + TURN_S
        finally:
            self._alive -= 1  # nothing waits between the last look at the line and this

    async def _do(self, item: T) -> None:
        try:
            await self._work(item)
        except Exception as error:
            log.error("task failed", exc_info=error, name=self._name)
