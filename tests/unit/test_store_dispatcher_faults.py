"""The dispatcher killed at any moment, and on a disk that is full: what it leaves is gone on with."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_builder import GEOMETRY, StoreBuilder, memory_directory

from mqcore._fast.dispatch import Dispatcher as FastDispatcher
from mqcore.errors import StoreError
from mqcore.layout import CONSUME_QUEUE_UNIT
from mqcore.store import dispatcher as plain
from mqcore.store.geometry import StoreGeometry
from mqcore.store.index_file import key_hash, query
from mqcore.store.paths import StorePaths

pytestmark = pytest.mark.fault

LARGE = StoreGeometry(commit_log_file_size=1 << 20, consume_queue_file_size=20 * 500, index=GEOMETRY.index)
dispatchers = pytest.mark.parametrize("make", [plain.Dispatcher, FastDispatcher], ids=["python", "cython"])


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as path:
        yield path


def dispatch_runs(paths: StorePaths, geometry: StoreGeometry, make: type, runs: list[tuple[int, bytes]]) -> None:
    dispatcher = make(paths, geometry)
    for offset, data in runs:
        dispatcher.dispatch(data, offset)
    dispatcher.close()


def queue_units(paths: StorePaths, queue_id: int) -> list[tuple[int, ...]]:
    files = sorted(paths.queue("TopicA", queue_id).iterdir())
    units = [unit for path in files for unit in CONSUME_QUEUE_UNIT.struct.iter_unpack(path.read_bytes())]
    return [unit for unit in units if unit[1] > 0]


@pytest.fixture(scope="module")
def template() -> Iterator[StoreBuilder]:
    with memory_directory() as path:
        store = StoreBuilder(path / "store", LARGE)
        for number in range(6000):
            store.append(queue_id=number % 5, TAGS="T", KEYS=f"k{number}")
        yield store


@dispatchers
@pytest.mark.parametrize("seed", range(12))
def test_a_dispatcher_killed_at_random_is_gone_on_with(tmp_path, template, make, seed):
    generator = random.Random(seed)
    paths = StorePaths.at(tmp_path / "store")
    paths.make_directories()
    runs = list(template.runs())
    context = multiprocessing.get_context("fork")
    for _ in range(4):
        child = context.Process(target=dispatch_runs, args=(paths, LARGE, make, runs))
        child.start()
        # A time, not a condition, on purpose: any moment must do.
        time.sleep(generator.uniform(0.0, 0.03 if make is FastDispatcher else 0.4))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    dispatch_runs(paths, LARGE, make, runs)
    for queue_id in range(5):
        own = [record for record in template.records if record.queue_id == queue_id]
        assert queue_units(paths, queue_id) == [(r.physical_offset, r.total_size, 84) for r in own]
    indexed = [path.read_bytes() for path in paths.index.iterdir()]
    for number in generator.sample(range(6000), 60):
        key = key_hash(b"TopicA", b"k%d" % number)
        found = {offset for data in indexed for offset in query(data, LARGE.index, key, 0, 1 << 60, 64)}
        assert template.records[number].physical_offset in found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.root
@dispatchers
def test_a_full_disk_is_an_error_and_not_the_end_and_goes_on_when_there_is_room(small_disk, tmp_path, make):
    geometry = StoreGeometry(
        commit_log_file_size=1 << 20, consume_queue_file_size=20 * 50_000, index_enabled=False, index=GEOMETRY.index
    )
    store = StoreBuilder(tmp_path / "store", geometry)
    for number in range(1200):
        store.append(queue_id=number % 12)
    paths = StorePaths.at(small_disk / "store")
    paths.make_directories()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    dispatcher = make(paths, geometry)
    ((offset, data),) = store.runs()
    for _ in range(2):
        with pytest.raises(StoreError, match="No space left on device"):
            dispatcher.dispatch(data, offset)
    dispatcher.forget(b"TopicA")
    ballast.unlink()
    for path in small_disk.rglob("*.making"):
        pytest.fail(f"left behind: {path}")
    # Twelve queues with 128 KiB reserved each do not fit either: make room by taking the queues one by one.
    done = dispatcher.record_count
    dispatcher.close()
    assert 0 < done < 1200
    for queue_id in range(12):
        files = list(paths.queue("TopicA", queue_id).iterdir()) if paths.queue("TopicA", queue_id).exists() else []
        assert [path.stat().st_size for path in files] in ([], [geometry.consume_queue_file_size])


@pytest.mark.root
def test_both_kinds_of_store_files_are_reserved_before_they_are_written(small_disk):
    """Without the reservation a store into the mapping would end the process with SIGBUS."""
    paths = StorePaths.at(small_disk / "store")
    paths.make_directories()
    (small_disk / "ballast").write_bytes(bytes(1 << 19))
    geometry = StoreGeometry(commit_log_file_size=1 << 20, consume_queue_file_size=20 * 100_000, index=GEOMETRY.index)
    with memory_directory() as directory:
        store = StoreBuilder(directory / "store", geometry)
        for _ in range(8000):
            store.append(KEYS="")
        runs = list(store.runs())
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_expect_full, args=(paths, geometry, runs))
    child.start()
    child.join()
    assert child.exitcode == 0


def _expect_full(paths: StorePaths, geometry: StoreGeometry, runs: list[tuple[int, bytes]]) -> None:
    dispatcher = FastDispatcher(paths, geometry)
    written = 0
    try:
        for offset, data in runs:
            dispatcher.dispatch(data, offset)
    except StoreError as error:
        written = "No space" in str(error)
    os._exit(0 if written or dispatcher.unit_count == 8000 else 1)
