"""The broker's ports in plain memory, and a rig around ``BrokerCore`` with verbs for tests."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mqcore.broker.core import BrokerCore, Ports
from mqcore.broker.ports import (
    BrokerTotals,
    Channel,
    Clock,
    DiskSpace,
    GetCount,
    InnerMessage,
    PoolFacts,
    PullBinding,
    PullHeader,
    PutCount,
    PutResult,
    PutStatus,
    QueryResult,
    QueueUnit,
    StoreFacts,
)
from mqcore.codes import CURRENT_VERSION, LanguageCode, RemotingFlag, RequestCode
from mqcore.config import load
from mqcore.errors import RemotingSendError, RemotingTimeoutError
from mqcore.protocol.batch import decode_batch
from mqcore.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
    TopicConfig,
)
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.hashing import tags_code
from mqcore.protocol.message import MessageExt
from mqcore.protocol.message_decoder import decode_message, encode_message
from mqcore.protocol.message_id import HostAddress, encode_offset_message_id
from mqcore.protocol.names import SCHEDULE_TOPIC, TRANS_OP_HALF_TOPIC
from mqcore.protocol.properties import decode_properties
from mqcore.store.queues.op_numbers import DoneHalves, numbers_of

START_MS = 1_700_000_000_000
LEVELS_MS = (1000, 5000, 10_000, 30_000)


@dataclass
class FakeClock:
    """A clock that stands still until it is moved."""

    now: int = START_MS

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds


class MemoryChannel:
    """A client connection; ``sent`` is what the broker pushed, ``answers`` what the client says when it is called."""

    _ids = itertools.count(1)

    def __init__(self, ip: str = "192.0.2.7", port: int = 40_001, is_vip: bool = False) -> None:
        self.channel_id = next(self._ids)
        self.remote_ip = ip
        self.remote_port = port
        self.is_vip = is_vip
        self.certified_name = ""
        self.is_open = True
        self.sent: list[RemotingCommand] = []
        self.asked: list[RemotingCommand] = []
        self.answers: dict[int, RemotingCommand] = {}
        self.takes_answers_of = ""

    def take_answers_of(self, client_id: str) -> None:
        self.takes_answers_of = client_id

    def send(self, command: RemotingCommand) -> bool:
        if self.is_open:
            self.sent.append(command)
        return self.is_open

    def close(self) -> None:
        self.is_open = False

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        if not self.is_open:
            raise RemotingSendError("closed")
        self.asked.append(command)
        if command.code not in self.answers:
            raise RemotingTimeoutError(f"no answer in {timeout_s} s")
        return self.answers[command.code]


@dataclass
class MemoryStore:
    """Store view and message sink over lists. ``outcome`` is the status of the next puts."""

    clock: Clock
    outcome: PutStatus = PutStatus.PUT_OK
    records: dict[int, bytes] = field(default_factory=dict)
    queues: dict[tuple[str, int], list[QueueUnit]] = field(default_factory=dict)
    first_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    end: int = 0
    dispatched: int | None = None
    """None: all is."""
    on_disk: bool = False
    is_page_cache_busy: bool = False
    refusal_causes: tuple[str, ...] = ()
    puts: list[InnerMessage] = field(default_factory=list)
    orders: list[tuple[str, Any]] = field(default_factory=list)
    light_queues: int = 0
    levels_ms: Sequence[int] = LEVELS_MS

    async def put(self, message: InnerMessage) -> PutResult:
        self.puts.append(message)
        if self.outcome not in (PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT):
            return PutResult(self.outcome)
        return self._append(message)

    async def put_batch(self, message: InnerMessage) -> PutResult:
        self.puts.append(message)
        results = []
        for member in decode_batch(message.body):
            text = "\x02".join(
                filter(
                    None, ("\x02".join(f"{k}\x01{v}" for k, v in member.properties.items()), message.properties_text)
                )
            )
            results.append(self._append(replace(message, body=member.body, properties_text=text)))
        ids = ",".join(result.message_id for result in results)
        return replace(results[0], message_id=ids, count=len(results), size=sum(result.size for result in results))

    async def put_pair(self, first: InnerMessage, second: InnerMessage) -> PutResult:
        self.puts += [first, second]
        if self.outcome not in (PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT):
            return PutResult(self.outcome)
        result = self._append(first)
        self._append(second)
        return result

    async def done_halves(self, first: int, count_max: int) -> DoneHalves:
        units = self.read_units(TRANS_OP_HALF_TOPIC, 0, first, count_max)
        bodies = [decode_message(self.records[unit.physical_offset]).body for unit in units]
        numbers = [number for body in bodies for number in numbers_of(body)]
        return DoneHalves.of(first + len(units), np.array(numbers, dtype=np.int64))

    def _append(self, message: InnerMessage) -> PutResult:
        queue = self.queues.setdefault((message.topic, message.queue_id), [])
        queue_offset = self.first_offsets.get((message.topic, message.queue_id), 0) + len(queue)
        properties = decode_properties(message.properties_text)
        record = encode_message(
            MessageExt(
                message.topic,
                message.body,
                flag=message.flag,
                properties=properties,
                queue_id=message.queue_id,
                queue_offset=queue_offset,
                physical_offset=self.end,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=message.born_host,
                store_timestamp=self.clock(),
                store_host=message.store_host,
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
            )
        )
        code = tags_code(properties.get("TAGS"))
        if message.topic == SCHEDULE_TOPIC:
            code = self.clock() + self.levels_ms[message.queue_id]
        queue.append(QueueUnit(queue_offset, self.end, len(record), code))
        self.records[self.end] = record
        result = PutResult(
            self.outcome,
            self.end,
            len(record),
            queue_offset,
            encode_offset_message_id(message.store_host, self.end),
            self.clock(),
            message.store_host,
        )
        self.end += len(record)
        return result

    def messages(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        """Everything in one queue, decoded."""
        return [decode_message(self.records[unit.physical_offset]) for unit in self.queues.get((topic, queue_id), [])]

    def drop_before(self, topic: str, queue_id: int, first: int) -> None:
        """Forget the start of a queue, as retention does."""
        queue = self.queues[topic, queue_id]
        self.queues[topic, queue_id] = [unit for unit in queue if unit.queue_offset >= first]
        self.first_offsets[topic, queue_id] = first

    def facts(self) -> StoreFacts:
        space = DiskSpace("/store/commitlog", 0.5, 2048, 1024)
        return StoreFacts(
            boot_timestamp=START_MS,
            is_writable=not self.refusal_causes,
            refusal_causes=self.refusal_causes,
            is_page_cache_busy=self.is_page_cache_busy,
            is_transient_pool_deficient=False,
            page_cache_lock_time_ms=0,
            commit_log_min_offset=0,
            commit_log_max_offset=self.end,
            dispatch_behind_bytes=7,
            dispatch_max_buffer=0,
            flush_behind_bytes=1536,
            commit_behind_bytes=None,
            transient_buffers_free=0,
            commit_log_spaces=(space,),
            root_space=space,
            consume_queue_space=replace(space, path="/store/consumequeue"),
            index_space=replace(space, path="/store/index"),
        )

    def has_queue(self, topic: str, queue_id: int) -> bool:
        return (topic, queue_id) in self.queues

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.first_offsets.get((topic, queue_id), 0) if self.has_queue(topic, queue_id) else -1

    def max_offset(self, topic: str, queue_id: int) -> int:
        first = self.first_offsets.get((topic, queue_id), 0)
        return first + len(self._dispatched_units(topic, queue_id))

    def _dispatched_units(self, topic: str, queue_id: int) -> Sequence[QueueUnit]:
        units = self.queues.get((topic, queue_id), [])
        end = self.dispatched_end()
        return units if end == self.end else [unit for unit in units if unit.physical_offset < end]

    def read_units(self, topic: str, queue_id: int, first: int, count_max: int) -> Sequence[QueueUnit]:
        units = [unit for unit in self._dispatched_units(topic, queue_id) if unit.queue_offset >= first]
        return units[:count_max] if units and units[0].queue_offset == first else []

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        return self.on_disk and self.has_queue(topic, queue_id)

    def look_message(self, physical_offset: int, size: int | None = None) -> bytes | None:
        return self.records.get(physical_offset)

    def look_written(self, physical_offset: int) -> bytes | None:
        return self.look_message(physical_offset)

    def dispatched_end(self) -> int:
        return self.end if self.dispatched is None else self.dispatched

    def find_written(self, start: int, flags: Collection[int], count_max: int) -> tuple[list[int], int]:
        offsets = sorted(offset for offset in self.records if offset >= start)[:count_max]
        found = [offset for offset in offsets if decode_message(self.records[offset]).flag in flags]
        return found, offsets[-1] + len(self.records[offsets[-1]]) if offsets else self.end

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        units = self.read_units(topic, queue_id, queue_offset, 1)
        return decode_message(self.records[units[0].physical_offset]).store_timestamp if units else -1

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        for unit in self.queues.get((topic, queue_id), []):
            if self.store_timestamp(topic, queue_id, unit.queue_offset) >= timestamp:
                return unit.queue_offset
        return max(self.max_offset(topic, queue_id) - 1, 0)

    def earliest_timestamp(self, topic: str | None = None, queue_id: int = 0) -> int:
        if topic is None:
            return decode_message(self.records[0]).store_timestamp if self.records else -1
        return self.store_timestamp(topic, queue_id, self.min_offset(topic, queue_id))

    def query_message(self, topic: str, key: str, count_max: int, begin: int, end: int) -> QueryResult:
        self.orders.append(("query", count_max))
        found = [
            record
            for record in self.records.values()
            if (message := decode_message(record)).topic == topic and key in (message.keys or "").split(" ")
        ]
        return QueryResult(found[:count_max], self.clock() if found else 0, self.end if found else 0)

    async def clean_expired_consume_queues(self) -> None:
        self.orders.append(("clean expired", None))

    async def clean_unused_topics(self, topics: Iterable[str]) -> None:
        kept = set(topics)
        self.orders.append(("clean unused", kept))
        self.queues = {key: units for key, units in self.queues.items() if key[0] in kept}

    async def drop_light_queue(self, topic: str) -> None:
        self.orders.append(("drop light queue", topic))
        self.queues = {key: units for key, units in self.queues.items() if key[0] != topic}

    def light_queue_count(self) -> int:
        return self.light_queues

    def delete_expired_commit_log(self) -> None:
        self.orders.append(("delete expired", None))


class MemoryOffsets:
    """The offset table."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str, int], int] = {}
        self.pulls: dict[tuple[str, str, int], int] = {}
        self.behind: dict[str, int] = {}
        self.changed: dict[tuple[str, str, int], None] = {}

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.table.get((group, topic, queue_id))

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        return self.pulls.get((group, topic, queue_id), 0)

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.table[group, topic, queue_id] = offset
        self.changed[group, topic, queue_id] = None
        if offset < 0:
            del self.table[group, topic, queue_id]

    def believed(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        return offset

    async def remove(self, group: str | None, topic: str | None) -> None:
        for row_group, row_topic, queue_id, _ in await self.find(group, topic):
            self.put(row_group, row_topic, queue_id, -1)

    def take_changed(self) -> Iterable[tuple[str, str, int, int]]:
        changed, self.changed = self.changed, {}
        return [(*key, self.table.get(key, -1)) for key in changed]

    def items(self) -> Iterable[tuple[str, str, int, int]]:
        return [(*key, offset) for key, offset in self.table.items()]

    async def find(self, group: str | None, topic: str | None) -> list[tuple[str, str, int, int]]:
        return [row for row in self.items() if group in (None, row[0]) and topic in (None, row[1])]

    async def pairs(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((group, topic) for group, topic, _, _ in self.items()))

    def text(self, with_light: bool, foreign: bytes, pretty: bool) -> None:
        return None

    def slow_groups(self, behind_max: int, since: int) -> list[str]:
        return [group for group, behind in self.behind.items() if behind > behind_max]


@dataclass
class MemoryBoard:
    """The topic board: topic -> (record, sendable, multi tag)."""

    topics: dict[str, tuple[TopicConfig, bool, bool]] = field(default_factory=dict)
    common_epoch: int = 0
    topic_epochs: Counter[str] = field(default_factory=Counter)
    group_epochs: Counter[str] = field(default_factory=Counter)

    def epoch(self, topic: str = "", group: str = "") -> int:
        """The epoch of what is found in order for *topic* and *group* from now on."""
        return self.common_epoch + self.topic_epochs[topic] + self.group_epochs[group]

    def publish(self, config: TopicConfig, sendable: bool, multi_tag: bool) -> None:
        self.topics[config.topic_name] = (config, sendable, multi_tag)

    def remove(self, topic: str) -> None:
        self.topics.pop(topic, None)

    def bump_all(self) -> None:
        self.common_epoch += 1

    def bump_topic(self, topic: str) -> None:
        self.topic_epochs[topic] += 1

    def bump_group(self, group: str) -> None:
        self.group_epochs[group] += 1


@dataclass
class MemoryCounters:
    """What workers would have counted."""

    put_counts: dict[str, PutCount] = field(default_factory=dict)
    get_counts: list[GetCount] = field(default_factory=list)
    all: BrokerTotals = field(default_factory=BrokerTotals)
    reads: list[tuple[int, int]] = field(default_factory=list)
    _seen_puts: dict[str, PutCount] = field(default_factory=dict)
    _seen_gets: dict[tuple[str, str, int], GetCount] = field(default_factory=dict)

    def note_read(self, nums: int, size: int) -> None:
        self.reads.append((nums, size))

    def grown(self) -> tuple[Iterable[PutCount], Iterable[GetCount]]:
        puts = [
            PutCount(topic, count.nums - before.nums, count.bytes - before.bytes)
            for topic, count in self.put_counts.items()
            if (before := self._seen_puts.get(topic, PutCount(topic, 0, 0))) != count
        ]
        gets = []
        for count in self.get_counts:
            key = (count.topic, count.group, count.queue_id)
            before = self._seen_gets.get(key, GetCount(*key, 0, 0, 0))
            if before != count:
                grown = (count.nums - before.nums, count.bytes - before.bytes, count.times - before.times)
                gets.append(GetCount(*key, *grown))
        self._seen_puts = dict(self.put_counts)
        self._seen_gets = {(count.topic, count.group, count.queue_id): count for count in self.get_counts}
        return puts, gets

    def totals(self) -> BrokerTotals:
        return self.all


class MemoryDrops:
    """Queues that are dropped by all of a group."""

    def __init__(self) -> None:
        self.announce: Any = None
        self.done: list[tuple[int, Sequence[tuple[str, int]]]] = []
        self.applied_to = 0

    async def carry_out(self, born: int, queues: Sequence[tuple[str, int]]) -> None:
        self.done.append((born, queues))

    def applied(self, end: int) -> None:
        self.applied_to = max(self.applied_to, end)


class MemoryPools:
    """The queues in front of the workers."""

    def facts(self, pool: str) -> PoolFacts:
        return PoolFacts(3) if pool == "send" else PoolFacts()


class MemoryPulls:
    """The way to the pull worker."""

    def __init__(self) -> None:
        self.dispatched: list[tuple[PullHeader, PullBinding]] = []

    def dispatch(self, channel: Channel, command: RemotingCommand, header: PullHeader, binding: PullBinding) -> None:
        self.dispatched.append((header, binding))


class MemoryCaller:
    """The client that reaches name servers; without name servers in the settings nobody may call it."""

    async def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        raise AssertionError(f"unexpected call of {address}")

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_s: float) -> None:
        raise AssertionError(f"unexpected call of {address}")


