"""Positions in queues: as users write them, as Spark's checkpoint keeps them, as brokers count them.

The checkpoint's form is flat: ``{"topic/broker-a/0": 42}``, the offset of the next message to be read of each queue.
Users may write that too, or the form of rocketmq-spark, ``{"topic": {"broker-a": {"0": 42}}}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from mqcore.errors import ConfigError, ProtocolError
from mqcore.protocol.message import MessageQueue
from mqcore.spark.cluster import Cluster
from mqcore.spark.errors import DataLossError
from mqcore.spark.settings import SourceSettings

EARLIEST: Final = -2
LATEST: Final = -1

Offsets = dict[MessageQueue, int]


def queue_key(queue: MessageQueue) -> str:
    """Return the checkpoint's name of a queue."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def parse_key(key: str) -> MessageQueue:
    """Read a name of the checkpoint; a broker's name may hold a slash, a topic's cannot. Raises ProtocolError."""
    topic, _, rest = key.partition("/")
    broker_name, _, queue_id = rest.rpartition("/")
    if not (topic and broker_name and queue_id.isdecimal()):
        raise ProtocolError(f"bad queue name: got {key!r}, wanted topic/broker/queue")
    return MessageQueue(topic, broker_name, int(queue_id))


def to_json(offsets: Mapping[MessageQueue, int]) -> dict[str, int]:
    """Return what goes into the checkpoint, sorted by queue."""
    return {queue_key(queue): offsets[queue] for queue in sorted(offsets)}


def from_json(offsets: Mapping[str, int]) -> Offsets:
    """Read what a checkpoint holds; ProtocolError if it is not ours."""
    return {parse_key(key): int(offset) for key, offset in offsets.items()}


class Where(Enum):
    """The kinds of position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    OFFSETS = "offsets"
    TIMES = "timestamps"


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or to end, as *option* said it. *values* are offsets or ms, by queue or by topic, or for all
    queues under the empty topic; *strategy* is what to do for a queue with nothing at the time or later."""

    where: Where
    option: str
    values: Mapping[MessageQueue | str, int] = field(default_factory=dict)
    strategy: str = "latest"

    def value(self, queue: MessageQueue) -> int:
        """Return what was said about *queue*; ConfigError if nothing was."""
        for name in (queue, queue.topic, ""):
            if name in self.values:
                return self.values[name]
        raise ConfigError(f"option {self.option}: nothing is said about the queue {queue_key(queue)}")


def starting_position(settings: SourceSettings, default: Where) -> Position:
    """Return where to begin: a timestamp for all counts more than timestamps by queue, and these more than offsets."""
    strategy = settings.starting_offsets_by_timestamp_strategy
    if settings.starting_timestamp is not None:
        return _at_time("startingTimestamp", settings.starting_timestamp, strategy)
    if settings.starting_offsets_by_timestamp is not None:
        return _by_time("startingOffsetsByTimestamp", settings.starting_offsets_by_timestamp, strategy)
    return _by_offset("startingOffsets", settings.starting_offsets or default.value, settings.group)


def ending_position(settings: SourceSettings) -> Position:
    """Return where to end, in the same order of precedence; a time without a message ends at the latest offset."""
    if settings.ending_timestamp is not None:
        return _at_time("endingTimestamp", settings.ending_timestamp, "latest")
    if settings.ending_offsets_by_timestamp is not None:
        return _by_time("endingOffsetsByTimestamp", settings.ending_offsets_by_timestamp, "latest")
    if settings.ending_offsets == Where.EARLIEST.value:
        raise ConfigError("option endingOffsets: got 'earliest', wanted latest, committed or offsets")
    return _by_offset("endingOffsets", settings.ending_offsets, settings.group)


def parse_time_ms(option: str, value: Any) -> int:
    """Read ms since 1970, or a date or time of ISO 8601 (UTC unless it names a zone)."""
    text = str(value).strip()
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"option {option}: got {text!r}, wanted ms since 1970 or a time of ISO 8601") from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _at_time(option: str, text: str, strategy: str) -> Position:
    return Position(Where.TIMES, option, {"": parse_time_ms(option, text)}, strategy)


def _by_time(option: str, text: str, strategy: str) -> Position:
    times = _nested(option, text, lambda value: parse_time_ms(option, value))
    return Position(Where.TIMES, option, times, strategy)


