"""Compression of message bodies, by the type bits of the message's sysFlag.

zlib is always there; LZ4 and Zstandard need the extras of the same names. Source: RocketMQ common/compression.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from mqcore.codes import COMPRESSION_TYPE_MASK, SysFlag
from mqcore.errors import ConfigError, ProtocolError
from mqcore.protocol.buffer import Buffer

COMPRESS_LEVEL_DEFAULT: Final = 5
LEVEL_MAX_ZLIB: Final = 9
LEVEL_MAX_ZSTD: Final = 22

BODY_SIZE_MAX: Final = 256 * 1024 * 1024
"""A body that would grow beyond this is refused: four megabytes can hide four gigabytes of zeros."""

_TYPE_SHIFT: Final = 8

_ZSTD_STEP_SIZE: Final = 1024
"""Compressed bytes taken in one step. A block of 128 KiB takes four bytes at least, so a step makes 32 MiB at most."""


class CompressionType(IntEnum):
    """The number in the three type bits. 0 stands for ZLIB too: older clients set no type."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits that a message compressed so carries."""
        return int(SysFlag.COMPRESSED) | self << _TYPE_SHIFT

    @classmethod
    def of(cls, sys_flag: int) -> CompressionType:
        """Return the type that *sys_flag* names; raise ProtocolError for a number without a codec."""
        number = (sys_flag & COMPRESSION_TYPE_MASK) >> _TYPE_SHIFT
        if number == 0:
            return cls.ZLIB
        try:
            return cls(number)
        except ValueError as error:
            raise ProtocolError(f"unknown compression type: got {number}, wanted 0 to {max(cls)}") from error


def _module(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(f"this compression needs the package {name}: install mqcore[{extra}]") from error


def _decompress_zlib(data: bytes) -> bytes:
    decoder = zlib.decompressobj()
    body = decoder.decompress(data, BODY_SIZE_MAX)
    if not decoder.eof:
        raise ProtocolError(f"compressed body is cut short or grows beyond {BODY_SIZE_MAX} bytes")
    return body


def _compress_lz4(data: bytes, level: int) -> bytes:
    # The Java client reads no frames whose blocks lean on earlier ones. It has no levels for LZ4 either: they would
    # give away the speed that LZ4 is chosen for.
    return bytes(_module("lz4.frame", "lz4").compress(data, block_linked=False))


def _decompress_lz4(data: bytes) -> bytes:
    decoder = _module("lz4.frame", "lz4").LZ4FrameDecompressor()
    body = bytes(decoder.decompress(data, max_length=BODY_SIZE_MAX))
    if not decoder.eof:
        raise ProtocolError(f"compressed body is cut short or grows beyond {BODY_SIZE_MAX} bytes")
    return body


def _compress_zstd(data: bytes, level: int) -> bytes:
    return bytes(_module("zstandard", "zstd").ZstdCompressor(level=level).compress(data))


def _decompress_zstd(data: bytes) -> bytes:
    decoder = _module("zstandard", "zstd").ZstdDecompressor().decompressobj()
    body = bytearray()
    # There is no limit to ask for, so what one step can grow to is limited by what it is given.
    for at in range(0, len(data), _ZSTD_STEP_SIZE):
        body += decoder.decompress(data[at : at + _ZSTD_STEP_SIZE])
        if len(body) > BODY_SIZE_MAX:
            raise ProtocolError(f"compressed body grows beyond {BODY_SIZE_MAX} bytes")
        if decoder.eof:
            return bytes(body)
    raise ProtocolError("compressed body is cut short")


_COMPRESS: Final[dict[CompressionType, Callable[[bytes, int], bytes]]] = {
    CompressionType.ZLIB: zlib.compress,
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
}
_DECOMPRESS: Final[dict[CompressionType, Callable[[bytes], bytes]]] = {
    CompressionType.ZLIB: _decompress_zlib,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}


def check_codec(kind: CompressionType, level: int = COMPRESS_LEVEL_DEFAULT) -> None:
    """Raise ConfigError if messages cannot be compressed so: the package is not installed, or *level* is out of range.

    LZ4 has no levels here, and takes any.
    """
    if kind is CompressionType.LZ4:
        _module("lz4.frame", "lz4")
        return
    if kind is CompressionType.ZSTD:
        _module("zstandard", "zstd")
    level_max = LEVEL_MAX_ZSTD if kind is CompressionType.ZSTD else LEVEL_MAX_ZLIB
    if not 0 <= level <= level_max:
        raise ConfigError(f"compression level of {kind.name.lower()}: got {level}, wanted 0 to {level_max}")


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB, level: int = COMPRESS_LEVEL_DEFAULT) -> bytes:
    """Return *body* compressed; the sender then adds ``kind.sys_flag`` to the message's sysFlag.

    Raises ConfigError if the codec's package is not installed.
    """
    return _COMPRESS[kind](body, level)


def decompress(body: Buffer, sys_flag: int) -> bytes:
    """Return *body* as the application wrote it, following the bits of *sys_flag*; uncompressed bodies are copied.

    Raises ProtocolError if the bytes do not decompress, ConfigError if the codec's package is not installed.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return bytes(body)
    kind = CompressionType.of(sys_flag)
    try:
        return _DECOMPRESS[kind](bytes(body))
    except (ProtocolError, ConfigError):
        raise
    except Exception as error:  # three codecs, three error classes, two of them in packages that may be absent
        raise ProtocolError(f"body does not decompress as {kind.name}: {error}") from error
