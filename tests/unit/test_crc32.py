"""Every CRC-32 here is zlib's, bit for bit."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore._fast.base import crc32 as fast
from mqcore.store import codec
from mqcore.store import crc32 as plain

IMPLEMENTATIONS = [
    pytest.param(plain.checksum, id="python"),
    pytest.param(fast.checksum, id="cython"),
    pytest.param(fast.checksum_plain, id="cython-slicing"),
]
NOISE_SIZE = 5000


@pytest.fixture
def noise(chance: random.Random) -> bytes:
    return chance.randbytes(NOISE_SIZE)


@pytest.mark.parametrize("checksum", IMPLEMENTATIONS)
def test_known_answers(checksum):
    assert checksum(b"") == 0
    assert checksum(b"hello") == 0x3610A686
    assert checksum(b"123456789") == 0xCBF43926


@pytest.mark.parametrize("checksum", IMPLEMENTATIONS)
def test_every_length_up_to_5000_bytes_gives_what_zlib_gives(checksum, noise):
    wrong = [size for size in range(NOISE_SIZE + 1) if checksum(noise[:size]) != zlib.crc32(noise[:size])]
    assert wrong == []


@pytest.mark.parametrize("checksum", IMPLEMENTATIONS)
def test_every_alignment_gives_what_zlib_gives(checksum, noise):
    view = memoryview(noise)
    for start in range(64):
        for size in (63, 64, 65, 255, 1024, 1039):
            assert checksum(view[start : start + size]) == zlib.crc32(view[start : start + size])


@pytest.mark.parametrize("checksum", IMPLEMENTATIONS)
def test_a_buffer_large_enough_to_release_the_gil_gives_what_zlib_gives(checksum, noise):
    data = noise * 500
    assert checksum(data) == zlib.crc32(data)


@pytest.mark.parametrize("checksum", IMPLEMENTATIONS)
@given(data=st.binary(max_size=600))
def test_any_bytes_give_what_zlib_gives(checksum, data):
    assert checksum(bytearray(data)) == zlib.crc32(data)


def test_the_implementation_in_use_has_a_name():
    assert fast.implementation() in ("pclmul", "slicing-by-8")
    assert codec.crc32_implementation() == ("zlib" if codec.PURE else fast.implementation())
