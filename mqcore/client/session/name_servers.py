"""The name servers of a client: one is chosen and kept while it answers, the next in turn is tried when it does not."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mqcore.client.errors import NoNameServerError
from mqcore.errors import RemotingConnectError, RemotingError, RemotingSendError
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.client import RemotingClient


class NameServers:
    """Calls to whichever name server answers.

    Source: RocketMQ NettyRemotingClient.java, getAndCreateNameserverChannel.
    """

    def __init__(self, remoting: RemotingClient, addresses: Sequence[str]) -> None:
        self._remoting = remoting
        self._addresses = random.sample(list(addresses), len(addresses))
        self._chosen = 0

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
