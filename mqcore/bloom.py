"""The bloom filter whose bits a consume queue's ext units have: which groups may want the message.

Source: RocketMQ filter/util/BloomFilter.java; Guava's Hashing.murmur3_128.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

MASK: Final = 2**64 - 1
C1: Final = 0x87C37B91114253D5
C2: Final = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """*hash_count* bits of *bit_count* stand for a group; another group's bits are all among set ones by chance."""

    hash_count: int
    bit_count: int

    @classmethod
    def sized(cls, error_rate: int, expected: int) -> BloomFilter:
        """For *expected* groups and an *error_rate* in percent; the bits fill whole bytes."""
        rate = error_rate / 100.0
        hash_count = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(expected * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return cls(hash_count, 8 * math.ceil(bits / 8))

    def bits_of(self, key: str) -> tuple[int, ...]:
        """Return the bits of *key*; one may be there twice."""
        hashed = murmur3_low(key.encode("utf-8", "replace"))
        first, second = _signed(hashed), _signed(hashed >> 32)
        bits = []
        for number in range(1, self.hash_count + 1):
            combined = _signed(first + number * second)
            bits.append((combined if combined >= 0 else ~combined) % self.bit_count)
        return tuple(bits)


def _signed(value: int) -> int:
    """Return the low 32 bits as Java's int."""
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & MASK


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33


def murmur3_low(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 with seed 0."""
    high = low = 0
    whole = len(data) & ~15
    for first, second in struct.iter_unpack("<QQ", data[:whole]):
        low ^= _rotated(first * C1 & MASK, 31) * C2 & MASK
        low = ((_rotated(low, 27) + high) * 5 + 0x52DCE729) & MASK
        high ^= _rotated(second * C2 & MASK, 33) * C1 & MASK
        high = ((_rotated(high, 31) + low) * 5 + 0x38495AB5) & MASK
    first, second = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    high ^= _rotated(second * C2 & MASK, 33) * C1 & MASK
    low ^= _rotated(first * C1 & MASK, 31) * C2 & MASK
    low ^= len(data)
    high ^= len(data)
    low = (low + high) & MASK
    high = (high + low) & MASK
    return (_final(low) + _final(high)) & MASK
