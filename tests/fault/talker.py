"""A plain blocking connection to a broker, for tests that need to see every frame, or none."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from mqcore.codes import RequestCode, ResponseCode, SerializeType
from mqcore.protocol import headers
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.bodies import HeartbeatData, ProducerData
from mqcore.protocol.command import FrameSplitter, RemotingCommand
from mqcore.protocol.message import Message, MessageExt
from mqcore.protocol.message_decoder import decode_messages
from mqcore.protocol.properties import encode_properties

TIMEOUT_S = 30.0
READ_SIZE = 1 << 18
PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4

_opaques = itertools.count(1)


class Talker:
    """One connection. Not for several threads, but for closing it from another, which makes calls fail at once."""

    def __init__(
        self,
        address: str,
        timeout_s: float = TIMEOUT_S,
        *,
        receive_buffer_size: int | None = None,
        source: str = "",
    ) -> None:
        """*source* is the address that it comes from, one of the loopback device's."""
        host, _, port = address.rpartition(":")
        self.timeout_s = timeout_s
        self.socket = socket.socket()
        self.socket.settimeout(timeout_s)
        if receive_buffer_size is not None:
            # Only before connecting does it hold for the first window, too.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_size)
        try:
            if source:
                self.socket.bind((source, 0))
            self.socket.connect((host, int(port)))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._splitter = FrameSplitter()
        self._arrived: list[RemotingCommand] = []

    def send(self, commands: Iterable[RemotingCommand]) -> None:
        """Write all *commands* in one call, each with an opaque of its own."""
        frames = []
        for command in commands:
            command.opaque = next(_opaques) & 0x7FFFFFFF
            frames.append(command.encode())
        self.socket.sendall(b"".join(frames))

    def receive(self, timeout_s: float | None = None) -> RemotingCommand:
        """The next frame. Raises TimeoutError, or ConnectionError once the broker has closed the connection."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while not self._arrived:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            data = self.socket.recv(READ_SIZE)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._arrived += [RemotingCommand.decode(payload) for payload in self._splitter.feed(data)]
        return self._arrived.pop(0)

    def call(self, command: RemotingCommand, timeout_s: float | None = None) -> RemotingCommand:
        """Send *command* and return its response; frames that answer something else are passed over."""
        self.send([command])
        while True:
            response = self.receive(timeout_s)
            if response.is_response and response.opaque == command.opaque:
                return response

    def is_closed_by_peer(self, timeout_s: float | None = None) -> bool:
        """Read on, dropping what comes, until the broker closes the connection; False if it does not in time."""
        try:
            while True:
                self.receive(timeout_s)
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def send_request(
    topic: str,
    queue_id: int,
    body: bytes,
    *,
    keys: str = "",
    code: int = RequestCode.SEND_MESSAGE_V2,
    serialize_type: SerializeType = SerializeType.JSON,
    is_batch: bool = False,
) -> RemotingCommand:
    """A request that stores one message, or with *is_batch* those in *body*."""
    ext_fields = headers.encode_request(
        code,
        producer_group="fault_producers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties="" if is_batch else encode_properties(properties_of(keys)),
        reconsume_times=0,
        batch=is_batch,
    )
    return RemotingCommand(code, ext_fields=ext_fields, body=body, serialize_type=serialize_type)


def batch_request(
    topic: str, queue_id: int, bodies: list[bytes], keys: list[str], serialize_type: SerializeType
) -> RemotingCommand:
    """A request that stores several messages, each with its key."""
    members = [Message(topic, body, properties=properties_of(key)) for body, key in zip(bodies, keys, strict=True)]
    return send_request(
        topic,
        queue_id,
        encode_batch(members),
        code=RequestCode.SEND_BATCH_MESSAGE,
        serialize_type=serialize_type,
        is_batch=True,
    )


def asker_heart_beat(client_id: str) -> RemotingCommand:
    """What lets a connection be known as the producer *client_id*, to which answers are pushed."""
    return RemotingCommand(RequestCode.HEART_BEAT, body=HeartbeatData(client_id, [ProducerData("askers")], []).encode())


def answer_request(topic: str, queue_id: int, body: bytes, asker: str) -> RemotingCommand:
    """The answer to a question of *asker*, to be kept in *topic*."""
    correlation = {"CORRELATION_ID": "id", "REPLY_TO_CLIENT": asker, "MSG_TYPE": "reply"}
    command = send_request(topic, queue_id, body, code=RequestCode.SEND_REPLY_MESSAGE_V2)
    assert command.ext_fields is not None
    command.ext_fields["i"] = encode_properties(properties_of("") | correlation)
    return command


def properties_of(keys: str) -> dict[str, str]:
    """The properties of a message with *keys*, which may be empty."""
    return {"TAGS": "fault", "KEYS": keys} if keys else {"TAGS": "fault"}


def pull_request(
    topic: str,
    queue_id: int,
    offset: int,
    *,
    count: int = 32,
    suspend_ms: int = 0,
    group: str = "fault_readers",
    subscription: str | None = "*",
    sub_version: int = 1,
) -> RemotingCommand:
    """A request that reads a queue; with *suspend_ms* it waits at the broker.

    It brings its subscription along, so that no heart-beat need come before; with None its group has registered one.
    """
    ext_fields = headers.encode_request(
        RequestCode.PULL_MESSAGE,
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=(0 if subscription is None else PULL_SUBSCRIPTION) | (PULL_SUSPEND if suspend_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        subscription=subscription,
        sub_version=sub_version,
        expression_type="TAG",
    )
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=ext_fields)


def max_offset_request(topic: str, queue_id: int) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.GET_MAX_OFFSET,
        ext_fields=headers.encode_request(RequestCode.GET_MAX_OFFSET, topic=topic, queue_id=queue_id),
    )


def view_request(physical_offset: int) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.VIEW_MESSAGE_BY_ID,
        ext_fields=headers.encode_request(RequestCode.VIEW_MESSAGE_BY_ID, offset=physical_offset),
    )


def pulled(response: RemotingCommand) -> list[MessageExt]:
    """The messages of a pull's response; none unless it found some."""
    return decode_messages(response.body) if response.code == ResponseCode.SUCCESS else []
