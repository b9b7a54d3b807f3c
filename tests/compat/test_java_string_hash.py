"""Our string hash against a running Java, malformed UTF-8 included."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from mqcore._fast.log import record as fast
from mqcore.store.log import record as plain

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on this machine"),
]

# Bytes at every edge of what UTF-8 allows in first, second and later place.
EDGES = (0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1,
         0xF4, 0xF5, 0xFF)  # fmt: skip


def texts(chance: random.Random) -> list[bytes]:
    short = [bytes(parts) for size in range(1, 4) for parts in itertools.product(EDGES, repeat=size)]
    long = [bytes(chance.choices(EDGES, k=chance.randint(4, 12))) for _ in range(30_000)]
    return [*short, *long, "müllerstraße".encode(), "標籤".encode(), "😀".encode()]


def test_both_twins_hash_as_java_does(chance: random.Random):
    inputs = texts(chance)
    source = Path(__file__).with_name("StringHashes.java")
    answer = subprocess.run(
        ["java", str(source)], input="\n".join(map(bytes.hex, inputs)), capture_output=True, text=True, check=True
    )
    wanted = list(map(int, answer.stdout.split()))
    assert len(wanted) == len(inputs)
    for twin in (plain, fast):
        wrong = [(raw.hex(), want) for raw, want in zip(inputs, wanted, strict=True) if twin.string_hash(raw) != want]
        assert wrong == []
