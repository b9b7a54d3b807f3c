"""Reading a store without a broker: one that is running, a backup, a copy from a dead machine, or Apache's.

    with StoreReader("/var/store") as store:
        for batch in store.batches(["topic", "queue_offset", "body"], topics="Orders"):
            frame = polars.DataFrame(batch.to_dict())

What is read is what recovery would keep: whole records up to the first that is not, and nothing behind. Nothing is
written, locked or created. See docs/store-reader.md.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from mqcore.errors import ConfigError, CorruptFileError, CorruptRecordError, MQError, OffsetOutOfRangeError
from mqcore.store.columns import BATCH_BYTES_DEFAULT, ColumnDecoder, MessageBatch, Selection
from mqcore.store.incarnations import Incarnations
from mqcore.store.log.places import LogPlaces
from mqcore.store.log.walk import next_record
from mqcore.store.message_columns import BATCH_ROWS_DEFAULT, EVERYTHING
from mqcore.store.paths import StorePaths
from mqcore.store.reader_extent import LogExtent, find_extent
from mqcore.store.reader_files import FoundFiles
from mqcore.store.reader_queues import QueueUnits, find_queues
from mqcore.store.reader_segments import Segment, SegmentPlanner

OnDamage = Literal["raise", "skip"]
Names = str | Iterable[str]
Time = int | datetime.datetime

SEPARATOR: Final = ","
"""Between the directories of a commit log that lies in several, as in storePathCommitLog."""

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)

logger = logging.getLogger(__name__)


class StoreReader:
    """The store under *path*, as it stood when it was first looked at; ``refresh`` looks again.

    *commit_log*: where the commit log lies if not in ``commitlog``, one directory or several. For one thread at a time;
    in another process, make another one.
    """

    def __init__(self, path: str | Path, commit_log: str | Path | Sequence[str | Path] | None = None) -> None:
        """Raises CorruptFileError if there is no store at *path*, or one of several directories is missing."""
        directories = [commit_log] if isinstance(commit_log, str | Path) else list(commit_log or ())
        parts = [Path(part) for entry in directories for part in str(entry).split(SEPARATOR)]
        self.paths = StorePaths.at(path, LogPlaces(tuple(parts)) if parts else None)
        self.directories = self.paths.log.directories
        for directory in self.directories:
            if not directory.is_dir():
                raise CorruptFileError("no commit log: not the directory of a store", str(directory))
        self.files = FoundFiles(self.directories)
        self._extent: LogExtent | None = None
        self._queues: dict[str, dict[int, QueueUnits]] | None = None
        self._births: dict[str, dict[int, int]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget every mapping; each is undone with its last view."""
        self.files.close()
        for queue in [queue for queues in (self._queues or {}).values() for queue in queues.values()]:
            queue.close()

    def refresh(self) -> None:
        """Look at the store anew: what was written or deleted since is seen from now on."""
        self.close()
        self.files.refresh()
        self._extent = None
        self._queues = None
        self._births = None

    # What is there

    @property
    def extent(self) -> LogExtent:
        """The readable commit log. The first call reads the last files, after a crash those behind the checkpoint."""
        if self._extent is None:
            self._extent = find_extent(self.paths, self.files)
        return self._extent

    @property
    def queues(self) -> Mapping[str, Mapping[int, QueueUnits]]:
        """The consume queues by topic and queue id; empty if the store has none."""
        if self._queues is None:
            extent = self.extent
            self._queues = find_queues(self.paths, extent.start, extent.end, self.births)
        return self._queues

    @property
    def births(self) -> Mapping[str, Mapping[int, int]]:
        """Of queues that were dropped, by topic and queue id: records that start before this offset are theirs.

        The log holds them until their file expires. A store that a broker has dropped no queue of has none, nor has
        Apache's.
        """
        if self._births is None:
            self._births = {}
            for (topic, queue_id), born in Incarnations.read(self.paths.incarnations).view(self.files).items():
                self._births.setdefault(topic, {})[queue_id] = born
        return self._births

    def alive(self, selection: Selection) -> Selection:
        """Return *selection* without the messages of queues that were dropped."""
        return replace(selection, births=self.births)

    @property
    def topics(self) -> list[str]:
        """The topics that have a consume queue, sorted."""
        return list(self.queues)

    def queue(self, topic: str, queue_id: int) -> QueueUnits:
        """Return one consume queue. Raises OffsetOutOfRangeError if the store has no such queue."""
        queues = self.queues.get(topic, {})
        if queue_id not in queues:
            raise OffsetOutOfRangeError(f"queue id of topic {topic}", queue_id, min(queues, default=0), len(queues) - 1)
        return queues[queue_id]

    # Messages

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        topics: Names | None = None,
        topic_pattern: str | None = None,
        queue_ids: Iterable[int] | None = None,
        offset_min: int | None = None,
        offset_max: int | None = None,
        start_time: Time | None = None,
        end_time: Time | None = None,
        tags: Names | None = None,
        selection: Selection = EVERYTHING,
        batch_bytes: int = BATCH_BYTES_DEFAULT,
        decompress: bool = True,
        check_crc: bool = True,
        on_damage: OnDamage = "raise",
        dropped: bool = False,
    ) -> Iterator[MessageBatch]:
        """Give the stored messages in the order of the commit log, in batches of about *batch_bytes*.

        *columns*: see ``mqcore.store.columns.COLUMNS``. Offsets are queue offsets; *offset_max* and *end_time*
        are exclusive; times are the broker's, in ms since 1970 or a datetime with a zone. All conditions must hold,
        those of *selection* too. Files without a wanted message are not read. Messages of queues that were dropped, as
        those of a deleted topic, lie in the log until they expire; they are given with *dropped* only.

        A record that is damaged, before the end of the log, raises CorruptRecordError, which names its offset; with
        *on_damage* "skip" it is passed over, with a warning, up to the next whole one.
        """
        chosen = make_selection(
            selection, topics, topic_pattern, queue_ids, offset_min, offset_max, start_time, end_time, tags
        )
        if not dropped:
            chosen = self.alive(chosen)
        decoder = ColumnDecoder(
            columns, selection=chosen, batch_bytes=batch_bytes, batch_rows=BATCH_ROWS_DEFAULT,
            decompress=decompress, check_crc=check_crc,
        )  # fmt: skip
        # Consume queues know nothing of the dropped ones.
        segments = self.segments(chosen, by_queues=not dropped)
        if on_damage == "raise":
            self.check_gaps(segments)
        yield from self.read_segments(segments, decoder, on_damage)

    def segments(
        self,
        selection: Selection = EVERYTHING,
        size_max: int | None = None,
        *,
        by_queues: bool = True,
        may_walk: bool = True,
    ) -> list[Segment]:
        """Return the ranges of the commit log that hold what *selection* wants, each to be read by itself.

        See SegmentPlanner.plan for the arguments.
        """
        if not self.files.starts:
            return []
        return SegmentPlanner(self.files, self.extent, self.queues).plan(
            selection, size_max, by_queues=by_queues, may_walk=may_walk
        )

    def read_segments(
        self,
        segments: Iterable[Segment],
        decoder: ColumnDecoder,
        on_damage: OnDamage = "raise",
        on_skip: Callable[[Segment, MQError], None] | None = None,
    ) -> Iterator[MessageBatch]:
        """Give what *decoder* makes of *segments*, in batches as it is set up; *on_skip* hears of what is passed over.

        Raises, unless *on_damage* is "skip", CorruptRecordError as ``batches``, and OffsetOutOfRangeError for a file
        that was deleted meanwhile.
        """
        if on_damage not in ("raise", "skip"):
            raise ConfigError(f"on_damage: got {on_damage!r}, wanted 'raise' or 'skip'")
        for segment in segments:
            yield from self._read_segment(segment, decoder, on_damage, on_skip)
        if decoder.row_count:
            yield decoder.take()

    def check_gaps(self, segments: Sequence[Segment]) -> None:
        """Raise CorruptFileError if a file is missing between the first and the last of *segments*."""
        for start, end in self.files.gaps():
            if segments and segments[0].start < start and end < segments[-1].end:
                raise CorruptFileError("file is missing between others", str(self.files.path_of(start)))

    def _read_segment(
        self,
        segment: Segment,
        decoder: ColumnDecoder,
        on_damage: OnDamage,
        on_skip: Callable[[Segment, MQError], None] | None,
    ) -> Iterator[MessageBatch]:
        try:
            file_start, view = self.files.file_view(segment.start)
        except OffsetOutOfRangeError as error:
            if on_damage == "raise":
                raise
            self._pass_over(segment, error, on_skip)
            return
        place = segment.start
        while place < segment.end:
            data = view[place - file_start : segment.end - file_start]
            position = 0
            try:
                while position < len(data):
                    position = decoder.feed(data, position, place)
                    if decoder.is_full:
                        yield decoder.take()
                return
            except CorruptRecordError as error:
                if on_damage == "raise":
                    raise
                damaged = Segment(place + decoder.position, self.next_whole(place + decoder.position, segment.end))
                self._pass_over(damaged, error, on_skip)
                place = damaged.end

    def _pass_over(self, segment: Segment, error: MQError, on_skip: Callable[[Segment, MQError], None] | None) -> None:
        where = self.files.path_of(self.files.start_of(segment.start))
        logger.warning("passed over path=%s from=%d to=%d reason=%s", where, segment.start, segment.end, error)
        if on_skip is not None:
            on_skip(segment, error)

    def next_whole(self, offset: int, end: int) -> int:
        """Return where the next whole record behind *offset* starts, or *end*."""
        found = next_record(self.files, offset + 1)
        return end if found is None else min(found.physical_offset, end)


