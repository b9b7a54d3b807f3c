"""The file ``checkpoint``: up to which store time log, consume queues and index are known to be on disk.

Its times may be too old, never too new: a broker that finds ``abort`` rebuilds from there. Source: RocketMQ
store/StoreCheckpoint.java.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from mqcore.files import sync_directory
from mqcore.layout import CHECKPOINT, CHECKPOINT_FILE_SIZE

SAFETY_MARGIN_MS = 3000
SECTOR_SIZE = 512

# Written in place: a power cut leaves all of the old times or all of the new.
assert CHECKPOINT.size <= SECTOR_SIZE <= CHECKPOINT_FILE_SIZE

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Checkpoint:
    """Three store timestamps, ms; 0 = nothing known."""

    physic_timestamp: int = 0
    logics_timestamp: int = 0
    index_timestamp: int = 0

    @property
    def min_timestamp(self) -> int:
        """Everything stored up to here is on disk in log and consume queues, ms.

        Three seconds are taken off for records of equal or slightly disordered times.
        """
        return max(0, min(self.physic_timestamp, self.logics_timestamp) - SAFETY_MARGIN_MS)

    @property
    def min_timestamp_with_index(self) -> int:
        """The same, in the index too. Its last record is often not the last of its millisecond."""
        return min(self.min_timestamp, max(0, self.index_timestamp - SAFETY_MARGIN_MS))

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """Return what the file says; zeros, which make recovery go back to the start, if it is missing or cut short."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        if len(data) < CHECKPOINT.size:
            logger.warning("checkpoint cut short path=%s size=%d wanted=%d", path, len(data), CHECKPOINT_FILE_SIZE)
            return cls()
        return cls(*CHECKPOINT.struct.unpack_from(data))

    def write(self, path: Path) -> None:
        """Write the times in place, durably. The rest of the file, which other releases use, is left alone.

        In place is safe: the times share one sector, and each of the old and new values was true.
        """
        times = (self.physic_timestamp, self.logics_timestamp, self.index_timestamp)
        assert min(times) >= 0, times
        is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size < CHECKPOINT_FILE_SIZE:
                os.ftruncate(descriptor, CHECKPOINT_FILE_SIZE)
            os.pwrite(descriptor, CHECKPOINT.struct.pack(*times), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            sync_directory(path.parent)
