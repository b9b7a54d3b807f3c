"""Name servers by a page: a URL that answers with their addresses, as RocketMQ's clients and brokers have it.

Source: RocketMQ 4.9.8 common/namesrv/TopAddressing.java: one GET, of the first line ``host:port;host:port``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from mqcore.address import is_address_page, parse_name_servers
from mqcore.errors import RemotingConnectError

logger = logging.getLogger(__name__)

PAGE_TIMEOUT_S: Final = 3.0
PAGE_SIZE_MAX: Final = 65_536
FIRST_AGAIN_S: Final = 10.0
EVERY_S: Final = 120.0
"""How often a page is read again, the first time sooner; as RocketMQ's clients do."""


def page_of_unit(page: str, unit: str | None) -> str:
    """Return the page of a client with a unit name, which is one of its own."""
    return f"{page}-{unit}?nofix=1" if unit else page


def read_page(page: str, timeout_s: float = PAGE_TIMEOUT_S) -> tuple[str, ...]:
    """Return the addresses that *page* names, each ``host:port``. Blocks, for *timeout_s* seconds at most each step.

    Raises RemotingConnectError that says what was found instead. Proxies of the environment are not asked.
    """
    # It takes a while to import, and few need it.
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(page, timeout=timeout_s) as answer:
            text = answer.read(PAGE_SIZE_MAX).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        error.close()
        raise RemotingConnectError(f"{page}: status {error.code}, wanted 200 and addresses of name servers") from error
    except (OSError, HTTPException, ValueError) as error:
        raise RemotingConnectError(f"{page}: {getattr(error, 'reason', error)}") from error
    line = (text.strip().splitlines() or [""])[0].strip()
    try:
        found = () if is_address_page(line) else parse_name_servers(line)
    except ValueError:
        found = ()
    if not found:
        raise RemotingConnectError(f"{page}: got {line[:80]!r}, wanted host:port;host:port")
    return found


def addresses_of(name_servers: Sequence[str]) -> tuple[str, ...]:
    """Return *name_servers*, or those that the page names if they are one. Blocks. Raises RemotingConnectError."""
    if len(name_servers) == 1 and is_address_page(name_servers[0]):
        return read_page(name_servers[0])
    return tuple(name_servers)


class AddressPage:
    """What a page says now. It is read in a thread, once for all who wait for it."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.addresses: tuple[str, ...] = ()
        """Empty until the page has been read. One that cannot be read later on changes nothing."""
        self._reading: asyncio.Task[tuple[str, ...]] | None = None

    async def read(self) -> bool:
        """Read the page; return whether it names others than before. Raises RemotingConnectError."""
        if self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(read_page, self.page))
            self._reading.add_done_callback(self._has_read)
        found = await asyncio.shield(self._reading)
        if set(found) == set(self.addresses):
            return False
        logger.info("name servers by page=%s before=%s now=%s", self.page, self.addresses, found)
        self.addresses = found
        return True

    def _has_read(self, reading: asyncio.Task[tuple[str, ...]]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # whoever waited has been told
