"""One look at everything that metrics tell of: things of each subject, with labels and values, for one scrape.

It runs in a thread of its own and gives way to the event loop after each few things.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from mqcore import clock
from mqcore.broker.figures import GroupFigures, ProcessFigures, TopicFigures
from mqcore.broker.metrics.bounds import LabelBound, Tallies, Thing
from mqcore.broker.metrics.broker_facts import BrokerFacts, MemberCount, Observed
from mqcore.broker.metrics.lags import LagTimes
from mqcore.broker.metrics.machine import (
    ThreadCounts,
    cpu_things,
    host_mode_things,
    host_thing,
    pressure_things,
    resources_of,
)
from mqcore.broker.metrics.rates import GrowthRates
from mqcore.broker.metrics.rows import Subject
from mqcore.broker.ports import SlaveFacts, wall_clock_ms
from mqcore.codes import CURRENT_VERSION, version_name
from mqcore.layout import LATENCY_BOUNDS_US, PUT_TALLY_BOUNDS_MS
from mqcore.protocol.bodies import MessageModel
from mqcore.protocol.names import (
    CID_RMQ_SYS_PREFIX,
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_topic,
)
from mqcore.version import __version__

NUMBER: Final = re.compile(r":(\d+)")
NOBODY: Final = MemberCount(0, shares_queues=True)
SYSTEM_GROUP: Final = CID_RMQ_SYS_PREFIX.lower()
REMOTING: Final = "remoting"
US_PER_MS: Final = 1000
CLUSTERING: Final = str(int(MessageModel.CLUSTERING))
LATENCIES: Final = {
    "SEND": ("send_message_v2", "success", False),
    "UNCONFIRMED": ("send_message_v2", "other", False),
    "PULL": ("pull_message", "success", False),
    "HELD": ("pull_message", "success", True),
}
"""LatencyKind to request code, as most clients have it, response code and whether it was held, by RocketMQ 5."""

WORDS: Final = (
    "turns", "wakes", "units", "bytes", "refused", "backlog", "parked", "connections", "accepted", "buffered",
    "protocol_errors", "slow_readers", "handshakes", "handshakes_failed", "transport_refused", "timed_out",
    "page_cache_busy", "quota_delayed", "quota_refused", "connections_refused",
)  # fmt: skip
"""Of a process's row, under the same names."""

T = TypeVar("T")
Things = dict[Subject, list[Thing]]
Pause = Callable[[], None]


