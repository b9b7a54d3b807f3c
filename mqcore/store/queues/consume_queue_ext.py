"""The ext files of one consume queue: read by address, cut back and cleaned. The dispatcher alone appends.

Source: RocketMQ store/ConsumeQueueExt.java.
"""

from __future__ import annotations

import logging

from mqcore.errors import CorruptFileError, OffsetOutOfRangeError
from mqcore.files import zero_from
from mqcore.layout import CONSUME_QUEUE_EXT_UNIT
from mqcore.store.codec import decode_ext_unit
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.paths import StorePaths
from mqcore.store.queues.ext import ExtUnit, ext_offset, is_ext_address

logger = logging.getLogger(__name__)


class ConsumeQueueExt:
    """The ext files of one queue in *paths*; there may be none."""

    def __init__(self, paths: StorePaths, topic: str, queue_id: int, file_size: int) -> None:
        self.files = MappedFileQueue(paths.queue_ext(topic, queue_id), file_size)
        self.files.refresh()

    def look_up(self, address: int) -> ExtUnit | None:
        """Return the unit at *address*; None if it is no address or nothing whole is there."""
        if not is_ext_address(address):
            return None
        offset = ext_offset(address)
        try:
            start, view = self.files.file_view(offset)
        except (OffsetOutOfRangeError, CorruptFileError):
            return None
        return decode_ext_unit(view, offset - start)

    def cut(self, address: int | None) -> None:
        """Let the stream end behind the unit at *address*, durably; with None nothing is left of it.

        What is dropped becomes zero. The first file is kept, if empty, so that no address is given twice.
        """
        end = self.files.min_offset if address is None else self._end_of(address)
        for start in reversed(self.files.starts):
            if start > end:
                self.files.delete(start)
            elif end < start + self.files.file_size:
                cleared = zero_from(self.files.path_of(start), end - start)
                if cleared:
                    logger.info("ext units dropped path=%s end=%d", self.files.path_of(start), end)

    def _end_of(self, address: int) -> int:
        unit = self.look_up(address)
        if unit is None:
            where = self.files.path_of(self.files.start_of(ext_offset(address)))
            logger.error("no ext unit where a consume queue says path=%s address=%d", where, address)
        return ext_offset(address) + (CONSUME_QUEUE_EXT_UNIT.size if unit is None else unit.size)

    def delete_before(self, address: int) -> int:
        """Delete files, never the last, that end before the unit at *address*; returns how many."""
        gone = [start for start in self.files.starts[:-1] if start + self.files.file_size <= ext_offset(address)]
        for start in gone:
            self.files.delete(start)
        return len(gone)

    def delete_all(self) -> None:
        """Delete every file, the newest first."""
        for start in reversed(self.files.starts):
            self.files.delete(start)

    def close(self) -> None:
        self.files.close()
