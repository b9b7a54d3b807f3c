"""What the broker's deciding part needs from the world, as Protocols.

Nothing in ``mqcore.broker`` outside the boot code knows shared memory, sockets or worker processes: it is handed
objects of these shapes. Every method is called from the broker process's event loop and may not block it; what has to
wait is ``async``. Times are milliseconds since the epoch, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from mqcore import clock
from mqcore.layout import PUT_TALLY_BOUNDS_MS
from mqcore.protocol.bodies import TopicConfig
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import UNKNOWN_HOST, HostAddress
from mqcore.store.queues.ext import ExtUnit, is_ext_address

if TYPE_CHECKING:
    from typing_extensions import Buffer

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


def wall_clock_ms() -> int:
    """Return the time of this machine's clock."""
    return clock.now_ms()


class Channel(Protocol):
    """One client connection. Two objects with the same ``channel_id`` are the same connection."""

    @property
    def channel_id(self) -> int:
        """Unique while the broker process lives; not reused after a close."""
        ...

    @property
    def remote_ip(self) -> str: ...

    @property
    def remote_port(self) -> int: ...

    @property
    def is_vip(self) -> bool:
        """True for a connection to the fast port (listen port - 2)."""
        ...

    @property
    def is_open(self) -> bool: ...

    def send(self, command: RemotingCommand) -> bool:
        """Queue *command* for writing, without waiting; False if the connection is closed or too far behind."""
        ...

    def close(self) -> None:
        """Close the connection soon. ``BrokerCore.on_channel_closed`` is called as for any other close."""
        ...

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request of the broker's own and return the client's response.

        The channel gives the request its opaque. Raises RemotingTimeoutError or RemotingSendError.
        """
        ...


class PutStatus(StrEnum):
    """What became of a message. The spelling is RocketMQ's, since send-back answers with the name."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"


STORED_STATUSES = frozenset(
    {PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE}
)
"""The statuses that a producer counts as sent."""


@dataclass(slots=True)
class InnerMessage:
    """A message on its way into the store.

    ``properties_text`` is what is stored; ``properties`` is what the broker decides by. They differ on purpose where
    RocketMQ's do (WAIT is not stored; a delivered delayed message still has DELAY in its text). For a batch *body* is
    the encoded batch and *properties_text* what is appended to every member's own text.
    """

    topic: str
    queue_id: int
    body: bytes
    born_timestamp: int
    born_host: HostAddress
    store_host: HostAddress
    flag: int = 0
    sys_flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    properties_text: str = ""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_ok: bool = True


@dataclass(frozen=True, slots=True)
class PutResult:
    """What the store says of one put. For a batch the offsets are the first member's and the ids are comma-joined."""

    status: PutStatus
    physical_offset: int = 0
    size: int = 0
    queue_offset: int = 0
    message_id: str = ""
    store_timestamp: int = 0
    store_host: HostAddress = UNKNOWN_HOST
    count: int = 1

    @property
    def is_stored(self) -> bool:
        return self.status in STORED_STATUSES


class MessageSink(Protocol):
    """Appends to the commit log: all of putMessage but the delay rewriting, which the caller has done.

    A refusal is a status, never an exception. The call returns when the message is as durable as the settings ask
    (flush and replication waited for, unless ``wait_store_ok`` is False). It is not counted in ``Counters.topic_put``.
    """

    async def put(self, message: InnerMessage) -> PutResult: ...

    async def put_batch(self, message: InnerMessage) -> PutResult: ...


