"""Message trace: who sent and who consumed a message, when, how fast and with what success, written to a topic.

The records are RocketMQ's, so ``mqadmin queryMsgTraceById`` and every other reader of traces finds them.

For whoever traces (the producer's hook is in ``trace_hooks``; a consumer does the same around its handler):

    dispatcher = TraceDispatcher(ProducerCore, hub, group, TraceSide.CONSUME, trace_topic)
    await dispatcher.start()
    dispatcher.offer(TraceContext(kind=TraceKind.SUB_BEFORE, ..., beans=(TraceBean(msg_id=...), ...)))   # never waits
    await dispatcher.close()

``offer`` drops the record, and counts it, when 1024 are waiting already: tracing never holds up the traced. One
``TraceContext`` may hold several messages (beans); of PUB and END_TRANSACTION only the first is written.
Source: RocketMQ client/trace/TraceDataEncoder.java, AsyncTraceDispatcher.java, TraceContext.java, TraceBean.java.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.model.messages import MessageKind
from mqcore.client.model.outcome import ConsumeCode
from mqcore.client.model.outgoing import Outgoing
from mqcore.client.model.receipt import REGION_DEFAULT
from mqcore.client.session.tasks import cancel_and_wait
from mqcore.client.settings.classes import ProducerSettings
from mqcore.errors import MQError
from mqcore.protocol import properties as names
from mqcore.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from mqcore.client.session.session import Session

log = CauseLog(logging.getLogger(__name__))

FIELD_SEPARATOR: Final = "\x01"
RECORD_SEPARATOR: Final = "\x02"
ABSENT: Final = "null"
"""What stands for a value that there is not: Java's StringBuilder writes it so."""

ACCESS_CHANNEL_CLOUD: Final = "CLOUD"

CLOUD_TRACE_TOPIC_PREFIX: Final = "rmq_sys_TRACE_DATA_"
"""With the region behind it: where traces go when the access channel is CLOUD."""

QUEUE_MAX: Final = 1024
"""Contexts that wait to be sent; more are dropped."""

HURRY_AT: Final = QUEUE_MAX // 2
"""From so many on they are sent at once."""

FLUSH_AFTER_S: Final = 0.5
DATA_SIZE_MAX: Final = 128_000 - 10_000
"""Bytes of records after which a trace message is sent: the size that a trace message may have, less one record."""

KEYS_SIZE_MAX: Final = 30_000
"""Bytes of keys of one trace message: all its properties together may have 32767."""

SENDS_AT_ONCE_MAX: Final = 10
SEND_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 0.5

_serial = itertools.count()


