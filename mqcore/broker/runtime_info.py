"""The table that GET_BROKER_RUNTIME_INFO shows, and the rates in it.

Source: RocketMQ broker/processor/AdminBrokerProcessor.java (prepareRuntimeInfo), store/StoreStatsService.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from mqcore.broker.java_text import human_size
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.pools import POOLS
from mqcore.broker.ports import (
    BrokerTotals,
    Clock,
    Counters,
    PoolView,
    StoreFacts,
    StoreView,
)
from mqcore.broker.services.delay_levels import ScheduleMessageService
from mqcore.broker.services.timers import TimerMessages
from mqcore.broker.statistics import DayTotals
from mqcore.broker.subscription_conflicts import SubscriptionConflicts
from mqcore.codes import CURRENT_VERSION, version_name
from mqcore.layout import PUT_TALLY_BOUNDS_MS
from mqcore.protocol.fastjson import java_double

DETAILS: Final = "processes"
"""What GET_BROKER_RUNTIME_INFO is asked for in its field ``details`` by who wants them."""

SAMPLE_INTERVAL_S: Final = 1
SPANS_S: Final = (10, 60, 600)
SAMPLES_MAX: Final = max(SPANS_S) + 1

DISTRIBUTION_LABELS: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip

assert len(DISTRIBUTION_LABELS) == len(PUT_TALLY_BOUNDS_MS) + 1

POOL_PREFIXES: Final = (
    ("send", "sendThreadPoolQueue"),
    ("pull", "pullThreadPoolQueue"),
    ("query", "queryThreadPoolQueue"),
)
CONFLICTS_SHOWN: Final = 20
"""Groups in conflict that are named; all are counted."""

# What waits in front of a worker lies in its connections, whose oldest has no time written on it.
NO_WAIT: Final = "0"


Figures = Callable[[], Mapping[str, str]]


class _Sample(NamedTuple):
    timestamp: int
    totals: BrokerTotals


class RuntimeInfo:
    """Samples the totals each second, and builds the table."""

    def __init__(
        self,
        settings: LiveSettings,
        counters: Counters,
        store: StoreView,
        pools: PoolView,
        schedule: ScheduleMessageService,
        conflicts: SubscriptionConflicts,
        timers: TimerMessages,
        clock: Clock,
    ) -> None:
        self.days = DayTotals()
        self._settings = settings
        self._counters = counters
        self._store = store
        self._pools = pools
        self._schedule = schedule
        self._conflicts = conflicts
        self._timers = timers
        self._clock = clock
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        self._more: list[Figures] = []
        self._details: list[Figures] = []

    def show(self, figures: Figures) -> None:
        """Let a service add rows of its own, such as RocketMQ 5's ``timerReadBehind``; 4.9 has none of them."""
        self._more.append(figures)

    def show_details(self, figures: Figures) -> None:
        """Let a service add rows for those who ask for ``DETAILS``: of mqcore's own tools, and not of RocketMQ's."""
        self._details.append(figures)

    def sample(self) -> None:
        """Remember the totals. To be called every SAMPLE_INTERVAL_S."""
        self._samples.append(_Sample(self._clock(), self._counters.totals()))

    def roll_day(self) -> None:
        """Take the totals of the day that has ended. To be called at midnight."""
        totals = self._counters.totals()
        self.days.roll(totals.put_nums, totals.get_nums)

    def table(self) -> dict[str, str]:
        """Return every key with its value as text."""
        totals, facts = self._counters.totals(), self._store.facts()
        return {
            **self._service(totals, facts),
            **_disks(facts),
            **self._levels(),
            **self._timers.table(),
            **self._days(totals),
            **self._queues(),
            **_positions(facts),
            "earliestMessageTimeStamp": str(self._store.earliest_timestamp()),
            "startAcceptSendRequestTimeStamp": str(self._settings.broker.start_accept_send_request_time_stamp_ms),
            "brokerVersionDesc": version_name(CURRENT_VERSION),
            "brokerVersion": str(int(CURRENT_VERSION)),
            **self._subscriptions(),
            **{name: value for figures in self._more for name, value in figures().items()},
        }

    def details(self) -> dict[str, str]:
        """Return the rows that stand in the table for those only who ask for them."""
        return {name: value for figures in self._details for name, value in figures().items()}

    def _subscriptions(self) -> dict[str, str]:
        """Return what RocketMQ has no keys for; nothing, and so its table, as long as no group was in conflict."""
        if not self._conflicts.total:
            return {}
        return {
            "subscriptionConflictTotal": str(self._conflicts.total),
            "subscriptionConflictGroups": ",".join(self._conflicts.groups[:CONFLICTS_SHOWN]),
        }

    def _service(self, totals: BrokerTotals, facts: StoreFacts) -> dict[str, str]:
        times = totals.put_nums or 1  # 1 for none, as upstream, which divides by it
        return {
            "bootTimestamp": str(facts.boot_timestamp),
            "runtime": _duration(self._clock() - facts.boot_timestamp),
            "putMessageEntireTimeMax": str(totals.put_time_max_ms),
            "putMessageTimesTotal": str(times),
            "putMessageFailedTimes": str(totals.put_failed),
            "putMessageSizeTotal": str(totals.put_bytes),
            "putMessageDistributeTime": _distribution(totals),
            "putMessageAverageSize": java_double(totals.put_bytes / times),
            "dispatchMaxBuffer": str(facts.dispatch_max_buffer),
            "getMessageEntireTimeMax": str(totals.get_time_max_ms),
            "putTps": self._rates("put_nums"),
            "getFoundTps": self._rates("get_found"),
            "getMissTps": self._rates("get_miss"),
            "getTotalTps": self._total_rates(),
            "getTransferedTps": self._rates("get_nums"),
            "putLatency99": _latency(totals, 0.99),
            "putLatency999": _latency(totals, 0.999),
        }

    def _levels(self) -> dict[str, str]:
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{self._schedule.max_offset(level)}"
            for level, offset in sorted(self._schedule.offsets.items())
        }

    def _days(self, totals: BrokerTotals) -> dict[str, str]:
        return {
            "msgPutTotalYesterdayMorning": str(self.days.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(self.days.put_today_morning),
            "msgPutTotalTodayNow": str(totals.put_nums),
            "msgGetTotalYesterdayMorning": str(self.days.get_yesterday_morning),
            "msgGetTotalTodayMorning": str(self.days.get_today_morning),
            "msgGetTotalTodayNow": str(totals.get_nums),
        }

    def _queues(self) -> dict[str, str]:
        table: dict[str, str] = {}
        for pool, prefix in POOL_PREFIXES:
            facts = self._pools.facts(pool)
            table[f"{prefix}Size"] = str(facts.queue_size)
            table[f"{prefix}Capacity"] = str(POOLS[pool].capacity)
            table[f"{prefix}HeadWaitTimeMills"] = NO_WAIT
        end_transaction = self._pools.facts("end_transaction")
        table["EndTransactionQueueSize"] = str(end_transaction.queue_size)
        table["EndTransactionThreadPoolQueueCapacity"] = str(POOLS["end_transaction"].capacity)
        return table

    def _rate(self, field: str, span_s: int) -> float | None:
        """Return the growth of a total per second over the last *span_s*; None until there are enough samples."""
        if len(self._samples) <= span_s:
            return None
        first, last = self._samples[-span_s - 1], self._samples[-1]
        grown = getattr(last.totals, field) - getattr(first.totals, field)
        elapsed_ms = last.timestamp - first.timestamp
        return grown * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0

    def _rates(self, field: str) -> str:
        rates = [self._rate(field, span) for span in SPANS_S]
        return " ".join("" if rate is None else java_double(rate) for rate in rates)

    def _total_rates(self) -> str:
        sums = [(self._rate("get_found", span) or 0.0) + (self._rate("get_miss", span) or 0.0) for span in SPANS_S]
        return " ".join(map(java_double, sums))


def _duration(elapsed_ms: int) -> str:
    minutes, seconds = divmod(max(elapsed_ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _distribution(totals: BrokerTotals) -> str:
    return "".join(f"{label}:{count} " for label, count in zip(DISTRIBUTION_LABELS, totals.put_latency, strict=True))


def _latency(totals: BrokerTotals, share: float) -> str:
    """Return the time, in ms, that *share* of the puts stayed below: the bound of their tally; 0.0 without tallies."""
    if not any(totals.put_latency):
        return java_double(0.0)
    rank = int(sum(totals.put_latency) * share)
    seen = 0
    for bound, count in zip(PUT_TALLY_BOUNDS_MS, totals.put_latency, strict=False):
        seen += count
        if seen > rank:
            return java_double(float(bound))
    return java_double(float(totals.put_time_max_ms))


def _disks(facts: StoreFacts) -> dict[str, str]:
    spaces, root = facts.commit_log_spaces, facts.root_space
    table = {
        "commitLogDiskRatio": java_double(min((space.ratio for space in spaces), default=-1.0)),
        "consumeQueueDiskRatio": java_double(facts.consume_queue_space.ratio),
        "commitLogDirCapacity": f"Total : {human_size(root.total)}, Free : {human_size(root.free)}.",
    }
    return table | {f"commitLogDiskRatio_{space.path}": java_double(space.ratio) for space in spaces}


def _positions(facts: StoreFacts) -> dict[str, str]:
    table = {
        "commitLogMinOffset": str(facts.commit_log_min_offset),
        "commitLogMaxOffset": str(facts.commit_log_max_offset),
        "dispatchBehindBytes": str(facts.dispatch_behind_bytes),
        "pageCacheLockTimeMills": str(facts.page_cache_lock_time_ms),
        "remainTransientStoreBufferNumbs": str(facts.transient_buffers_free),
        "remainHowManyDataToFlush": human_size(facts.flush_behind_bytes),
    }
    if facts.commit_behind_bytes is not None:
        table["remainHowManyDataToCommit"] = human_size(facts.commit_behind_bytes)
    return table
