"""Client connections as the broker process sees them: each belongs to a send worker, and is reached over its link."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

from mqcore import layout
from mqcore.broker.links import WorkerLink
from mqcore.codes import RemotingFlag
from mqcore.errors import RemotingSendError, RemotingTimeoutError
from mqcore.protocol.command import RemotingCommand

LINK_KIND = layout.constants("LinkKind")
_opaques = itertools.count(1)


def sender_of(connection_id: int) -> int:
    """Return the number of the send worker that has the connection."""
    return connection_id >> (layout.CONNECTION_GENERATION_BITS + layout.CONNECTION_SLOT_BITS)


class WorkerChannel:
    """One connection, from the first request that reached the broker process until it is closed."""

    __slots__ = ("_calls", "_link", "certified_name", "channel_id", "is_open", "is_vip", "remote_ip", "remote_port")

    def __init__(
        self,
        link: WorkerLink,
        channel_id: int,
        remote_ip: str,
        remote_port: int,
        is_vip: bool,
        certified_name: str = "",
    ) -> None:
        """*certified_name* is the subject of the certificate that the client has shown and the port has checked."""
        self._link = link
        self._calls: dict[int, asyncio.Future[RemotingCommand]] = {}
        self.channel_id = channel_id
        self.remote_ip = remote_ip
        self.remote_port = remote_port
        self.is_vip = is_vip
        self.certified_name = certified_name
        self.is_open = True

    @classmethod
    def introduced(cls, link: WorkerLink, channel_id: int, introduction: bytes) -> WorkerChannel:
        """Make the channel that a send worker's CONNECTED message speaks of: ``ip port vip`` and perhaps a name."""
        ip, port, vip, *name = introduction.decode("ascii").split(" ", 3)
        return cls(link, channel_id, ip, int(port), vip == "1", "".join(name))

    def belongs_to(self, link: WorkerLink) -> bool:
        return self._link is link

    def send(self, command: RemotingCommand) -> bool:
        return self.is_open and self._link.write(LINK_KIND["FRAME"], self.channel_id, command.encode())

    def inject(self, command: RemotingCommand) -> bool:
        """Have the send worker handle *command*, a pull or a response to a push, as if this client had just sent it."""
        return self.is_open and self._link.write(LINK_KIND["INJECT"], self.channel_id, command.encode()[4:])

    def take_answers_of(self, client_id: str) -> None:
        name = client_id.encode("utf-8", "surrogatepass")
        if self.is_open and len(name) <= layout.ASKER_SIZE_MAX:
            self._link.write(LINK_KIND["ASKER"], self.channel_id, name)

    def close(self) -> None:
        if self.is_open:
            self._link.write(LINK_KIND["CLOSE"], self.channel_id, b"")

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request of the broker's own and return the client's response."""
        opaque = next(_opaques) & (layout.PUSH_NUMBER_BIT - 1)
        call: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._calls[opaque] = call
        try:
            if not self.send(replace(command, opaque=opaque)):
                raise RemotingSendError(f"send request to <{self.remote_ip}:{self.remote_port}> failed")
            async with asyncio.timeout(timeout_s):
                return await call
        except TimeoutError as error:
            raise RemotingTimeoutError(
                f"wait response on the channel <{self.remote_ip}:{self.remote_port}> timeout, "
                f"{timeout_s * 1000:.0f}(ms)"
            ) from error
        finally:
            del self._calls[opaque]

    def on_response(self, response: RemotingCommand) -> None:
        """A response frame has come; one that nobody waits for is dropped."""
        if response.opaque & layout.PUSH_NUMBER_BIT:
            # The send worker waits for it, and could not read it.
            self.inject(RemotingCommand(response.code, flag=response.flag, opaque=response.opaque))
            return
        call = self._calls.get(response.opaque)
        if call is not None and not call.done():
            call.set_result(response)

    def on_closed(self) -> None:
        """The connection is gone: calls that wait fail at once."""
        self.is_open = False
        for call in self._calls.values():
            if not call.done():
                call.set_exception(RemotingSendError(f"connection to {self.remote_ip}:{self.remote_port} was closed"))


def is_response(command: RemotingCommand) -> bool:
    return bool(command.flag & RemotingFlag.RESPONSE)
