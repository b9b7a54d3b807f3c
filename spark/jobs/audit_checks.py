"""What one task of the audit notes about its part of a commit log: small rows, whatever the number of messages.

A *span* is a stretch of the log without a hole; a *run* is a stretch of one queue without a gap. On a store in good
state there is one span for each file and task, and one run for each queue and task.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mqcore.codes import TRANSACTION_MASK, SysFlag

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = (
    "topic", "queueId", "offset", "physicalOffset", "storeSize", "storeTimestamp", "bodyCrc", "computedBodyCrc",
    "sysFlag",
)  # fmt: skip
NOTE_SCHEMA: Final = (
    "kind string, topic string, queue_id int, start long, end long, place long, count long, size long, "
    "first_time long, last_time long"
)
SPAN: Final = "span"
RUN: Final = "run"
CRC: Final = "crc"
CLOCK: Final = "clock"
UNCOUNTED: Final = (int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK))


@dataclass(slots=True)
class Note:
    """One observation. Times are ms; *place* is a physical offset.

    span: physical offsets [start, end). run: queue offsets [start, end), the first record at *place*. crc: the queue
    offset *start* whose body differs. clock: a record at *place* stored *start* ms before the one in front of it.
    """

    kind: str
    topic: str | None = None
    queue_id: int | None = None
    start: int = 0
    end: int = 0
    place: int = 0
    count: int = 0
    size: int = 0
    first_time: int = 0
    last_time: int = 0


@dataclass(frozen=True, slots=True)
class Messages:
    """Some messages in the order of the log, as arrays; *topics* are the names that *topic_codes* number."""

    topics: list[str]
    topic_codes: NDArray[Any]
    queue_ids: NDArray[Any]
    offsets: NDArray[Any]
    places: NDArray[Any]
    sizes: NDArray[Any]
    times: NDArray[Any]
    is_damaged: NDArray[Any]
    is_counted: NDArray[Any]


def messages_of(batch: pa.RecordBatch) -> Messages:
    """Return the columns of *batch*, which are COLUMNS."""
    topics = batch.column("topic").dictionary_encode()

    def numbers(name: str) -> NDArray[Any]:
        return np.asarray(batch.column(name).to_numpy(zero_copy_only=False))

    return Messages(
        topics=topics.dictionary.to_pylist(),
        topic_codes=np.asarray(topics.indices.to_numpy(zero_copy_only=False)),
        queue_ids=numbers("queueId"),
        offsets=numbers("offset"),
        places=numbers("physicalOffset"),
        sizes=numbers("storeSize").astype(np.int64),
        times=numbers("storeTimestamp").astype("datetime64[ms]").astype(np.int64),
        is_damaged=numbers("bodyCrc") != numbers("computedBodyCrc"),
        is_counted=~np.isin(numbers("sysFlag") & TRANSACTION_MASK, UNCOUNTED),
    )


class PartAudit:
    """Takes the messages of one task in order, and gives its notes."""

    def __init__(self) -> None:
        self._span: Note | None = None
        self._runs: dict[tuple[str, int], Note] = {}
        self._done: list[Note] = []

    def add(self, messages: Messages) -> None:
        """Note what is to be noted about the next *messages*."""
        if not len(messages.places):
            return
        self._note_clock(messages)
        self._note_spans(messages)
        for index in np.flatnonzero(messages.is_damaged):
            self._done.append(_at(messages, int(index), CRC))
        self._note_runs(messages)

    def take_done(self) -> list[Note]:
        """Return the notes that no later message can change, and forget them."""
        done, self._done = self._done, []
        return done

    def finish(self) -> list[Note]:
        """Return all notes that are left."""
        open_notes = [*self._runs.values(), *([self._span] if self._span else [])]
        self._runs, self._span = {}, None
        return self.take_done() + open_notes

    def _note_clock(self, messages: Messages) -> None:
        before = self._span.last_time if self._span else int(messages.times[0])
        steps = np.diff(messages.times, prepend=before)
        for index in np.flatnonzero(steps < 0):
            note = _at(messages, int(index), CLOCK)
            note.start = -int(steps[index])
            self._done.append(note)

    def _note_spans(self, messages: Messages) -> None:
        ends = messages.places + messages.sizes
        breaks = np.flatnonzero(messages.places[1:] != ends[:-1]) + 1
        for low, high in _pieces(breaks, len(ends)):
            span = self._span
            if span is None or span.end != int(messages.places[low]):
                if span is not None:
                    self._done.append(span)
                start = int(messages.places[low])
                span = Note(SPAN, start=start, end=start, place=start, first_time=int(messages.times[low]))
            span.end = int(ends[high - 1])
            span.count += high - low
            span.size += int(messages.sizes[low:high].sum())
            span.last_time = int(messages.times[high - 1])
            self._span = span

    def _note_runs(self, messages: Messages) -> None:
        # A stable sort: within a queue the order of the log stays.
        order = np.lexsort((messages.queue_ids, messages.topic_codes))
        order = order[messages.is_counted[order]]
        codes, queue_ids, offsets = messages.topic_codes[order], messages.queue_ids[order], messages.offsets[order]
        is_break = (np.diff(codes) != 0) | (np.diff(queue_ids) != 0) | (np.diff(offsets) != 1)
        for low, high in _pieces(np.flatnonzero(is_break) + 1, len(order)):
            self._extend(messages, order[low:high])

    def _extend(self, messages: Messages, dense: NDArray[Any]) -> None:
        """Take messages of one queue whose offsets follow each other."""
        first, last = int(dense[0]), int(dense[-1])
        key = messages.topics[int(messages.topic_codes[first])], int(messages.queue_ids[first])
        run = self._runs.get(key)
        if run is None or run.end != int(messages.offsets[first]):
            if run is not None:
                self._done.append(run)
            run = _at(messages, first, RUN)
            run.end = run.start
            self._runs[key] = run
        run.end = int(messages.offsets[last]) + 1
        run.count += len(dense)
        run.size += int(messages.sizes[dense].sum())
        run.first_time = min(run.first_time, int(messages.times[dense].min()))
        run.last_time = max(run.last_time, int(messages.times[dense].max()))


def _at(messages: Messages, index: int, kind: str) -> Note:
    time = int(messages.times[index])
    return Note(
        kind,
        topic=messages.topics[int(messages.topic_codes[index])],
        queue_id=int(messages.queue_ids[index]),
        start=int(messages.offsets[index]),
        place=int(messages.places[index]),
        first_time=time,
        last_time=time,
    )


def _pieces(breaks: NDArray[Any], count: int) -> Iterator[tuple[int, int]]:
    """Give the ranges into which *breaks* cut the numbers below *count*."""
    ends = [0, *breaks.tolist(), count]
    return ((low, high) for low, high in itertools.pairwise(ends) if low < high)


def audit_part(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn the messages of one task into notes; for ``DataFrame.mapInArrow`` with NOTE_SCHEMA."""
    audit = PartAudit()
    for batch in batches:
        audit.add(messages_of(batch))
        done = audit.take_done()
        if done:
            yield to_batch(done)
    yield to_batch(audit.finish())


def to_batch(notes: list[Note]) -> pa.RecordBatch:
    """Return *notes* as a record batch of NOTE_SCHEMA."""
    import pyarrow as pa

    types = {"kind": pa.string(), "topic": pa.string(), "queue_id": pa.int32()}
    schema = pa.schema([(field.name, types.get(field.name, pa.int64())) for field in fields(Note)])
    columns = list(zip(*map(astuple, notes), strict=True)) or [() for _ in schema]
    arrays = [pa.array(column, member.type) for column, member in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
