"""Work that repeats in the background of a client, and the ending of tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mqcore.cause_log import CauseLog
from mqcore.errors import MQError

logger = logging.getLogger(__name__)
log = CauseLog(logger)

CANCEL_AGAIN_S = 0.2
CANCEL_ROUNDS_MAX = 25


class Periodic:
    """Calls *action* after *first_s*, then *every_s* after each call has ended, and at once when woken.

    This is the top loop of background work: a failure is logged here and the next round comes as usual, because a
    client that stops its heart-beats over one failed round is lost for its group.
    """

    def __init__(self, name: str, action: Callable[[], Awaitable[None]], *, first_s: float, every_s: float) -> None:
        self.name = name
        self._action = action
        self._first_s = first_s
        self._every_s = every_s
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"mqcore {self.name}")

    def wake(self) -> None:
        """Let the next round begin now, or right after the round under way."""
        self._wake.set()

    async def stop(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)
            self._task = None

    async def _run(self) -> None:
        delay_s = self._first_s
        while True:
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self._action()
            except MQError as error:
                log.warning("task failed", name=self.name, error=error)
            except Exception as error:
                log.error("task failed", exc_info=error, name=self.name)
            delay_s = self._every_s


async def cancel_and_wait(*tasks: asyncio.Task[None]) -> None:
    """Cancel *tasks* and return when all have ended; a task never cancels itself.

    A task is cancelled again when it goes on: before Python 3.12 ``asyncio.wait_for`` swallows a cancellation that
    comes in the same turn as its result. One that goes on for seconds is left behind, and logged.
    """
    left = [task for task in tasks if task is not asyncio.current_task()]
    for _ in range(CANCEL_ROUNDS_MAX):
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        left = [task for task in left if not task.done()]
    for task in left:
        logger.error("task does not end although it was cancelled: %s", task.get_name())
