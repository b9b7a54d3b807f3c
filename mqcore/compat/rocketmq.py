"""The names of rocketmq-client-python, the wrapper of the C++ library: ``from mqcore.compat.rocketmq import Producer``.

Both generations are there: ``set_name_server_address`` of 2.0 and ``set_namesrv_addr`` of 1.x and 0.x, callbacks that
return a ConsumeStatus and callbacks that return nothing. No library has to be built, and no log file is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from mqcore import client
from mqcore.cause_log import CauseLog
from mqcore.client import Client, Done, ReceivedMessage, SendReceipt
from mqcore.client.model.transaction import TransactionState
from mqcore.client.plain.client import TransactionProducer
from mqcore.errors import BaseMQError, ClientError

log = CauseLog(logging.getLogger(__name__))

RocketMQException = BaseMQError
"""What its exceptions descend from there; here every error of mqcore."""


class SendStatus(IntEnum):
    """How safely a broker stored a message, in that library's numbers."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


STATUSES = {
    client.SendStatus.SEND_OK: SendStatus.OK,
    client.SendStatus.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    client.SendStatus.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    client.SendStatus.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class ConsumeStatus(IntEnum):
    """What a callback says about its message."""

    CONSUME_SUCCESS = 0
    RECONSUME_LATER = 1


class MessageModel(IntEnum):
    """Whether the members of a group share the messages or each gets them all."""

    BROADCASTING = 0
    CLUSTERING = 1


class TransactionStatus(IntEnum):
    """The outcome of a local transaction."""

    COMMIT = 0
    ROLLBACK = 1
    UNKNOWN = 2


STATES = {
    TransactionStatus.COMMIT: TransactionState.COMMIT,
    TransactionStatus.ROLLBACK: TransactionState.ROLLBACK,
    TransactionStatus.UNKNOWN: TransactionState.UNKNOWN,
}


class SendResult(NamedTuple):
    """What a broker said about a sent message; *offset* is its queue offset."""

    status: SendStatus
    msg_id: str
    offset: int


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class Message:
    """A message to send."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._keys: tuple[str, ...] = ()
        self._tag: str | None = None
        self._body = b""
        self._properties: dict[str, str] = {}
        self._delay_level = 0

    def set_keys(self, keys: str | bytes) -> None:
        self._keys = tuple(_text(keys).split())

    def set_tags(self, tags: str | bytes) -> None:
        self._tag = _text(tags)

    def set_body(self, body: str | bytes) -> None:
        self._body = body.encode() if isinstance(body, str) else body

    def set_property(self, key: str | bytes, value: str | bytes) -> None:
        self._properties[_text(key)] = _text(value)

    def set_delay_time_level(self, delay_time_level: int) -> None:
        self._delay_level = delay_time_level

    def to_core(self) -> client.Message:
        """Return the message as ``mqcore.client`` sends it."""
        return client.Message(
            self.topic,
            self._body,
            tag=self._tag,
            keys=self._keys,
            properties=self._properties,
            delay_level=self._delay_level,
        )


class RecvMessage:
    """A received message. As in that library tags, keys and body are bytes, the rest is text and numbers."""

    def __init__(self, received: ReceivedMessage) -> None:
        self.received = received
        self.topic = received.topic
        self.tags = (received.tag or "").encode()
        self.keys = " ".join(received.keys).encode()
        self.body = received.body
        self.id = received.msg_id
        self.delay_time_level = int(received.properties.get("DELAY", "0"))
        self.queue_id = received.queue.queue_id
        self.reconsume_times = received.reconsume_times
        self.store_size = received.ext.store_size
        self.born_timestamp = received.born_timestamp
        self.store_timestamp = received.store_timestamp
        self.queue_offset = received.queue_offset
        self.commit_log_offset = received.ext.physical_offset
        self.prepared_transaction_offset = received.ext.prepared_transaction_offset

    def get_property(self, name: str | bytes) -> bytes:
        return self.received.properties.get(_text(name), "").encode()

    def __str__(self) -> str:
        return self.body.decode()

    def __bytes__(self) -> bytes:
        return self.body

    def __repr__(self) -> str:
        return f"<RecvMessage topic={self.topic!r} id={self.id!r} body={self.body!r}>"


ReceivedMessageCallback = Callable[[RecvMessage], ConsumeStatus | None]


class _Member:
    """What producers and consumers of that library have in common."""

    def __init__(self, group_id: str) -> None:
        self._group = group_id
        self._name_servers: str | None = None
        self._client_settings: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self._client: Client | None = None

    def set_group(self, group_id: str) -> None:
        self._group = group_id

    def set_name_server_address(self, address: str) -> None:
        """Set the name servers, ``host:port;host:port``."""
        self._name_servers = address

    set_namesrv_addr = set_name_server_address

    def set_name_server_domain(self, domain: str) -> None:
        """Set the name servers by a name with its port, or port 9876, or by the URL of a page that names them.

        A ``http://`` before a name without a path is left out.
        """
        self._name_servers = domain

    set_namesrv_domain = set_name_server_domain

    def set_instance_name(self, name: str) -> None:
        self._client_settings["instance_name"] = name

    def set_session_credentials(self, access_key: str, access_secret: str, channel: str = "") -> None:
        """Sign requests; *channel* is only for traces, which go elsewhere in the cloud."""
        self._client_settings |= {"access_key": access_key, "secret_key": access_secret}
        if channel.upper() in ("LOCAL", "CLOUD"):
            self._client_settings["access_channel"] = channel

    def _open_client(self) -> Client:
        if self._client is not None:
            raise ClientError("start has been called before")
        self._client = Client(self._name_servers, **self._client_settings)
        self._client.start()
        return self._client

    def shutdown(self) -> None:
        """Finish what is in hand, leave the group, close the connections."""
        if self._client is not None:
            self._client.close()


class Producer(_Member):
    """Sends messages. *orderly* is accepted for ``send_orderly_with_sharding_key``, which needs nothing of it."""

    def __init__(
        self,
        group_id: str,
        orderly: bool = False,
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id)
        self._producer: client.Producer | None = None
        if timeout is not None:
            self.set_timeout(timeout)
        if compress_level is not None:
            self.set_compress_level(compress_level)
        if max_message_size is not None:
            self.set_max_message_size(max_message_size)

    def set_timeout(self, timeout: int) -> None:
        """Set how long a send may take, ms."""
        self._settings["send_timeout_s"] = timeout / 1000

    def set_compress_level(self, level: int) -> None:
        self._settings["compress_level"] = level

    def set_max_message_size(self, max_size: int) -> None:
        self._settings["max_message_size_bytes"] = max_size

    def start(self) -> None:
        opened = self._open_client()
        try:
            self._producer = self._make_producer(opened)
            self._producer.start()
        except BaseException:
            opened.close()
            raise

    def send_sync(self, msg: Message) -> SendResult:
        return _result(self._running().send(msg.to_core()))

    def send_oneway(self, msg: Message) -> None:
        self._running().send_oneway(msg.to_core())

    def send_orderly_with_sharding_key(self, msg: Message, sharding_key: str) -> SendResult:
        """Send to the queue of *sharding_key*: equal keys, equal queue, also for Java's producers."""
        return _result(self._running().send(msg.to_core(), shard_key=sharding_key))

    def _make_producer(self, opened: Client) -> client.Producer:
        return opened.producer(self._group, **self._settings)

    def _running(self) -> client.Producer:
        if self._producer is None:
            raise ClientError("the producer is not running: call start first")
        return self._producer


def _result(receipt: SendReceipt) -> SendResult:
    return SendResult(STATUSES[receipt.status], receipt.msg_id, receipt.offset)


class TransactionMQProducer(Producer):
    """Sends messages that are delivered only if a local transaction succeeds.

    *checker_callback* is called with a RecvMessage and returns what became of its transaction.
    """

    def __init__(
        self,
        group_id: str,
        checker_callback: Callable[[RecvMessage], TransactionStatus],
        user_args: object = None,
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id, False, timeout, compress_level, max_message_size)
        self._checker = checker_callback

    def send_message_in_transaction(
        self,
        message: Message,
        local_execute: Callable[[Message, object], TransactionStatus],
        user_args: object = None,
    ) -> SendResult:
        """Send *message* as a half, run ``local_execute(message, user_args)``, and tell the broker the outcome."""
        producer = self._running()
        assert isinstance(producer, TransactionProducer)  # made below
        return _result(
            producer.send_in_transaction(message.to_core(), lambda _m, _r: STATES[local_execute(message, user_args)])
        )

    def _make_producer(self, opened: Client) -> client.Producer:
        return opened.transaction_producer(
            self._group, lambda message: STATES[self._checker(RecvMessage(message))], **self._settings
        )


class PushConsumer(_Member):
    """Calls a function for each message. Subscribe, ``start``, ``shutdown``."""

    def __init__(
        self, group_id: str, orderly: bool = False, message_model: MessageModel = MessageModel.CLUSTERING
    ) -> None:
        super().__init__(group_id)
        self._settings |= {"orderly": orderly, "message_model": message_model.name}
        self._topics: dict[str, str] = {}
        self._callbacks: dict[str, ReceivedMessageCallback] = {}

    def set_message_model(self, model: MessageModel) -> None:
        self._settings["message_model"] = model.name

    def set_thread_count(self, thread_count: int) -> None:
        self._settings["concurrency"] = thread_count

    def set_message_batch_max_size(self, max_size: int) -> None:
        self._settings["batch_size"] = max_size

    def subscribe(self, topic: str, callback: ReceivedMessageCallback, expression: str = "*") -> None:
        """Call *callback* for each message of *topic* that has one of the tags in *expression*.

        It returns CONSUME_SUCCESS or nothing when the message is done; RECONSUME_LATER, or an exception, brings it
        again. Unlike there, each topic has a callback of its own.
        """
        self._topics[topic] = expression
        self._callbacks[topic] = callback

    def start(self) -> None:
        opened = self._open_client()
        try:
            opened.consumer(self._group, self._topics, batch_handler=self._handle, **self._settings).start()
        except BaseException:
            opened.close()
            raise

    def _handle(self, messages: Sequence[ReceivedMessage]) -> Done:
        for index, message in enumerate(messages):
            try:
                status = self._callbacks[message.topic](RecvMessage(message))
            except Exception as error:  # what is in front of the failed message is done all the same
                log.warning(
                    "callback failed", exc_info=error, group=self._group, topic=message.topic, msg_id=message.msg_id
                )
                return Done(index)
            if status == ConsumeStatus.RECONSUME_LATER:
                return Done(index)
        return Done(len(messages))


class PullConsumer(_Member):
    """Reads topics from the beginning, without a group's offsets."""

    def start(self) -> None:
        self._open_client()

    def pull(self, topic: str, expression: str = "*", max_num: int = 32) -> Iterator[RecvMessage]:
        """Yield the messages that *topic* holds now, one queue after the other."""
        if self._client is None:
            raise ClientError("the consumer is not running: call start first")
        for queue in self._client.queues(topic):
            offset, end = self._client.min_offset(queue), self._client.max_offset(queue)
            while offset < end:
                result = self._client.pull(queue, offset, max_num, expression=expression, group=self._group)
                yield from map(RecvMessage, result.messages)
                if result.next_offset <= offset:
                    break
                offset = result.next_offset
