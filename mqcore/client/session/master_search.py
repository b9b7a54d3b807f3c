"""Finding the new master of a broker name: name servers are asked at once when a broker is gone, then ever more rarely.

Routes are refreshed every 30 s, which is too long to wait for when a broker has died, or says that it is not the master
any more. Whoever meets that tells it here. One search for each broker name serves everybody who waits: it asks, rests
50 to 100 ms, asks again, rests longer each time, and ends when a master is known that nobody has complained of.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mqcore.cause_log import CauseLog
from mqcore.client.session.routes import RouteTable
from mqcore.client.session.tasks import cancel_and_wait
from mqcore.errors import MQError

logger = logging.getLogger(__name__)
log = CauseLog(logger)

FIRST_REST_S: Final = (0.05, 0.1)
REST_GROWTH: Final = 1.5
REST_S_MAX: Final = 1.0

SEARCH_S: Final = 30.0
"""A search ends after so long, if nobody complains again: the usual refresh comes as often then."""

QUIET_S: Final = 5.0
"""After so long without a question the first one comes at once again."""


@dataclass(slots=True)
class Inquiry:
    """The search for the master of one broker name. ``answered`` is set, and replaced, at each answer."""

    task: asyncio.Task[None]
    doubted: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Pace:
    """When the last question about a broker name was asked, and how long to rest after it."""

    asked_s: float
    rest_s: float


class MasterSearch:
    """The searches of one client. Not for other threads than that of the event loop, but for ``doubt_soon``."""

    def __init__(self, routes: RouteTable, on_found: Callable[[set[str]], None]) -> None:
        """*on_found* is called when a search has found a master, with the addresses that were complained of."""
        self._routes = routes
        self._on_found = on_found
        self._searches: dict[str, Inquiry] = {}
        self._paces: dict[str, Pace] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        self._is_closed = True
        await cancel_and_wait(*(search.task for search in self._searches.values()))
        for search in self._searches.values():
            search.answered.set()

    def doubt(self, address: str) -> None:
        """Ask for a new route, soon: the broker at *address* is gone, or is not the master any more."""
        name = self._routes.name_of(address)
        if name is not None and not self._is_closed:
            self._search(name).doubted.add(address)

    def doubt_soon(self, address: str) -> None:
        """As ``doubt``, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.doubt, address)

    def trust(self, broker_name: str) -> None:
        """The master that is known does what it is asked, although somebody had complained of it."""
        search = self._searches.get(broker_name)
        master = self._routes.master_address(broker_name)
        if search is not None and master is not None:
            search.doubted.discard(master)

    def trust_at(self, address: str) -> None:
        """As ``trust``: the broker at *address* has done what it was asked."""
        name = self._routes.name_of(address)
        if name is not None and self._routes.master_address(name) == address:
            self.trust(name)

    async def wait(self, broker_name: str, failed: str | None, timeout_s: float) -> bool:
        """Return True when it is time to try again: the master is another one than *failed*, or there was an answer.

        False when *timeout_s* passed first.
        """
        if self._is_closed:
            return False
        if failed is not None and self._routes.master_address(broker_name) not in (None, failed):
            return True
        search = self._search(broker_name)
        if failed is not None:
            search.doubted.add(failed)
        try:
            async with asyncio.timeout(timeout_s):
                await search.answered.wait()
        except TimeoutError:
            return False
        return not self._is_closed

    def _search(self, name: str) -> Inquiry:
        search = self._searches.get(name)
        if search is None:
            task = asyncio.create_task(self._run(name), name=f"mqcore master of {name}")
            search = self._searches[name] = Inquiry(task)
        return search

    async def _run(self, name: str) -> None:
        clock = asyncio.get_running_loop().time
        end_s = clock() + SEARCH_S
        search = self._searches[name]
        try:
            while True:
                await self._ask_in_time(name, search)
                answered, search.answered = search.answered, asyncio.Event()
                answered.set()
                master = self._routes.master_address(name)
                if master is not None and master not in search.doubted:
                    self._paces[name].rest_s = random.uniform(*FIRST_REST_S)  # the next death is another one
                    await self._found(name, master, search)
                    return
                if clock() > end_s:
                    return
        finally:
            del self._searches[name]
            search.answered.set()

    async def _ask_in_time(self, name: str, search: Inquiry) -> None:
        """Ask for the route of one of the broker's topics, not too soon after the last question."""
        clock = asyncio.get_running_loop().time
        rest_s = random.uniform(*FIRST_REST_S)
        pace = self._paces.get(name)
        if pace is not None and clock() - pace.asked_s < QUIET_S:
            rest_s = min(pace.rest_s * REST_GROWTH, REST_S_MAX)
            await asyncio.sleep(pace.asked_s + pace.rest_s - clock())
        topics = self._routes.topics_of(name)
        if topics:
            topic = random.choice(topics)
            search.topics.add(topic)
            await self._refresh(name, topic)
        self._paces[name] = Pace(clock(), rest_s)

    async def _found(self, name: str, master: str, search: Inquiry) -> None:
        """Let the topics that were asked for while there was no master be sent to again."""
        logger.info("master found broker=%s address=%s", name, master)
        self._on_found(search.doubted)
        for topic in search.topics:
            await self._refresh(name, topic)

    async def _refresh(self, name: str, topic: str) -> None:
        try:
            await self._routes.refresh(topic)
        except MQError as error:
            log.warning("route not refreshed", topic=topic, broker=name, error=error)
