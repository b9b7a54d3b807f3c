"""Where the queues of a log end, found while it is written: in the parts as they come, which cut records in two."""

from __future__ import annotations

from typing import Final

from mqcore.layout import BLANK_MAGIC, BLANK_RECORD, MESSAGE_MAGIC_V1
from mqcore.store.codec import QueueEnds
from mqcore.store.log.walk import MAGIC_AT, MAGIC_BYTES

KEPT_SIZE: Final = MAGIC_AT + len(MAGIC_BYTES)
assert BLANK_RECORD.size == KEPT_SIZE


class LogCounter:
    """Takes the bytes of one log file after the other. What is no record is passed over."""

    def __init__(self, ends: QueueEnds, file_size: int) -> None:
        self._ends = ends
        self._file_size = file_size
        self._file_start = 0
        self._next = 0
        self._rest = b""
        self._is_over = True

    def begin(self, file_start: int) -> None:
        """What comes next is of the file at *file_start*."""
        self._file_start = self._next = file_start
        self._rest = b""
        self._is_over = False

    def take(self, data: memoryview) -> None:
        """Count the records of the next part of the file."""
        if self._is_over:
            return
        whole = memoryview(self._rest + data) if self._rest else data
        at = 0
        while True:
            at += self._ends.feed(whole[at:], self._next + at)
            after = self._behind(whole, at)
            if after is None:
                break
            at = after
        self._rest = bytes(whole[at:])
        self._next += at

    def _behind(self, whole: memoryview, at: int) -> int | None:
        """Return where to go on behind what is no record at *at*; None to wait for more of the file."""
        if len(whole) - at < BLANK_RECORD.size:
            return None
        size, magic = BLANK_RECORD.struct.unpack_from(whole, at)
        if magic == BLANK_MAGIC:
            self._is_over = True
            return None
        left = self._file_size - (self._next + at - self._file_start)
        if magic == MESSAGE_MAGIC_V1 and len(whole) - at < size <= left:
            return None
        found = bytes(whole[at:]).find(MAGIC_BYTES, MAGIC_AT + 1)
        if found < 0:
            return None if len(whole) - at == KEPT_SIZE else len(whole) - KEPT_SIZE
        return at + found - MAGIC_AT
