"""The settings that hold now, published by the broker process and followed by the workers while they run.

The text lies on a *sheet*, an unnamed memory file that every worker is handed; the board says which version is on it,
and each worker says in its row which version it goes by. So a change is answered only when it holds for everybody.

What a worker starts with stands in its handover; the sheet is for what comes later. It does not choose what may change:
that is in the table of settings.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Final, Self
from zlib import crc32

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import SettingValues
from mqcore.errors import WorkerError
from mqcore.process_log import use_levels
from mqcore.workers.handover import Handover

logger = logging.getLogger(__name__)

HEAD: Final = layout.SETTINGS_HEAD
CRC_MASK: Final = 0x7FFFFFFF  # the field is signed
SHEET_MAX: Final = 1 << 22
READS_MAX: Final = 100
READ_PAUSE_S: Final = 0.01


def check_sum(version: int, text: bytes) -> int:
    """The CRC of a sheet: of its version and its text, so that zeros are not a sheet."""
    return crc32(text, crc32(version.to_bytes(8, "little"))) & CRC_MASK


class Sheet:
    """One memory file. The broker process writes it, from one thread; anybody reads."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> Self:
        """Make an empty sheet; the caller closes its descriptor."""
        return cls(os.memfd_create("mqcore-sheet", os.MFD_CLOEXEC))

    def write_text(self, text: bytes, version: int) -> None:
        """Put *text* on the sheet. The version on the board is to be moved afterwards: bytes, then number."""
        head = HEAD.struct.pack(version, len(text), check_sum(version, text))
        os.pwrite(self.fd, head + text, 0)

    def read_text(self) -> tuple[int, bytes]:
        """Return what is on the sheet, and its version. Raises WorkerError if it cannot be read for a second."""
        for _ in range(READS_MAX):
            data = os.pread(self.fd, SHEET_MAX, 0)
            if len(data) >= HEAD.size:
                version, size, crc = HEAD.struct.unpack_from(data)
                text = data[HEAD.size : HEAD.size + size]
                if len(text) == size and check_sum(version, text) == crc:
                    return version, text
            # Somebody is writing it, or has been stopped while he did.
            time.sleep(READ_PAUSE_S)
        raise WorkerError("a sheet cannot be read: its text and its CRC stay apart")


class SettingsSheet(Sheet):
    """The sheet of the settings."""

    def write(self, settings: SettingValues, version: int) -> None:
        """Put *settings* on the sheet, before the version on the board is moved."""
        self.write_text(settings.to_json().encode(), version)

    def read(self) -> tuple[int, SettingValues]:
        """Return the settings and their version; as ``read_text``."""
        version, text = self.read_text()
        return version, SettingValues.from_json(text.decode())


class SettingsFollower:
    """A worker's side. *use* makes it go by other settings; it is called in the thread that calls ``follow``."""

    def __init__(self, segment: SharedSegment, handover: Handover, use: Callable[[SettingValues], None]) -> None:
        """To be made when the worker goes by the settings of its handover."""
        self.version = handover.settings_version
        self._segment = segment
        self._row = handover.row
        self._sheet = SettingsSheet(handover.sheet)
        self._use = use
        self._segment.set_worker_word(self._row, "settings_version", self.version)

    @property
    def has_news(self) -> bool:
        return self._segment.get("settings_version") != self.version

    def follow(self) -> None:
        """Go by what is on the sheet, and say so."""
        version, settings = self._sheet.read()
        self._use(settings)
        use_levels(settings.mqcore.log_levels)
        self.version = version
        self._segment.set_worker_word(self._row, "settings_version", version)
        logger.info("settings followed version=%d", version)
