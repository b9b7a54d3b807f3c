"""One part of the commit log, read once: its runs of whole records, and what lies between them.

A part is a range of one file that begins with a record, or the file. Nothing is judged here: whether a place without a
record is damage or the end of the log can only be said with all parts at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np

from mqcore.errors import CorruptRecordError
from mqcore.layout import BLANK_MAGIC, BLANK_RECORD, MESSAGE_MAGIC_V2, RECORD_SIZE_MIN
from mqcore.store.backup.streams import Reading
from mqcore.store.checking.kernels import LogTally
from mqcore.store.codec import decode_record
from mqcore.store.log.record import DecodeStatus
from mqcore.store.log.walk import MAGIC_AT, MAGIC_BYTES
from mqcore.store.queues.tally import QueueTally, SequenceBreak
from mqcore.store.reader_segments import Segment

WINDOW_SIZE: Final = 4 << 20
SEARCHED: Final = 1 << 20
STRETCHES_MAX: Final = 1000
"""Where a part has more damage than this the rest of it counts as damaged."""


class GapKind(StrEnum):
    """What is in a place without a record."""

    ZEROS = "zeros"  # to the end of the part
    BYTES = "bytes"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Whole records that follow one another, [start, end) in bytes, and what they add up to."""

    start: int
    end: int
    record_count: int
    first_timestamp: int
    newest_timestamp: int
    queues: list[QueueTally] = field(default_factory=list)
    breaks: list[SequenceBreak] = field(default_factory=list)
    break_count: int = 0
    key_count: int = 0
    key_sum: int = 0


@dataclass(frozen=True, slots=True)
class LogGap:
    """A place without a whole record, [start, end) in bytes, and what was found and wanted there."""

    start: int
    end: int
    kind: GapKind
    found: str
    wanted: str


@dataclass(slots=True)
class LogPart:
    """What a part holds, in order; *filler_at* is where the filler of its file starts, -1 without one."""

    segment: Segment
    items: list[Stretch | LogGap] = field(default_factory=list)
    filler_at: int = -1
    filler_size: int = 0

    @property
    def gaps(self) -> list[LogGap]:
        return [item for item in self.items if isinstance(item, LogGap)]

    @property
    def stretches(self) -> list[Stretch]:
        return [item for item in self.items if isinstance(item, Stretch)]


class Window:
    """The bytes of a file from a place on, read as they are needed; *end* is a position in the file."""

    def __init__(self, reading: Reading, position: int, end: int, on_read: Callable[[int], None]) -> None:
        self._reading = reading
        self._buffer = bytearray(min(WINDOW_SIZE, max(1, end - position)))
        self._start = position
        self._size = 0
        self._end = end
        self._on_read = on_read

    @property
    def is_last(self) -> bool:
        """Whether the window reaches to the end."""
        return self._start + self._size >= self._end

    def view(self, position: int) -> memoryview:
        """Return what was read from *position* on, which stays as it is until ``read_on``."""
        return memoryview(self._buffer)[position - self._start : self._size]

    def find(self, text: bytes, position: int) -> int:
        """Return where *text* is from *position* on; -1 if it is not in the window."""
        found = self._buffer.find(text, position - self._start, self._size)
        return found if found < 0 else self._start + found

    def read_on(self, position: int, size: int = 0) -> None:
        """Forget what lies before *position*, and read on; *size* bytes from there at least, as far as there are any.

        A file that is shorter than it should be reads as if zeros followed. Raises OSError.
        """
        kept = self._start + self._size - position
        wanted = min(max(size, len(self._buffer)), self._end - position)
        buffer = self._buffer if wanted <= len(self._buffer) else bytearray(wanted)
        view = memoryview(buffer)
        view[:kept] = memoryview(self._buffer)[position - self._start : self._size]
        count = wanted - kept
        done = self._reading.read(view[kept:wanted], position + kept)
        view[kept + done : wanted] = bytes(count - done)
        view.release()
        self._buffer, self._start, self._size = buffer, position, wanted
        self._on_read(count)


def check_part(
    path: Path, file_start: int, file_size: int, segment: Segment, make_tally: Callable[[], LogTally],
    on_read: Callable[[int], None],
) -> LogPart:  # fmt: skip
    """Read *segment* of the log file at *path*. Raises FileNotFoundError if it is gone."""
    with Reading(path) as reading:
        return _PartCheck(reading, file_start, file_start + file_size, segment, make_tally, on_read).run()


def next_start(path: Path, file: Segment, place: int) -> int | None:
    """Return where the next whole record behind *place* starts that says so, SEARCHED bytes on at most; None without.

    That it lies within the body of another one is not ruled out: whoever cuts there looks whether the ends meet.
    """
    searched = Segment(place, min(place + SEARCHED, file.end))
    try:
        with Reading(path) as reading:
            found = _PartCheck(reading, file.start, file.end, searched, LogTally, lambda size: None).find(place)
    except OSError:
        return None
    return found if found < searched.end else None


