"""HMAC-SHA1 of the kernels is hashlib's, by either way, for every length around a block and however it is cut."""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Iterator

import pytest

from tests.rows import walked

sha1 = pytest.importorskip("mqcore._fast.base.sha1")


@pytest.fixture(params=[True, False], ids=["plain", "instructions"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    used = sha1.use_plain_steps(request.param)
    if not request.param and used == "plain steps":
        pytest.skip("this processor has no instructions for SHA-1")
    yield used
    sha1.use_plain_steps(False)


def wanted(secret: bytes, data: bytes) -> bytes:
    return hmac.digest(secret, data, hashlib.sha1)


@walked("size", [*range(200), 1000, 65536])
def test_every_length_gives_hashlibs_sum(way: str, size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert sha1.hmac(b"a secret", [data]) == wanted(b"a secret", data)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_keys_of_every_length(way: str, size: int) -> None:
    secret = bytes(range(256))[:size]
    assert sha1.hmac(secret, [b"data"]) == wanted(secret, b"data")


def test_it_does_not_matter_where_it_is_cut(way: str, chance: random.Random) -> None:
    for _ in range(300):
        parts = [chance.randbytes(chance.choice([0, 1, 5, 20, 63, 64, 65, 130])) for _ in range(chance.randrange(20))]
        assert sha1.hmac(b"key", parts) == wanted(b"key", b"".join(parts))
