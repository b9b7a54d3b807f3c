"""The newest file of one consume queue, being written: the plain twin of mqcore/_fast/queues/writer.pyx."""

from __future__ import annotations

from pathlib import Path

from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store.queues.ext_writer import ExtWriter
from mqcore.store.queues.newest_file import NewestFile
from mqcore.store.queues.units import decode_unit, encode_unit, valid_units

UNIT_SIZE = CONSUME_QUEUE_UNIT.size
SIZE_AT, SIZE_END = CONSUME_QUEUE_UNIT.offsets["record_size"], CONSUME_QUEUE_UNIT.offsets["tags_code"]
FILL_UNITS_MAX = 1_000_000


class QueueWriter:
    """Goes on where the files in *directory* end. Raises OSError; EUCLEAN is a file of another length.

    *ext_directory* is where its ext files lie.
    """

    def __init__(self, directory: Path, file_size: int, ext_directory: Path, ext_file_size: int) -> None:
        self.file = NewestFile(directory, file_size)
        self._ext_directory = ext_directory
        self._ext_file_size = ext_file_size
        self.ext: ExtWriter | None = None
        self._known = 0
        self.max_physical = -1
        self.bare = False
        if self.file.file_start >= 0:
            self._load()

    @property
    def end(self) -> int:
        """Bytes in the queue's stream, up to the last unit."""
        return self.file.end

    def _load(self) -> None:
        file, data = self.file, self.file.mapping()
        file.resume(UNIT_SIZE * valid_units(data))
        unit = decode_unit(data[file.wrote - UNIT_SIZE : file.wrote] if file.wrote else self._end_of_file_before())
        self.bare = unit.record_size <= 0 or unit.is_pre_fill
        self._known = unit.tags_code
        if not self.bare and unit.physical_offset >= 0:
            self.max_physical = unit.record_end

    def _end_of_file_before(self) -> bytes:
        before = self.file.file_start - self.file.file_size
        if before < 0 or not self.file.path(before).exists():
            return bytes(UNIT_SIZE)
        return self.file.path(before).read_bytes()[-UNIT_SIZE:]

    @property
    def is_mapped(self) -> bool:
        return self.file.is_mapped

    def unmap(self) -> None:
        """Let the mappings go; they are made again when they are needed."""
        self.file.unmap()
        if self.ext is not None:
            self.ext.file.unmap()

    def _begin_file(self, file_start: int) -> None:
        is_first = self.file.file_start < 0
        self.file.make(file_start)
        self.bare = is_first

    def make_room(self, target: int, fill: bool) -> None:
        """See that the newest file has room for a unit; a first file starts, pre-filled, so that *target* is its end.

        With *fill* any gap before *target* is filled, up to FILL_UNITS_MAX units.
        """
        if self.file.file_start < 0:
            self._begin_file(target - target % self.file.file_size)
        self._open_end()
        # Also when a writer died while it pre-filled: the file is bare until it holds a message.
        if (self.bare and target < self.file.file_start + self.file.file_size) or (
            fill and target - self.end <= FILL_UNITS_MAX * UNIT_SIZE
        ):
            while self.end < target:
                self.append(0, PRE_FILL_SIZE, 0)
                self._open_end()

    def _open_end(self) -> None:
        if self.file.wrote >= self.file.file_size:
            self._begin_file(self.file.file_start + self.file.file_size)

    def append(self, physical_offset: int, record_size: int, tags_code: int) -> None:
        """Append one unit after make_room."""
        assert min(physical_offset, record_size - 1) >= 0, "a unit that is written says that it is"
        self.file.reserve(UNIT_SIZE)
        data, at = self.file.mapping(), self.file.wrote
        unit = encode_unit(physical_offset, record_size, tags_code)
        # The size last: a unit whose size is 0 is not there, should the process be killed in between.
        data[at : at + SIZE_AT] = unit[:SIZE_AT]
        data[at + SIZE_END : at + UNIT_SIZE] = unit[SIZE_END:]
        data[at + SIZE_AT : at + SIZE_END] = unit[SIZE_AT:SIZE_END]
        self.file.wrote += UNIT_SIZE

    def append_ext(self, tags_code: int, store_timestamp: int, bitmap: bytes = b"") -> int:
        """Append a unit to the ext files and return its address, which takes the place of *tags_code*."""
        if self.ext is None:
            self.ext = ExtWriter(self._ext_directory, self._ext_file_size, self._known)
        return self.ext.append(tags_code, store_timestamp, bitmap)

    def sync(self) -> int:
        """Sync what was appended since the last time; returns how many files. Ext files go first: units name them."""
        return (0 if self.ext is None else self.ext.file.sync()) + self.file.sync()
