"""What a backup holds: ``manifest.json``, which is replaced as a whole when everything that it claims is on disk.

What lies in the directory and is not in the manifest does not count. Offsets are physical, bytes; times are ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import orjson

from mqcore.errors import CorruptFileError
from mqcore.files import write_atomically
from mqcore.store.backup.members import Members
from mqcore.store.codec import crc32
from mqcore.store.incarnations import Anchor, Birth
from mqcore.store.paths import QUEUE_ID_MAX, is_topic

FORMAT: Final = "mqcore backup"
VERSION: Final = 1
CELL_SIZE: Final = 16 << 20
"""Of how many bytes of a file each checksum is."""

TABLE_NAME_BYTES: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(slots=True)
class LogFile:
    """A commit log file as far as it is backed up: *size* bytes, a CRC-32 for every CELL_SIZE of them.

    *is_closed* when its records end with a filler, behind which nothing is stored.
    """

    start: int
    size: int = 0
    is_closed: bool = False
    first_timestamp: int = 0
    last_timestamp: int = 0
    modified_ms: int = 0
    cells: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + self.size

    def to_json(self) -> dict[str, Any]:
        return {
            "start": self.start, "size": self.size, "closed": self.is_closed, "firstTimestamp": self.first_timestamp,
            "lastTimestamp": self.last_timestamp, "modifiedMs": self.modified_ms, "cells": self.cells,
        }  # fmt: skip

    @classmethod
    def of(cls, members: Members, file_size: int) -> LogFile:
        file = cls(
            members.number("start"), members.number("size", 1), members.yes("closed"), members.number("firstTimestamp"),
            members.number("lastTimestamp"), members.number("modifiedMs"), members.numbers("cells"),
        )  # fmt: skip
        if file.size > file_size:
            raise members.error("size", f"at most {file_size}, the size of a file")
        if len(file.cells) != -(-file.size // CELL_SIZE):
            raise members.error("cells", f"{-(-file.size // CELL_SIZE)} checksums for {file.size} bytes")
        return file


@dataclass(frozen=True, slots=True)
class Table:
    """A file of ``config/`` as it was copied."""

    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Run:
    """One completed backup: the log up to *end*, and the tables of that time, in ``tables/NUMBER``.

    *offsets_at*: the log was that far when the consumers' offsets were copied. *birth_count*: of the manifest's births,
    so many had happened.
    """

    number: int
    taken_at: int
    offsets_at: int
    end: int
    last_timestamp: int
    birth_count: int
    tables: dict[str, Table]

    def to_json(self) -> dict[str, Any]:
        tables = {name: {"size": table.size, "crc": table.crc} for name, table in self.tables.items()}
        return {
            "number": self.number, "takenAt": self.taken_at, "offsetsAt": self.offsets_at, "end": self.end,
            "lastTimestamp": self.last_timestamp, "births": self.birth_count, "tables": tables,
        }  # fmt: skip

    @classmethod
    def of(cls, members: Members) -> Run:
        tables = {
            name: Table(table.number("size"), table.number("crc")) for name, table in members.table("tables").items()
        }
        for name in tables:
            if not name or not set(name) <= TABLE_NAME_BYTES or name.startswith("."):
                raise members.error("tables", f"names of files, not {name!r}")
        return cls(
            members.number("number", 1), members.number("takenAt"), members.number("offsetsAt"), members.number("end"),
            members.number("lastTimestamp"), members.number("births"), tables,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class OldQueue:
    """A queue all of whose messages have expired: where it goes on, *max_offset*, and its last unit."""

    topic: str
    queue_id: int
    max_offset: int
    physical_offset: int
    record_size: int
    tags_code: int

    def to_json(self) -> list[Any]:
        return [self.topic, self.queue_id, self.max_offset, self.physical_offset, self.record_size, self.tags_code]


@dataclass(slots=True)
class Manifest:
    """The content of the file. *end*: how far the log is copied, checked and on disk, beyond the last run perhaps."""

    file_size: int
    queue_file_size: int = 0
    end: int = 0
    files: list[LogFile] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    births: list[Birth] = field(default_factory=list)
    old_queues: list[OldQueue] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    @property
    def start(self) -> int:
        """Where the log begins that is backed up."""
        return self.files[0].start if self.files else 0

    @property
    def next_offset(self) -> int:
        """Where the next byte comes from, behind a filler the next file; 0 for a backup without files."""
        if not self.files:
            return 0
        last = self.files[-1]
        return last.start + self.file_size if last.is_closed else last.end

    @property
    def next_number(self) -> int:
        return self.runs[-1].number + 1 if self.runs else 1

    def last_timestamp(self) -> int:
        """Return the newest store time of what is backed up, ms; 0 for nothing."""
        return max((file.last_timestamp for file in self.files), default=0)

    def add_births(self, births: Iterable[Birth]) -> None:
        """Note more births. All that were seen are kept: which of them count depends on where the log is cut."""
        known = set(self.births)
        self.births += [birth for birth in births if birth not in known]

    def write(self, path: Path) -> None:
        """Replace the file, durably."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "fileSize": self.file_size,
            "queueFileSize": self.queue_file_size,
            "end": self.end,
            "files": [file.to_json() for file in self.files],
            "damaged": self.damaged,
            "births": [_birth_json(birth) for birth in self.births],
            "oldQueues": [queue.to_json() for queue in self.old_queues],
            "runs": [run.to_json() for run in self.runs],
        }
        write_atomically(path, orjson.dumps({**content, "crc": _crc_of(content)}) + b"\n")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Return what the file says. Raises CorruptFileError, which names the member that cannot be."""
        try:
            content = orjson.loads(path.read_bytes())
        except ValueError as error:
            raise CorruptFileError(f"not the manifest of a backup: {error}", str(path)) from error
        members = Members(content, str(path))
        if members.text("format") != FORMAT:
            raise members.error("format", FORMAT)
        if members.number("version") != VERSION:
            raise members.error("version", f"{VERSION}; a newer mqcore has made this backup")
        crc = members.number("crc")
        if crc != _crc_of({name: value for name, value in content.items() if name != "crc"}):
            raise members.error("crc", f"{_crc_of({n: v for n, v in content.items() if n != 'crc'})}: damaged")
        file_size = members.number("fileSize", 1)
        manifest = cls(
            file_size,
            members.number("queueFileSize"),
            members.number("end"),
            [LogFile.of(file, file_size) for file in members.objects("files")],
            members.pairs("damaged"),
            [_birth_of(birth) for birth in members.objects("births")],
            [_old_queue_of(value, members) for value in content.get("oldQueues") or []],
            [Run.of(run) for run in members.objects("runs")],
        )
        manifest._check(members)
        return manifest

    def _check(self, members: Members) -> None:
        """Raise CorruptFileError if parts contradict each other."""
        for before, after in pairwise(self.files):
            if after.start != before.start + self.file_size:
                raise members.error("files", f"files one behind the other, {before.start} is followed by {after.start}")
        if self.files and not self.files[-1].start <= self.end <= self.files[-1].end:
            raise members.error("end", f"a place in the last file, {self.files[-1].start} to {self.files[-1].end}")
        for run in self.runs:
            if run.end > self.end or run.offsets_at > run.end:
                raise members.error("runs", f"ends of at most {self.end}, run {run.number} has {run.end}")


def _crc_of(content: dict[str, Any]) -> int:
    return crc32(orjson.dumps(content, option=orjson.OPT_SORT_KEYS))


def _birth_json(birth: Birth) -> dict[str, Any]:
    anchors = [[anchor.start, anchor.timestamp] for anchor in birth.anchors]
    return {"topic": birth.topic, "queueId": birth.queue_id, "born": birth.born, "anchors": anchors}


def _birth_of(members: Members) -> Birth:
    anchors = [Anchor(start, timestamp) for start, timestamp in members.pairs("anchors", -1)]
    topic = members.text("topic")
    if not is_topic(topic):
        raise members.error("topic", "the name of a topic")
    if len(anchors) != 2:
        raise members.error("anchors", "two of them")
    return Birth(topic, members.number("queueId"), members.number("born"), (anchors[0], anchors[1]))


def _old_queue_of(value: Any, members: Members) -> OldQueue:
    wanted = "[topic, queue id, max offset, physical offset, record size, tags code]"
    if not isinstance(value, list) or len(value) != 6 or any(type(number) is not int for number in value[1:]):
        raise members.error("oldQueues", f"lists of {wanted}")
    queue = OldQueue(*value)
    numbers_fit = 0 <= queue.queue_id <= QUEUE_ID_MAX and 0 < queue.max_offset < 1 << 58 and queue.record_size > 0
    if not isinstance(queue.topic, str) or not is_topic(queue.topic) or not numbers_fit:
        raise members.error("oldQueues", f"lists of {wanted}, not {value}")
    if not 0 <= queue.physical_offset < 1 << 62 or queue.record_size >= 1 << 31 or abs(queue.tags_code) >= 1 << 63:
        raise members.error("oldQueues", f"lists of {wanted}, not {value}")
    return queue