class _PartCheck:
    def __init__(
        self, reading: Reading, file_start: int, file_end: int, segment: Segment, make_tally: Callable[[], LogTally],
        on_read: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._window = Window(reading, segment.start - file_start, segment.end - file_start, on_read)
        self._file_start = file_start
        self._file_end = file_end
        self._segment = segment
        self._make_tally = make_tally
        self._part = LogPart(segment)
        self._at = segment.start

    def find(self, place: int) -> int:
        """Return where the next whole record behind *place* starts, or the end."""
        self._window.read_on(self._position(place))
        return self._next_whole(place)[1]

    def run(self) -> LogPart:
        while self._at < self._segment.end:
            try:
                if not self._take_stretch():
                    break
            except OSError as error:
                if isinstance(error, FileNotFoundError):
                    raise
                self._end_part(GapKind.UNREADABLE, f"{error.strerror}")
                break
            if len(self._part.items) > STRETCHES_MAX:
                self._end_part(GapKind.BYTES, f"more than {STRETCHES_MAX // 2} damaged places before")
                break
        return self._part

    def _end_part(self, kind: GapKind, found: str) -> None:
        self._part.items.append(LogGap(self._at, self._segment.end, kind, found, "records"))

    def _position(self, place: int) -> int:
        return place - self._file_start

    def _take_stretch(self) -> bool:
        """Take the whole records from here on, and what is behind them; whether the part goes on."""
        tally = self._make_tally()
        start, newest = self._at, 0
        try:
            status = DecodeStatus.OK
            while self._at < self._segment.end:
                outcome = tally.feed(self._window.view(self._position(self._at)), self._at)
                self._at += outcome.valid_size
                newest = max(newest, outcome.store_timestamp_max)
                status = outcome.status
                if self._at == self._segment.end or not self._wants_more(status):
                    break
        finally:
            if tally.record_count:
                self._part.items.append(
                    Stretch(
                        start, self._at, tally.record_count, tally.first_timestamp, newest, tally.queues(),
                        tally.breaks(), tally.break_count, tally.key_count, tally.key_sum,
                    )
                )  # fmt: skip
        return self._at < self._segment.end and self._take_gap(status)

    def _wants_more(self, status: DecodeStatus) -> bool:
        """Read on if the window ends within a record that its part can hold; whether there is something new."""
        if status not in (DecodeStatus.OK, DecodeStatus.SHORT) or self._window.is_last:
            return False
        position = self._position(self._at)
        view = self._window.view(position)
        size = 0
        if len(view) >= BLANK_RECORD.size:
            size, _ = BLANK_RECORD.struct.unpack_from(view)
            if size > self._segment.end - self._at:
                return False
        del view
        self._window.read_on(position, size)
        return True

    def _take_gap(self, status: DecodeStatus) -> bool:
        """Take what is no record, up to the next one; whether there is one."""
        place = self._at
        found, wanted = self._describe(status)
        if status == DecodeStatus.BLANK:
            size, _ = BLANK_RECORD.struct.unpack_from(self._window.view(self._position(place)))
            self._part.filler_at, self._part.filler_size = place, size
            if size == self._file_end - place:
                self._at = self._segment.end
                return False
            found, wanted = f"a filler of {size} bytes", f"{self._file_end - place}, which are left in the file"
        is_blank, after = self._next_whole(place)
        kind = GapKind.ZEROS if is_blank and after == self._segment.end else GapKind.BYTES
        self._at = after
        self._part.items.append(LogGap(place, after, kind, found, wanted))
        return after < self._segment.end

    def _describe(self, status: DecodeStatus) -> tuple[str, str]:
        view = self._window.view(self._position(self._at))
        if len(view) < BLANK_RECORD.size:
            return f"{len(view)} bytes", "a record or a filler"
        size, magic = BLANK_RECORD.struct.unpack_from(view)
        if magic == MESSAGE_MAGIC_V2:
            return "a record of version 2", "one of version 1, which release 4 can read"
        names = {
            DecodeStatus.SHORT: (f"a total size of {size}", f"at most {self._segment.end - self._at}"),
            DecodeStatus.BAD_MAGIC: (f"magic {magic & 0xFFFFFFFF:#010x}", "0xdaa320a7"),
            DecodeStatus.BAD_SIZE: (f"a total size of {size} that its lengths contradict", "lengths that add up to it"),
            DecodeStatus.BAD_CRC: ("a body of another CRC", "the CRC that the record states"),
            DecodeStatus.MISPLACED: ("a record that says it lies elsewhere", f"physical offset {self._at}"),
            DecodeStatus.TORN: ("a sector of zeros in topic or properties", "a whole record"),
        }
        return names.get(status, (f"magic {magic & 0xFFFFFFFF:#010x}", "a record or a filler"))

    def _next_whole(self, place: int) -> tuple[bool, int]:
        """Return whether all is zero behind *place* up to where the next whole record starts, or the part ends."""
        is_blank = self._window.view(self._position(place))[0] == 0
        at = place + 1
        while True:
            position = self._position(at)
            view = self._window.view(position)
            if len(view) and (not is_blank or np.frombuffer(view, dtype=np.uint8).any()):
                is_blank = False
                found = self._window.find(MAGIC_BYTES, position + MAGIC_AT)
                if found >= 0:
                    start = self._file_start + found - MAGIC_AT
                    if self._is_whole(start):
                        return False, start
                    at = start + 1
                    continue
            if self._window.is_last:
                return is_blank, self._segment.end
            # The magic, and the size before it, may lie across two windows.
            at = max(at, self._file_start + position + len(view) - MAGIC_AT - len(MAGIC_BYTES) + 1)
            del view
            self._window.read_on(self._position(at))

    def _is_whole(self, start: int) -> bool:
        """Whether a whole record starts at *start* that says so."""
        position = self._position(start)
        view = self._window.view(position)
        size, magic = BLANK_RECORD.struct.unpack_from(view) if len(view) >= BLANK_RECORD.size else (0, 0)
        if magic == BLANK_MAGIC or not RECORD_SIZE_MIN <= size <= self._segment.end - start:
            return False
        if size > len(view):
            del view
            self._window.read_on(position, size)
            view = self._window.view(position)
        try:
            return decode_record(view, start).physical_offset == start
        except CorruptRecordError:
            return False