class OffsetTable(Protocol):
    """Committed offsets by (group, topic, queue id). Written by this process and by the pull worker."""

    def get(self, group: str, topic: str, queue_id: int) -> int | None: ...

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Where the last answer to a pull let it go on; 0 if there was none since the start."""
        ...

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None: ...

    def remove(self, group: str, topic: str) -> None:
        """Forget every queue of the pair; nothing happens if there is none."""
        ...

    def items(self, group: str | None = None, topic: str | None = None) -> Iterable[tuple[str, str, int, int]]:
        """Iterate over a snapshot of (group, topic, queue_id, offset), of one group or topic if they are given."""
        ...

    def text(self, with_light: bool, foreign: bytes) -> Buffer | None:
        """Return the text of consumerOffset.json, *foreign* entries included; None if only ``items`` can tell.

        May be called in a thread, and lets others run.
        """
        ...


class TopicBoard(Protocol):
    """What the send and pull workers know of topics."""

    def publish(self, config: TopicConfig, sendable: bool, multi_tag: bool) -> None:
        """Show *config*. *sendable*: the send worker may answer ordinary sends to it without asking."""
        ...

    def remove(self, topic: str) -> None: ...

    def bump_all(self) -> None:
        """Make every pull binding stale: a setting has changed that a check may look at."""
        ...

    def bump_topic(self, topic: str) -> None:
        """Make the pull bindings of a topic stale; called once its change is in the tables and on this board."""
        ...

    def bump_group(self, group: str) -> None:
        """Make the pull bindings of a group stale; called once its change is in the tables."""
        ...


@dataclass(frozen=True, slots=True)
class PullHeader:
    """A pull request, read. ``suspend_timeout_ms`` is the client's wish, ``principal`` who asks; 0 is nobody known.

    Two pulls may get different bindings only if they differ in a field that is part of ``BindingKey`` in bindings.pxd.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_ms: int
    subscription: str | None
    sub_version: int
    expression_type: str | None
    principal: int = 0


@dataclass(frozen=True, slots=True)
class PullBinding:
    """The answer of every pull check, which stays true until the epoch of its topic and group changes.

    ``match_all`` or ``tag_codes`` decide at queue level. ``suspend_limit_ms`` None means the client's own time; a
    number is how long a pull may be held whatever the client asks (long polling is off). The client's own time counts
    up to ``suspend_max_ms``. ``slow_broker_id`` and ``broker_id`` are what to suggest when the group reads far behind
    and when not; both are 0 unless slaveReadEnable is on. A pull with the SUBSCRIPTION flag gets a binding for its own
    expression only: ``expression`` is that text. One without is to be asked about again when its subscription version
    is above ``sub_version``.
    """

    group: str
    topic: str
    queue_id: int
    match_all: bool
    tag_codes: tuple[int, ...]
    suspend_limit_ms: int | None
    suspend_max_ms: int
    broker_id: int
    slow_broker_id: int
    sub_version: int
    expression: str | None = None


