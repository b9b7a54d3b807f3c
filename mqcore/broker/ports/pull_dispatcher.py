"""The way to the pull workers."""

from __future__ import annotations

from typing import Protocol

from mqcore.broker.ports.channel import Channel
from mqcore.broker.pulls import PullBinding, PullHeader
from mqcore.protocol.command import RemotingCommand


class PullDispatcher(Protocol):
    """The way to the pull worker, for pulls that had to be looked at first."""

    def dispatch(self, channel: Channel, command: RemotingCommand, header: PullHeader, binding: PullBinding) -> None:
        """Hand the pull over. The pull worker reads, holds and answers *command*'s opaque on *channel* by itself."""
        ...
