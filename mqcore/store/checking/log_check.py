"""The commit log as a whole: all its parts read side by side, and then put together in order.

Parts are read by threads: reading and the kernels let go of the GIL, and threads share what they find. Files are read
and not mapped: a bad block, or a file that shrinks, is then an error of one read and not the end of the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from mqcore.store.backup.streams import Pace
from mqcore.store.checking.damage import Damage, DamageKind, DamageList
from mqcore.store.checking.kernels import LogTally
from mqcore.store.checking.log_part import GapKind, LogGap, LogPart, Stretch, check_part
from mqcore.store.checking.queue_files import QueueKey, Sums
from mqcore.store.checking.state import StoreState, StoreUse
from mqcore.store.queues.tally import WORD_MASK, QueueTally
from mqcore.store.reader_files import FoundFiles
from mqcore.store.reader_segments import Segment

SECOND_LOOKS: Final = 5
PAUSE_S: Final = 0.1
"""What a running broker is writing just now is looked at again."""

OnProgress = Callable[[int, int], None]


@dataclass(slots=True)
class QueueRecords:
    """What the log says of one queue; *dead_before*: records before are of one that had its name and was deleted."""

    record_count: int = 0
    byte_count: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0
    next_offset: int = -1
    dead_before: int = 0
    sums: Sums = field(default_factory=dict)
    seen_at: int = -1


@dataclass(slots=True)
class LogResult:
    """The log from its first file to *end*; *behind* are bytes of whole records that lie behind it."""

    start: int = 0
    end: int = 0
    record_count: int = 0
    first_timestamp: int = 0
    newest_timestamp: int = 0
    byte_count: int = 0
    behind: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    queues: dict[QueueKey, QueueRecords] = field(default_factory=dict)
    key_sums: Sums = field(default_factory=dict)

    def is_damaged(self, physical_offset: int) -> bool:
        return any(start <= physical_offset < end for start, end in self.damaged)


class Progress:
    """Counts what all threads have read, lets no more by than a rate, and tells somebody."""

    def __init__(self, total: int, max_rate: int, on_progress: OnProgress) -> None:
        self.done = 0
        self._total = total
        self._pace = Pace(max_rate)
        self._on_progress = on_progress
        self._lock = threading.Lock()

    def spend(self, size: int) -> None:
        with self._lock:
            self.done += size
            self._on_progress(min(self.done, self._total), self._total)
            self._pace.spend(size)


class LogCheck:
    """Reads *segments* of *files* with *jobs* threads; *make_tally* gives each a tally that knows the queues."""

    def __init__(
        self, files: FoundFiles, segments: list[Segment], state: StoreState, make_tally: Callable[[], LogTally],
        progress: Progress,
    ) -> None:  # fmt: skip
        self._files = files
        self._segments = segments
        self._state = state
        self._make_tally = make_tally
        self._progress = progress
        self.gone_before = 0

    def read(self, jobs: int) -> list[LogPart]:
        """Return the parts in order, without those of files that have expired meanwhile; see ``gone_before``."""
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="check")
        try:
            found = list(pool.map(self._read_one, self._segments))
        finally:
            pool.shutdown(cancel_futures=True)
        gone = [segment for segment, part in zip(self._segments, found, strict=True) if part is None]
        # A broker deletes its oldest files, and may have got one of which the first parts were read.
        self.gone_before = max((self._files.start_of(one.start) + self._files.file_size for one in gone), default=0)
        parts = [part for part in found if part is not None and part.segment.start >= self.gone_before]
        if self._state.use is StoreUse.IN_USE:
            self._look_again(parts)
        self._join(parts)
        return parts

    def _join(self, parts: list[LogPart]) -> None:
        """Read two parts as one where the first does not end with a record: the cut may lie in the body of one."""
        index = 0
        while index + 1 < len(parts):
            one, other = parts[index : index + 2]
            last = one.items[-1] if one.items else None
            if isinstance(last, LogGap) and last.end == other.segment.start and last.kind is GapKind.BYTES:
                joined = None
                if self._files.start_of(last.start) == self._files.start_of(other.segment.start):
                    joined = self._read_one(Segment(one.segment.start, other.segment.end))
                if joined is not None:
                    parts[index : index + 2] = [joined]
                    continue
            index += 1

    def _read_one(self, segment: Segment) -> LogPart | None:
        start = self._files.start_of(segment.start)
        path = self._files.path_of(start)
        try:
            return check_part(path, start, self._files.file_size, segment, self._make_tally, self._progress.spend)
        except FileNotFoundError:
            if self._state.use is StoreUse.IN_USE:
                return None
            raise

    def _look_again(self, parts: list[LogPart]) -> None:
        """Read parts once more in which something lay that was being written, or before which others were filled."""
        for _ in range(SECOND_LOOKS):
            newest = max((index for index, part in enumerate(parts) if part.stretches), default=-1)
            odd = [
                index
                for index, part in enumerate(parts)
                if any(gap.kind is not GapKind.ZEROS or index < newest for gap in part.gaps)
            ]
            if not odd:
                return
            time.sleep(PAUSE_S)
            for index in odd:
                parts[index] = self._read_one(parts[index].segment) or parts[index]


def put_together(
    parts: list[LogPart], files: FoundFiles, state: StoreState, damage: DamageList, gone_before: int = 0
) -> LogResult:
    """Say where the log ends, and what before that is damaged; what lay before *gone_before* has expired."""
    start = max(files.min_offset, gone_before)
    result = LogResult(start=start, end=start)
    items = [item for part in parts for item in part.items]
    following: list[Stretch | None] = [None] * len(items)
    after: Stretch | None = None
    for index in reversed(range(len(items))):
        following[index] = after
        item = items[index]
        if isinstance(item, Stretch):
            after = item
    for start, end in files.gaps():
        result.damaged.append((start, end))
    has_ended = False
    for item, next_one in zip(items, following, strict=True):
        if isinstance(item, Stretch):
            if has_ended:
                result.behind += item.end - item.start
                continue
            _add(result, item, files, damage)
        elif not has_ended:
            has_ended = _ends_log(result, item, next_one, state)
            if not has_ended:
                _damage_gap(result, item, files, damage)
                has_ended = next_one is None
    result.byte_count = sum(item.end - item.start for item in result.stretches)
    return result


def _ends_log(result: LogResult, gap: LogGap, following: Stretch | None, state: StoreState) -> bool:
    """Whether recovery would let the log end at *gap*: see LogWalker, which it goes by."""
    if following is None:
        # The checkpoint knows of more than there is: that is no end, something is gone.
        is_short = state.has_checkpoint and result.newest_timestamp < state.flushed
        return gap.kind is not GapKind.UNREADABLE and not is_short
    if gap.start < state.recovered_from or state.use is StoreUse.IN_USE:
        return False
    newest = result.newest_timestamp
    return newest >= state.flushed or not newest <= following.first_timestamp <= state.flushed


def _damage_gap(result: LogResult, gap: LogGap, files: FoundFiles, damage: DamageList) -> None:
    result.damaged.append((gap.start, gap.end))
    start = files.start_of(gap.start)
    kind = DamageKind.UNREADABLE if gap.kind is GapKind.UNREADABLE else DamageKind.RECORD
    if gap.found.startswith("a filler"):
        kind = DamageKind.FILLER
    found = f"{gap.found}; no whole record up to {gap.end - start}"
    damage.add(Damage(kind, files.path_of(start), gap.start - start, found, gap.wanted, gap.start))


def _add(result: LogResult, stretch: Stretch, files: FoundFiles, damage: DamageList) -> None:
    if not result.stretches:
        result.first_timestamp = stretch.first_timestamp
    result.stretches.append(stretch)
    result.end = stretch.end
    result.record_count += stretch.record_count
    result.newest_timestamp = max(result.newest_timestamp, stretch.newest_timestamp)
    file = files.start_of(stretch.start)
    for tally in stretch.queues:
        _add_queue(result, stretch, file, tally, files, damage)
    for broken in stretch.breaks:
        queue = f"{broken.topic.decode(errors='replace')}/{broken.queue_id}"
        found, wanted = f"queue offset {broken.got} in {queue}", f"{broken.wanted}"
        where = (files.path_of(file), broken.physical_offset - file)
        damage.add(Damage(DamageKind.QUEUE_OFFSET, *where, found, wanted, broken.physical_offset))
    damage.add_many(stretch.break_count - len(stretch.breaks))
    if stretch.key_count:
        before = result.key_sums.get(file, (0, 0))
        result.key_sums[file] = (before[0] + stretch.key_count, (before[1] + stretch.key_sum) & WORD_MASK)


def _add_queue(
    result: LogResult, stretch: Stretch, file: int, tally: QueueTally, files: FoundFiles, damage: DamageList
) -> None:
    key = (tally.topic.decode(errors="replace"), tally.queue_id)
    queue = result.queues.setdefault(key, QueueRecords())
    if tally.record_count:
        queue.first_timestamp = queue.first_timestamp or tally.first_timestamp
        queue.last_timestamp = tally.last_timestamp
        queue.record_count += tally.record_count
        queue.byte_count += tally.byte_count
    if not tally.unit_count:
        return
    if tally.restarted_at >= 0 or (tally.first_offset == 0 and queue.next_offset > 0):
        queue.sums.clear()
        queue.dead_before = max(tally.restarted_at, tally.first_physical)
    elif queue.next_offset >= 0 and tally.first_offset != queue.next_offset:
        # Behind damage that is so for want of the records that were there.
        is_known = any(queue.seen_at <= start < stretch.end for start, _ in result.damaged)
        if not is_known:
            found = f"queue offset {tally.first_offset} in {key[0]}/{key[1]}"
            where = (files.path_of(file), tally.first_physical - file)
            wanted = f"{queue.next_offset}"
            damage.add(Damage(DamageKind.QUEUE_OFFSET, *where, found, wanted, tally.first_physical))
    queue.next_offset = tally.next_offset
    queue.seen_at = stretch.end
    before = queue.sums.get(file, (0, 0))
    queue.sums[file] = (before[0] + tally.unit_count, (before[1] + tally.unit_sum) & WORD_MASK)