class PullDispatcher(Protocol):
    """The way to the pull worker, for pulls that had to be looked at first."""

    def dispatch(self, channel: Channel, command: RemotingCommand, header: PullHeader, binding: PullBinding) -> None:
        """Hand the pull over. The pull worker reads, holds and answers *command*'s opaque on *channel* by itself."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerTotals:
    """Counts since the start, over all workers. Puts are of every message that was appended, whoever asked for it.

    ``put_latency`` has a tally for each of PUT_TALLY_BOUNDS_MS and one for what took longer; with SYNC_FLUSH a put ends
    with its flush.
    """

    put_nums: int = 0
    put_bytes: int = 0
    put_failed: int = 0
    put_time_max_ms: int = 0
    put_latency: tuple[int, ...] = (0,) * (len(PUT_TALLY_BOUNDS_MS) + 1)
    get_found: int = 0
    get_miss: int = 0
    get_nums: int = 0
    get_bytes: int = 0
    get_time_max_ms: int = 0


@dataclass(frozen=True, slots=True)
class PutCount:
    """Messages and bytes that send workers acknowledged for a topic by themselves."""

    topic: str
    nums: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GetCount:
    """Messages and bytes handed out of one queue to one group, and in how many answers."""

    topic: str
    group: str
    queue_id: int
    nums: int
    bytes: int
    times: int


class Counters(Protocol):
    """Running values that the workers count; they only grow while the broker lives."""

    def topic_put(self, topic: str) -> tuple[int, int]:
        """Return (messages, bytes) that the send workers acknowledged for *topic* by themselves."""
        ...

    def group_get(self, topic: str, group: str) -> tuple[int, int]:
        """Return (messages, bytes) handed to *group* from every queue of *topic*."""
        ...

    def puts(self) -> Iterable[PutCount]:
        """Iterate over the topics with a count above 0."""
        ...

    def gets(self) -> Iterable[GetCount]:
        """Iterate over the queues and groups with a count above 0."""
        ...

    def totals(self) -> BrokerTotals: ...


@dataclass(frozen=True, slots=True)
class QueueUnit:
    """One entry of a consume queue. *tags_code* as stored: with ext files an address, and *ext* what is there."""

    queue_offset: int
    physical_offset: int
    record_size: int
    tags_code: int
    ext: ExtUnit | None = None

    @property
    def real_tags_code(self) -> int | None:
        """The tags code; None if it was in an ext unit that cannot be read."""
        if not is_ext_address(self.tags_code):
            return self.tags_code
        return None if self.ext is None else self.ext.tags_code


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Records found by key, raw as stored, in commit log order."""

    records: Sequence[bytes]
    index_last_update_timestamp: int
    index_last_update_physical_offset: int


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """One directory of the store. ``ratio`` is the used share, -1 when the path is missing."""

    path: str
    ratio: float
    total: int = 0
    free: int = 0


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The state of the store at one moment, for refusals and for the runtime table."""

    boot_timestamp: int
    is_writable: bool
    is_page_cache_busy: bool
    is_transient_pool_deficient: bool
    page_cache_lock_time_ms: int
    commit_log_min_offset: int
    commit_log_max_offset: int
    dispatch_behind_bytes: int
    dispatch_max_buffer: int
    flush_behind_bytes: int
    commit_behind_bytes: int | None
    transient_buffers_free: int
    commit_log_spaces: tuple[DiskSpace, ...]
    consume_queue_space: DiskSpace
    index_space: DiskSpace
    root_space: DiskSpace


class StoreView(Protocol):
    """Reads of the store, and the few orders that an administrator gives it. A queue that does not exist is empty."""

    def facts(self) -> StoreFacts: ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset; -1 when the queue does not exist."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message; 0 when the queue does not exist."""
        ...

    def has_queue(self, topic: str, queue_id: int) -> bool: ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int: ...

    def read_units(self, topic: str, queue_id: int, first: int, count_max: int) -> Sequence[QueueUnit]:
        """Return consecutive units from queue offset *first* on; empty if there is none there."""
        ...

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the first queue offset of the consume queue file after the one that holds *queue_offset*."""
        ...

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """True if the message is further back than memory is thought to hold; a missing one is not."""
        ...

    def look_message(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """Return the raw record at *physical_offset*; None if none starts there."""
        ...

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when that message was stored; -1 if it cannot be read."""
        ...

    def earliest_timestamp(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the store time of the oldest message of a queue, or of the whole store; -1 if there is none."""
        ...

    def query_message(self, topic: str, key: str, count_max: int, begin: int, end: int) -> QueryResult: ...

    async def clean_expired_consume_queues(self) -> None:
        """Drop queues whose messages are all gone from the commit log. Raises StoreError if that cannot be finished."""
        ...

    async def clean_unused_topics(self, topics: Iterable[str]) -> None:
        """Drop the queues of every topic that is not among *topics*, but for light queues (%LMQ%...).

        Raises StoreError if that cannot be finished.
        """
        ...

    async def drop_light_queue(self, topic: str) -> None:
        """Drop one light queue. Raises StoreError if that cannot be finished."""
        ...

    def light_queue_count(self) -> int:
        """How many light queues have had a message; 0 with enableLmq off."""
        ...

    def delete_expired_commit_log(self) -> None:
        """Make the next cleaning rounds look at the commit log whatever the hour is."""
        ...


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What waits in front of one kind of work, and at most how much may.

    A capacity of 0 is unknown; RocketMQ's default is shown then.
    """

    queue_size: int = 0
    capacity: int = 0


class PoolView(Protocol):
    """How long the queues in front of the workers are; *pool* is a name of ``processors.table.POOLS``."""

    def facts(self, pool: str) -> PoolFacts: ...
