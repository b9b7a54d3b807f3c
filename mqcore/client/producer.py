"""The producer of mqcore.aio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqcore.client.errors import ClientClosedError, InvalidMessageError
from mqcore.client.inflight import InflightLimit
from mqcore.client.messages import Message, SendReceipt, SendStatus
from mqcore.client.producer_core import ChooseQueue, Outgoing, ProducerCore, Sent
from mqcore.client.selectors import QueueSelector, select_by_hash
from mqcore.client.settings import ProducerSettings
from mqcore.client.validators import check_message
from mqcore.errors import ClientError, ConfigError
from mqcore.protocol import message as wire
from mqcore.protocol import properties as names
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.compression import CompressionType, compress
from mqcore.protocol.names import is_retry_topic
from mqcore.protocol.properties import PROPERTIES_SIZE_MAX, encode_properties

if TYPE_CHECKING:
    from mqcore.client.instance import ClientInstance

logger = logging.getLogger(__name__)

NO_COMPRESSION = "none"
UTF8_SIZE_MAX = 4
"""Bytes of one character at most."""


def compression_named(name: str) -> CompressionType | None:
    """Return the codec that the setting *name* chooses; ConfigError when there is none of that name."""
    if name == NO_COMPRESSION:
        return None
    try:
        return CompressionType[name.upper()]
    except KeyError:
        raise ConfigError(f"setting compression: got {name!r}, wanted zlib, lz4, zstd or none") from None


class Producer:
    """Sends messages in the name of a group. Made by ``Client.producer``; used inside ``async with``.

    Sends may run at once from many tasks. When max_inflight_messages or max_inflight_bytes are under way, the next
    send waits its turn before its timeout begins.
    """

    def __init__(self, hub: ClientInstance, group: str, settings: ProducerSettings) -> None:
        self._hub = hub
        self._core = ProducerCore(hub, group, settings)
        self._settings = settings
        self._compression = compression_named(settings.compression)
        self._inflight = InflightLimit(settings.max_inflight_messages, settings.max_inflight_bytes)
        self._open = False
        self.group = group

    # Life cycle.

    async def start(self) -> None:
        """Register the group; ClientError when this client has a producer of the same group."""
        await self._hub.start()
        self._hub.add_producer(self)
        self._open = True
        await self._hub.heartbeat()

    async def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Refuse new sends, wait for those under way at most *timeout_s* (or not at all), and leave the group."""
        if not self._open:
            return
        self._open = False
        if drain:
            try:
                async with asyncio.timeout(self._hub.settings.close_timeout_s if timeout_s is None else timeout_s):
                    await self._inflight.wait_idle()
            except TimeoutError:
                logger.warning("closing with sends under way group=%s messages=%d", self.group, self._inflight.messages)
        await self._hub.remove_producer(self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Sending.

    async def send(
        self,
        message: Message,
        *,
        queue: wire.MessageQueue | None = None,
        shard_key: str | int | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send *message* and return what the broker said when it had stored it.

        The queue is the next in turn, with further attempts on other brokers; or *queue*; or that of *shard_key*, so
        that messages with equal keys keep their order; or the choice of *selector*: then there is one attempt only.

        Raises InvalidMessageError, NoRouteError, BrokerError (refused), SendFailedError (all attempts failed) and
        RemotingTimeoutError, after which the message may or may not be stored.
        """
        outgoing = self._outgoing(message)
        choose = self._choice(message, queue, shard_key, selector)
        size = len(outgoing.body)
        await self._enter(size)
        try:
            if choose is None:
                sent = await self._core.send(outgoing, timeout_s)
            else:
                sent = await self._core.send_chosen(outgoing, choose, timeout_s)
        finally:
            self._inflight.release(size)
        return receipts(sent, [outgoing.properties[names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX]])[0]

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: wire.MessageQueue | None = None,
        shard_key: str | int | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Send *message* without asking whether it arrived. What can be lost unnoticed, will be."""
        outgoing = self._outgoing(message)
        choose = self._choice(message, queue, shard_key, selector)
        size = len(outgoing.body)
        await self._enter(size)
        try:
            await self._core.send_oneway(outgoing, choose)
        finally:
            self._inflight.release(size)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: wire.MessageQueue | None = None, timeout_s: float | None = None
    ) -> list[SendReceipt]:
        """Send *messages* of one topic in one request, to one queue; they are stored one after the other or not at all.

        Raises InvalidMessageError when they differ in topic or wait_store_ok, have a delay, or are together larger than
        max_message_size_bytes; else like ``send``.
        """
        outgoing, ids = self._outgoing_batch(messages)
        size = len(outgoing.body)
        await self._enter(size)
        try:
            if queue is None:
                sent = await self._core.send(outgoing, timeout_s)
            else:
                sent = Sent(queue, await self._core.send_to(outgoing, queue, timeout_s))
        finally:
            self._inflight.release(size)
        return receipts(sent, ids)

    async def queues(self, topic: str) -> Sequence[wire.MessageQueue]:
        """Return the queues to which *topic* can be sent, in the order of the turn."""
        return await self._core.publish_queues(topic)

    # The inside.

    async def _enter(self, size: int) -> None:
        if not self._open:
            raise ClientClosedError(f"the producer of group {self.group} is not open")
        await self._inflight.acquire(size)
        if not self._open:
            self._inflight.release(size)
            raise ClientClosedError(f"the producer of group {self.group} was closed")

    def _outgoing(self, message: Message) -> Outgoing:
        check_message(message.topic, message.body, self._settings.max_message_size_bytes)
        properties = message.wire_properties()
        properties[names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._hub.unique_ids.next_id()
        check_properties_size(properties)
        body, sys_flag = message.body, 0
        if self._compression is not None and len(body) >= self._settings.compress_over_bytes:
            body = compress(body, self._compression, self._settings.compress_level)
            sys_flag = self._compression.sys_flag
        return Outgoing(message.topic, body, properties, message.flag, sys_flag)

    def _outgoing_batch(self, messages: Sequence[Message]) -> tuple[Outgoing, list[str]]:
        if not messages:
            raise InvalidMessageError("a batch needs at least one message")
        first = messages[0]
        ids: list[str] = []
        encoded: list[wire.Message] = []
        for message in messages:
            check_message(message.topic, message.body, self._settings.max_message_size_bytes)
            if message.topic != first.topic:
                raise InvalidMessageError("The topic of the messages in one batch should be the same")
            if message.wait_store_ok != first.wait_store_ok:
                raise InvalidMessageError("The waitStoreMsgOK of the messages in one batch should the same")
            if message.delay_level:
                raise InvalidMessageError("TimeDelayLevel is not supported for batching")
            ids.append(self._hub.unique_ids.next_id())
            properties = message.wire_properties() | {names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: ids[-1]}
            check_properties_size(properties)
            encoded.append(wire.Message(message.topic, message.body, flag=message.flag, properties=properties))
        if is_retry_topic(first.topic):
            raise InvalidMessageError("Retry Group is not supported for batching")
        body = encode_batch(encoded)
        check_message(first.topic, body, self._settings.max_message_size_bytes)
        outer = {names.PROPERTY_WAIT_STORE_MSG_OK: "true" if first.wait_store_ok else "false"}
        return Outgoing(first.topic, body, outer, is_batch=True), ids

    @staticmethod
    def _choice(
        message: Message,
        queue: wire.MessageQueue | None,
        shard_key: str | int | None,
        selector: QueueSelector | None,
    ) -> ChooseQueue | None:
        if (queue is not None) + (shard_key is not None) + (selector is not None) > 1:
            raise ClientError("give one of queue, shard_key and selector")
        if queue is not None:
            return lambda queues: queue
        if shard_key is not None:
            return lambda queues: select_by_hash(queues, shard_key)
        if selector is not None:
            return lambda queues: selector(queues, message)
        return None


def check_properties_size(properties: dict[str, str]) -> None:
    """Raise InvalidMessageError when the properties would not fit into a record."""
    characters = sum(len(name) + len(value) + 2 for name, value in properties.items())
    if characters * UTF8_SIZE_MAX <= PROPERTIES_SIZE_MAX:
        return
    size = len(encode_properties(properties).encode())
    if size > PROPERTIES_SIZE_MAX:
        raise InvalidMessageError(
            f"the properties are too long: got {size} bytes, wanted at most {PROPERTIES_SIZE_MAX}"
        )


def receipts(sent: Sent, ids: Sequence[str]) -> list[SendReceipt]:
    """Return one receipt per id: a batch lies in one queue, at consecutive offsets, its offset ids joined by commas."""
    response = sent.response
    queue = wire.MessageQueue(sent.queue.topic, sent.queue.broker_name, response.queue_id)
    offset_ids = response.offset_msg_id.split(",")
    return [
        SendReceipt(
            status=SendStatus(response.code),
            msg_id=msg_id,
            offset_msg_id=offset_ids[at] if at < len(offset_ids) else "",
            queue=queue,
            offset=response.queue_offset + at,
            transaction_id=response.transaction_id,
            region_id=response.region_id or "DefaultRegion",
            trace_on=response.trace_on != "false",
        )
        for at, msg_id in enumerate(ids)
    ]
