"""A broker that is slow to lock queues, over a real socket."""

from __future__ import annotations

import pytest

from mqcore.client.session import broker_api
from mqcore.client.session.broker_api import BrokerApi
from mqcore.errors import RemotingTimeoutError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import MessageQueue
from mqcore.transport.client import RemotingClient
from mqcore.transport.connection import Connection
from mqcore.transport.server import RemotingServer

QUEUE = MessageQueue("T", "broker-a", 0)


async def say_nothing(connection: Connection, command: RemotingCommand) -> None:
    """A broker that is stopped just now."""


async def test_a_lock_that_is_not_answered_in_time_does_not_cost_the_membership(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker takes a closed connection for a member that has left."""
    monkeypatch.setattr(broker_api, "LOCK_TIMEOUT_S", 0.1)
    server, remoting = RemotingServer("127.0.0.1", 0, say_nothing), RemotingClient()
    await server.start()
    try:
        connection = await remoting.connect(server.address, 60)
        api = BrokerApi(remoting, "ip@1", 60, 60)
        with pytest.raises(RemotingTimeoutError):
            await api.lock(server.address, "G", [QUEUE])
        with pytest.raises(RemotingTimeoutError):
            await api.unlock(server.address, "G", [QUEUE])
        assert remoting.connection_of(server.address) is connection
    finally:
        await remoting.close()
        await server.stop()
