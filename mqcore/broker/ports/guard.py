"""Who may do what."""

from __future__ import annotations

from typing import Protocol

from mqcore.broker.ports.channel import Channel
from mqcore.protocol.command import RemotingCommand


class Guard(Protocol):
    """Is asked about each request that reaches the broker process, before it is served."""

    async def admit(self, channel: Channel, request: RemotingCommand) -> None:
        """Return if *request* may be served; raise an MQError, whose text is the client's, if not. It may take long."""
        ...

    def forget(self, channel: Channel) -> None:
        """The connection is gone."""
        ...

    async def watch(self) -> None:
        """Look whether the rules have changed, and go by them."""
        ...

    def figures(self) -> dict[str, str]:
        """What it has to say in the runtime table."""
        ...
