"""Requests of the broker itself."""

from __future__ import annotations

from typing import Protocol

from mqcore.protocol.command import RemotingCommand


class Caller(Protocol):
    """What a broker needs of a remoting client, to ask name servers and its master."""

    async def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand: ...

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_s: float) -> None: ...
