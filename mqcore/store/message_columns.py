"""Messages as columns: which columns there are, what is chosen, and the buffers that a decoder fills.

The one table of columns stands here, with its names in Python and in Spark. Nothing here needs Spark or Arrow; the
buffers have Arrow's memory layout, so that a column becomes an Arrow array without a copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mqcore.errors import ConfigError, CorruptRecordError
from mqcore.store.log.record import DecodeStatus

if TYPE_CHECKING:
    import pyarrow as pa

UNBOUNDED_MIN: Final = -(1 << 63)
UNBOUNDED_MAX: Final = (1 << 63) - 1
"""As the end of a range: none, although ends are exclusive."""
BATCH_BYTES_DEFAULT: Final = 4 << 20
BATCH_BYTES_MAX: Final = 1 << 30
BATCH_ROWS_DEFAULT: Final = 1_000_000
MICROSECONDS_PER_MS: Final = 1000


class ColumnKind(Enum):
    """How the values of a column lie in memory."""

    INT32 = "int32"
    INT64 = "int64"
    TIMESTAMP = "timestamp"  # int64, microseconds since 1970, UTC
    STRING = "string"  # UTF-8; malformed bytes have become U+FFFD
    BINARY = "binary"
    MAP = "map"  # of strings to strings


class ColumnCode(IntEnum):
    """The columns by number; ``column_codes`` writes them down for the fast decoder."""

    TOPIC = 0
    BROKER_NAME = 1
    QUEUE_ID = 2
    QUEUE_OFFSET = 3
    MSG_ID = 4
    TAGS = 5
    KEYS = 6
    BODY = 7
    PROPERTIES = 8
    BORN_TIMESTAMP = 9
    STORE_TIMESTAMP = 10
    BORN_HOST = 11
    RECONSUME_TIMES = 12
    SYS_FLAG = 13
    FLAG = 14
    PHYSICAL_OFFSET = 15
    STORE_SIZE = 16
    BODY_SIZE = 17
    BODY_CRC = 18
    COMPUTED_BODY_CRC = 19
    PREPARED_TRANSACTION_OFFSET = 20
    STORE_HOST = 21
    OFFSET_MSG_ID = 22
    UNIQUE_KEY = 23


@dataclass(frozen=True, slots=True)
class Column:
    """One column: *name* in Python, *spark_name* in Spark; *by_default* if it is there without being asked for."""

    code: ColumnCode
    name: str
    spark_name: str
    kind: ColumnKind
    doc: str
    by_default: bool = True


_K = ColumnKind
_C = ColumnCode
COLUMNS: Final[tuple[Column, ...]] = (
    Column(_C.TOPIC, "topic", "topic", _K.STRING, "the topic that the record is stored under"),
    Column(_C.BROKER_NAME, "broker_name", "brokerName", _K.STRING, "the broker, as the reader was told; else null"),
    Column(_C.QUEUE_ID, "queue_id", "queueId", _K.INT32, "the queue of the topic"),
    Column(_C.QUEUE_OFFSET, "queue_offset", "offset", _K.INT64, "place in the queue, from 0"),
    Column(_C.MSG_ID, "msg_id", "msgId", _K.STRING, "the sender's unique id, else the offset id"),
    Column(_C.TAGS, "tags", "tags", _K.STRING, "property TAGS; null without one"),
    Column(_C.KEYS, "keys", "keys", _K.STRING, "property KEYS, separated by blanks; null without one"),
    Column(_C.BODY, "body", "body", _K.BINARY, "as the application wrote it: decompressed"),
    Column(_C.PROPERTIES, "properties", "properties", _K.MAP, "all properties; the last of duplicate names"),
    Column(_C.BORN_TIMESTAMP, "born_timestamp", "bornTimestamp", _K.TIMESTAMP, "the producer's clock"),
    Column(_C.STORE_TIMESTAMP, "store_timestamp", "storeTimestamp", _K.TIMESTAMP, "the broker's clock"),
    Column(_C.BORN_HOST, "born_host", "bornHost", _K.STRING, "the producer, address:port"),
    Column(_C.RECONSUME_TIMES, "reconsume_times", "reconsumeTimes", _K.INT32, "how often it was sent back"),
    Column(_C.SYS_FLAG, "sys_flag", "sysFlag", _K.INT32, "bits: compression, transaction state, host kinds"),
    Column(_C.FLAG, "flag", "flag", _K.INT32, "the application's flag", False),
    Column(_C.PHYSICAL_OFFSET, "physical_offset", "physicalOffset", _K.INT64, "start in the commit log, bytes", False),
    Column(_C.STORE_SIZE, "store_size", "storeSize", _K.INT32, "the whole record, bytes", False),
    Column(_C.BODY_SIZE, "body_size", "bodySize", _K.INT32, "the body as stored, bytes", False),
    Column(_C.BODY_CRC, "body_crc", "bodyCrc", _K.INT32, "CRC-32 & 0x7FFFFFFF as stored", False),
    Column(_C.COMPUTED_BODY_CRC, "computed_body_crc", "computedBodyCrc", _K.INT32, "the same, of the bytes", False),
    Column(_C.PREPARED_TRANSACTION_OFFSET, "prepared_transaction_offset", "preparedTransactionOffset", _K.INT64,
           "physical offset of the half message, else 0", False),
    Column(_C.STORE_HOST, "store_host", "storeHost", _K.STRING, "the broker, address:port", False),
    Column(_C.OFFSET_MSG_ID, "offset_msg_id", "offsetMsgId", _K.STRING, "the id that says where it lies", False),
    Column(_C.UNIQUE_KEY, "unique_key", "uniqKey", _K.STRING, "property UNIQ_KEY; null without one", False),
)  # fmt: skip
BY_NAME: Final = {column.name: column for column in COLUMNS}
DEFAULT_NAMES: Final = tuple(column.name for column in COLUMNS if column.by_default)
if [column.code for column in COLUMNS] != list(ColumnCode):
    raise ValueError("the table of columns is not in the order of their numbers")


def columns_of(names: Sequence[str] | None) -> tuple[Column, ...]:
    """Return the columns called *names*, the default ones for None. Raises ConfigError for an unknown or double one."""
    chosen = DEFAULT_NAMES if names is None else tuple(names)
    for name in chosen:
        if name not in BY_NAME:
            raise ConfigError(f"columns: got {name!r}, wanted some of {', '.join(BY_NAME)}")
    if len(set(chosen)) != len(chosen):
        raise ConfigError(f"columns: {', '.join(chosen)} has a name twice")
    return tuple(BY_NAME[name] for name in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRule:
    """What is chosen of one topic: queue id, first and end offset, sorted; with *only_ranges* nothing but these.

    *births*: queue id and the physical offset before which records are of a queue that was dropped.
    """

    ranges: tuple[tuple[int, int, int], ...] = ()
    only_ranges: bool = False
    births: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which messages are wanted; a message must pass all that is set. Ends of ranges are exclusive; times are in ms.

    *ranges* gives bounds of queue offsets for single queues of a topic; with *only_ranges* the topic's other queues are
    left out. *topic_pattern* must match the whole name. *births* gives, by topic and queue id, the physical offset
    before which records are of a queue that was dropped and are not wanted.
    """

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queue_ids: frozenset[int] | None = None
    offset_min: int = UNBOUNDED_MIN
    offset_max: int = UNBOUNDED_MAX
    ranges: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    only_ranges: bool = False
    births: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    tags: frozenset[str] | None = None
    store_timestamp_min: int = UNBOUNDED_MIN
    store_timestamp_max: int = UNBOUNDED_MAX

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        if self.topic_pattern is None:
            return None
        try:
            return re.compile(self.topic_pattern)
        except re.error as error:
            raise ConfigError(f"topic pattern {self.topic_pattern!r}: {error}") from error

    def wants_topic(self, topic: str) -> bool:
        """Whether messages of *topic* may be wanted."""
        if self.topics is not None and topic not in self.topics:
            return False
        return self._pattern is None or self._pattern.fullmatch(topic) is not None

    def rule_of(self, topic: str) -> TopicRule | None:
        """Return what is wanted of *topic*; None for nothing."""
        if not self.wants_topic(topic):
            return None
        births = tuple(sorted(self.births.get(topic, {}).items()))
        bounds = self.ranges.get(topic)
        if bounds is None:
            return TopicRule(births=births)
        ranges = tuple(sorted((queue_id, start, end) for queue_id, (start, end) in bounds.items()))
        return TopicRule(ranges=ranges, only_ranges=self.only_ranges, births=births)

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the wanted queue offsets of one queue, [first, end); first >= end for none."""
        rule = self.rule_of(topic)
        if rule is None or (self.queue_ids is not None and queue_id not in self.queue_ids):
            return 0, 0
        start, end = self.offset_min, self.offset_max
        for number, first, last in rule.ranges:
            if number == queue_id:
                return max(start, first), min(end, last)
        return (0, 0) if rule.only_ranges else (start, end)

    @property
    def names_topics(self) -> bool:
        """Whether some topics are wanted and others not."""
        return self.topics is not None or self.topic_pattern is not None


EVERYTHING: Final = Selection()


def is_between(value: int, start: int, end: int) -> bool:
    """Whether *value* lies in a range; an end of UNBOUNDED_MAX is none."""
    return start <= value and (value < end or end == UNBOUNDED_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBuffers:
    """One column in Arrow's layout.

    *values*: n numbers (int32 or int64), or the bytes of all values (uint8) with n + 1 *offsets* (int32) into them. A
    map has n + 1 *offsets* into its entries, whose names and values are the columns *map_keys* and *map_values*.
    *validity*: one bit for each value, lowest first, 0 for null; None if nothing is null.
    """

    kind: ColumnKind
    values: NDArray[Any]
    offsets: NDArray[np.int32] | None = None
    validity: NDArray[np.uint8] | None = None
    null_count: int = 0
    map_keys: ColumnBuffers | None = None
    map_values: ColumnBuffers | None = None

    @property
    def nbytes(self) -> int:
        """The bytes that all buffers take."""
        own = sum(array.nbytes for array in (self.values, self.offsets, self.validity) if array is not None)
        return own + sum(column.nbytes for column in (self.map_keys, self.map_values) if column is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch:
    """Messages as columns, by their Python names, in the order that was asked for."""

    row_count: int
    columns: Mapping[str, ColumnBuffers]

    @property
    def nbytes(self) -> int:
        """The bytes that all buffers take."""
        return sum(column.nbytes for column in self.columns.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as pandas and polars take them; see ``reader_arrow.to_dict``."""
        from mqcore.store.reader_arrow import to_dict

        return to_dict(self)

    def to_arrow(self) -> pa.RecordBatch:
        """Return the batch as an Arrow record batch that shares its buffers; needs pyarrow."""
        from mqcore.store.reader_arrow import to_arrow

        return to_arrow(self)


