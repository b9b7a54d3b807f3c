"""Reading messages out of a store beside its broker: what was not in memory before leaves it again.

As ``StoreReader.batches``, for whoever reads a lot once. Parts of the log are read and not mapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mqcore.errors import CorruptFileError, CorruptRecordError, OffsetOutOfRangeError
from mqcore.store.backup.streams import Pace, Reading
from mqcore.store.columns import ColumnDecoder, MessageBatch, Selection
from mqcore.store.reader import StoreReader
from mqcore.store.reader_segments import Segment

PART_SIZE = 16 << 20

OnProgress = Callable[[int, int], None]
OnSkip = Callable[[int, int, str], None]
"""Is told of a range of the log, bytes, that is passed over, and why."""


def read_messages(
    reader: StoreReader, selection: Selection, columns: Sequence[str], *, max_rate: int = 0,
    on_progress: OnProgress = lambda done, total: None, on_skip: OnSkip | None = None,
) -> Iterator[MessageBatch]:  # fmt: skip
    """Give the messages of *selection* in the order of the log, those of queues that were dropped left out.

    A damaged record raises CorruptRecordError, a missing file CorruptFileError, and one that expires meanwhile
    OffsetOutOfRangeError, unless *on_skip* is there to be told of it.
    """
    chosen = reader.alive(selection)
    decoder = ColumnDecoder(columns, selection=chosen, check_crc=True)
    segments = reader.segments(chosen, PART_SIZE)
    for start, end in reader.files.gaps():
        if segments and segments[0].start < start and end < segments[-1].end:
            if on_skip is None:
                raise CorruptFileError("file is missing between others", str(reader.files.path_of(start)))
            on_skip(start, end, "file is missing")
    total = sum(segment.size for segment in segments)
    pace = Pace(max_rate)
    done = 0
    for segment in segments:
        yield from _read_segment(reader, segment, decoder, on_skip)
        done += segment.size
        on_progress(done, total)
        pace.spend(segment.size)
    if decoder.row_count:
        yield decoder.take()


def _read_segment(
    reader: StoreReader, segment: Segment, decoder: ColumnDecoder, on_skip: OnSkip | None
) -> Iterator[MessageBatch]:
    start = reader.files.start_of(segment.start)
    try:
        with Reading(reader.files.path_of(start)) as reading:
            data = memoryview(bytearray(segment.size))
            reading.read(data, segment.start - start)
    except FileNotFoundError:
        if on_skip is None:
            raise OffsetOutOfRangeError(
                "physical offset", segment.start, reader.files.min_offset, segment.end
            ) from None
        on_skip(segment.start, segment.end, "file has expired")
        return
    at = 0
    while at < len(data):
        try:
            at = decoder.feed(data, at, segment.start)
        except CorruptRecordError as error:
            if on_skip is None:
                raise
            at = decoder.position
            after = reader.next_whole(segment.start + at, segment.end)
            on_skip(segment.start + at, after, str(error.args[0]))
            at = after - segment.start
        if decoder.is_full:
            yield decoder.take()
