"""Brokers that do what a test tells them, over real sockets, with a name server, in a thread of their own.

A real broker cannot be made to refuse, to fall silent or to hang up on demand.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from mqcore.client.session.loop_thread import LoopThread
from mqcore.codes import RequestCode, ResponseCode
from mqcore.config import TlsMode
from mqcore.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_response
from mqcore.transport.connection import Connection
from mqcore.transport.door import TlsDoor
from mqcore.transport.server import RemotingServer
from mqcore.transport.tls import ServerMaterial

HANG_UP = "hang up"
SILENCE = "silence"
HANDSHAKE_TIMEOUT_S = 60.0
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class ScriptedBroker:
    """Answers sends with *answer*: a response code, HANG_UP (close the connection) or SILENCE."""

    def __init__(self, name: str, door: TlsDoor | None = None) -> None:
        self.name = name
        self.answer: ResponseCode | str = ResponseCode.SUCCESS
        self.sends: list[RemotingCommand] = []
        self.connections: set[Connection] = set()
        self.server = RemotingServer("127.0.0.1", 0, self._handle, door=door)

    async def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code not in SENDS:
            return command.reply()
        self.sends.append(command)
        self.connections.add(connection)
        if self.answer == HANG_UP:
            connection.abort()
            return None
        if isinstance(self.answer, str):
            return None
        values = {"msg_id": f"offset id {len(self.sends)}", "queue_id": 0, "queue_offset": len(self.sends)}
        stored = self.answer == ResponseCode.SUCCESS
        fields = encode_response(RequestCode.SEND_MESSAGE_V2, **values) if stored else None
        return command.reply(self.answer, None if stored else "refused", fields)

    @property
    def open_connections(self) -> int:
        return sum(not connection.is_closed for connection in self.connections)


class ScriptedBrokers:
    """As many brokers as names, each with one queue of every topic. Used as a context manager."""

    def __init__(self, *names: str, is_sealed: bool = False) -> None:
        """*is_sealed* lets nothing in but TLS."""
        self._door = TlsDoor(TlsMode.ENFORCING, ServerMaterial(), HANDSHAKE_TIMEOUT_S) if is_sealed else None
        self._thread = LoopThread()
        self.brokers = [self._thread.call(self._make(name)) for name in names]
        self._name_server = self._thread.call(self._serve())

    async def _make(self, name: str) -> ScriptedBroker:
        broker = ScriptedBroker(name, self._door)
        await broker.server.start()
        return broker

    async def _serve(self) -> RemotingServer:
        server = RemotingServer("127.0.0.1", 0, self._route, door=self._door)
        await server.start()
        return server

    async def _route(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        route = TopicRouteData(
            queue_datas=[QueueData(broker.name, 1, 1) for broker in self.brokers],
            broker_datas=[BrokerData("C", broker.name, {0: broker.server.address}) for broker in self.brokers],
        )
        return command.reply(body=route.encode())

    @property
    def name_server(self) -> str:
        return self._name_server.address

    def stop(self, broker: ScriptedBroker) -> None:
        """Let a broker go, as if it had died; its name stays in the route."""
        self._thread.call(broker.server.stop())

    def hang_up(self, broker: ScriptedBroker) -> None:
        """Close the connections on which *broker* got sends; their peers can see that when this returns."""
        self._thread.call(self._hang_up(broker))

    async def _hang_up(self, broker: ScriptedBroker) -> None:
        closing = set(broker.connections)
        for connection in closing:
            connection.close()
        if self._door is not None:
            return  # the end has been said, but a socket is closed only when a peer who reads has answered that
        while closing & broker.server.connections.keys():
            await asyncio.sleep(0.001)  # a socket is closed just behind the call that takes it from the set

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for server in (self._name_server, *(broker.server for broker in self.brokers)):
            self._thread.call(server.stop())
        self._thread.stop()