# How the parts of a batch are made of what a decoder has collected; both twins go through here.


def fixed_column(kind: ColumnKind, values: NDArray[Any]) -> ColumnBuffers:
    """Return a column of numbers."""
    return ColumnBuffers(kind=kind, values=values)


def text_column(
    kind: ColumnKind, values: NDArray[np.uint8], offsets: NDArray[np.int32], is_valid: NDArray[np.uint8] | None = None
) -> ColumnBuffers:
    """Return a column of texts or bytes; *is_valid* has one byte for each value, 0 for null."""
    null_count = 0 if is_valid is None else len(is_valid) - int(np.count_nonzero(is_valid))
    validity = np.packbits(is_valid, bitorder="little") if is_valid is not None and null_count else None
    return ColumnBuffers(kind=kind, values=values, offsets=offsets, validity=validity, null_count=null_count)


def constant_column(text: str | None, row_count: int) -> ColumnBuffers:
    """Return a column that has the same text in every row, or null."""
    data = np.frombuffer((text or "").encode(), dtype=np.uint8)
    offsets = np.arange(row_count + 1, dtype=np.int32) * np.int32(len(data))
    is_valid = np.zeros(row_count, dtype=np.uint8) if text is None else None
    return text_column(ColumnKind.STRING, np.tile(data, row_count), offsets, is_valid)


