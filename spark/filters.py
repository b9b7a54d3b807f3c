"""What Spark's filters mean for a selection of messages.

A filter that a selection says exactly is taken over; every other one is left for Spark to apply. Spark 4.1 and newer
push filters, and only where ``spark.sql.python.filterPushdown.enabled`` is set; see ``RocketMQStoreDataSource``.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mqcore.spark.schema import ALL_COLUMNS
from mqcore.store.message_columns import UNBOUNDED_MAX, Selection

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND: Final = datetime.timedelta(microseconds=1)
NEVER_NULL: Final = frozenset({"topic", "queue_id", "queue_offset", "store_timestamp"})
INT32_RANGE: Final = (-(1 << 31), (1 << 31) - 1)


def push_filters(filters: Iterable[Filter], selection: Selection) -> tuple[Selection, list[Filter]]:
    """Return *selection* narrowed by those *filters* that it can express, and the others, which Spark must apply.

    Expressed: equality and IN for topic, queueId and tags; equality and order for offset (and queueOffset) and
    storeTimestamp; IS NOT NULL for what is never null.
    """
    left: list[Filter] = []
    for wanted in filters:
        narrowed = _narrow(wanted, selection)
        if narrowed is None:
            left.append(wanted)
        else:
            selection = narrowed
    return selection, left


def _narrow(wanted: Filter, selection: Selection) -> Selection | None:
    attribute: tuple[str, ...] = getattr(wanted, "attribute", ())
    column = ALL_COLUMNS.get(attribute[0]) if len(attribute) == 1 else None
    if column is None:
        return None
    kind = type(wanted).__name__
    if kind == "IsNotNull":
        return selection if column.name in NEVER_NULL else None
    value: Any = getattr(wanted, "value", None)
    values: list[Any] = [*value] if kind == "In" else [value]
    if column.name in ("topic", "tags") and kind in ("EqualTo", "In") and _are(values, str):
        return _narrow_names(selection, column.name, values)
    if column.name == "queue_id" and kind in ("EqualTo", "In") and _are(values, int):
        return _narrow_queues(selection, values)
    if column.name == "queue_offset" and _are(values, int):
        bounds = _bounds(kind, values[0], values[0])
        return bounds and _narrow_offsets(selection, *bounds)
    if column.name == "store_timestamp" and _are(values, datetime.datetime) and values[0].tzinfo is not None:
        microseconds = (values[0] - EPOCH) // MICROSECOND
        bounds = _bounds(kind, microseconds // 1000, -(-microseconds // 1000))
        return bounds and _narrow_times(selection, *bounds)
    return None


def _are(values: list[Any], kind: type) -> bool:
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)


def _bounds(kind: str, floor: int, ceiling: int) -> tuple[int, int] | None:
    """Return [first, end) of the whole numbers that compare so with a value between *floor* and *ceiling*."""
    if kind == "EqualTo":
        return ceiling, floor + 1
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return (floor + 1 if kind == "GreaterThan" else ceiling), UNBOUNDED_MAX
    if kind in ("LessThan", "LessThanOrEqual"):
        return -(1 << 63), (ceiling if kind == "LessThan" else floor + 1)
    return None


def _narrow_names(selection: Selection, column: str, values: list[str]) -> Selection:
    before = selection.topics if column == "topic" else selection.tags
    names = frozenset(values) if before is None else before & frozenset(values)
    return replace(selection, topics=names) if column == "topic" else replace(selection, tags=names)


def _narrow_queues(selection: Selection, values: list[int]) -> Selection:
    low, high = INT32_RANGE
    numbers = frozenset(value for value in values if low <= value <= high)
    return replace(selection, queue_ids=numbers if selection.queue_ids is None else selection.queue_ids & numbers)


def _narrow_offsets(selection: Selection, first: int, end: int) -> Selection:
    return replace(selection, offset_min=max(selection.offset_min, first), offset_max=min(selection.offset_max, end))


def _narrow_times(selection: Selection, first: int, end: int) -> Selection:
    return replace(
        selection,
        store_timestamp_min=max(selection.store_timestamp_min, first),
        store_timestamp_max=min(selection.store_timestamp_max, end),
    )