def to_ms(time: Time) -> int:
    """Return *time* in ms since 1970. Raises ConfigError for a datetime without a zone."""
    if isinstance(time, datetime.datetime):
        if time.tzinfo is None:
            raise ConfigError(f"time {time}: wanted one with a time zone")
        # Rounded up: a time is in range from the first whole millisecond on.
        return -((EPOCH - time) // MILLISECOND)
    return time


def _names(names: Names) -> frozenset[str]:
    return frozenset([names] if isinstance(names, str) else names)


def make_selection(
    selection: Selection,
    topics: Names | None,
    topic_pattern: str | None,
    queue_ids: Iterable[int] | None,
    offset_min: int | None,
    offset_max: int | None,
    start_time: Time | None,
    end_time: Time | None,
    tags: Names | None,
) -> Selection:
    """Return *selection* with every condition that is given put in the place of its own."""
    changes = {
        "topics": None if topics is None else _names(topics),
        "topic_pattern": topic_pattern,
        "queue_ids": None if queue_ids is None else frozenset(queue_ids),
        "offset_min": offset_min,
        "offset_max": offset_max,
        "store_timestamp_min": None if start_time is None else to_ms(start_time),
        "store_timestamp_max": None if end_time is None else to_ms(end_time),
        "tags": None if tags is None else _names(tags),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(selection, **given)  # type: ignore[arg-type]