class BrokerRig:
    """A BrokerCore on memory ports, with its configuration directory below *root*. ``reopen`` restarts it."""

    def __init__(
        self, root: Path, caller: Any = None, group_log: Any = None, group: Any = None, replication: Any = None,
        **properties: str,
    ) -> None:  # fmt: skip
        """*group_log* makes it one of a failover group, and *group* speaks for that."""
        self.root = root
        self.group_log = group_log
        self.group = group
        self.replication = replication
        self.properties = properties
        self.caller = caller or MemoryCaller()
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.counters = MemoryCounters()
        self.client = MemoryChannel()
        self.config_path = root / "broker.conf"
        self._open()

    def _open(self) -> None:
        given = {
            "storePathRootDir": str(self.root / "store"),
            "bindAddress": "127.0.0.1",
            "brokerName": "broker-a",
            "messageDelayLevel": "1s 5s 10s 30s",
        }
        self.settings = load(overrides=given | self.properties, environment={})
        self.offsets = MemoryOffsets()
        self.board = MemoryBoard()
        self.pulls = MemoryPulls()
        self.drops = MemoryDrops()
        ports = Ports(
            self.store, self.store, self.offsets, self.board, self.counters, MemoryPools(), self.pulls, self.caller,
            group_log=self.group_log, drops=self.drops, group=self.group, replication=self.replication,
        )  # fmt: skip
        self.core = BrokerCore(
            self.settings,
            ports,
            config_path=self.config_path,
            address=HostAddress("127.0.0.1", 10911),
            ha_address="127.0.0.1:10912",
            clock=self.clock,
        )
        self.broker = self.core.broker
        self.core.load()

    def reopen(self) -> None:
        """Forget everything that is not on disk, as a kill does, and start again."""
        self._open()

    def config_text(self, name: str) -> str:
        return (self.root / "store" / "config" / name).read_text(encoding="utf-8")

    async def ask(
        self,
        code: RequestCode,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        channel: MemoryChannel | None = None,
        version: int = CURRENT_VERSION,
        language: int = LanguageCode.JAVA,
    ) -> RemotingCommand:
        """Send one request and return the response, which must be there."""
        reply = await self.tell(code, ext, body, channel=channel, version=version, language=language)
        assert reply is not None
        assert reply.is_response
        assert reply.opaque == 77
        return reply

    async def tell(
        self,
        code: RequestCode,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        channel: MemoryChannel | None = None,
        version: int = CURRENT_VERSION,
        language: int = LanguageCode.JAVA,
        oneway: bool = False,
    ) -> RemotingCommand | None:
        """Send one request and return whatever comes back."""
        request = RemotingCommand(
            code,
            opaque=77,
            flag=int(RemotingFlag.ONEWAY) if oneway else 0,
            ext_fields=None if ext is None else {name: text(value) for name, value in ext.items()},
            body=body,
            version=version,
            language=language,
        )
        return await self.core.handle(channel or self.client, request)

    async def create_topic(self, topic: str, queues: int = 4, **fields: Any) -> TopicConfig:
        config = TopicConfig(topic, queues, queues, **fields)
        await self.broker.topics.update(config)
        return config

    async def heart_beat(
        self,
        group: str = "g",
        subscriptions: Iterable[SubscriptionData] = (),
        *,
        channel: MemoryChannel | None = None,
        client_id: str = "client-1",
        model: MessageModel = MessageModel.CLUSTERING,
        producers: Iterable[str] = (),
        version: int = CURRENT_VERSION,
    ) -> RemotingCommand:
        consumer = ConsumerData(
            group,
            ConsumeType.CONSUME_PASSIVELY,
            model,
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            list(subscriptions),
        )
        data = HeartbeatData(client_id, [ProducerData(name) for name in producers], [consumer] if group else [])
        return await self.ask(RequestCode.HEART_BEAT, None, data.encode(), channel=channel, version=version)

    async def send(self, topic: str, body: bytes = b"hello", **changes: object) -> RemotingCommand:
        """Send a message with the V2 header; *changes* are header fields by their short names."""
        ext = SEND | {"b": topic} | changes
        return await self.ask(
            RequestCode.SEND_MESSAGE_V2, {name: value for name, value in ext.items() if value is not None}, body
        )


SEND: dict[str, object] = {
    "a": "pg",
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": START_MS - 5,
    "h": 9,
    "i": "TAGS\x01TagA\x02KEYS\x01k1\x02WAIT\x01true",
    "j": 0,
    "k": False,
    "m": False,
}


def text(value: object) -> str:
    """A header field as Java writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def subscription(topic: str, expression: str = "*", version: int = 1, kind: str = "TAG") -> SubscriptionData:
    return SubscriptionData.build(topic, expression, kind, sub_version=version)


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)
