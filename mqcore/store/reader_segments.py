"""Cutting a commit log into ranges that can be read in parallel, and leaving out those without a wanted message.

A range begins where a record or a file begins. Such places are known from the consume queues, whose units are checked
against the records they lead to; without queues whole files are given, or the records are walked. A range that ended
inside a record would be an error for its reader, never a row too many or too few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mqcore.errors import CorruptRecordError, OffsetOutOfRangeError
from mqcore.store.codec import decode_record, scan_records
from mqcore.store.message_columns import UNBOUNDED_MAX, UNBOUNDED_MIN, Selection
from mqcore.store.queues.consume_queue import Units, to_unit
from mqcore.store.queues.units import Unit
from mqcore.store.reader_extent import LogExtent, first_store_timestamp
from mqcore.store.reader_files import FoundFiles
from mqcore.store.reader_queues import QueueUnits

CLOCK_STEP_MS = 60_000
"""How far the broker's clock may have stepped back: files are left out by time with this margin."""

GUIDES_MAX = 8
"""How many consume queues, the longest, are asked for the places of records."""


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A range of the commit log in one file, [start, end) in bytes."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class SegmentPlanner:
    """Plans the ranges of one log as it stood when *extent* was found."""

    def __init__(self, files: FoundFiles, extent: LogExtent, queues: Mapping[str, Mapping[int, QueueUnits]]) -> None:
        self.files = files
        self.extent = extent
        self.queues = queues

    def plan(
        self, selection: Selection, size_max: int | None = None, *, by_queues: bool = True, may_walk: bool = True
    ) -> list[Segment]:
        """Return what must be read for *selection*, in order, in ranges of about *size_max* bytes, or in whole files.

        With *by_queues*, and if topics are named, ranges are left out in which no consume queue knows a wanted message.
        A message without a unit, as a topic leaves it behind that was deleted and made again, may then not be found.
        Where there are no consume queues a file is split only with *may_walk*, which reads it once from its start.
        """
        segments = list(self._by_time(selection))
        if by_queues and selection.names_topics:
            spans = self._queue_spans(selection)
            segments = segments if spans is None else list(_intersect(segments, _joined(spans)))
        if size_max is None:
            return segments
        guides = self._guides()
        if not guides and not may_walk:
            return segments
        return [piece for segment in segments for piece in self._split(segment, size_max, guides)]

    def file_segments(self) -> list[Segment]:
        """Return the files, as far as they can be read."""
        ends = [(start, min(start + self.files.file_size, self.extent.end)) for start in self.files.starts]
        return [Segment(start, end) for start, end in ends if start < end]

    def _by_time(self, selection: Selection) -> Iterator[Segment]:
        segments = self.file_segments()
        if (selection.store_timestamp_min, selection.store_timestamp_max) == (UNBOUNDED_MIN, UNBOUNDED_MAX):
            yield from segments
            return
        times = [first_store_timestamp(self.files, segment.start) for segment in segments]
        for segment, first, following in zip(segments, times, [*times[1:], None], strict=True):
            is_before = following is not None and following + CLOCK_STEP_MS < selection.store_timestamp_min
            is_behind = first is not None and first - CLOCK_STEP_MS >= selection.store_timestamp_max
            if not is_before and not is_behind:
                yield segment

    # By consume queues

    def _queue_spans(self, selection: Selection) -> list[Segment] | None:
        """Return where wanted messages lie, file by file, and what is not settled; None if the queues do not tell."""
        known = [topic for topic in self.queues if selection.wants_topic(topic)]
        if selection.topics is not None and selection.topics - set(known):
            return None
        newest = 0
        for queue in [queue for queues in self.queues.values() for queue in queues.values()]:
            if not queue.is_whole:
                return None
            newest = max(newest, queue.record_end())
            queue.files.close()
        spans: list[Segment] = []
        for topic in known:
            for queue_id, queue in self.queues[topic].items():
                first, end = selection.queue_bounds(topic, queue_id)
                if first < end and end > 0:
                    for _, units in queue.runs(max(first, 0), None if end == UNBOUNDED_MAX else end):
                        spans += self._spans_of(units)
        settled = self.files.start_of(min(self.extent.settled, newest, self.extent.end))
        if newest < self.extent.end or self.extent.settled < self.extent.end:
            spans += [segment for segment in self.file_segments() if segment.start >= settled]
        return spans

    def _spans_of(self, units: Units) -> Iterator[Segment]:
        """Give the ranges of the records of *units*, one for each commit log file; all of it if they do not fit."""
        low = 0
        while low < len(units):
            start = self.files.start_of(int(units[low]["physical_offset"]))
            file_end = min(start + self.files.file_size, self.extent.end)
            high = max(low + 1, place_of(units, file_end, low))
            first, last = to_unit(units[low]), to_unit(units[high - 1])
            fits = self._is_record(first) and self._is_record(last) and last.record_end <= file_end
            yield Segment(first.physical_offset, last.record_end) if fits else Segment(start, file_end)
            low = high

    def _is_record(self, unit: Unit) -> bool:
        """Whether the record that *unit* leads to is there, whole, and of the size that it states."""
        try:
            start, view = self.files.file_view(unit.physical_offset)
            record = decode_record(view[unit.physical_offset - start :], unit.physical_offset)
        except (CorruptRecordError, OffsetOutOfRangeError):
            return False
        return (record.physical_offset, record.total_size) == (unit.physical_offset, unit.record_size)

    # Splitting

    def _guides(self) -> list[QueueUnits]:
        queues = [queue for queues in self.queues.values() for queue in queues.values() if queue.files.starts]
        return sorted(queues, key=lambda queue: len(queue.files.starts), reverse=True)[:GUIDES_MAX]

    def _split(self, segment: Segment, size_max: int, guides: list[QueueUnits]) -> Iterator[Segment]:
        count = -(-segment.size // max(1, size_max))
        start = segment.start
        for number in range(1, count):
            wanted = segment.start + segment.size * number // count
            place = self._guided_place(guides, wanted) if guides else self._walked_place(start, wanted)
            if start < place < segment.end:
                yield Segment(start, place)
                start = place
        yield Segment(start, segment.end)

    def _guided_place(self, guides: list[QueueUnits], wanted: int) -> int:
        """Return the first place at *wanted* or behind where some queue knows a record; -1 if there is none."""
        units = [unit for queue in guides if (unit := queue.unit_near(wanted)) is not None]
        for unit in sorted(units):
            if self._is_record(unit):
                return unit.physical_offset
        return -1

    def _walked_place(self, known: int, wanted: int) -> int:
        """Return the end of the last whole record before *wanted*, walking from *known*, where a record starts."""
        start, view = self.files.file_view(known)
        return known + scan_records(view[known - start : wanted - start], known, False).valid_size


def place_of(units: Units, physical_offset: int, low: int = 0) -> int:
    """Return the index of the first of *units*, from *low* on, whose record lies at *physical_offset* or behind."""
    column = units["physical_offset"]
    return bisect_left(range(len(units)), physical_offset, lo=low, key=lambda index: int(column[index]))


def _joined(spans: Iterable[Segment]) -> list[Segment]:
    """Return *spans* in order, those that overlap made one."""
    joined: list[Segment] = []
    for span in sorted(spans):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Segment(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def _intersect(segments: list[Segment], spans: list[Segment]) -> Iterator[Segment]:
    """Give the parts of *segments* that lie in *spans*; both are in order and do not overlap among themselves."""
    at = 0
    for segment in segments:
        while at < len(spans) and spans[at].end <= segment.start:
            at += 1
        for span in spans[at:]:
            if span.start >= segment.end:
                break
            yield Segment(max(segment.start, span.start), min(segment.end, span.end))
