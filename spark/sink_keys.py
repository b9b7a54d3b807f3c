"""Message keys that a repeated write makes again, and the guard that drops repeats by them.

A task of Spark may run twice: it failed half-way, it was speculated, the driver died before it knew. With ``dedup`` the
sink gives the row the unique id (query, batch, partition, row number), in the form of the ids of clients with an IPv6
address, so that every tool of RocketMQ takes it for one: 16 bytes of hash over query, batch and partition; the row in
six bytes; four bytes of time, zero (tools search from the start of the month); two bytes of mark.

The sink sends the rows of a partition to each queue in their order, one request at a time, and always to the same
queue. So in a queue each (query, batch, partition) is one ascending sequence per attempt, and whatever does not rise
above the highest row so far is a repeat. The guard therefore keeps one number for each of them and not one for each
message.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PREFIX_SIZE: Final = 16
ROW_SIZE: Final = 6
TIME_SIZE: Final = 4
MARK: Final = "5350"
ID_LENGTH: Final = 2 * (PREFIX_SIZE + ROW_SIZE + TIME_SIZE + 2)
assert ID_LENGTH == 56, "an id of an IPv6 client has 28 bytes"

TAIL: Final = "00" * TIME_SIZE + MARK
_TAIL_BYTES: Final = np.frombuffer(TAIL.encode(), dtype=np.uint8)
ROW_AT: Final = 2 * PREFIX_SIZE
TAIL_AT: Final = ROW_AT + 2 * ROW_SIZE


def key_prefix(query: str, batch: int, partition: int) -> str:
    """Return the hexadecimal start of the ids of a task's rows."""
    name = f"{query}/{batch}/{partition}".encode()
    return hashlib.blake2b(name, digest_size=PREFIX_SIZE).hexdigest().upper()


def row_key(prefix: str, row: int) -> str:
    """Return the id of row *row*, from 0."""
    return f"{prefix}{row:012X}{TAIL}"


class RepeatGuard:
    """Tells repeats from first copies, in the rows of one queue in the order of their offsets."""

    def __init__(self) -> None:
        self._highest: dict[bytes, int] = {}

    def first_copies(self, ids: pa.StringArray) -> NDArray[np.bool_] | None:
        """Return, for each row, whether it is to be kept; None for all. Ids of other senders are always kept."""
        lengths, starts, data = _text_buffers(ids)
        ours = np.flatnonzero(lengths == ID_LENGTH)
        if not len(ours):
            return None
        text = data[starts[ours][:, None] + np.arange(ID_LENGTH)]
        is_ours = (text[:, TAIL_AT:] == _TAIL_BYTES).all(axis=1)
        ours, text = ours[is_ours], text[is_ours]
        kept = np.ones(len(ids), dtype=np.bool_)
        prefixes = np.ascontiguousarray(text[:, :ROW_AT]).view(f"S{ROW_AT}").ravel()
        rows = _hexadecimal(text[:, ROW_AT:TAIL_AT])
        for prefix in np.unique(prefixes):
            places = np.flatnonzero(prefixes == prefix)
            kept[ours[places]] = self._rising(bytes(prefix), rows[places])
        return None if kept.all() else kept

    def _rising(self, prefix: bytes, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        before = np.maximum.accumulate(np.concatenate(([self._highest.get(prefix, -1)], rows)))
        self._highest[prefix] = int(before[-1])
        return rows > before[:-1]


def _text_buffers(ids: pa.StringArray) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
    """Return the lengths and starts of the texts, and the bytes they start in."""
    _, offsets_buffer, data_buffer = ids.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.zeros(0, dtype=np.uint8)
    return np.diff(offsets), offsets[:-1], data


def _hexadecimal(digits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Read upper-case hexadecimal texts, one per row."""
    nibbles = np.where(digits <= ord("9"), digits - np.uint8(ord("0")), digits - np.uint8(ord("A") - 10))
    value = np.zeros(len(digits), dtype=np.int64)
    for column in nibbles.T:
        value = value * 16 + column
    return value
