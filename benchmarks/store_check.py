"""What it costs to look a store through: the check from disk and from memory, what is shown, and an export.

    python -m benchmarks.store_check [--gigabytes N] [--size BYTES] [DIRECTORY]

Fills a commit log of files of 1 GiB with messages of one key, has recovery build consume queues and index, and prints
for each step bytes of the log a second and the processor time per gigabyte of this process, the kernel's part of it
apart. *read* reads the same files and looks at nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.backup import GB, STEP_SIZE, Log, timed
from mqcore.store.abort_file import AbortFile
from mqcore.store.checking.checker import CheckOptions, check_store
from mqcore.store.checking.contents import find_contents
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.columns import Selection
from mqcore.store.exporting import read_messages
from mqcore.store.geometry import StoreGeometry
from mqcore.store.paths import StorePaths
from mqcore.store.reader import StoreReader
from mqcore.store.recovery import Recovery

COLUMNS = ("topic", "queue_id", "queue_offset", "properties", "body")


def make_store(root: Path, size: int, body_size: int) -> int:
    """Make a store that was stopped in order; where its log ends."""
    log = Log(root, body_size)
    log.grow(size)
    Checkpoint().write(root / "checkpoint")
    end = Recovery(StorePaths.at(root), StoreGeometry()).run().commit_log_end
    AbortFile(root / "abort").remove()
    return end


def cool(root: Path) -> None:
    """Let the files leave memory."""
    for path in root.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(root: Path) -> None:
    """Read the log's files into memory."""
    buffer = memoryview(bytearray(STEP_SIZE))
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def check(root: Path, jobs: int) -> None:
    with StoreReader(root) as reader:
        result = check_store(reader, CheckOptions(jobs=jobs))
    assert not result.damage.count, result.damage.kept[:3]
    assert result.unit_count == result.log.record_count


def export(root: Path) -> None:
    with StoreReader(root) as reader:
        count = sum(batch.row_count for batch in read_messages(reader, Selection(), COLUMNS))
    assert count


def show(root: Path) -> None:
    with StoreReader(root) as reader:
        find_contents(reader)


def measure(root: Path, gigabytes: float, body_size: int) -> None:
    end = make_store(root, int(gigabytes * GB), body_size)
    threads = len(os.sched_getaffinity(0))
    steps: list[tuple[str, bool, Callable[[], object]]] = [
        ("read", True, partial(read, root)),
        (f"check, {threads} threads", True, partial(check, root, threads)),
        ("read", False, partial(read, root)),
        (f"warm check, {threads} threads", False, partial(check, root, threads)),
        ("warm check, 1 thread", False, partial(check, root, 1)),
        ("warm show", False, partial(show, root)),
        ("warm export to columns", False, partial(export, root)),
    ]
    for what, is_cold, work in steps:
        if is_cold:
            cool(root)
        with timed(what, end):
            work()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("directory", nargs="?", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as home:
        measure(Path(home) / "store", arguments.gigabytes, arguments.size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
