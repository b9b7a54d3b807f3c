"""A connection on which one request after the other is asked, and on which a server's own requests are answered."""

from __future__ import annotations

import time
from typing import Final

from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import MQError
from mqcore.protocol.command import RemotingCommand
from tests.fault.talker import Talker

from .identities import NOBODY, Identity
from .scripts import Peer, Request

ANSWER_S: Final = 5.0
YET_S: Final = 10.0
AGAIN_S: Final = 0.2
RUNNING = b'{"properties":{},"subscriptionSet":[],"mqTable":{},"statusTable":{}}'


class Line:
    """Keeps one connection; a new one after the server has closed it, and when *identity* comes from elsewhere."""

    def __init__(self, address: str, identity: Identity = NOBODY) -> None:
        self.address = address
        self._identity = identity
        self._sources = identity.sources()
        self._source = ""
        self._talker: Talker | None = None

    def ask(self, request: Request) -> RemotingCommand | None:
        """The answer; None when the server has closed the connection instead, or says nothing."""
        command = RemotingCommand(request.code, ext_fields=dict(request.fields) or None, body=request.body)
        self._identity.sign(command)
        try:
            talker = self._talker = self._talker_from(next(self._sources))
            talker.send([command])
            return self._await(talker, command.opaque)
        except (ConnectionError, TimeoutError, MQError):
            self.close()
            return None

    def _talker_from(self, source: str) -> Talker:
        if source != self._source:
            self.close()
            self._source = source
        return self._talker or Talker(self.address, ANSWER_S, source=source)

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
    """The lines of *identity* to one broker and its name server; *admin* may see how far a queue is."""

    def __init__(self, broker: str, name_server: str, identity: Identity = NOBODY, admin: Identity = NOBODY) -> None:
        host, _, port = broker.rpartition(":")
        addresses = {Peer.BROKER: broker, Peer.VIP: f"{host}:{int(port) - 2}", Peer.NAME_SERVER: name_server}
        self.lines = {peer: Line(address, identity) for peer, address in addresses.items()}
        self._admin = Line(broker, admin)

    def ask(self, request: Request) -> RemotingCommand | None:
        line = self.lines[request.to]
        answer = line.ask(request)
        until_s = time.monotonic() + YET_S
        while request.not_yet and time.monotonic() < until_s and answer and request.not_yet in (answer.remark or ""):
            time.sleep(AGAIN_S)
            answer = line.ask(request)
        return answer

    def has(self, messages: int, topic: str) -> bool:
        answer = self._admin.ask(
            Request("how many there are", RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
        )
        assert answer is not None
        return int((answer.ext_fields or {}).get("offset", 0)) >= messages

    def close(self) -> None:
        for line in (*self.lines.values(), self._admin):
            line.close()
