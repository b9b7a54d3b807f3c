"""Reading messages out of a store beside its broker: what was not in memory before leaves it again.

As ``StoreReader.batches``, for whoever reads a lot once. Parts of the log are read and not mapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mqcore.errors import CorruptFileError, CorruptRecordError, OffsetOutOfRangeError
from mqcore.layout import BLANK_RECORD
from mqcore.store.backup.streams import Reading
from mqcore.store.checking.log_check import Progress
from mqcore.store.checking.log_part import Window
from mqcore.store.codec import scan_records
from mqcore.store.columns import ColumnDecoder, MessageBatch, Selection
from mqcore.store.log.record import DecodeStatus
from mqcore.store.reader import StoreReader
from mqcore.store.reader_segments import Segment

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
    segments = reader.segments(chosen)
    for start, end in reader.files.gaps():
        if segments and segments[0].start < start and end < segments[-1].end:
            if on_skip is None:
                raise CorruptFileError("file is missing between others", str(reader.files.path_of(start)))
            on_skip(start, end, "file is missing")
    progress = Progress(sum(segment.size for segment in segments), max_rate, on_progress)
    for segment in segments:
        yield from _read_segment(reader, segment, decoder, on_skip, progress)
    if decoder.row_count:
        yield decoder.take()


def _read_segment(
    reader: StoreReader, segment: Segment, decoder: ColumnDecoder, on_skip: OnSkip | None, progress: Progress
) -> Iterator[MessageBatch]:
    start = reader.files.start_of(segment.start)
    try:
        reading = Reading(reader.files.path_of(start))
    except FileNotFoundError:
        if on_skip is None:
            low = reader.files.min_offset
            raise OffsetOutOfRangeError("physical offset", segment.start, low, segment.end) from None
        on_skip(segment.start, segment.end, "file has expired")
        return
    with reading:
        window = Window(reading, segment.start - start, segment.end - start, progress.spend)
        place = segment.start
        while place < segment.end:
            view = window.view(place - start)
            # Records that are whole, up to a filler, to the end of the window, or to what is none.
            whole = scan_records(view, place, False)
            size = whole.valid_size or _next_size(view, segment.end - place)
            if not whole.valid_size and (whole.status == DecodeStatus.BLANK or _reads_on(window, place - start, size)):
                if whole.status == DecodeStatus.BLANK:
                    return
                continue
            try:
                yield from _feed(decoder, view[: min(size, len(view))], place)
                place += min(size, len(view))
            except CorruptRecordError as error:
                if on_skip is None:
                    raise
                place = max(place, error.physical_offset)
                after = reader.next_whole(place, segment.end)
                on_skip(place, after, str(error.args[0]))
                place = after
                if place < segment.end:
                    window = Window(reading, place - start, segment.end - start, progress.spend)


def _feed(decoder: ColumnDecoder, data: memoryview, place: int) -> Iterator[MessageBatch]:
    """Let *decoder* take *data*, the log from *place* on, and give the batches that are full."""
    at = 0
    while at < len(data):
        at = decoder.feed(data, at, place)
        if decoder.is_full:
            yield decoder.take()


def _next_size(view: memoryview, left: int) -> int:
    """Return the size that what starts in *view* states, *left* bytes at most; that of the view if it is none."""
    size = BLANK_RECORD.struct.unpack_from(view)[0] if len(view) >= BLANK_RECORD.size else 0
    return size if BLANK_RECORD.size < size <= left else len(view)


def _reads_on(window: Window, position: int, size: int) -> bool:
    """Read on if the window ends before *size* bytes from *position* on, or says not how many; whether it did."""
    have = len(window.view(position))
    if window.is_last or (have >= BLANK_RECORD.size and size <= have):
        return False
    window.read_on(position, size)
    return True
