"""Where consumers and delay levels stand in a store that is brought back: not ahead of what is there.

An offset that lies behind the end of its queue would pass over the messages that come there next. It can be so where
the log is cut before the time of the tables, and in the store of a slave, which has its master's offsets before its
messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from mqcore.protocol import fastjson
from mqcore.protocol.names import LMQ_PREFIX, SCHEDULE_TOPIC, TRANS_CONSUMER_GROUP
from mqcore.store.incarnations import QueueKey

CONSUMER_TABLE: Final = "consumerOffset.json"
DELAY_TABLE: Final = "delayOffset.json"
SEPARATOR: Final = "@"


@dataclass(frozen=True, slots=True)
class Places:
    """What the restored log says of its queues: where they end; which began anew since the tables were copied.

    *is_earlier*: the log is cut before the time of the tables. *delayed*: where each delay queue goes on then.
    """

    ends: Mapping[QueueKey, int]
    reborn: Collection[QueueKey] = ()
    is_earlier: bool = False
    delayed: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Positions:
    """The tables as they are restored, and what that means: how many offsets had to move, and what groups will get."""

    tables: dict[str, bytes]
    moved: int = 0
    dropped: int = 0
    behind: dict[str, dict[str, int]] = field(default_factory=dict)


def fit(tables: Mapping[str, bytes], places: Places) -> Positions:
    """Return *tables* with offsets that *places* can bear; a table that need not change keeps its bytes."""
    positions = Positions(dict(tables))
    if CONSUMER_TABLE in tables:
        _fit_consumers(positions, places)
    if DELAY_TABLE in tables:
        _fit_delays(positions, places)
    return positions


def _fit_consumers(positions: Positions, places: Places) -> None:
    value = fastjson.loads(positions.tables[CONSUMER_TABLE])
    table = value.get("offsetTable")
    before = positions.moved + positions.dropped
    for key, offsets in table.items() if isinstance(table, dict) else ():
        topic, _, group = str(key).partition(SEPARATOR)
        if not isinstance(offsets, dict):
            continue
        if places.is_earlier and group == TRANS_CONSUMER_GROUP:
            # What was done with is said by the messages themselves, as far as they are there.
            positions.dropped += len(offsets)
            offsets.clear()
        for queue in list(offsets):
            _fit_queue(positions, places, topic, group, offsets, queue)
    if positions.moved + positions.dropped > before:
        value["offsetTable"] = {key: offsets for key, offsets in table.items() if offsets}
        positions.tables[CONSUMER_TABLE] = orjson.dumps(value)


def _fit_queue(
    positions: Positions, places: Places, topic: str, group: str, offsets: dict[str, Any], queue: str
) -> None:
    offset = offsets[queue]
    if not str(queue).isdigit() or type(offset) is not int or topic.startswith(LMQ_PREFIX):
        return
    key = topic, int(queue)
    if key in places.reborn:
        del offsets[queue]
        positions.dropped += 1
        return
    end = places.ends.get(key, 0)
    if offset > end:
        offsets[queue] = end
        positions.moved += 1
    elif offset < end:
        topics = positions.behind.setdefault(group, {})
        topics[topic] = topics.get(topic, 0) + end - offset


def _fit_delays(positions: Positions, places: Places) -> None:
    value = fastjson.loads(positions.tables[DELAY_TABLE])
    table = value.get("offsetTable")
    before = positions.moved
    for level, offset in table.items() if isinstance(table, dict) else ():
        if not str(level).isdigit() or type(offset) is not int:
            continue
        key = SCHEDULE_TOPIC, int(level) - 1
        end = min(places.ends.get(key, 0), places.delayed.get(key[1], offset))
        if offset > end:
            table[level] = end
            positions.moved += 1
    if positions.moved > before:
        positions.tables[DELAY_TABLE] = orjson.dumps(value)
