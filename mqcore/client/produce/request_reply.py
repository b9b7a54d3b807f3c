"""Request and reply: a message whose sender waits for an answer to come back to it.

The question is an ordinary message that says who asks. Whoever consumes it sends the answer to the reply topic of the
cluster, whose broker pushes it over the asker's own connection.
Source: RocketMQ DefaultMQProducerImpl.java, request; RequestFutureHolder.java, MessageUtil.java,
ClientRemotingProcessor.java, receiveReplyMessage.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from mqcore import clock
from mqcore.address import parse_peer_address
from mqcore.cause_log import CauseLog
from mqcore.client.errors import CreateReplyError
from mqcore.client.model.messages import Message, ReceivedMessage
from mqcore.client.model.namespace import Namespace
from mqcore.client.session.session import Session
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import MQError
from mqcore.protocol import properties as names
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.compression import decompress
from mqcore.protocol.headers import decode_request
from mqcore.protocol.message import MessageExt, MessageQueue, decode_properties
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import reply_topic
from mqcore.transport.connection import Connection

log = CauseLog(logging.getLogger(__name__))

REPLY_TYPE = "reply"


@dataclass(frozen=True, slots=True)
class ReplyMessage(Message):
    """An answer to a request. Made by ``create_reply``; sent like any message, by any producer."""

    correlation: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)

    def wire_properties(self) -> dict[str, str]:
        return {**Message.wire_properties(self), **self.correlation}


def create_reply(
    request: ReceivedMessage,
    body: bytes,
    *,
    tag: str | None = None,
    keys: tuple[str, ...] = (),
    properties: Mapping[str, str] | None = None,
) -> ReplyMessage:
    """Return the answer to *request*, to be sent by a producer.

    Raises CreateReplyError when *request* did not come through a broker that marks its messages with its cluster.
    """
    cluster = request.properties.get(names.PROPERTY_CLUSTER)
    if cluster is None:
        raise CreateReplyError("create reply message fail, requestMessage error, property[CLUSTER] is null.")
    copied = (names.PROPERTY_CORRELATION_ID, names.PROPERTY_MESSAGE_REPLY_TO_CLIENT, names.PROPERTY_MESSAGE_TTL)
    correlation = {name: request.properties[name] for name in copied if name in request.properties}
    correlation[names.PROPERTY_MESSAGE_TYPE] = REPLY_TYPE
    return ReplyMessage(
        reply_topic(cluster), body, tag=tag, keys=keys, properties=properties or {}, correlation=correlation
    )


def is_request(message: ReceivedMessage) -> bool:
    """Whether the sender of *message* waits for a reply."""
    return names.PROPERTY_MESSAGE_REPLY_TO_CLIENT in message.properties


class PendingReplies:
    """The questions of one session that have no answer yet. ``Session.shared`` has them."""

    def __init__(self, session: Session) -> None:
        self._names = session.namespace
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        session.inbox.answer(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self.on_reply)

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self) -> tuple[str, asyncio.Future[ReceivedMessage]]:
        """Return a new correlation id and the future of its reply; ``forget`` it in any case."""
        correlation_id = str(uuid.uuid4())
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return correlation_id, future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    async def on_reply(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Take a reply that a broker pushes. It is answered with success when it can be read, wanted or not."""
        try:
            message = read_reply(command, self._names)
        except MQError as error:
            log.warning("reply unreadable", address=connection.remote_address, error=error)
            return command.reply(ResponseCode.SYSTEM_ERROR, "process reply message fail")
        correlation_id = message.properties.get(names.PROPERTY_CORRELATION_ID, "")
        future = self._waiting.pop(correlation_id, None)
        if future is None:
            log.warning("reply to no question of ours, or too late", correlation_id=correlation_id)
        elif not future.done():
            future.set_result(message)
        return command.reply()


def read_reply(command: RemotingCommand, namespace: Namespace) -> ReceivedMessage:
    """Return the reply that a broker pushed; raise ProtocolError when it cannot be read."""
    values = decode_request(command.code, command.ext_fields)
    properties = decode_properties(values["properties"])
    properties[names.PROPERTY_REPLY_MESSAGE_ARRIVE_TIME] = str(clock.now_ms())
    topic, queue_id = values["topic"], values["queue_id"]
    ext = MessageExt(
        topic,
        decompress(command.body, values["sys_flag"]),
        flag=values["flag"],
        properties=properties,
        queue_id=queue_id,
        sys_flag=values["sys_flag"],
        born_timestamp=values["born_timestamp"],
        born_host=_host(values["born_host"]),
        store_timestamp=values["store_timestamp"],
        store_host=_host(values["store_host"]),
        reconsume_times=values["reconsume_times"] or 0,
    )
    shown = namespace.unwrap(topic)
    return ReceivedMessage(ext, MessageQueue(shown, "", queue_id), topic=shown)


def _host(text: str) -> HostAddress:
    """Read an address as Java prints a socket's: ``/127.0.0.1:1234``, or with a host name in front of the slash."""
    return HostAddress(*parse_peer_address(text.rpartition("/")[2]))
