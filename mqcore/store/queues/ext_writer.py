"""The newest consume queue ext file of one queue, being written: the twin of _fast/queues/ext_writer.pyx."""

from __future__ import annotations

from pathlib import Path

from mqcore.layout import CONSUME_QUEUE_EXT_UNIT, EXT_FILE_END_MIN_BLANK_SIZE, EXT_FILE_FULL
from mqcore.store.queues.ext import (
    decode_ext_unit,
    encode_ext_unit,
    ext_address,
    ext_end,
    ext_offset,
    is_ext_address,
)
from mqcore.store.queues.newest_file import NewestFile

UNIT_SIZE = CONSUME_QUEUE_EXT_UNIT.size
SIZE_END = CONSUME_QUEUE_EXT_UNIT.offsets["tags_code"]


class ExtWriter:
    """Goes on where the files in *directory* end. Raises OSError; EUCLEAN is a file of another length.

    *known* is the code of the queue's newest unit: if it is an address, the stream goes on behind it, whatever the
    file looks like.
    """

    def __init__(self, directory: Path, file_size: int, known: int) -> None:
        self.file = NewestFile(directory, file_size)
        if self.file.file_start >= 0:
            self.file.resume(max(ext_end(self.file.mapping()), self._end_of_known(known)))

    def _end_of_known(self, known: int) -> int:
        """Return where the ext unit that *known* names ends, if it lies in the newest file; else 0."""
        position = ext_offset(known) - self.file.file_start
        if not is_ext_address(known) or not 0 <= position <= self.file.file_size - UNIT_SIZE:
            return 0
        unit = decode_ext_unit(self.file.mapping(), position)
        return position + (UNIT_SIZE if unit is None else unit.size)

    def _open_end(self, size: int) -> None:
        """See that the newest file has room for a unit of *size* bytes and the rest that must stay behind it."""
        file = self.file
        if file.file_start < 0:
            file.make(0)
        elif file.file_size - file.wrote - EXT_FILE_END_MIN_BLANK_SIZE < size:
            if file.file_size - file.wrote >= EXT_FILE_END_MIN_BLANK_SIZE:
                file.mapping()[file.wrote : file.wrote + SIZE_END] = EXT_FILE_FULL.to_bytes(2, "big", signed=True)
            file.make(file.file_start + file.file_size)

    def append(self, tags_code: int, store_timestamp: int, bitmap: bytes = b"") -> int:
        """Append a unit and return its address. A bitmap that no file would have room for is left out."""
        if UNIT_SIZE + len(bitmap) > self.file.file_size - EXT_FILE_END_MIN_BLANK_SIZE:
            bitmap = b""
        size = UNIT_SIZE + len(bitmap)
        self._open_end(size)
        self.file.reserve(size)
        data, at = self.file.mapping(), self.file.wrote
        unit = encode_ext_unit(tags_code, store_timestamp, bitmap)
        # The size last: a unit whose size is 0 is not there, should the process be killed in between.
        data[at + SIZE_END : at + size] = unit[SIZE_END:]
        data[at : at + SIZE_END] = unit[:SIZE_END]
        self.file.wrote += size
        return ext_address(self.file.file_start + at)
