"""What ``mqcore top`` shows, as data: looks at a cluster over the wire, and what has changed between two of them.

Of RocketMQ's brokers everything is known but their processes and latencies, which mqcore's add to the runtime table.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from mqcore import clock
from mqcore.client.admin import Admin
from mqcore.client.admin.base import BrokerPlace
from mqcore.client.errors import NotFoundError
from mqcore.errors import MQError
from mqcore.layout import LATENCY_BOUNDS_US
from mqcore.protocol.bodies import OffsetWrapper
from mqcore.protocol.message import MessageQueue

ASKED_AT_ONCE: Final = 16
"""Questions about topics that are under way together."""

TOPICS_PER_LOOK: Final = 256
"""Topics that one look asks about: each is a question. Where there are more, looks take turns."""

PROCESS: Final = "process_"
LATENCY: Final = "latency_"
FREE_SPACE: Final = re.compile(r"Free : ([\d.]+) (\w+)")
SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50, "EiB": 1 << 60}

T = TypeVar("T")
Places = dict[str, dict[MessageQueue, OffsetWrapper]]
"""Where groups are, by group."""


@dataclass(frozen=True, slots=True)
class TimedCount:
    """A sum that grows, and when it was looked at, s."""

    value: float
    at_s: float

    def rate_since(self, before: TimedCount | None) -> float | None:
        """Return by how much it grew a second; None if there was no look before, 0 if it has begun anew since."""
        if before is None or self.at_s <= before.at_s:
            return None
        return max(0.0, self.value - before.value) / (self.at_s - before.at_s)


@dataclass(frozen=True, slots=True)
class BrokerLook:
    """What a broker has said: its runtime table, or why there is none."""

    place: BrokerPlace
    at_s: float
    table: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None

    def count(self, key: str) -> TimedCount | None:
        value = number_of(self.table.get(key))
        return None if value is None else TimedCount(value, self.at_s)


@dataclass(frozen=True, slots=True)
class GroupLook:
    """How far a group is, over all its queues. *delay_ms* is how old the last message is that it has consumed."""

    consumed: TimedCount
    stored: TimedCount
    delay_ms: int

    @property
    def lag(self) -> int:
        return int(self.stored.value - self.consumed.value)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a cluster. *topics* are the messages ever stored, by topic, some of them from an earlier look.

    *consumed* are those that all groups together have consumed of a topic.
    """

    at_s: float
    time_ms: int
    brokers: Mapping[str, BrokerLook]
    topics: Mapping[str, TimedCount]
    consumed: Mapping[str, TimedCount]
    groups: Mapping[str, GroupLook]
    errors: Sequence[str]


@dataclass(frozen=True, slots=True)
class WatchedBroker:
    """A broker. Rates are None where nothing is known yet, and so is what its broker does not tell."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str | None
    in_rate: float | None
    out_rate: float | None
    in_bytes_rate: float | None
    send_p99_ms: float | None
    pull_p99_ms: float | None
    disk_ratio: float | None
    disk_free: float | None
    flush_behind: float | None
    dispatch_behind: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class WatchedProcess:
    """A process of a broker. *cpu*, *wait* and *blocked* are shares of time: run, waiting for a processor, a disk."""

    broker: str
    broker_id: int
    process: str
    pid: int
    state: str
    cpu: float | None
    wait: float | None
    blocked: float | None
    memory: float | None
    unit_rate: float | None
    backlog: float
    parked: float
    connections: float
    deaths: float


@dataclass(frozen=True, slots=True)
class WatchedTopic:
    """A topic over all its brokers. *messages* were ever stored, *out_rate* is what all groups consume of it."""

    topic: str
    in_rate: float | None
    out_rate: float | None
    messages: float


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """A group over all its topics and brokers."""

    group: str
    in_rate: float | None
    out_rate: float | None
    lag: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class WatchedReplica:
    """A broker as a part of its group. *behind* is what it lacks of the master's log, bytes."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    role: str
    end: float | None
    behind: float | None
    slaves: int | None
    state: str | None
    epoch: int | None


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """What is shown: the newest look, with rates since the one before. *tables* are rows by the name of their table."""

    time_ms: int
    brokers: list[WatchedBroker]
    processes: list[WatchedProcess]
    topics: list[WatchedTopic]
    groups: list[WatchedGroup]
    replicas: list[WatchedReplica]
    errors: Sequence[str]

    def record(self) -> dict[str, Any]:
        """Return the members that ``--output json`` prints."""
        tables = ("brokers", "processes", "topics", "groups", "replicas")
        return {
            "time": self.time_ms,
            **{name: [json_row(asdict(row)) for row in getattr(self, name)] for name in tables},
            "errors": list(self.errors),
        }


