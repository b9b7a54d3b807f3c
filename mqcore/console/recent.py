"""Answers that are young enough to be given again, so that brokers are asked seldom however many look at a page."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar, cast

from mqcore import clock

KEPT_MAX: Final = 256

T = TypeVar("T")


class RecentAnswers:
    """Keeps the last answers, at most KEPT_MAX, and asks only when somebody wants one. Failures are not kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[float, asyncio.Future[Any]]] = OrderedDict()

    async def get(self, key: Hashable, age_s_max: float, ask: Callable[[], Awaitable[T]]) -> T:
        """Return an answer to *key* that is no older than *age_s_max*; who asks meanwhile waits for the same one."""
        found = self._kept.get(key)
        if found is not None and clock.monotonic_s() - found[0] <= age_s_max and not _failed(found[1]):
            return cast(T, await asyncio.shield(found[1]))
        # A task of its own: that one of those who wait goes away is no reason for the others to get nothing.
        task = asyncio.ensure_future(ask())
        task.add_done_callback(_failed)  # which looks at a failure that nobody waits for any more
        self._kept[key] = (clock.monotonic_s(), task)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return cast(T, await asyncio.shield(task))

    def forget(self) -> None:
        """Ask anew from now on: something was changed."""
        self._kept.clear()


def _failed(task: asyncio.Future[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
