"""Who may do what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mqcore.broker.ports.channel import Channel
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.topic_config import DataVersion

if TYPE_CHECKING:
    from mqcore.broker.security.changes import AccountChange


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

    async def update_account(self, change: AccountChange) -> None:
        """Make an account, or change what is given of it. Raises MQError or OSError, and then all is as it was."""
        ...

    async def delete_account(self, access_key: str) -> bool:
        """Whether there was one. Raises as ``update_account``."""
        ...

    async def update_white_addresses(self, addresses: list[str], path: str) -> bool:
        """Let these addresses in, by one file; False if that is none. Raises as ``update_account``."""
        ...

    async def listing(self) -> tuple[list[str], list[dict[str, Any]]]:
        """White addresses, and accounts by RocketMQ's names, secrets hidden. Raises MQError or OSError."""
        ...

    @property
    def versions(self) -> Mapping[str, DataVersion]:
        """How often and when each file was changed, by path."""
        ...

    @property
    def default_version(self) -> DataVersion:
        """That of the file that new accounts go to."""
        ...

    def figures(self) -> dict[str, str]:
        """What it has to say in the runtime table."""
        ...
