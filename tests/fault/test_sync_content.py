"""What sync_content says is durable survives a disk that goes away under it, at any moment."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import threading
import time
from pathlib import Path

import pytest

from mqcore.files import sync_content
from tests.fault import ext4
from tests.fault.ext4 import Disk
from tests.fault.rig import DEADLINE_S, seeded, seeds

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(ext4.missing_means()), reason=ext4.missing_means()),
]

ROUNDS = 40
"""Enough that a sync alone loses something in one of them nearly every time."""

DISK_SIZE = 64 << 20
PAGES = 8192
PAGE_SIZE = 4096
WORD = b"written!"
EIO = 5


def sync_until_it_fails(descriptor: int) -> tuple[int, int]:
    """Write and sync a page of a file of PAGES after another, behind the last the first again.

    Return how many syncs were good, and the errno of the one that was not.
    """
    with mmap.mmap(descriptor, PAGES * PAGE_SIZE) as mapping:
        for done in itertools.count():
            place = done % PAGES * PAGE_SIZE
            mapping[place : place + len(WORD)] = WORD
            try:
                sync_content(descriptor)
            except OSError as error:
                return done, error.errno or 0
    raise AssertionError("unreachable")


def cut_while_syncing(directory: Path, rng: random.Random) -> None:
    with Disk(directory, DISK_SIZE) as disk:
        path = directory / "file"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(descriptor, 0, PAGES * PAGE_SIZE)
        os.fsync(descriptor)
        results: list[tuple[int, int]] = []
        thread = threading.Thread(target=lambda: results.append(sync_until_it_fails(descriptor)))
        thread.start()
        time.sleep(rng.uniform(0.005, 0.05))
        disk.cut()
        thread.join(DEADLINE_S)
        os.close(descriptor)
        ((syncs, error),) = results
        assert error == EIO, f"after {syncs} syncs"
        durable = min(syncs, PAGES)
        disk.remount()
        data = path.read_bytes()
    lost = [page for page in range(durable) if data[page * PAGE_SIZE : page * PAGE_SIZE + len(WORD)] != WORD]
    assert not lost, f"{durable} pages were said to be durable, these are gone: {lost}"


def test_what_was_synced_is_there_after_the_disk_went_away(tmp_path: Path) -> None:
    rng = seeded(seeds(1)[0])
    for number in range(ROUNDS):
        cut_while_syncing(tmp_path / str(number), rng)
