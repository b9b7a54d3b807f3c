"""A connection on which one request after the other is asked, and on which a server's own requests are answered."""

from __future__ import annotations

from typing import Final

from mqcore.codes import ResponseCode
from mqcore.errors import MQError
from mqcore.protocol.command import RemotingCommand
from tests.fault.talker import Talker
from tests.rigs import wire

from .scripts import Peer, Request

ANSWER_S: Final = 5.0
RUNNING = b'{"properties":{},"subscriptionSet":[],"mqTable":{},"statusTable":{}}'


class Line:
    """Keeps one connection; a new one after the server has closed it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._talker: Talker | None = None

    def ask(self, request: Request) -> RemotingCommand | None:
        """The answer; None when the server has closed the connection instead, or says nothing."""
        command = RemotingCommand(request.code, ext_fields=dict(request.fields) or None, body=request.body)
        try:
            talker = self._talker = self._talker or Talker(self.address, ANSWER_S)
            talker.send([command])
            return self._await(talker, command.opaque)
        except (ConnectionError, TimeoutError, MQError):
            self.close()
            return None

    def _await(self, talker: Talker, opaque: int) -> RemotingCommand:
        while True:
            arrived = talker.receive()
            if arrived.is_response:
                if arrived.opaque == opaque:
                    return arrived
            elif not arrived.is_oneway:
                answer = arrived.reply(ResponseCode.SUCCESS, body=RUNNING)
                talker.socket.sendall(answer.encode())

    def close(self) -> None:
        if self._talker is not None:
            self._talker.close()
        self._talker = None


class Both:
    """The lines to one broker and its name server."""

    def __init__(self, broker: str, name_server: str) -> None:
        host, _, port = broker.rpartition(":")
        self.broker = broker
        vip = f"{host}:{int(port) - 2}"
        self.lines = {Peer.BROKER: Line(broker), Peer.VIP: Line(vip), Peer.NAME_SERVER: Line(name_server)}

    def ask(self, request: Request) -> RemotingCommand | None:
        return self.lines[request.to].ask(request)

    def has(self, messages: int, topic: str) -> bool:
        return wire.max_offset(self.broker, topic, 0) >= messages

    def close(self) -> None:
        for line in self.lines.values():
            line.close()