class TraceKind(StrEnum):
    """What a record tells of. The values are the names in the record."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"


class TraceSide(StrEnum):
    """Whose traces a dispatcher sends; part of its producer group."""

    PRODUCE = "PRODUCE"
    CONSUME = "CONSUME"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBean:
    """What a trace says of one message. *msg_id* of a batch is the ids of its messages, joined by commas."""

    topic: str = ""
    msg_id: str = ""
    tags: str | None = None
    keys: str | None = None
    store_host: str = ""
    body_length: int = 0
    offset_msg_id: str = ""
    message_kind: MessageKind = MessageKind.NORMAL
    retry_times: int = 0
    transaction_id: str | None = None
    transaction_state: str | None = None
    from_transaction_check: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """One event. *cost_ms* is that of one message; *request_id* ties a SUB_AFTER to its SUB_BEFORE."""

    kind: TraceKind
    group: str
    beans: Sequence[TraceBean]
    timestamp_ms: int = field(default_factory=clock.now_ms)
    region_id: str = REGION_DEFAULT
    cost_ms: int = 0
    success: bool = True
    request_id: str = ""
    context_code: ConsumeCode = ConsumeCode.SUCCESS


def trace_topic_of(region_id: str, trace_topic: str | None, *, is_cloud: bool) -> str:
    """Return where the traces of a region go."""
    return CLOUD_TRACE_TOPIC_PREFIX + region_id if is_cloud else trace_topic or TRACE_TOPIC


def encode_trace(context: TraceContext, *, is_cloud: bool = False) -> str:
    """Return the records of *context*, each with its separator at the end.

    With the access channel CLOUD a SUB_AFTER record lacks its last two fields and ends like a field.
    """
    return "".join(_records(context, is_cloud))


def _records(context: TraceContext, is_cloud: bool) -> Iterator[str]:
    when = (context.kind, context.timestamp_ms, context.region_id, context.group)
    match context.kind:
        case TraceKind.PUB:
            bean = context.beans[0]
            place = (bean.topic, bean.msg_id, bean.tags, bean.keys, bean.store_host, bean.body_length)
            how = (context.cost_ms, int(bean.message_kind), bean.offset_msg_id, context.success)
            yield _record(*when, *place, *how)
        case TraceKind.SUB_BEFORE:
            for bean in context.beans:
                yield _record(*when, context.request_id, bean.msg_id, bean.retry_times, bean.keys)
        case TraceKind.SUB_AFTER:
            for bean in context.beans:
                what = (context.kind, context.request_id, bean.msg_id, context.cost_ms, context.success, bean.keys)
                if is_cloud:
                    yield FIELD_SEPARATOR.join(map(_text, (*what, int(context.context_code)))) + FIELD_SEPARATOR
                else:
                    yield _record(*what, int(context.context_code), context.timestamp_ms, context.group)
        case TraceKind.END_TRANSACTION:
            bean = context.beans[0]
            place = (bean.topic, bean.msg_id, bean.tags, bean.keys, bean.store_host, int(bean.message_kind))
            yield _record(*when, *place, bean.transaction_id, bean.transaction_state, bean.from_transaction_check)


def _record(*values: object) -> str:
    return FIELD_SEPARATOR.join(map(_text, values)) + RECORD_SEPARATOR


def _text(value: object) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def trace_keys(context: TraceContext) -> list[str]:
    """Return the keys by which the trace is found: message ids and business keys, each once."""
    found: dict[str, None] = {}
    for bean in context.beans:
        found[bean.msg_id] = None
        found.update(dict.fromkeys((bean.keys or "").split(names.KEY_SEPARATOR)))
    found.pop("", None)
    return list(found)


@dataclass(slots=True)
class _Parcel:
    """The records of one trace message while it is filled."""

    records: list[bytes] = field(default_factory=list)
    keys: dict[str, None] = field(default_factory=dict)
    data_size: int = 0
    keys_size: int = 0

    def add(self, record: bytes, keys: Iterable[str]) -> None:
        self.records.append(record)
        self.data_size += len(record)
        for key in keys:
            size = len(key.encode("utf-8", "replace")) + 1
            if key not in self.keys and self.keys_size + size <= KEYS_SIZE_MAX:
                self.keys[key] = None
                self.keys_size += size

    @property
    def is_full(self) -> bool:
        return self.data_size >= DATA_SIZE_MAX or self.keys_size >= KEYS_SIZE_MAX // 2

    def outgoing(self, topic: str) -> Outgoing:
        keys = names.KEY_SEPARATOR.join(self.keys)
        return Outgoing(topic, b"".join(self.records), {names.PROPERTY_KEYS: keys} if keys else {})


def trace_messages(
    contexts: Iterable[TraceContext], trace_topic: str | None = None, *, is_cloud: bool = False
) -> list[Outgoing]:
    """Return the trace messages for *contexts*: the records of one traced topic and region together, up to a size."""
    messages: list[Outgoing] = []
    parcels: dict[tuple[str, str], _Parcel] = {}
    for context in contexts:
        place = (context.beans[0].topic, context.region_id)
        parcel = parcels.setdefault(place, _Parcel())
        parcel.add(encode_trace(context, is_cloud=is_cloud).encode("utf-8", "replace"), trace_keys(context))
        if parcel.is_full:
            del parcels[place]
            messages.append(parcel.outgoing(trace_topic_of(context.region_id, trace_topic, is_cloud=is_cloud)))
    for (_, region_id), parcel in parcels.items():
        messages.append(parcel.outgoing(trace_topic_of(region_id, trace_topic, is_cloud=is_cloud)))
    return messages


class TraceSender(Protocol):
    """What sends trace messages: a producer, without the hooks of the traced."""

    @property
    def group(self) -> str: ...

    async def send(self, outgoing: Outgoing) -> object: ...


class TraceDispatcher:
    """Sends the traces of one producer or consumer in the background. Failures are logged and otherwise forgotten.

    *make_sender* makes what sends them, in a group of its own: (session, group, settings) -> sender.
    """

    def __init__(
        self,
        make_sender: Callable[[Session, str, ProducerSettings], TraceSender],
        hub: Session,
        group: str,
        side: TraceSide,
        trace_topic: str | None = None,
    ) -> None:
        self.trace_topic = trace_topic or TRACE_TOPIC
        self.dropped = 0
        self.sent = 0
        """Trace messages that a broker has stored."""
        self._hub = hub
        self._is_cloud = hub.settings.access_channel == ACCESS_CHANNEL_CLOUD
        hub.namespace.leave_alone(self.trace_topic)
        producer_group = f"_INNER_TRACE_PRODUCER-{group}-{side}-{next(_serial)}"
        self._core = make_sender(hub, producer_group, ProducerSettings(send_timeout_s=SEND_TIMEOUT_S))
        self._waiting: deque[TraceContext] = deque()
        self._some = asyncio.Event()
        self._many = asyncio.Event()
        self._sends: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def is_own(self, topic: str) -> bool:
        """Whether *topic* is a trace topic: traces are not traced."""
        prefix = CLOUD_TRACE_TOPIC_PREFIX if self._is_cloud else self.trace_topic
        return topic.startswith(prefix)

    def offer(self, context: TraceContext) -> bool:
        """Take *context* to be sent soon; return False when it was dropped because too many are waiting."""
        if len(self._waiting) >= QUEUE_MAX:
            self.dropped += 1
            log.warning(
                "trace buffer full, records are dropped",
                group=self._core.group,
                topic=self.trace_topic,
                dropped=self.dropped,
            )
            return False
        self._waiting.append(context)
        self._some.set()
        if len(self._waiting) >= HURRY_AT:
            self._many.set()
        return True

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"mqcore trace {self._core.group}")

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Send what is waiting, for at most *timeout_s*, and end."""
        if self._task is None:
            return
        await cancel_and_wait(self._task)
        self._task = None
        try:
            async with asyncio.timeout(timeout_s):
                await self._flush()
                await self._wait_sent(0)
        except TimeoutError:
            log.warning("closing with traces unsent", topic=self.trace_topic, messages=len(self._sends))
        await cancel_and_wait(*self._sends)

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            try:
                async with asyncio.timeout(FLUSH_AFTER_S):
                    await self._many.wait()
            except TimeoutError:
                pass
            await self._flush()

    async def _flush(self) -> None:
        self._some.clear()
        self._many.clear()
        contexts = list(self._waiting)
        self._waiting.clear()
        for outgoing in trace_messages(contexts, self.trace_topic, is_cloud=self._is_cloud):
            await self._wait_sent(SENDS_AT_ONCE_MAX - 1)
            task = asyncio.create_task(self._send(outgoing), name="mqcore trace send")
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)

    async def _wait_sent(self, left_max: int) -> None:
        while len(self._sends) > left_max:
            await asyncio.wait(set(self._sends), return_when=asyncio.FIRST_COMPLETED)

    async def _send(self, outgoing: Outgoing) -> None:
        outgoing.properties[names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._hub.unique_ids.next_id()
        try:
            await self._core.send(outgoing)
        except MQError as error:
            log.warning("trace not sent", group=self._core.group, topic=outgoing.topic, error=error)
        else:
            self.sent += 1
