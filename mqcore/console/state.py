"""What all pages of one console share, and how a page finds it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from starlette.requests import Request

from mqcore.client.admin import Admin
from mqcore.client.asynchronous import Client
from mqcore.console.data.clusters import BrokerState, Rates, broker_states, rates_of
from mqcore.console.options import ConsoleOptions
from mqcore.console.recent import RecentAnswers
from mqcore.console.sessions import Door, Sessions

BROKERS_AGE_S: Final = 2.0
"""Brokers are asked how they are once in this time at most, however many look."""

LAGS_AGE_S: Final = 5.0
"""The same of how far groups are behind, which is a question or two for each group."""

HISTORY_MAX: Final = 60
"""Rates that the lines on the overview have."""

T = TypeVar("T")


@dataclass(slots=True)
class Console:
    """One console: its client, its options, and what was found lately."""

    client: Client
    options: ConsoleOptions
    recent: RecentAnswers = field(default_factory=RecentAnswers)
    sessions: Sessions = field(default_factory=Sessions)
    history: deque[Rates] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))
    door: Door | None = None

    def __post_init__(self) -> None:
        if self.options.password is not None:
            self.door = Door(self.options.password)

    @property
    def admin(self) -> Admin:
        return self.client.admin

    async def brokers(self) -> list[BrokerState]:
        """Return how the brokers are, as of BROKERS_AGE_S at most."""
        return await self.recent.get("brokers", BROKERS_AGE_S, self._ask_brokers)

    async def lately(self, key: Hashable, ask: Callable[[], Awaitable[T]], age_s_max: float = LAGS_AGE_S) -> T:
        return await self.recent.get(key, age_s_max, ask)

    async def _ask_brokers(self) -> list[BrokerState]:
        found = await broker_states(self.admin)
        self.history.append(rates_of(found))
        return found


def console_of(request: Request) -> Console:
    return cast(Console, request.app.state.console)


def session_of(request: Request) -> str:
    """Return the id of the session, which the guard has settled."""
    return cast(str, request.state.session)
