"""Message keys that a repeated write makes again, so that a reader can tell repeats from first copies (``repeats``).

A task of Spark may run twice: it failed half-way, it was speculated, the driver died before it knew. With ``dedup`` the
sink gives a row an id that names its place, in the form of the ids of clients with an IPv6 address, so that every tool
of RocketMQ takes it for one. Its 28 bytes, big-endian, in hexadecimal:

    query 8 | batch 4 | task 3 | layout 2 | row 5 | time 4 | mark 2

*query* is a hash of the query's name. *task* is the partition and the way by which the row goes (``sink_rows``). *time*
is zero (tools search from the start of the month).

*layout* is a hash of what decides which rows go to which queue: the queues of the topic, and settings of the sink. In a
queue the rows of one task and layout ascend in each attempt, and that is what readers count on. If the queues were
changed between an attempt that broke off and the next one, rows may come to a queue behind larger ones without having
been stored before; they must not count as repeats of anything, so they have keys of their own.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqcore.errors import ConfigError

QUERY_SIZE: Final = 8
BATCH_SIZE: Final = 4
TASK_SIZE: Final = 3
LAYOUT_SIZE: Final = 2
ROW_SIZE: Final = 5
TIME_SIZE: Final = 4
MARK: Final = bytes.fromhex("5351")
ID_SIZE: Final = QUERY_SIZE + BATCH_SIZE + TASK_SIZE + LAYOUT_SIZE + ROW_SIZE + TIME_SIZE + len(MARK)
assert ID_SIZE == 28, "an id of an IPv6 client has 28 bytes"
ID_LENGTH: Final = 2 * ID_SIZE

BATCH_AT: Final = QUERY_SIZE
TASK_AT: Final = BATCH_AT + BATCH_SIZE
LANE_SIZE: Final = TASK_SIZE + LAYOUT_SIZE
ROW_AT: Final = TASK_AT + LANE_SIZE
TAIL_AT: Final = ROW_AT + ROW_SIZE
assert TAIL_AT == 22, "the encoder writes a prefix, a number of six bytes, and a suffix of six"

WAYS: Final = 4
"""Rows of a task that may overtake each other on the way to a queue belong to different ways."""
BATCHES_MAX: Final = 1 << 8 * BATCH_SIZE
PARTITIONS_MAX: Final = (1 << 8 * TASK_SIZE) // WAYS
ROWS_MAX: Final = 1 << 8 * ROW_SIZE

_NUMBER_DIGITS: Final = 12
_TAIL: Final = bytes(TIME_SIZE) + MARK
_NO_DIGIT: Final = 16


def _digit_values() -> NDArray[np.uint8]:
    """Return the value of each byte as a hexadecimal digit, upper case only, as the sink writes them."""
    values = np.full(256, _NO_DIGIT, dtype=np.uint8)
    for value, digit in enumerate(b"0123456789ABCDEF"):
        values[digit] = value
    return values


_DIGITS: Final = _digit_values()


@dataclass(frozen=True, slots=True)
class UniqueIds:
    """The ids of rows: *prefix*, *base* + row in twelve hexadecimal digits, *suffix*."""

    prefix: str
    base: int
    suffix: str

    def of(self, row: int) -> str:
        return f"{self.prefix}{self.base + row:0{_NUMBER_DIGITS}X}{self.suffix}"


class TaskKeys(Protocol):
    """What gives the rows of a task their ids."""

    def ids(self, way: int, layout: Sequence[object]) -> UniqueIds:
        """Return the ids of the rows that go by *way*; *layout* is all that decides which queues they go to."""


class RandomKeys:
    """Ids in the form of an IPv4 client's: ten random bytes in place of address and process, then ms since the month
    began and a counter, which run on as one number."""

    def __init__(self) -> None:
        now = datetime.now().astimezone()
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        elapsed_ms = int(time.time() * 1000) - int(month.timestamp() * 1000)
        self._ids = UniqueIds(os.urandom(10).hex().upper(), elapsed_ms << 16, "")

    def ids(self, way: int, layout: Sequence[object]) -> UniqueIds:
        return self._ids


class RowKeys:
    """Ids that name the rows of a task. Raises ConfigError for a *batch* or *partition* that does not fit."""

    def __init__(self, query: str, batch: int, partition: int) -> None:
        for name, value, end in (("micro-batch", batch, BATCHES_MAX), ("partition", partition, PARTITIONS_MAX)):
            if not 0 <= value < end:
                raise ConfigError(f"option dedup: got {name} {value}, wanted one below {end}: its keys hold no more")
        self._query = query_of(query).to_bytes(QUERY_SIZE, "big")
        self._batch = batch.to_bytes(BATCH_SIZE, "big")
        self._partition = partition

    def ids(self, way: int, layout: Sequence[object]) -> UniqueIds:
        assert 0 <= way < WAYS, way
        task = (self._partition * WAYS + way).to_bytes(TASK_SIZE, "big")
        start = (self._query + self._batch + task + _digest(repr(tuple(layout)), LAYOUT_SIZE)).hex().upper()
        first = start + "00" * ROW_SIZE
        return UniqueIds(first[:-_NUMBER_DIGITS], int(first[-_NUMBER_DIGITS:], 16), _TAIL.hex().upper())


def query_of(name: str) -> int:
    """Return what stands for the query called *name* in keys."""
    return int.from_bytes(_digest(name, QUERY_SIZE), "big")


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


class KeyColumns(NamedTuple):
    """The keys among the ids of a record batch: *places* are their rows there, ascending. *lanes* are task and layout
    in one number. All have shape (n,); *queries* are uint64, the others int64."""

    places: NDArray[np.int64]
    queries: NDArray[np.uint64]
    batches: NDArray[np.int64]
    lanes: NDArray[np.int64]
    rows: NDArray[np.int64]


def parse_keys(ids: pa.StringArray) -> KeyColumns | None:
    """Return the keys among *ids*, None if there are none; ids of other senders are left out."""
    lengths, starts, data = _text_buffers(ids)
    places = np.flatnonzero(lengths == ID_LENGTH)
    if not len(places):
        return None
    if len(places) == len(ids):
        text = data[starts[0] : starts[0] + len(ids) * ID_LENGTH].reshape(-1, ID_LENGTH)
    else:
        text = data[starts[places][:, None] + np.arange(ID_LENGTH)]
    digits = _DIGITS[text]
    value: NDArray[np.uint8] = digits[:, ::2] << np.uint8(4) | digits[:, 1::2]
    is_ours = (value[:, TAIL_AT:] == np.frombuffer(_TAIL, dtype=np.uint8)).all(axis=1)
    if digits.max() == _NO_DIGIT:
        is_ours &= (digits != _NO_DIGIT).all(axis=1)
    if not is_ours.all():
        places, value = places[is_ours], value[is_ours]
    if not len(places):
        return None
    return KeyColumns(
        places,
        _numbers(value[:, :BATCH_AT]),
        _numbers(value[:, BATCH_AT:TASK_AT]).astype(np.int64),
        _numbers(value[:, TASK_AT:ROW_AT]).astype(np.int64),
        _numbers(value[:, ROW_AT:TAIL_AT]).astype(np.int64),
    )


def _text_buffers(ids: pa.StringArray) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
    """Return the lengths and starts of the texts, and the bytes they start in."""
    _, offsets_buffer, data_buffer = ids.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.zeros(0, dtype=np.uint8)
    return np.diff(offsets), offsets[:-1], data


def _numbers(values: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Read rows of up to eight bytes as big-endian numbers."""
    padded = np.zeros((len(values), 8), dtype=np.uint8)
    padded[:, 8 - values.shape[1] :] = values
    return padded.view(">u8").ravel().astype(np.uint64)