def _by_offset(option: str, text: str, group: str | None) -> Position:
    word = text.strip().lower()
    if word == Where.COMMITTED.value and not group:
        raise ConfigError(f"option {option}=committed needs the option group")
    if word in (Where.EARLIEST.value, Where.LATEST.value, Where.COMMITTED.value):
        return Position(Where(word), option)

    def offset(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
            raise ConfigError(f"option {option}: got {value!r}, wanted an offset, -2 (earliest) or -1 (latest)")
        return value

    return Position(Where.OFFSETS, option, _nested(option, text, offset))


def _nested(option: str, text: str, read: Callable[[Any], int]) -> dict[MessageQueue | str, int]:
    """Read ``{topic: {broker: {queue: value}}}``, ``{topic/broker/queue: value}`` and ``{topic: value}``."""
    tree = _json_object(option, text)
    values: dict[MessageQueue | str, int] = {}
    try:
        for name, value in tree.items():
            if not isinstance(value, dict):
                values[parse_key(name) if "/" in name else name] = read(value)
                continue
            for broker_name, by_queue in value.items():
                for queue_id, leaf in by_queue.items():
                    values[MessageQueue(name, broker_name, int(queue_id))] = read(leaf)
    except (AttributeError, ValueError, ProtocolError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f'option {option}: got {text!r}, wanted {{"topic":{{"broker":{{"0":42}}}}}}') from error
    return values


def _json_object(option: str, text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        raise ConfigError(f"option {option}: got {text!r}, wanted a word such as latest, or a JSON object")
    return tree


def parse_assign(text: str) -> list[MessageQueue]:
    """Read the option ``assign``: ``{"topic": {"broker-a": [0, 1]}}``."""
    tree = _json_object("assign", text)
    try:
        return sorted(
            MessageQueue(topic, broker_name, int(queue_id))
            for topic, by_broker in tree.items()
            for broker_name, queue_ids in by_broker.items()
            for queue_id in queue_ids
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f'option assign: got {text!r}, wanted {{"topic":{{"broker-a":[0,1]}}}}') from error


def resolve(position: Position, cluster: Cluster, queues: Iterable[MessageQueue], group: str | None) -> Offsets:
    """Return the offset of *position* in each of *queues*, as it is now.

    Offsets that a user wrote are taken as they are, also when they are not there: the caller decides about loss.
    A group without an offset in a queue begins at its start. Raises ConfigError for a queue that a JSON position does
    not mention or does mention without its being read, and where a time has no message and the strategy is "error".
    """
    queues = list(queues)
    if position.where is Where.EARLIEST:
        return cluster.min_offsets(queues)
    if position.where is Where.LATEST:
        return cluster.max_offsets(queues)
    if position.where is Where.COMMITTED:
        assert group is not None
        return cluster.min_offsets(queues) | cluster.committed_offsets(group, queues)
    _refuse_strangers(position, queues)
    if position.where is Where.TIMES:
        return _resolve_times(position, cluster, queues)
    wanted = {queue: position.value(queue) for queue in queues}
    ends = {
        EARLIEST: cluster.min_offsets([queue for queue in queues if wanted[queue] == EARLIEST]),
        LATEST: cluster.max_offsets([queue for queue in queues if wanted[queue] == LATEST]),
    }
    return {queue: ends[offset][queue] if offset in ends else offset for queue, offset in wanted.items()}


def _resolve_times(position: Position, cluster: Cluster, queues: list[MessageQueue]) -> Offsets:
    found = cluster.offsets_at({queue: position.value(queue) for queue in queues})
    if position.strategy == "error":
        ends = cluster.max_offsets(queues)
        for queue, offset in found.items():
            if offset >= ends[queue]:
                raise ConfigError(
                    f"option {position.option}: the queue {queue_key(queue)} has no message stored at "
                    f"{position.value(queue)} ms or later; startingOffsetsByTimestampStrategy=latest begins at its end"
                )
    return found


def _refuse_strangers(position: Position, queues: list[MessageQueue]) -> None:
    known: set[MessageQueue | str] = {"", *queues, *(queue.topic for queue in queues)}
    for name in position.values:
        if name not in known:
            shown = name if isinstance(name, str) else queue_key(name)
            raise ConfigError(f"option {position.option} names {shown}, which is not among the queues to be read")


def check_available(cluster: Cluster, wanted: Offsets, position: Position, settings: SourceSettings) -> Offsets:
    """Return *wanted*, what *position* was resolved to, moved into what the queues hold.

    Raises DataLossError instead, if the query minds, for offsets that were written down by a user or a group. The
    others are what the queues held a moment ago; retention may be at work.
    """
    queues = list(wanted)
    lows, highs = cluster.min_offsets(queues), cluster.max_offsets(queues)
    available = {queue: min(max(offset, lows[queue]), highs[queue]) for queue, offset in wanted.items()}
    if settings.fail_on_data_loss and position.where in (Where.OFFSETS, Where.COMMITTED):
        for queue, offset in wanted.items():
            if offset != available[queue]:
                raise DataLossError(
                    f"{position.option}: offset {offset} of {queue_key(queue)} is outside "
                    f"[{lows[queue]}, {highs[queue]}]"
                )
    return available
