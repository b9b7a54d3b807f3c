"""Statistics by name and key: how much in the last minute, hour and day, and the totals of whole days.

Most values are counted by the workers; this samples them, and adds what the broker process does itself.
Source: RocketMQ store/stats/BrokerStatsManager.java, BrokerStats.java, common/stats/StatsItem.java.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from mqcore.broker.ports import Clock, Counters, GetCount, PutCount
from mqcore.protocol.names import LMQ_PREFIX, is_lmq

MINUTE_INTERVAL_S: Final = 10
HOUR_INTERVAL_S: Final = 600
DAY_INTERVAL_S: Final = 3600
MINUTE_SAMPLES: Final = 7
HOUR_SAMPLES: Final = 7
DAY_SAMPLES: Final = 25
Grown = tuple[Iterable[PutCount], Iterable[GetCount]]
PORTION: Final = 1000
"""So many rows of the workers' are taken in before others have their turn, some ten milliseconds."""


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
    GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
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


class CountAt(NamedTuple):
    """A count at a sample, which is numbered from 1."""

    sample: int
    value: int
    times: int


@dataclass(frozen=True, slots=True)
class StatsData:
    """What one list of snapshots says: the sum over its span, per second, and the mean of a step."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class Span:
    """The samples of one window: when each was taken, and what stood at it for the items that had grown.

    An item has a snapshot only where it has changed: what does not move costs nothing, however long it is remembered.
    """

    def __init__(self, interval_s: int, samples: int) -> None:
        """*samples* are those of a full window, its two ends included."""
        self._interval_ms = interval_s * 1000
        self._samples = samples
        self._timestamps: deque[int] = deque(maxlen=samples)
        self._taken = 0
        self._snapshots: dict[Key, deque[CountAt]] = {}
        self._grown: set[Key] = set()

    def grew(self, item: Key) -> None:
        """Something was counted for *item*."""
        self._grown.add(item)

    def sample(self, now: int, counts: Mapping[Key, Count]) -> None:
        """Take a snapshot of what has grown since the last one."""
        self._timestamps.append(now)
        self._taken += 1
        for item in self._grown:
            snapshots = self._snapshots.setdefault(item, deque(maxlen=self._samples))
            snapshots.append(CountAt(self._taken, *counts[item]))
        self._grown.clear()

    def view(self, item: Key) -> StatsData:
        """Return what lies between the first and the last sample of the window.

        An item that came to be within it begins at nothing, one interval before its first sample.
        """
        snapshots = self._snapshots.get(item)
        if not snapshots:
            return StatsData()
        last = snapshots[-1]
        oldest = self._taken - len(self._timestamps) + 1
        before = [snapshot for snapshot in snapshots if snapshot.sample <= self._taken - self._samples + 1]
        if before:
            first, began = before[-1], self._timestamps[0]
        else:
            first = CountAt(0, 0, 0)
            began = self._timestamps[snapshots[0].sample - oldest] - self._interval_ms
        total, times, elapsed = last.value - first.value, last.times - first.times, self._timestamps[-1] - began
        tps = total * 1000 / elapsed if elapsed > 0 else 0.0
        return StatsData(total, tps, total / times if times > 0 else 0.0)

    def forget(self, item: Key) -> None:
        self._snapshots.pop(item, None)
        self._grown.discard(item)


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
        self._counts: dict[Key, Count] = {}
        self._minute = Span(MINUTE_INTERVAL_S, MINUTE_SAMPLES)
        self._hour = Span(HOUR_INTERVAL_S, HOUR_SAMPLES)
        self._day = Span(DAY_INTERVAL_S, DAY_SAMPLES)
        self._spans = (self._minute, self._hour, self._day)

    def add(self, name: StatsName, key: str, value: int, times: int = 1) -> None:
        """Count something."""
        item = Key(name, key)
        count = self._counts.get(item, NOTHING)
        self._counts[item] = Count(count.value + value, count.times + times)
        for span in self._spans:
            span.grew(item)

    def _shown(self, topic: str, group: str) -> str:
        names = [LMQ_PREFIX if self._lumps_light and is_lmq(name) else name for name in (topic, group)]
        return "@".join(names)

    def count_topic_put(self, topic: str, nums: int, size: int) -> None:
        """Count messages that the broker process put into a topic."""
        self.add(StatsName.TOPIC_PUT_NUMS, topic, nums)
        self.add(StatsName.TOPIC_PUT_SIZE, topic, size)

    # Of the whole broker RocketMQ counts no steps, so that no mean of a step is shown.

    def count_broker_put(self, nums: int) -> None:
        """Count messages that the broker process took from a producer or from a delay level."""
        self.add(StatsName.BROKER_PUT_NUMS, self._cluster, nums, 0)

    def count_own_read(self, topic: str, group: str, nums: int, size: int) -> None:
        """Count what the broker process read for itself in one go, half and op messages; RocketMQ counts these, too."""
        self._counters.note_read(nums, size)
        if nums > 0:
            self.add(StatsName.GROUP_GET_NUMS, f"{topic}@{group}", nums)
            self.add(StatsName.GROUP_GET_SIZE, f"{topic}@{group}", size)
            self.add(StatsName.BROKER_GET_NUMS, self._cluster, nums, 0)

    def count_get(self, topic: str, group: str, queue_id: int, nums: int, size: int) -> None:
        """Count messages that the broker process itself took from a queue."""
        self.add(StatsName.GROUP_GET_NUMS, f"{topic}@{group}", nums)
        self.add(StatsName.GROUP_GET_SIZE, f"{topic}@{group}", size)
        if self._detailed:
            self.add(StatsName.QUEUE_GET_NUMS, f"{topic}@{queue_id}@{group}", nums)
            self.add(StatsName.QUEUE_GET_SIZE, f"{topic}@{queue_id}@{group}", size)

    def count_latency(self, topic: str, group: str, queue_id: int, took_ms: int) -> None:
        """Count the milliseconds that a pull took. The pull itself is counted where its messages are."""
        self.add(StatsName.GROUP_GET_LATENCY, self._latency_key(topic, group, queue_id), took_ms, 0)

    def _latency_key(self, topic: str, group: str, queue_id: int) -> str:
        pair = self._shown(topic, group)
        return f"{queue_id}@{pair}" if self._detailed else pair

    def count_queue_put(self, topic: str, queue_id: int, nums: int, size: int) -> None:
        """Count what went into one queue; RocketMQ does so for the schedule topic only."""
        if self._detailed:
            self.add(StatsName.QUEUE_PUT_NUMS, f"{topic}@{queue_id}", nums)
            self.add(StatsName.QUEUE_PUT_SIZE, f"{topic}@{queue_id}", size)

    def collect(self, grown: Grown | None = None) -> Iterator[None]:
        """Add what the workers have counted since the last time, a stop after each portion of PORTION rows.

        *grown* is what the counters say of that, asked before.
        """
        puts, gets = self._counters.grown() if grown is None else grown
        for number, put in enumerate(puts, 1):
            self._add_put(put)
            if number % PORTION == 0:
                yield
        for number, get in enumerate(gets, 1):
            self._add_get(get)
            if number % PORTION == 0:
                yield

    def _add_put(self, put: PutCount) -> None:
        self.add(StatsName.TOPIC_PUT_NUMS, put.topic, put.nums, put.nums)
        self.add(StatsName.TOPIC_PUT_SIZE, put.topic, put.bytes, put.nums)
        self.add(StatsName.BROKER_PUT_NUMS, self._cluster, put.nums, 0)

    def _add_get(self, get: GetCount) -> None:
        pair = self._shown(get.topic, get.group)
        self.add(StatsName.GROUP_GET_NUMS, pair, get.nums, get.times)
        self.add(StatsName.GROUP_GET_SIZE, pair, get.bytes, get.times)
        self.add(StatsName.BROKER_GET_NUMS, self._cluster, get.nums, 0)
        self.add(StatsName.GROUP_GET_LATENCY, self._latency_key(get.topic, get.group, get.queue_id), 0, get.times)
        if self._detailed:
            self.add(StatsName.QUEUE_GET_NUMS, f"{get.topic}@{get.queue_id}@{get.group}", get.nums, get.times)
            self.add(StatsName.QUEUE_GET_SIZE, f"{get.topic}@{get.queue_id}@{get.group}", get.bytes, get.times)

    async def sample_minutes(self) -> None:
        """Take the snapshots that belong every MINUTE_INTERVAL_S."""
        await self._sample(self._minute)

    async def sample_hours(self) -> None:
        """Take the snapshots that belong every HOUR_INTERVAL_S."""
        await self._sample(self._hour)

    async def sample_days(self) -> None:
        """Take the snapshots that belong every DAY_INTERVAL_S."""
        await self._sample(self._day)

    async def _sample(self, span: Span) -> None:
        # A look at a million rows takes some 20 ms, and needs no interpreter.
        for _ in self.collect(await asyncio.to_thread(self._counters.grown)):
            await asyncio.sleep(0)
        span.sample(self._clock(), self._counts)

    def view(self, name: str, key: str) -> tuple[StatsData, StatsData, StatsData] | None:
        """Return the last minute, hour and day of an item; None if nothing was ever counted for it."""
        item = Key(name, key)
        if item not in self._counts:
            for _ in self.collect():
                pass
        if item not in self._counts:
            return None
        return self._minute.view(item), self._hour.view(item), self._day.view(item)

    def group_get_tps(self, topic: str, group: str) -> float:
        """Return how many messages per second *group* took from *topic* in the last minute."""
        return self._minute.view(Key(StatsName.GROUP_GET_NUMS, self._shown(topic, group))).tps

    def forget_topic(self, topic: str) -> None:
        """Drop everything counted for a deleted topic."""
        self._forget(lambda item, parts: parts[1 if item.name == StatsName.GROUP_GET_LATENCY else 0] == topic)

    def forget_group(self, group: str) -> None:
        """Drop everything counted for a deleted group."""
        self._forget(lambda item, parts: len(parts) > 1 and parts[-1] == group)

    def _forget(self, belongs: Callable[[Key, list[str]], bool]) -> None:
        for _ in self.collect():  # so that it is not taken for new later
            pass
        for item in [*self._counts]:
            if item.name not in BROKER_NAMES and belongs(item, item.key.split("@")):
                del self._counts[item]
                for span in self._spans:
                    span.forget(item)


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
