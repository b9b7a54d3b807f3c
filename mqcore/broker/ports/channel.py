"""A client's connection."""

from __future__ import annotations

from typing import Protocol

from mqcore.protocol.command import RemotingCommand


class Channel(Protocol):
    """One client connection. Two objects with the same ``channel_id`` are the same connection."""

    @property
    def channel_id(self) -> int:
        """Unique while the broker process lives; not reused after a close."""
        ...

    @property
    def remote_ip(self) -> str: ...

    @property
    def remote_port(self) -> int: ...

    @property
    def is_vip(self) -> bool:
        """True for a connection to the fast port (listen port - 2)."""
        ...

    @property
    def certified_name(self) -> str:
        """The subject of the certificate that the client has shown and the port has checked, as in RFC 2253; or ""."""
        ...

    @property
    def is_open(self) -> bool: ...

    def send(self, command: RemotingCommand) -> bool:
        """Queue *command* for writing, without waiting; False if the connection is closed or too far behind."""
        ...

    def take_answers_of(self, client_id: str) -> None:
        """Let answers of request-reply to *client_id* be pushed to this connection without a word to us.

        There is one client at most; ``""`` is none.
        """
        ...

    def close(self) -> None:
        """Close the connection soon. ``BrokerCore.on_channel_closed`` is called as for any other close."""
        ...

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request of the broker's own and return the client's response.

        The channel gives the request its opaque. Raises RemotingTimeoutError or RemotingSendError.
        """
        ...
