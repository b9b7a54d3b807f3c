"""The file ``incarnations``: queues that were dropped, and where in the log those of the same name were born.

A queue that is dropped while its records lie in the log would come back when consume queues are built anew, and with it
queue offsets that have been given to new messages since. So its birth stands in a file of our own: whoever builds or
reads a queue passes over the records of its name that start before. RocketMQ does not know the file and leaves it
alone; it brings such queues back itself, by the same crash.

An entry is on disk before any message of the new queue may be. What was torn off at the end was never promised. A birth
means this log only: it has anchors, files by which the log is known again, and one of another log is void; it would
hide messages. A log that has lost its end has lost the new queue's messages, and a birth behind the end is drawn to it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mqcore.errors import CorruptFileError, CorruptRecordError
from mqcore.files import make_directory, sync_directory, write_atomically
from mqcore.layout import BIRTH_HEAD
from mqcore.store.codec import crc32
from mqcore.store.log.commit_log import read_store_timestamp
from mqcore.store.log.mapped_file_queue import MappedFileQueue

logger = logging.getLogger(__name__)

QueueKey = tuple[str, int]
NO_FILE: Final = -1
CRC_END: Final = BIRTH_HEAD.offsets["born"]
# The CRC covers everything behind itself, and the size in front of it is checked against the topic's.
assert list(BIRTH_HEAD.offsets)[:3] == ["entry_size", "crc", "born"]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A commit log file: where it starts, bytes, and the store time of its first record, ms."""

    start: int = NO_FILE
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class Birth:
    """Records of the queue that start before *born* are of one that was dropped."""

    topic: str
    queue_id: int
    born: int
    anchors: tuple[Anchor, Anchor] = (Anchor(), Anchor())

    @property
    def key(self) -> QueueKey:
        return self.topic, self.queue_id

    def encode(self) -> bytes:
        """Return the entry of the file."""
        topic = self.topic.encode()
        last, earlier = self.anchors
        size = BIRTH_HEAD.size + len(topic)
        fields = (self.born, self.queue_id, last.start, last.timestamp, earlier.start, earlier.timestamp, len(topic))
        entry = BIRTH_HEAD.struct.pack(size, 0, *fields) + topic
        crc = BIRTH_HEAD.struct.pack(size, signed(crc32(entry[CRC_END:])), *fields)
        return crc + topic


def signed(value: int) -> int:
    """Return the 32 bits of *value* as a signed number, as layouts have them."""
    return value - (1 << 32) if value >= 1 << 31 else value


def anchors_at(log: MappedFileQueue, offset: int) -> tuple[Anchor, Anchor]:
    """Return what the log before *offset* is known again by: the file of the byte before it, and the one before."""
    before = [start for start in log.starts if start < offset]
    found = [Anchor(start, first_timestamp(log, start)) for start in before[-2:]]
    last, earlier = [*reversed(found), Anchor(), Anchor()][:2]
    return last, earlier


def first_timestamp(log: MappedFileQueue, start: int) -> int:
    """Return the store time of the first record of the file at *start*; 0 if there is no whole one."""
    try:
        return read_store_timestamp(log.file_view(start)[1], start)
    except CorruptRecordError:
        return 0