def json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return *row* with its keys as JSON output has them: ``brokerId`` for ``broker_id``."""
    return {re.sub(r"_(\w)", lambda found: found[1].upper(), key): value for key, value in row.items()}


class Looker:
    """Looks again and again. It remembers which topics it has asked about."""

    def __init__(self, admin: Admin, cluster: str | None = None, broker: str | None = None) -> None:
        """*cluster* and *broker*, a name, narrow what is looked at."""
        self._admin = admin
        self._cluster = cluster
        self._broker = broker
        self._topics: dict[str, TimedCount] = {}
        self._turn = 0

    async def look(self) -> Look:
        """Ask all brokers. One that does not answer is an error in its row; MQError if no name server answers."""
        places = [place for place in await self._admin.brokers(self._cluster) if self._broker in (None, place.name)]
        if not places:
            raise NotFoundError(f"the name server knows no broker named {self._broker!r}")
        errors: list[str] = []
        tables = {place.address: self._ask_broker(place) for place in places}
        brokers = dict(zip(tables, await asyncio.gather(*tables.values()), strict=True))
        errors += [f"{address}: {look.error}" for address, look in brokers.items() if look.error is not None]
        masters = [place for place in places if place.is_master and brokers[place.address].error is None]
        await self._look_at_topics({place.name for place in masters}, errors)
        queues = await self._ask_groups(masters, errors)
        now = clock.monotonic_s()
        groups, consumed = group_looks(queues, now, clock.now_ms()), consumed_of(queues, now)
        return Look(now, clock.now_ms(), brokers, dict(self._topics), consumed, groups, errors)

    async def _ask_broker(self, place: BrokerPlace) -> BrokerLook:
        try:
            table = await self._admin.broker_runtime(place.address, details=True)
        except MQError as error:
            return BrokerLook(place, clock.monotonic_s(), error=str(error))
        return BrokerLook(place, clock.monotonic_s(), table)

    async def _look_at_topics(self, brokers: set[str], errors: list[str]) -> None:
        names = await attempt(self._admin.list_topics(self._cluster), errors) or []
        first = self._turn * TOPICS_PER_LOOK
        asked = names[first : first + TOPICS_PER_LOOK]
        self._turn = self._turn + 1 if first + TOPICS_PER_LOOK < len(names) else 0

        async def ask(topic: str) -> tuple[str, TimedCount | None]:
            offsets = await attempt(self._admin.offsets(topic), errors)
            if offsets is None:
                return topic, None
            ends = [offset.max_offset for queue, offset in offsets.items() if queue.broker_name in brokers]
            return topic, TimedCount(sum(ends), clock.monotonic_s()) if ends else None

        found = {topic: count for topic, count in await gather_some(ask, asked) if count is not None}
        kept = set(names) - set(asked)
        self._topics = {topic: count for topic, count in self._topics.items() if topic in kept} | found

    async def _ask_groups(self, masters: Sequence[BrokerPlace], errors: list[str]) -> Places:
        answers = await asyncio.gather(
            *(attempt(self._admin.broker_consume_stats(place.address), errors) for place in masters)
        )
        found: Places = {}
        for answer in answers:
            for group, queues in (answer or {}).items():
                found.setdefault(group, {}).update(queues)
        return found


def group_looks(places: Places, at_s: float, now_ms: int) -> dict[str, GroupLook]:
    """Return how far each group is over all its queues."""
    return {
        group: GroupLook(
            TimedCount(sum(row.consumer_offset for row in queues.values()), at_s),
            TimedCount(sum(row.broker_offset for row in queues.values()), at_s),
            max((delay_of(row, now_ms) for row in queues.values()), default=0),
        )
        for group, queues in places.items()
    }


def delay_of(row: OffsetWrapper, now_ms: int) -> int:
    """Return how old the last message is that was consumed, ms, if others wait behind it."""
    waits = row.broker_offset > row.consumer_offset and row.last_timestamp > 0
    return max(0, now_ms - row.last_timestamp) if waits else 0


def consumed_of(places: Places, at_s: float) -> dict[str, TimedCount]:
    """Return how many messages of each topic all groups have consumed."""
    sums: Counter[str] = Counter()
    for queues in places.values():
        for queue, row in queues.items():
            sums[queue.topic] += row.consumer_offset
    return {topic: TimedCount(total, at_s) for topic, total in sums.items()}


async def attempt(asked: Awaitable[T], errors: list[str]) -> T | None:
    """Return what was *asked*, or None and its error among *errors*: the rest is shown all the same."""
    try:
        return await asked
    except MQError as error:
        if str(error) not in errors:
            errors.append(str(error))
        return None


async def gather_some(ask: Callable[[str], Awaitable[T]], names: Iterable[str]) -> list[T]:
    """Ask about each of *names*, about a few of them at a time."""
    room = asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(name: str) -> T:
        async with room:
            return await ask(name)

    return await asyncio.gather(*(one(name) for name in names))


# What has changed.


def change_between(before: Look | None, now: Look) -> WatchedChange:
    """Return what is shown of *now*; rates are since *before*."""
    earlier: Mapping[str, BrokerLook] = {} if before is None else before.brokers
    pairs = [(look, earlier.get(address)) for address, look in now.brokers.items()]
    topics = {} if before is None else before.topics
    consumed = {} if before is None else before.consumed
    groups = {} if before is None else before.groups
    return WatchedChange(
        time_ms=now.time_ms,
        brokers=[broker_row(look, last) for look, last in pairs],
        processes=[row for look, last in pairs for row in process_rows(look, last)],
        topics=[
            topic_row(name, count, topics.get(name), now.consumed.get(name), consumed.get(name))
            for name, count in now.topics.items()
        ],
        groups=[group_row(name, look, groups.get(name)) for name, look in now.groups.items()],
        replicas=[replica_row(look, now.brokers.values()) for look in now.brokers.values()],
        errors=now.errors,
    )


def broker_row(look: BrokerLook, last: BrokerLook | None) -> WatchedBroker:
    place, table = look.place, look.table
    return WatchedBroker(
        cluster=place.cluster,
        broker=place.name,
        broker_id=place.broker_id,
        address=place.address,
        version=table.get("brokerVersionDesc"),
        in_rate=_rate(look, last, "msgPutTotalTodayNow"),
        out_rate=_rate(look, last, "msgGetTotalTodayNow"),
        in_bytes_rate=_rate(look, last, "commitLogMaxOffset"),
        send_p99_ms=_latency(look, last, ("SEND", "UNCONFIRMED")),
        pull_p99_ms=_latency(look, last, ("PULL", "HELD")),
        disk_ratio=number_of(table.get("commitLogDiskRatio")),
        disk_free=_free_space(table.get("commitLogDirCapacity")),
        flush_behind=size_of(table.get("remainHowManyDataToFlush")),
        dispatch_behind=number_of(table.get("dispatchBehindBytes")),
        error=look.error,
    )


def process_rows(look: BrokerLook, last: BrokerLook | None) -> list[WatchedProcess]:
    return [
        _process_row(look, last, key.removeprefix(PROCESS), words_of(text))
        for key, text in look.table.items()
        if key.startswith(PROCESS)
    ]


def _process_row(look: BrokerLook, last: BrokerLook | None, name: str, words: Mapping[str, str]) -> WatchedProcess:
    old = words_of(last.table.get(PROCESS + name, "")) if last is not None else {}

    def rate(*keys: str) -> float | None:
        # Another process of that name has counts of its own.
        if last is None or old.get("pid") != words.get("pid") or any(key not in words for key in keys):
            return None
        return sum_of(words, keys, look.at_s).rate_since(sum_of(old, keys, last.at_s))

    def share(*keys: str) -> float | None:
        ms_per_s = rate(*keys)
        return None if ms_per_s is None else ms_per_s / 1000

    return WatchedProcess(
        broker=look.place.name,
        broker_id=look.place.broker_id,
        process=name,
        pid=int(number_of(words.get("pid")) or 0),
        state=words.get("state", ""),
        cpu=share("userMs", "systemMs"),
        wait=share("waitMs"),
        blocked=share("blockedMs"),
        memory=number_of(words.get("residentBytes")),
        unit_rate=rate("units"),
        backlog=number_of(words.get("backlog")) or 0,
        parked=number_of(words.get("parked")) or 0,
        connections=number_of(words.get("connections")) or 0,
        deaths=number_of(words.get("generation")) or 0,
    )


def topic_row(
    name: str,
    stored: TimedCount,
    last: TimedCount | None,
    consumed: TimedCount | None,
    last_consumed: TimedCount | None,
) -> WatchedTopic:
    out_rate = None if consumed is None else consumed.rate_since(last_consumed)
    return WatchedTopic(name, stored.rate_since(last), out_rate, stored.value)


def group_row(name: str, look: GroupLook, last: GroupLook | None) -> WatchedGroup:
    return WatchedGroup(
        group=name,
        in_rate=look.stored.rate_since(None if last is None else last.stored),
        out_rate=look.consumed.rate_since(None if last is None else last.consumed),
        lag=look.lag,
        delay_s=look.delay_ms / 1000,
    )


def replica_row(look: BrokerLook, others: Iterable[BrokerLook]) -> WatchedReplica:
    place, table = look.place, look.table
    end = number_of(table.get("commitLogMaxOffset"))
    master_end = max(
        (
            found
            for other in others
            if other.place.is_master and (other.place.cluster, other.place.name) == (place.cluster, place.name)
            and (found := number_of(other.table.get("commitLogMaxOffset"))) is not None
        ),
        default=None,
    )  # fmt: skip
    behind = None if end is None or master_end is None or place.is_master else max(0.0, master_end - end)
    slaves, epoch = number_of(table.get("haSlaves")), number_of(table.get("failoverEpoch"))
    return WatchedReplica(
        cluster=place.cluster,
        broker=place.name,
        broker_id=place.broker_id,
        address=place.address,
        role="master" if place.is_master else "slave",
        end=end,
        behind=behind,
        slaves=None if slaves is None else int(slaves),
        state=look.error or table.get("failoverPhase") or table.get("haMasterState"),
        epoch=None if epoch is None else int(epoch),
    )


# What brokers write.


def number_of(text: str | None) -> float | None:
    """Return a number that a broker has written; None if it is none."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def size_of(text: str | None) -> float | None:
    """Return the bytes that a text such as ``1.5 KiB`` means, or a plain number."""
    amount, _, unit = (text or "").strip().partition(" ")
    value = number_of(amount)
    return None if value is None else value * SIZES.get(unit.strip() or "B", 1)