class BrokerSurvey:
    """Looks at one life of a broker, again and again: what counts grow by is told from the look before."""

    def __init__(self, observed: Observed, pause: Pause) -> None:
        """*pause* is called after each thing."""
        self._observed = observed
        self._pause = pause
        self._rates = GrowthRates(observed.figures.word("boot_timestamp") / 1000)
        settings = observed.broker.settings.current.mqcore
        self._lags = LagTimes(observed.figures)
        self._threads = ThreadCounts()
        self._topics = LabelBound(settings.metrics_topics_max, ["topic"], ["put_nums", "put_bytes"], [], pause)
        self._groups = LabelBound(
            settings.metrics_groups_max, ["group", "topic"], ["get_nums", "get_bytes"], ["lag_ms"], pause
        )

        kinds = ["consumer_group", "language", "version", "consume_mode"]
        self._consumers = LabelBound(settings.metrics_groups_max, kinds, [], [], pause)

    def take(self, facts: BrokerFacts, *, is_ready: bool) -> Things:
        """Look. *facts* are those of this moment."""
        began_s = clock.monotonic_s()
        now_ms = wall_clock_ms()
        self._rates.begin(now_ms / 1000)
        things: Things = {subject: [] for subject in Subject}
        self._take_topics(things, facts)
        self._take_groups(things, facts, now_ms)
        things[Subject.PRODUCERS] = [
            {"language": kind.language, "version": kind.version, "protocol_type": REMOTING, "count": count}
            for kind, count in facts.producers.items()
        ]
        self._take_consumers(things, facts)
        things[Subject.POOL] = [{"processor": pool, "queue_size": size} for pool, size in facts.pools.items()]
        things[Subject.RUNTIME] = [runtime_thing(facts)]
        things[Subject.FLAG] = [
            {"flag": name.lower(), "is_set": float(is_set)} for name, is_set in self._observed.figures.flags().items()
        ]
        things[Subject.BOUND] = [
            {"label": "topic", "left_out": self._topics.left_out},
            {"label": "group", "left_out": self._groups.left_out},
            {"label": "consumer_group", "left_out": self._consumers.left_out},
        ]
        self._take_processes(things, now_ms)
        things[Subject.HOST] = [host_thing()]
        things[Subject.HOST_MODE] = host_mode_things()
        things[Subject.PRESSURE] = pressure_things()
        things[Subject.PUTS] = [{"latency": self._put_latency()}]
        things[Subject.REQUESTS] = [self._request_thing(kind) for kind in LATENCIES]
        if facts.replication is not None:
            things[Subject.SLAVE] = [slave_thing(slave) for slave in facts.replication.slaves]
        broker = self._broker_thing(facts, now_ms) | {"is_ready": float(is_ready)}
        things[Subject.BROKER] = [broker | {"survey_s": clock.monotonic_s() - began_s}]
        return things

    def common_labels(self) -> dict[str, str]:
        """Return the labels that all series have the same value of."""
        settings = self._observed.broker.settings.broker
        address = str(self._observed.broker.address)
        return {
            "cluster": settings.broker_cluster_name,
            "node_type": "broker",
            "node_id": settings.broker_name,
            "broker": settings.broker_name,
            "brokerIP": address,
            "brokerHost": settings.broker_name,
            "des": version_name(CURRENT_VERSION),
            "boottime": str(self._observed.figures.word("boot_timestamp")),
            "broker_version": str(int(CURRENT_VERSION)),
            "version": __version__,
            "protocol_version": version_name(CURRENT_VERSION),
            "storage_type": "local",
            "storage_medium": "disk",
        }

    # Topics and groups.

    def _take_topics(self, things: Things, facts: BrokerFacts) -> None:
        found = (self._topic_thing(figures, facts) for figures in self._paused(self._observed.figures.topics()))
        things[Subject.TOPIC] = self._topics.apply(found)
        for thing in self._paused(things[Subject.TOPIC]):
            topic = str(thing["topic"])
            thing |= {"message_type": "unspecified", "is_system": thing.get("is_system", "false")}
            things[_by_prefix(topic, Subject.PLAIN_TOPIC, Subject.RETRY_TOPIC, Subject.DEAD_TOPIC)].append(thing)

    def _topic_thing(self, figures: TopicFigures, facts: BrokerFacts) -> Thing:
        topic, rate = figures.topic, self._rates.of
        thing: Thing = {
            "topic": topic,
            "is_system": _truth(is_system_topic(topic, facts.system_topics)),
            "put_nums": figures.put_nums,
            "put_bytes": figures.put_bytes,
            "max_offset": figures.max_offset,
            "put_rate": rate((topic, "put_nums"), figures.put_nums),
            "put_bytes_rate": rate((topic, "put_bytes"), figures.put_bytes),
        }
        if topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
            group = topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX)
            thing |= {"group": group, "consumer_group": group}
        return thing

    def _take_groups(self, things: Things, facts: BrokerFacts, now_ms: int) -> None:
        known = [one for one in self._paused(self._observed.figures.groups()) if one.group in facts.groups]
        behind = self._look_behind(known)
        found = (
            self._group_thing(figures, facts, behind.get(number), now_ms)
            for number, figures in enumerate(self._paused(known))
        )
        sent_back = {thing["topic"]: thing["put_rate"] for thing in things[Subject.RETRY_TOPIC]}
        things[Subject.GROUP] = self._groups.apply(found)
        for thing in self._paused(things[Subject.GROUP]):
            topic, group = str(thing["topic"]), str(thing["group"])
            members = facts.members.get(group, NOBODY)
            thing |= {
                "consumer_group": group,
                "is_retry": _truth(_by_prefix(topic, False, True, True)),
                "is_system": thing.get("is_system", "false"),
                "countOfOnlineConsumers": str(members.count),
                "msgModel": CLUSTERING,
            }
            if topic in sent_back:
                thing["put_rate"] = sent_back[topic]
            subject = _by_prefix(topic, Subject.PLAIN_GROUP, Subject.RETRY_GROUP, Subject.DEAD_GROUP)
            if members.shares_queues:
                things[subject].append(thing)

    def _take_consumers(self, things: Things, facts: BrokerFacts) -> None:
        # Whoever is connected may name any number of groups.
        found: Iterable[Thing] = (
            {
                "consumer_group": kind.group,
                "language": kind.language,
                "version": kind.version,
                "consume_mode": kind.consume_mode,
                "count": count,
            }
            for kind, count in self._paused(facts.consumers.items())
        )
        things[Subject.CONSUMERS] = self._consumers.apply(found)
        for thing in things[Subject.CONSUMERS]:
            thing |= {"protocol_type": REMOTING, "is_system": _truth(_is_system_group(str(thing["consumer_group"])))}

    def _look_behind(self, known: Sequence[GroupFigures]) -> dict[int, int]:
        """Return the store time, ms, of the oldest message that is not consumed, by the place in *known*."""
        places = {number: figures.unconsumed() for number, figures in enumerate(known) if figures.lag > 0}
        for number, queues in places.items():
            self._pause()
            for queue in queues:
                self._lags.want(known[number].topic, queue)
        times = self._lags.look(self._pause)
        found = {number: [times[queue.offset_row] for queue in queues if queue.offset_row in times]
                 for number, queues in places.items()}  # fmt: skip
        return {number: min(stored) for number, stored in found.items() if stored}

    def _group_thing(self, figures: GroupFigures, facts: BrokerFacts, oldest_ms: int | None, now_ms: int) -> Thing:
        pair = (figures.group, figures.topic)
        is_system = is_system_topic(figures.topic, facts.system_topics) or _is_system_group(figures.group)
        thing: Thing = {
            "group": figures.group,
            "topic": figures.topic,
            "is_system": _truth(is_system),
            "get_nums": figures.get_nums,
            "get_bytes": figures.get_bytes,
            "get_rate": self._rates.of((*pair, "get_nums"), figures.get_nums),
            "get_bytes_rate": self._rates.of((*pair, "get_bytes"), figures.get_bytes),
        }
        if figures.committed >= 0:
            thing |= {
                "committed": figures.committed,
                "lag": figures.lag,
                "in_flight": figures.in_flight,
                "ready": figures.ready,
            }
            if oldest_ms is not None or figures.lag == 0:
                thing["lag_ms"] = 0 if oldest_ms is None else max(0, now_ms - oldest_ms)
        return thing

    def _paused(self, found: Iterable[T]) -> Iterator[T]:
        for one in found:
            self._pause()
            yield one

    # The broker.

    def _take_processes(self, things: Things, now_ms: int) -> None:
        wanted = [process for process in self._observed.figures.processes() if process.is_wanted]
        self._threads.keep({process.pid for process in wanted})
        for process in wanted:
            self._pause()
            known: Thing = {"worker": process.name, "kind": process.kind}
            worker = known | process_thing(process, now_ms)
            if process.pid:
                worker |= resources_of(process) | {"runqueue_wait_s": self._threads.runqueue_wait_s(process.pid)}
                things[Subject.WORKER_MODE] += [known | thing for thing in cpu_things(process)]
                things[Subject.SWITCHES] += [known | thing for thing in self._threads.switch_things(process.pid)]
            things[Subject.WORKER].append(worker)

    def _put_latency(self) -> Tallies:
        word = self._observed.figures.word
        counts = [word(f"put_tally_{number}") for number in range(len(PUT_TALLY_BOUNDS_MS) + 1)]
        return Tallies(tuple(bound / 1000 for bound in PUT_TALLY_BOUNDS_MS), tuple(counts))

    def _request_thing(self, kind: str) -> Thing:
        sum_us, counts = self._observed.figures.latency(kind)
        request, response, was_held = LATENCIES[kind]
        bounds = tuple(bound / US_PER_MS for bound in LATENCY_BOUNDS_US)
        return {
            "protocol_type": REMOTING,
            "request_code": request,
            "response_code": response,
            "is_long_polling": _truth(was_held),
            "latency": Tallies(bounds, tuple(counts), sum_us / US_PER_MS),
        }

    def _broker_thing(self, facts: BrokerFacts, now_ms: int) -> Thing:
        word, rate = self._observed.figures.word, self._rates.of
        space = facts.store.root_space
        thing: Thing = {
            "one": 1,
            "start_s": word("boot_timestamp") / 1000,
            "topic_number": facts.topic_count,
            "group_number": len(facts.groups),
            "permission": facts.permission,
            "is_registered": float(facts.is_registered),
            "is_master": float(facts.is_master),
            "storage_size": space.total - space.free,
            "disk_free": space.free,
            "disk_ratio": space.ratio,
            "flush_behind": facts.store.flush_behind_bytes,
            "dispatch_behind": facts.store.dispatch_behind_bytes,
            "put_nums": word("put_times"),
            "put_bytes": word("put_bytes"),
            "put_failed": word("put_failed"),
            "put_rate": rate("put_nums", word("put_times")),
            "get_nums": word("get_times"),
            "get_bytes": word("get_bytes"),
            "get_rate": rate("get_nums", word("get_times")),
            "get_found": word("get_found"),
            "get_miss": word("get_missed"),
            "waiting_pulls": self._observed.figures.waiting_pulls(),
            "log_min": word("min_offset"),
            "log_max": word("readable_offset"),
            "file_rolls": word("file_rolls"),
            "put_repairs": word("put_repairs"),
            "conflicts": facts.conflict_count,
            "conflict_groups": facts.conflict_groups,
            "flush_behind_s": self._behind_s("flushed"),
            "dispatch_behind_s": self._behind_s("dispatched"),
        }
        if facts.epoch is not None:
            thing["epoch"] = facts.epoch
        if facts.earliest_ms > 0:
            thing["reserve_ms"] = max(0, now_ms - facts.earliest_ms)
        return thing | self._timer_values(now_ms) | self._replica_values(facts, now_ms)

    def _behind_s(self, bound: str) -> float:
        # The bound first: what is written after that is behind it, and not before.
        word = self._observed.figures.word
        done, done_ms = word(f"{bound}_offset"), word(f"{bound}_timestamp")
        if word("wrote_offset") <= done or done_ms == 0:
            return 0.0
        return max(0, word("wrote_timestamp") - done_ms) / 1000

    def _replica_values(self, facts: BrokerFacts, now_ms: int) -> Thing:
        word, copies = self._observed.figures.word, facts.replication
        if copies is None:
            return {}
        values: Thing = {}
        if facts.is_master:
            values["slaves"] = word("slave_count")
            if copies.slaves:
                values["replicated_behind"] = max(0, copies.end - copies.replicated_end)
            if facts.epoch is not None:
                values["confirmed_behind"] = max(0, copies.end - word("confirmed_offset"))
            return values
        values |= {"is_copying": float(copies.is_copying), "master_behind": max(0, copies.master_end - copies.end)}
        if copies.master_seen_ms:
            values["master_silent_s"] = max(0, now_ms - copies.master_seen_ms) / 1000
        return values

    def _timer_values(self, now_ms: int) -> Thing:
        word = self._observed.figures.word
        if not word("timer_row"):
            return {}  # this store has no timers
        values: Thing = {
            "timer_pending": word("timer_pending"),
            "timer_enqueued": word("timer_enqueued"),
            "timer_delivered": word("timer_delivered"),
        }
        if word("timer_read_time"):
            values["timer_late_ms"] = max(0, now_ms - word("timer_read_time"))
        return values


