"""Work that has to be done again and again, as tasks of the event loop."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None] | None]


class PeriodicTasks:
    """The tasks of one owner, which stop together."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_s: float, work: Work, name: str, *, first_s: float | None = None) -> None:
        """Call *work* after *first_s* (*interval_s* unless given), and then *interval_s* after each end of it.

        A failure is logged, and the next call comes all the same.
        """
        self.run(_repeat(interval_s, work, name, interval_s if first_s is None else first_s), name)

    def run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run *coroutine* until it ends or ``stop`` is called."""
        self._tasks.append(asyncio.create_task(coroutine, name=name))

    async def stop(self) -> None:
        """Cancel every task and wait for it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []


async def _repeat(interval_s: float, work: Work, name: str, first_s: float) -> None:
    await asyncio.sleep(first_s)
    while True:
        try:
            result = work()
            if inspect.isawaitable(result):
                await result
        except Exception:  # the top loop of this task
            logger.exception("periodic work failed name=%s", name)
        await asyncio.sleep(interval_s)
