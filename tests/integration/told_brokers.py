"""Peers that do what a test tells them, over real sockets: a real broker cannot be made slow or silent on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.bodies import BrokerData, HeartbeatData, QueueData, TopicRouteData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import decode_request, encode_response
from mqcore.transport.connection import Connection
from mqcore.transport.server import RemotingServer

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
STORE_HOST = "7F00000100002A9F"  # 127.0.0.1:10911, the beginning of offset ids


class ToldBroker:
    """Answers sends with *code* after *delay_s*, once *gate* is open; code None is silence. Remembers all requests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.code: ResponseCode | None = ResponseCode.SUCCESS
        self.delay_s = 0.0
        self.gate = asyncio.Event()
        self.gate.set()
        self.silent_topics: set[str] = set()
        self.fields: dict[str, Any] = {}
        """More fields of the answers to sends."""
        self.requests: list[RemotingCommand] = []
        self.clients: dict[str, Connection] = {}
        """By client id: those that sent a heart-beat."""
        self.server = RemotingServer("127.0.0.1", 0, self._handle)

    async def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self.requests.append(command)
        if command.code == RequestCode.HEART_BEAT:
            self.clients[HeartbeatData.decode(command.body).client_id] = connection
        if command.code not in SENDS:
            return command.reply()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        await self.gate.wait()
        topic = decode_request(command.code, command.ext_fields)["topic"]
        if self.code is None or topic in self.silent_topics:
            return None
        offset = len(self.sends)
        fields = {"msg_id": f"{STORE_HOST}{1000 + offset:016X}", "queue_id": 0, "queue_offset": offset, **self.fields}
        return command.reply(self.code, "as told", encode_response(command.code, **fields))

    def of(self, *codes: RequestCode) -> list[RemotingCommand]:
        """The requests with one of *codes* so far."""
        return [command for command in self.requests if command.code in codes]

    @property
    def sends(self) -> list[RemotingCommand]:
        return self.of(*SENDS)

    def values(self, code: RequestCode) -> list[dict[str, Any]]:
        """The header of each request with *code* so far."""
        return [decode_request(command.code, command.ext_fields) for command in self.of(code)]


class ToldCluster:
    """A name server and brokers, each with *queues* queues of every topic."""

    def __init__(self, *names: str, queues: int = 2) -> None:
        self.brokers = [ToldBroker(name) for name in names]
        self._queues = queues
        self._name_server = RemotingServer("127.0.0.1", 0, self._route)

    @property
    def address(self) -> str:
        """That of the name server."""
        return self._name_server.address

    async def _route(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        route = TopicRouteData(
            [QueueData(broker.name, self._queues, self._queues) for broker in self.brokers],
            [BrokerData("C", broker.name, {0: broker.server.address}) for broker in self.brokers],
        )
        return command.reply(body=route.encode())

    async def start(self) -> None:
        for server in (self._name_server, *(broker.server for broker in self.brokers)):
            await server.start()

    async def stop(self) -> None:
        for server in (self._name_server, *(broker.server for broker in self.brokers)):
            await server.stop()


@asynccontextmanager
async def told_cluster(*names: str, queues: int = 2) -> AsyncIterator[ToldCluster]:
    """A running cluster, for as long as the context lasts."""
    cluster = ToldCluster(*names, queues=queues)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()
