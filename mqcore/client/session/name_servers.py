"""The name servers of a client: one is chosen and kept while it answers, the next in turn is tried when it does not."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mqcore.address import is_address_page
from mqcore.client.errors import NoNameServerError
from mqcore.errors import RemotingConnectError, RemotingError, RemotingSendError
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.address_page import AddressPage, page_of_unit
from mqcore.transport.client import RemotingClient


class NameServers:
    """Calls to whichever name server answers.

    Source: RocketMQ NettyRemotingClient.java, getAndCreateNameserverChannel and updateNameServerAddressList.
    """

    def __init__(self, remoting: RemotingClient, addresses: Sequence[str], unit: str | None = None) -> None:
        """*addresses* may be one URL of a page that names them, or has a page for each *unit*."""
        self._remoting = remoting
        self._page: AddressPage | None = None
        if len(addresses) == 1 and is_address_page(addresses[0]):
            self._page = AddressPage(page_of_unit(addresses[0], unit))
            addresses = ()
        self._addresses = random.sample(list(addresses), len(addresses))
        self._chosen = 0

    @property
    def has_page(self) -> bool:
        return self._page is not None

    async def read_page(self) -> None:
        """Take over what the page says; the one that is chosen stays so if it is named. Raises RemotingConnectError."""
        if self._page is None or not (await self._page.read() or not self._addresses):
            return
        chosen = self._addresses[self._chosen] if self._addresses else None
        found = self._page.addresses
        self._addresses = random.sample(list(found), len(found))
        self._chosen = self._addresses.index(chosen) if chosen in found else 0

    async def all(self) -> tuple[str, ...]:
        """Return all addresses, of a page that has not been read yet too. Raises RemotingConnectError."""
        if not self._addresses:
            await self.read_page()
        return self.addresses

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    @property
    def chosen(self) -> str:
        if not self._addresses:
            raise NoNameServerError("no name server address, please set it")
        return self._addresses[self._chosen]

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Call the chosen name server; on a bad connection choose the next one, until each was tried once.

        An answer that does not come in time is not tried elsewhere, as the time is used up; but the next call goes to
        the next one. Raises RemotingConnectError when none can be reached.
        """
        await self.all()
        last: RemotingError | None = None
        for _ in range(max(1, len(self._addresses))):
            address = self.chosen
            try:
                return await self._remoting.invoke(address, command, timeout_s)
            except (RemotingConnectError, RemotingSendError) as error:
                last = error
                self._pass_over(address)
            except RemotingError:
                self._pass_over(address)
                raise
        raise RemotingConnectError(f"connect to {list(self._addresses)} failed: {last}") from last

    def _pass_over(self, address: str) -> None:
        """Choose the next one, unless another call has already done so."""
        if self._addresses[self._chosen] == address:
            self._chosen = (self._chosen + 1) % len(self._addresses)
