"""What brokers ask of a client, by request code: whoever answers registers here, and the session knows none of them."""

from __future__ import annotations

from mqcore.codes import RequestCode
from mqcore.transport.client import RemotingClient
from mqcore.transport.connection import Handler


class Inbox:
    """The table of the requests that are answered, over all connections of a session."""

    def __init__(self, remoting: RemotingClient) -> None:
        self._remoting = remoting
        self._answered: set[RequestCode] = set()

    def answer(self, code: RequestCode, handler: Handler) -> None:
        """Let *handler* serve the requests with *code*. Each code has one; without, it is refused."""
        assert code not in self._answered, f"{code.name} is answered already"
        self._answered.add(code)
        self._remoting.register_handler(code, handler)