class Incarnations:
    """The births of a store, newest for each queue, and the file they lie in."""

    def __init__(self, path: Path, births: Iterable[Birth] = ()) -> None:
        self.path = path
        self._births = {birth.key: birth for birth in births}
        self._entry_count = len(self._births)

    @classmethod
    def read(cls, path: Path) -> Incarnations:
        """Return what the file says; nothing if there is none, and nothing of an entry that was torn at its end.

        Raises CorruptFileError if an entry is damaged behind which others follow: to go on without could give offsets
        twice.
        """
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls(path)
        return cls(path, decode(data, path))

    def born(self, topic: str, queue_id: int) -> int:
        """Return the physical offset of the queue's birth; 0 for one that was never dropped."""
        birth = self._births.get((topic, queue_id))
        return 0 if birth is None else birth.born

    def __iter__(self) -> Iterator[Birth]:
        return iter(self._births.values())

    def __len__(self) -> int:
        return len(self._births)

    def add(self, births: Iterable[Birth]) -> None:
        """Note *births*, durably: on return they outlive a power cut. Raises OSError, and then none of them counts."""
        new = list(births)
        data = b"".join(birth.encode() for birth in new)
        assert decode(data, self.path) == new, "what is promised for good can be read again"
        make_directory(self.path.parent)
        is_new = not self.path.exists()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        end = os.fstat(descriptor).st_size
        try:
            written = os.pwrite(descriptor, data, end)
            if written != len(data):
                raise OSError(f"{self.path}: {written} of {len(data)} bytes written")
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        finally:
            os.close(descriptor)
        if is_new:
            sync_directory(self.path.parent)
        self._births.update((birth.key, birth) for birth in new)
        self._entry_count += len(new)

    def settle(self, log: MappedFileQueue, end: int) -> None:
        """Keep the births that still mean something for *log*, whose last record ends at *end*; durably.

        Those whose dropped records have expired go, and so do those of another log.
        """
        assert end >= 0
        kept = {birth.key: replace(birth, born=min(birth.born, end)) for birth in self.of(log)}
        if kept == self._births and len(kept) == self._entry_count:
            return
        self._births = kept
        self._entry_count = len(kept)
        if self.path.exists():
            write_atomically(self.path, b"".join(birth.encode() for birth in kept.values()), keep_backup=False)

    def of(self, log: MappedFileQueue) -> list[Birth]:
        """Return the births that mean *log* and records that it may still have."""
        timestamps: dict[int, int] = {}
        return [birth for birth in self if birth.born > max(0, log.min_offset) and _means(birth, log, timestamps)]

    def view(self, log: MappedFileQueue) -> Mapping[QueueKey, int]:
        """Return the births that mean *log*: physical offset by (topic, queue id)."""
        return {birth.key: birth.born for birth in self.of(log)}


def _means(birth: Birth, log: MappedFileQueue, timestamps: dict[int, int]) -> bool:
    """Tell whether *log* is the one of the birth, by the newest of its anchors that is there."""
    for anchor in birth.anchors:
        if anchor.start in log.starts:
            if anchor.start not in timestamps:
                timestamps[anchor.start] = first_timestamp(log, anchor.start)
            if timestamps[anchor.start]:  # 0: its bytes were lost, the one before may tell
                if timestamps[anchor.start] == anchor.timestamp:
                    return True
                break
    logger.warning("birth of a queue is of another log queue=%s/%d born=%d", birth.topic, birth.queue_id, birth.born)
    return False


def decode(data: bytes, path: Path) -> list[Birth]:
    """Return the entries in *data*, the content of *path*; see Incarnations.read."""
    births = []
    at = 0
    while at < len(data):
        birth, size = _decode_entry(data, at)
        if birth is None:
            if size and at + size < len(data):
                raise CorruptFileError(f"entry at {at} is damaged, and others follow", str(path))
            logger.warning("torn entry passed over path=%s at=%d size=%d", path, at, len(data) - at)
            break
        births.append(birth)
        at += size
    return births


def _decode_entry(data: bytes, at: int) -> tuple[Birth | None, int]:
    """Return the entry at *at*, None if it is not whole, and its size, 0 if that cannot be."""
    if len(data) - at < BIRTH_HEAD.size:
        return None, 0
    head = dict(zip(BIRTH_HEAD.offsets, BIRTH_HEAD.struct.unpack_from(data, at), strict=True))
    size, topic_size = head["entry_size"], head["topic_size"]
    if topic_size <= 0 or size != BIRTH_HEAD.size + topic_size or size > len(data) - at:
        return None, 0
    if signed(crc32(data[at + CRC_END : at + size])) != head["crc"]:
        return None, size
    anchors = (
        Anchor(head["anchor_start"], head["anchor_timestamp"]),
        Anchor(head["earlier_start"], head["earlier_timestamp"]),
    )
    topic = data[at + BIRTH_HEAD.size : at + size].decode("utf-8", "replace")
    return Birth(topic, head["queue_id"], head["born"], anchors), size
