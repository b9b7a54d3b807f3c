"""Asking several places at once, some of which may not answer: a page shows the others all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from mqcore.errors import ClientError, MQError

ANSWER_S: Final = 4.0
"""Who has not answered for so long counts as one that does not."""

AT_ONCE_MAX: Final = 8
"""Questions under way, so that a page with many rows is no burst of requests at a broker."""

K = TypeVar("K")
T = TypeVar("T")


async def each(places: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | MQError]:
    """Ask at each of *places*; in place of an answer that did not come stands why."""
    turn = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(place: K) -> T | MQError:
        try:
            async with turn, asyncio.timeout(ANSWER_S):
                return await ask(place)
        except TimeoutError:
            return ClientError(f"has not answered within {ANSWER_S:.0f} s")
        except MQError as error:
            return error

    wanted = list(places)
    return dict(zip(wanted, await asyncio.gather(*(one(place) for place in wanted)), strict=True))
