"""CRC-32 as records keep it: the plain twin of mqcore/_fast/base/crc32.pyx."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


def checksum(buffer: Buffer) -> int:
    """Return the CRC-32 of *buffer*, 0..2**32-1; 0 for an empty one."""
    return zlib.crc32(buffer)


def implementation() -> str:
    """Return what checksum() runs on here."""
    return "zlib"
