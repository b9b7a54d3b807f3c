"""Statistics by name and key: how much in the last minute, hour and day, and the totals of whole days.

Most values are counted by the workers; this samples them, and adds what the broker process does itself.
Source: RocketMQ store/stats/BrokerStatsManager.java, BrokerStats.java, common/stats/StatsItem.java.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from mqcore.broker.ports import Clock, Counters
from mqcore.protocol.names import LMQ_PREFIX, is_lmq

MINUTE_INTERVAL_S: Final = 10
HOUR_INTERVAL_S: Final = 600
DAY_INTERVAL_S: Final = 3600
MINUTE_SAMPLES: Final = 7
HOUR_SAMPLES: Final = 7
DAY_SAMPLES: Final = 25


class StatsName(StrEnum):
    """The names that VIEW_BROKER_STATS_DATA knows and this broker counts."""

    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
    QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
    QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
    QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
    QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
    GROUP_GET_NUMS = "GROUP_GET_NUMS"
    GROUP_GET_SIZE = "GROUP_GET_SIZE"
    SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
    BROKER_GET_NUMS = "BROKER_GET_NUMS"


class Key(NamedTuple):
    """One item: a statistic of one thing."""

    name: str
    key: str


class Count(NamedTuple):
    """How much, and in how many steps."""

    value: int
    times: int


NOTHING: Final = Count(0, 0)
BROKER_NAMES: Final = frozenset({StatsName.BROKER_PUT_NUMS, StatsName.BROKER_GET_NUMS})
"""Statistics of the whole broker, which outlive any topic; their key is the cluster's name."""


class Snapshot(NamedTuple):
    """A count at a moment."""

    timestamp: int
    value: int
    times: int