def words_of(text: str) -> dict[str, str]:
    """Return the words ``name=value`` of a text."""
    return {name: value for name, mark, value in (word.partition("=") for word in text.split()) if mark}


def sum_of(words: Mapping[str, str], keys: Iterable[str], at_s: float) -> TimedCount:
    return TimedCount(sum(number_of(words.get(key)) or 0 for key in keys), at_s)


def quantile_ms(share: float, counts: Sequence[int]) -> float | None:
    """Return the time below which *share* of the answers lie that LATENCY_BOUNDS_US counts; None without any."""
    total = sum(counts)
    if total <= 0 or len(counts) != len(LATENCY_BOUNDS_US) + 1:
        return None
    rank, seen = share * total, 0
    for lower, upper, count in zip((0, *LATENCY_BOUNDS_US), LATENCY_BOUNDS_US, counts, strict=False):
        if count and seen + count >= rank:
            return (lower + (upper - lower) * (rank - seen) / count) / 1000
        seen += count
    return LATENCY_BOUNDS_US[-1] / 1000


def _rate(look: BrokerLook, last: BrokerLook | None, key: str) -> float | None:
    count = look.count(key)
    return None if count is None or last is None else count.rate_since(last.count(key))


def _latency(look: BrokerLook, last: BrokerLook | None, kinds: Iterable[str]) -> float | None:
    if last is None:
        return None
    grown = [0] * (len(LATENCY_BOUNDS_US) + 1)
    for kind in kinds:
        now, old = _counts(look, kind), _counts(last, kind)
        if len(now) != len(grown) or len(old) != len(grown):
            return None
        grown = [sum_ + max(0, a - b) for sum_, a, b in zip(grown, now, old, strict=True)]
    return quantile_ms(0.99, grown)


def _counts(look: BrokerLook, kind: str) -> list[int]:
    text = words_of(look.table.get(LATENCY + kind, "")).get("counts", "")
    return [int(part) for part in text.split(",") if part.isdecimal()]


def _free_space(text: str | None) -> float | None:
    found = FREE_SPACE.search(text or "")
    return None if found is None else size_of(f"{found[1]} {found[2]}")