def process_thing(figures: ProcessFigures, now_ms: int) -> Thing:
    """Return what its row says of a process."""
    words = figures.words
    thing: Thing = {
        "is_alive": float(bool(figures.pid) and figures.state == "RUNNING"),
        "restarts": words["generation"],
        "read_max_s": words["read_ms_max"] / 1000,
        **{name: words[name] for name in WORDS},
    }
    if words["heartbeat"]:
        thing["heartbeat_age_s"] = max(0, now_ms - words["heartbeat"]) / 1000
    return thing


def slave_thing(slave: SlaveFacts) -> Thing:
    """Return what is known of a slave that is connected."""
    return {
        "slave": slave.address,
        "behind_bytes": slave.behind_bytes,
        "behind_s": slave.behind_ms / 1000,
        "sent_bytes": slave.sent_bytes,
    }


def runtime_thing(facts: BrokerFacts) -> Thing:
    """Return the figures of the runtime table; of values with several the number of each behind its key."""
    space = facts.store.root_space
    thing: Thing = {
        "commitLogDirCapacity 0": space.total,
        "commitLogDirCapacity 1": space.free,
        "remainHowManyDataToFlush": facts.store.flush_behind_bytes,
    }
    for key, text in facts.runtime.items():
        parts = NUMBER.findall(text) if key == "putMessageDistributeTime" else text.split(" ")
        for index, part in enumerate(parts):
            number = _number(part)
            if number is not None:
                thing.setdefault(key if len(parts) == 1 else f"{key} {index}", number)
    return thing


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _is_system_group(group: str) -> bool:
    return group.lower().startswith(SYSTEM_GROUP)


def _by_prefix(topic: str, plain: T, retry: T, dead: T) -> T:
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return retry
    return dead if topic.startswith(DLQ_GROUP_TOPIC_PREFIX) else plain
