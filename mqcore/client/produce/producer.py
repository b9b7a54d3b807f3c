"""The producer of mqcore.aio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.errors import (
    BatchPartlySentError,
    ClientClosedError,
    ClientStateError,
    InvalidMessageError,
    ProducerFullError,
    RequestTimeoutError,
)
from mqcore.client.model.counters import ProducerCounts, SendTally, SendWatch, TopicSends
from mqcore.client.model.latency import together
from mqcore.client.model.messages import Message, ReceivedMessage
from mqcore.client.model.outgoing import Outgoing
from mqcore.client.model.receipt import SendReceipt
from mqcore.client.model.selectors import QueueSelector, ShardKey, select_by_hash
from mqcore.client.model.validators import check_message
from mqcore.client.produce.batch_split import BatchPart, member_size, split_batch, whole_batch
from mqcore.client.produce.batching import Batcher, SendFuture
from mqcore.client.produce.blocking import BlockingSender
from mqcore.client.produce.core import ChooseQueue, FailedAttempt, ProducerCore, check_queue, chosen_by
from mqcore.client.produce.fault_strategy import BrokerFault
from mqcore.client.produce.inflight import InflightLimit
from mqcore.client.produce.receipts import receipts_of
from mqcore.client.produce.request_reply import PendingReplies, ReplyMessage, create_reply
from mqcore.client.session import forks
from mqcore.client.settings.classes import ProducerSettings
from mqcore.client.telemetry.producer_hooks import ProducerHook
from mqcore.errors import ArgumentError, ConfigError, MQError
from mqcore.layout import PROPERTIES_SIZE_MAX
from mqcore.protocol import message as wire
from mqcore.protocol import properties as names
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.compression import CompressionType, check_codec, compress
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_retry_topic
from mqcore.protocol.properties import encode_properties

if TYPE_CHECKING:
    from mqcore.client.session.loop_thread import LoopThread
    from mqcore.client.session.session import Session
    from mqcore.client.telemetry.trace import TraceDispatcher

log = CauseLog(logging.getLogger(__name__))

NO_COMPRESSION = "none"
UTF8_SIZE_MAX = 4
"""Bytes of one character at most."""


def compression_named(name: str, level: int) -> CompressionType | None:
    """Return the codec that the setting *name* chooses.

    Raises ConfigError when there is none of that name, its package is not installed, or it has no such *level*.
    """
    if name == NO_COMPRESSION:
        return None
    try:
        kind = CompressionType[name.upper()]
    except KeyError:
        raise ConfigError(f"setting compression: got {name!r}, wanted zlib, lz4, zstd or none") from None
    check_codec(kind, level)
    return kind


class Producer:
    """Sends messages in the name of a group. Made by ``Client.producer``; used inside ``async with``.

    Sends may run at once from many tasks. When max_inflight_messages or max_inflight_bytes are under way, the next
    send waits its turn before its timeout begins.
    """

    def __init__(self, hub: Session, group: str, settings: ProducerSettings) -> None:
        self._hub = hub
        self._core = ProducerCore(hub, group, settings)
        self._replies = hub.shared(PendingReplies)
        self._settings = settings
        self._compression = compression_named(settings.compression, settings.compress_level)
        self._tally = SendTally()
        self._inflight = InflightLimit(settings.max_inflight_messages, settings.max_inflight_bytes)
        self._batcher = Batcher(self._core, settings, self._inflight, hub.unique_ids, self._tally)
        self._tracer: TraceDispatcher | None = None
        self._short_way: BlockingSender | None = None
        self._open = False
        self._started = False
        self._parent_pid: int | None = None
        self.group = group

    @property
    def join(self) -> Callable[..., SendFuture | None]:
        """What lets a message join a batch that is open, for whoever gives many; see ``Batcher.join``."""
        return self._batcher.join

    # Life cycle.

    async def start(self) -> None:
        """Register the group; ClientStateError when this client has a producer of the same group."""
        await self._hub.start()
        self._hub.add_producer(self)
        if self._settings.trace and self._tracer is None:
            await self._start_tracing()
        self._batcher.start()
        self._started = self._open = True
        self._open_short_way()
        await self._hub.heartbeat()

    async def _start_tracing(self) -> None:
        # Few trace, and it takes long to import.
        from mqcore.client.telemetry.trace import TraceDispatcher, TraceSide
        from mqcore.client.telemetry.trace_hooks import ProducerTraceHook

        topic = self._settings.trace_topic
        self._tracer = TraceDispatcher(ProducerCore, self._hub, self.group, TraceSide.PRODUCE, topic)
        self.add_hook(ProducerTraceHook(self._tracer))
        await self._tracer.start()

    async def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Refuse new sends, wait for those under way at most *timeout_s* (or not at all), and leave the group."""
        if not self._open:
            return
        self._open = False
        if drain:
            try:
                async with asyncio.timeout(self._hub.settings.close_timeout_s if timeout_s is None else timeout_s):
                    await self._batcher.flush()
            except TimeoutError:
                log.warning("closing with sends under way", group=self.group, messages=self._inflight.messages)
        await self._batcher.close()
        if self._short_way is not None:
            self._short_way.close()
        if self._tracer is not None:
            await self._tracer.close()
        await self._hub.remove_producer(self)

    def short_way(self) -> BlockingSender:
        """Return a sender for threads that do without the event loop where they can; open while the producer is."""
        if self._short_way is None:
            hub = self._hub
            self._short_way = BlockingSender(
                self._core,
                hub.routes,
                self._settings,
                self._inflight,
                self._batcher,
                self._outgoing,
                self._tally,
                tls=hub.remoting.tls,
                signer=hub.signer,
            )
            if self._open:
                self._open_short_way()
        return self._short_way

    def _open_short_way(self) -> None:
        # It signs itself; what else wants to see each request sees all of them on the long way.
        hub = self._hub
        if self._short_way is not None and all(hook is hub.signer for hook in hub.remoting.request_hooks):
            self._short_way.open()

    def add_hook(self, hook: ProducerHook) -> None:
        """Let *hook* look at every send from now on; see ``hooks``."""
        self._core.hooks.add(hook)

    @property
    def counts(self) -> ProducerCounts:
        """What has been sent since the start, what has failed, and what is under way. From any thread."""
        topics = self.sends().values()
        return ProducerCounts(
            sum(topic.sent for topic in topics),
            sum(sum(topic.failed.values()) for topic in topics),
            self._inflight.messages,
            self._inflight.bytes,
            together(topic.times for topic in topics).latency(),
        )

    def sends(self) -> dict[str, TopicSends]:
        """What has been sent since the start, what has failed, and what it took, by topic. From any thread."""
        found = self._tally.by_topic()
        for topic, times in {} if self._short_way is None else self._short_way.sends.items():
            sends = found.setdefault(topic, TopicSends())
            sends.sent += times.count
            sends.times.add_all(times)
        return found

    def watch_sends(self, watch: SendWatch) -> None:
        """Let *watch* be told of each request that has ended, in the thread in which it has; it must not block."""
        self._tally.watch = watch

    @property
    def session(self) -> Session:
        """The session whose member it is."""
        return self._hub

    @property
    def has_ended(self) -> bool:
        """Whether it has been started and closed, and will count nothing more."""
        return self._started and not self._open and not self._inflight.messages

    @property
    def faults(self) -> list[BrokerFault]:
        """What is known of the brokers, the best first; empty unless send_latency_fault_enable is on."""
        return self._core.faults.faults()

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child: refuse sends, whose connections and locks are the parent's."""
        self._open = False
        self._parent_pid = parent_pid

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
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send *message* and return what the broker said when it had stored it.

        The queue is the next in turn, with further attempts on other brokers; or *queue*; or that of *shard_key*, so
        that messages with equal keys keep their order; or the choice of *selector*: then there is one attempt only.

        Raises InvalidMessageError, NoRouteError, BrokerError (refused), SendFailedError (all attempts failed) and
        RemotingTimeoutError, after which the message may or may not be stored.
        """
        choose = self.choice(message, queue, shard_key, selector)
        if choose is None and timeout_s is None and self._open and not self._core.hooks.any_of_sends:
            joined = self._batcher.join(message)
            if joined is not None:
                return await joined
        outgoing = self._outgoing(message)
        is_special = outgoing.is_reply or self._core.hooks.any_of_sends
        if timeout_s is not None or is_special or not self._settings.batch_bytes:
            return await self._send_outgoing(outgoing, choose, timeout_s)
        return await (await self._send_soon(outgoing, choose))

    async def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> SendFuture:
        """Give *message* to the next batch and return at once, or when there is room; await the result for the receipt.

        Messages of one task or thread to one queue are stored in the order of these calls. ``send`` goes the same way,
        unless it has a timeout of its own. Raises InvalidMessageError, NoRouteError and, if the settings say so,
        ProducerFullError; everything else comes from the result.
        """
        choose = self.choice(message, queue, shard_key, selector)
        if choose is None and self._open and (joined := self._batcher.join(message)) is not None:
            return joined
        return await self._send_soon(self._outgoing(message), choose)

    def send_soon_blocking(
        self,
        thread: LoopThread,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> SendFuture:
        """Do the same from a thread without an event loop, while *thread* runs the one of this producer."""
        if not self._open or not thread.is_open:
            return thread.call(self.send_soon(message, queue=queue, shard_key=shard_key, selector=selector))
        choose = self.choice(message, queue, shard_key, selector)
        if choose is None and (joined := self._batcher.join(message)) is not None:
            return joined
        outgoing = self._outgoing(message)
        chosen: MessageQueue | None = None
        if choose is not None:
            rotation = self._hub.routes.known_rotation(message.topic)
            queues = thread.call(self.queues(message.topic)) if rotation is None else rotation.queues
            chosen = chosen_by(choose, queues)
            check_queue(outgoing, chosen)
        size = len(outgoing.body)
        if not self._inflight.try_acquire(size):
            self._check_may_wait()
            self._inflight.acquire_blocking(size)
        return self._submit(outgoing, chosen)

    async def flush(self) -> None:
        """Send what lingers, and return when every message given so far has its receipt or its error."""
        await self._batcher.flush()

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Send *message* without asking whether it arrived. What can be lost unnoticed, will be."""
        outgoing = self._outgoing(message)
        choose = self.choice(message, queue, shard_key, selector)
        await self._enter(len(outgoing.body))
        with self._under_way(outgoing):
            await self._core.send_oneway(outgoing, choose)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        split: bool = True,
    ) -> list[SendReceipt]:
        """Send *messages* of one topic in as few requests as they fit into; return one receipt each, in their order.

        The messages of a request lie in one queue, one after the other, or are not stored at all. Several requests go
        one after the other, each to the queue whose turn it is, or all to *queue*, each with *timeout_s*. With *split*
        false a list too large for one request is refused.

        Raises InvalidMessageError when they differ in topic or wait_store_ok, have a delay, or one is too large; else
        like ``send``. BatchPartlySentError when a request failed after others had been stored.
        """
        members = self._members(messages)
        size_max = self._settings.max_message_size_bytes
        sizes = [member_size(member.body, member.properties) for member in members]
        parts = list(split_batch(sizes, size_max)) if split else [whole_batch(sizes, size_max)]
        found: list[SendReceipt] = []
        for part in parts:
            outgoing = self._outgoing_part(messages, members, part)
            choose = None if queue is None else always(queue)
            try:
                found += await self._send_all(outgoing, choose, timeout_s)
            except (MQError, ClientClosedError) as error:
                if not found:
                    raise
                raise BatchPartlySentError(messages[0].topic, tuple(found), len(messages), str(error)) from error
        return found

    # Request and reply.

    async def request(
        self,
        message: Message,
        timeout_s: float | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> ReceivedMessage:
        """Send *message* and return the reply that one of its consumers sends back, within *timeout_s* altogether.

        Raises RequestTimeoutError when the message was sent and no reply came; else like ``send``.
        """
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        choose = self.choice(message, queue, shard_key, selector)
        outgoing = self._outgoing(message)
        correlation_id, reply = self._replies.expect()
        outgoing.properties[names.PROPERTY_CORRELATION_ID] = correlation_id
        outgoing.properties[names.PROPERTY_MESSAGE_REPLY_TO_CLIENT] = self._hub.client_id
        outgoing.properties[names.PROPERTY_MESSAGE_TTL] = str(int(timeout_s * 1000))
        try:
            await self._hub.make_known(await self._core.publish_queues(message.topic))
            try:
                await self._send_outgoing(outgoing, choose, max(0.0, deadline_s - loop.time()))
            except (MQError, ClientClosedError):
                if not reply.done():  # else the answer to the send was lost, but not the message
                    raise
            return await self._await_reply(reply, message.topic, deadline_s, timeout_s)
        finally:
            self._replies.forget(correlation_id)

    async def reply(
        self,
        request: ReceivedMessage,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Answer *request*, so that whoever waits for the reply gets *body*.

        Raises CreateReplyError when *request* cannot be answered; else like ``send``.
        """
        answer = create_reply(request, body, tag=tag, keys=tuple(keys), properties=properties)
        return await self.send(answer, timeout_s=timeout_s)

    async def recall(self, topic: str, handle: str, *, timeout_s: float | None = None) -> str:
        """Take a message of *topic* back that waits for its time, by its receipt's *recall_handle*; return its id.

        That means that the broker has stored the order: a message that is due before it is met comes all the same.
        Raises BrokerError when the broker refuses, as it does unless it was told to allow it (recallMessageEnable).
        """
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        return await self._core.recall(topic, handle, timeout_s)

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues to which *topic* can be sent, in the order of the turn."""
        return await self._core.publish_queues(topic)

    @staticmethod
    async def _await_reply(
        reply: asyncio.Future[ReceivedMessage], topic: str, deadline_s: float, timeout_s: float
    ) -> ReceivedMessage:
        try:
            async with asyncio.timeout_at(deadline_s):
                return await reply
        except TimeoutError:
            raise RequestTimeoutError(topic, int(timeout_s * 1000)) from None

    # The inside.

    async def _enter(self, size: int) -> None:
        if not self._open:
            if self._parent_pid is not None:
                raise forks.belongs_to(self._parent_pid)
            if self._started:
                raise ClientClosedError(f"the producer of group {self.group} is closed: make a new one")
            raise ClientStateError(
                f"the producer of group {self.group} is not started: use it inside a with statement, or call start()"
            )
        if not self._inflight.try_acquire(size):
            self._check_may_wait()
            await self._inflight.acquire(size)
        if not self._open:
            self._inflight.release(size)
            raise ClientClosedError(f"the producer of group {self.group} was closed")

    def _check_may_wait(self) -> None:
        if self._settings.when_full == "raise":
            raise ProducerFullError(
                f"the producer of group {self.group} has {self._inflight.messages} messages of {self._inflight.bytes} "
                "bytes under way"
            )

    async def _send_soon(self, outgoing: Outgoing, choose: ChooseQueue | None) -> SendFuture:
        queue: MessageQueue | None = None
        if choose is not None:
            queue = chosen_by(choose, await self._core.publish_queues(outgoing.topic))
            check_queue(outgoing, queue)
        await self._enter(len(outgoing.body))
        return self._submit(outgoing, queue)

    def _submit(self, outgoing: Outgoing, queue: MessageQueue | None) -> SendFuture:
        """Give a message, for which room has been taken, to the batcher."""
        try:
            return self._batcher.submit(outgoing, queue)
        except BaseException:
            self._inflight.release(len(outgoing.body))
            raise

    async def send_again(self, outgoing: Outgoing, failed: FailedAttempt) -> SendReceipt:
        """Go on with a send whose first attempt was made without the event loop."""
        await self._enter(len(outgoing.body))
        with self._under_way(outgoing, failed.begun_s):
            sent = await self._core.send(outgoing, failed.left_s, failed)
        return receipts_of(sent, [outgoing.msg_id]).get(0)

    async def _send_outgoing(
        self, outgoing: Outgoing, choose: ChooseQueue | None = None, timeout_s: float | None = None
    ) -> SendReceipt:
        return (await self._send_all(outgoing, choose, timeout_s))[0]

    async def _send_all(
        self, outgoing: Outgoing, choose: ChooseQueue | None, timeout_s: float | None
    ) -> list[SendReceipt]:
        """Send a message or a batch when there is room for it; return the receipt of each message in it."""
        await self._enter(len(outgoing.body))
        with self._under_way(outgoing):
            if choose is None:
                sent = await self._core.send(outgoing, timeout_s)
            else:
                sent = await self._core.send_chosen(outgoing, choose, timeout_s)
        ids = list(outgoing.ids) or [outgoing.msg_id]
        found = receipts_of(sent, ids)
        return [found.get(at) for at in range(len(ids))]

    @contextmanager
    def _under_way(self, outgoing: Outgoing, begun_s: float | None = None) -> Iterator[None]:
        """Give back the room of a request when the work inside has ended, and count its messages."""
        begun_s = clock.monotonic_s() if begun_s is None else begun_s
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            self._inflight.release(len(outgoing.body))
            self._tally.add(outgoing.topic, len(outgoing.ids) or 1, clock.monotonic_s() - begun_s, failure)

    def _outgoing(self, message: Message) -> Outgoing:
        check_message(message.topic, message.body, self._settings.max_message_size_bytes)
        properties = message.wire_properties()
        has_properties = bool(properties)
        properties[names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._hub.unique_ids.next_id()
        if has_properties:
            check_properties_size(properties)
        is_reply = isinstance(message, ReplyMessage)
        if is_reply:
            self._hub.namespace.leave_alone(message.topic)
        body, sys_flag = self._compressed(message.body)
        return Outgoing(message.topic, body, properties, message.flag, sys_flag, False, is_reply)

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        """Return a body as it travels, and the bits that say how. What cannot be compressed travels as it is."""
        if self._compression is None or len(body) < self._settings.compress_over_bytes:
            return body, 0
        try:
            return compress(body, self._compression, self._settings.compress_level), self._compression.sys_flag
        except Exception as error:  # four libraries, four error classes; the message is worth more than the bytes saved
            log.warning("message not compressed", group=self.group, codec=self._compression.name, error=error)
            return body, 0

    def _members(self, messages: Sequence[Message]) -> list[wire.Message]:
        """Return the messages of a batch, each with an id of its own, after checking that they may be one."""
        if not messages:
            raise InvalidMessageError("a batch needs at least one message")
        first = messages[0]
        members: list[wire.Message] = []
        for message in messages:
            check_message(message.topic, message.body, self._settings.max_message_size_bytes)
            if message.topic != first.topic:
                raise InvalidMessageError("The topic of the messages in one batch should be the same")
            if message.wait_store_ok != first.wait_store_ok:
                raise InvalidMessageError("The waitStoreMsgOK of the messages in one batch should the same")
            if message.delay_level:
                raise InvalidMessageError("TimeDelayLevel is not supported for batching")
            properties = message.wire_properties()
            properties[names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._hub.unique_ids.next_id()
            check_properties_size(properties)
            members.append(wire.Message(message.topic, message.body, flag=message.flag, properties=properties))
        if is_retry_topic(first.topic):
            raise InvalidMessageError("Retry Group is not supported for batching")
        return members

    def _outgoing_part(self, messages: Sequence[Message], members: Sequence[wire.Message], part: BatchPart) -> Outgoing:
        """Return the request for a part of a list."""
        topic, chosen = messages[0].topic, members[part.first : part.end]
        ids = tuple(member.properties[names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] for member in chosen)
        if not part.is_batch:
            body, sys_flag = self._compressed(chosen[0].body)
            return Outgoing(topic, body, chosen[0].properties, chosen[0].flag, sys_flag)
        outer = {names.PROPERTY_WAIT_STORE_MSG_OK: "true" if messages[0].wait_store_ok else "false"}
        return Outgoing(topic, encode_batch(chosen), outer, is_batch=True, ids=ids)

    @staticmethod
    def choice(
        message: Message,
        queue: MessageQueue | None,
        shard_key: ShardKey | None,
        selector: QueueSelector | None,
    ) -> ChooseQueue | None:
        if (queue is not None) + (shard_key is not None) + (selector is not None) > 1:
            raise ArgumentError("give one of queue, shard_key and selector")
        if queue is not None:
            return always(queue)
        if shard_key is not None:
            return lambda queues: select_by_hash(queues, shard_key)
        if selector is not None:
            return lambda queues: selector(queues, message)
        return None


def always(queue: MessageQueue) -> ChooseQueue:
    """Return a choice that is made already."""
    return lambda queues: queue


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