# Errors, the same for both twins.


def bad_record(status: int, magic: int, total_size: int, place: int, position: int, length: int) -> CorruptRecordError:
    """Return the error for bytes, at *position* of a buffer of *length*, that are no whole record; *place* is where
    they lie in the commit log, or -1."""
    reasons = {
        DecodeStatus.SHORT: f"record cut short: total size {total_size}",
        DecodeStatus.BLANK: f"filler of {total_size} bytes instead of a record",
        DecodeStatus.BAD_MAGIC: f"bad magic code: got 0x{magic & 0xFFFFFFFF:08X}, wanted 0xDAA320A7 or 0xDAA320AB",
        DecodeStatus.BAD_SIZE: f"lengths inside the record contradict its total size {total_size}",
        DecodeStatus.BAD_CRC: "body CRC differs from the stored one",
        DecodeStatus.MISPLACED: "record says that it lies elsewhere",
    }
    return CorruptRecordError(f"{reasons[DecodeStatus(status)]}, byte {position} of {length} in the buffer", place)


def bad_body(reason: object, place: int) -> CorruptRecordError:
    """Return the error for a body that does not decompress."""
    return CorruptRecordError(f"body cannot be decompressed: {reason}", place)


def check_limits(batch_bytes: int, batch_rows: int) -> None:
    """Raise ConfigError for limits of a batch that cannot be."""
    if not 1 <= batch_bytes <= BATCH_BYTES_MAX:
        raise ConfigError(f"batch bytes: got {batch_bytes}, wanted 1 to {BATCH_BYTES_MAX}")
    if not 1 <= batch_rows <= BATCH_BYTES_MAX:
        raise ConfigError(f"batch rows: got {batch_rows}, wanted 1 to {BATCH_BYTES_MAX}")