@dataclass(frozen=True, slots=True)
class StatsData:
    """What one list of snapshots says: the sum over its span, per second, and the mean of a step."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class StatsItem:
    """The snapshots of one key."""

    def __init__(self) -> None:
        self.minute: deque[Snapshot] = deque(maxlen=MINUTE_SAMPLES)
        self.hour: deque[Snapshot] = deque(maxlen=HOUR_SAMPLES)
        self.day: deque[Snapshot] = deque(maxlen=DAY_SAMPLES)


def take(samples: deque[Snapshot], count: Count, now: int, interval_s: int) -> None:
    """Add a snapshot; before the first goes a zero one, so that what was counted so far shows."""
    if not samples:
        samples.append(Snapshot(now - interval_s * 1000, 0, 0))
    samples.append(Snapshot(now, count.value, count.times))


def compute(samples: deque[Snapshot]) -> StatsData:
    """Return what lies between the first and the last snapshot."""
    if not samples:
        return StatsData()
    first, last = samples[0], samples[-1]
    total, times, elapsed = last.value - first.value, last.times - first.times, last.timestamp - first.timestamp
    tps = total * 1000 / elapsed if elapsed > 0 else 0.0
    return StatsData(total, tps, total / times if times > 0 else 0.0)


class BrokerStatsManager:
    """The statistics of one broker."""

    def __init__(
        self, cluster: str, detailed: bool, counters: Counters, clock: Clock, *, lumps_light: bool = False
    ) -> None:
        """*detailed* keeps the per-queue statistics too; *lumps_light* counts what light names get under one name."""
        self._lumps_light = lumps_light
        self._cluster = cluster
        self._detailed = detailed
        self._counters = counters
        self._clock = clock
        self._own: dict[Key, Count] = {}
        self._items: dict[Key, StatsItem] = {}
        self._base: dict[Key, Count] = {}

    def add(self, name: StatsName, key: str, value: int, times: int = 1) -> None:
        """Count what the broker process did itself."""
        item = Key(name, key)
        count = self._own.get(item, Count(0, 0))
        self._own[item] = Count(count.value + value, count.times + times)

    def _shown(self, topic: str, group: str) -> str:
        names = [LMQ_PREFIX if self._lumps_light and is_lmq(name) else name for name in (topic, group)]
        return "@".join(names)

    def count_topic_put(self, topic: str, nums: int, size: int) -> None:
        """Count messages that the broker process put into a topic."""
        self.add(StatsName.TOPIC_PUT_NUMS, topic, nums)
        self.add(StatsName.TOPIC_PUT_SIZE, topic, size)

    def count_broker_put(self, nums: int) -> None:
        """Count messages that the broker process took from a producer or from a delay level."""
        self.add(StatsName.BROKER_PUT_NUMS, self._cluster, nums)

    def count_get(self, topic: str, group: str, queue_id: int, nums: int, size: int) -> None:
        """Count messages that the broker process itself took from a queue."""
        self.add(StatsName.GROUP_GET_NUMS, f"{topic}@{group}", nums)
        self.add(StatsName.GROUP_GET_SIZE, f"{topic}@{group}", size)
        if self._detailed:
            self.add(StatsName.QUEUE_GET_NUMS, f"{topic}@{queue_id}@{group}", nums)
            self.add(StatsName.QUEUE_GET_SIZE, f"{topic}@{queue_id}@{group}", size)

    def count_queue_put(self, topic: str, queue_id: int, nums: int, size: int) -> None:
        """Count what went into one queue; RocketMQ does so for the schedule topic only."""
        if self._detailed:
            self.add(StatsName.QUEUE_PUT_NUMS, f"{topic}@{queue_id}", nums)
            self.add(StatsName.QUEUE_PUT_SIZE, f"{topic}@{queue_id}", size)

    def counts(self) -> dict[Key, Count]:
        """Return every item with what was counted for it since it came to be."""
        result = dict(self._own)
        for item, count in self._worker_counts().items():
            base = self._base.get(item, NOTHING)
            if count.value > base.value:
                own = result.get(item, NOTHING)
                result[item] = Count(own.value + count.value - base.value, own.times + count.times - base.times)
        return result

    def _worker_counts(self) -> dict[Key, Count]:
        counts: dict[Key, Count] = {}

        def add(name: StatsName, key: str, value: int, times: int) -> None:
            before = counts.get(Key(name, key), NOTHING)
            counts[Key(name, key)] = Count(before.value + value, before.times + times)

        for put in self._counters.puts():
            add(StatsName.TOPIC_PUT_NUMS, put.topic, put.nums, put.nums)
            add(StatsName.TOPIC_PUT_SIZE, put.topic, put.bytes, put.nums)
            add(StatsName.BROKER_PUT_NUMS, self._cluster, put.nums, put.nums)
        for get in self._counters.gets():
            add(StatsName.GROUP_GET_NUMS, self._shown(get.topic, get.group), get.nums, get.times)
            add(StatsName.GROUP_GET_SIZE, self._shown(get.topic, get.group), get.bytes, get.times)
            add(StatsName.BROKER_GET_NUMS, self._cluster, get.nums, get.times)
            if self._detailed:
                add(StatsName.QUEUE_GET_NUMS, f"{get.topic}@{get.queue_id}@{get.group}", get.nums, get.times)
                add(StatsName.QUEUE_GET_SIZE, f"{get.topic}@{get.queue_id}@{get.group}", get.bytes, get.times)
        return counts

    def sample_minutes(self) -> None:
        """Take the snapshots that belong every MINUTE_INTERVAL_S."""
        self._sample("minute", MINUTE_INTERVAL_S)

    def sample_hours(self) -> None:
        """Take the snapshots that belong every HOUR_INTERVAL_S."""
        self._sample("hour", HOUR_INTERVAL_S)

    def sample_days(self) -> None:
        """Take the snapshots that belong every DAY_INTERVAL_S."""
        self._sample("day", DAY_INTERVAL_S)

    def _sample(self, span: str, interval_s: int) -> None:
        now = self._clock()
        for key, count in self.counts().items():
            take(getattr(self._items.setdefault(key, StatsItem()), span), count, now, interval_s)

    def view(self, name: str, key: str) -> tuple[StatsData, StatsData, StatsData] | None:
        """Return the last minute, hour and day of an item; None if nothing was ever counted for it."""
        item = Key(name, key)
        if item not in self._items and item not in self.counts():
            return None
        samples = self._items.get(item, StatsItem())
        return compute(samples.minute), compute(samples.hour), compute(samples.day)

    def group_get_tps(self, topic: str, group: str) -> float:
        """Return how many messages per second *group* took from *topic* in the last minute."""
        samples = self._items.get(Key(StatsName.GROUP_GET_NUMS, self._shown(topic, group)))
        return compute(samples.minute).tps if samples is not None else 0.0

    def forget_topic(self, topic: str) -> None:
        """Drop everything counted for a deleted topic."""
        self._forget(lambda parts: parts[0] == topic)

    def forget_group(self, group: str) -> None:
        """Drop everything counted for a deleted group."""
        self._forget(lambda parts: len(parts) > 1 and parts[-1] == group)

    def _forget(self, belongs: Callable[[list[str]], bool]) -> None:
        # The workers' values go on growing, so what they stand at now becomes the new zero.
        workers = self._worker_counts()
        for item in [*self.counts(), *self._items]:
            if item.name not in BROKER_NAMES and belongs(item.key.split("@")):
                self._own.pop(item, None)
                self._items.pop(item, None)
                self._base[item] = workers.get(item, NOTHING)


class DayTotals:
    """How many messages had been put and got by the last two midnights. Source: RocketMQ BrokerStats.java."""

    def __init__(self) -> None:
        self.put_yesterday_morning = 0
        self.put_today_morning = 0
        self.get_yesterday_morning = 0
        self.get_today_morning = 0

    def roll(self, put_nums: int, get_nums: int) -> None:
        """Take the totals at midnight."""
        self.put_yesterday_morning, self.put_today_morning = self.put_today_morning, put_nums
        self.get_yesterday_morning, self.get_today_morning = self.get_today_morning, get_nums


def next_midnight_ms(now_ms: int) -> int:
    """Return the start of the day after *now_ms*, local time."""
    day = time.localtime(now_ms // 1000)
    return int(time.mktime((day.tm_year, day.tm_mon, day.tm_mday + 1, 0, 0, 0, 0, 0, -1))) * 1000
