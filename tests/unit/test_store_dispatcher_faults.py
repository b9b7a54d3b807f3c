"""The dispatcher killed at any moment, and on a disk that is full: what it leaves is gone on with."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from store_builder import GEOMETRY, StoreBuilder, memory_directory

from mqcore._fast.queues.dispatch import Dispatcher as FastDispatcher
from mqcore.errors import StoreError
from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store.geometry import StoreGeometry
from mqcore.store.paths import StorePaths
from mqcore.store.queues import dispatch as plain
from mqcore.store.queues.index_file import key_hash, query

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


def index_files(paths: StorePaths) -> list[bytes]:
    """In their order; their names are times."""
    return [path.read_bytes() for path in sorted(paths.index.iterdir())]


@pytest.fixture(scope="module")
def template() -> Iterator[StoreBuilder]:
    with memory_directory() as path:
        store = StoreBuilder(path / "store", LARGE)
        for number in range(6000):
            store.append(queue_id=number % 5, TAGS="T", KEYS=f"k{number}")
        yield store


# Other moments in each run; the plain dispatcher needs a second of CPU for each round.
ROUNDS = [
    pytest.param(make, number, id=f"{name}-{number}", marks=[pytest.mark.slow] if number >= everyday else [])
    for make, name, everyday in ((plain.Dispatcher, "python", 3), (FastDispatcher, "cython", 6))
    for number in range(12)
]


@pytest.mark.parametrize(("make", "_round"), ROUNDS)
def test_a_dispatcher_killed_at_random_is_gone_on_with(tmp_path, template, make, _round, chance):
    paths = StorePaths.at(tmp_path / "store")
    paths.make_directories()
    runs = list(template.runs())
    context = multiprocessing.get_context("fork")
    for _ in range(4):
        child = context.Process(target=dispatch_runs, args=(paths, LARGE, make, runs))
        child.start()
        # A time, not a condition, on purpose: any moment must do.
        time.sleep(chance.uniform(0.0, 0.03 if make is FastDispatcher else 0.4))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    dispatch_runs(paths, LARGE, make, runs)
    for queue_id in range(5):
        own = [record for record in template.records if record.queue_id == queue_id]
        assert queue_units(paths, queue_id) == [(r.physical_offset, r.total_size, 84) for r in own]
    indexed = [path.read_bytes() for path in paths.index.iterdir()]
    for number in chance.sample(range(6000), 60):
        key = key_hash(b"TopicA", b"k%d" % number)
        found = {offset for data in indexed for offset in query(data, LARGE.index, key, 0, 1 << 60, 64)}
        assert template.records[number].physical_offset in found


@dispatchers
def test_keys_that_could_not_be_put_are_put_when_they_can(tmp_path, make):
    """Units that were written meanwhile come once, and the index is what it would have been."""
    store = StoreBuilder(tmp_path / "store", LARGE)
    for number in range(200):
        store.append(queue_id=number % 5, TAGS="T", KEYS=f"k{number} other", UNIQ_KEY=f"u{number}")
    whole, broken = (StorePaths.at(tmp_path / name) for name in ("whole", "broken"))
    for paths in (whole, broken):
        paths.make_directories()
    ((offset, data),) = store.runs()
    dispatch_runs(whole, LARGE, make, [(offset, data)])
    broken.index.rmdir()
    broken.index.write_bytes(b"a file where a directory is wanted")
    dispatcher = make(broken, LARGE)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"cannot write .*index"):
            dispatcher.dispatch(data, offset)
    broken.index.unlink()
    broken.index.mkdir()
    assert dispatcher.dispatch(data, offset).consumed == len(data)
    dispatcher.close()
    for queue_id in range(5):
        assert queue_units(broken, queue_id) == queue_units(whole, queue_id)
    assert index_files(broken) == index_files(whole)
    assert len(index_files(broken)) == 200 * 3 // (GEOMETRY.index.entry_count - 1) + 1


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


@pytest.fixture(scope="module")
def long_log() -> Iterator[StoreBuilder]:
    """Enough messages of one queue for 400 KB of units."""
    geometry = StoreGeometry(
        commit_log_file_size=1 << 22, consume_queue_file_size=20 * 100_000, index_enabled=False, index=GEOMETRY.index
    )
    with memory_directory() as path:
        store = StoreBuilder(path / "store", geometry)
        for _ in range(20_000):
            store.append()
        yield store


def dispatch_each(dispatcher, store: StoreBuilder) -> None:
    for offset, data in store.runs():
        assert dispatcher.dispatch(data, offset).consumed == len(data)


def dispatch_until_full(paths: StorePaths, store: StoreBuilder, make: type) -> int:
    """Dispatch until the disk is full; return how many units were written."""
    dispatcher = make(paths, store.geometry)
    try:
        with pytest.raises(StoreError, match="No space left on device"):
            dispatch_each(dispatcher, store)
        return int(dispatcher.unit_count)
    finally:
        dispatcher.close()


def exit_after(work, *arguments) -> None:
    os._exit(0 if work(*arguments) > 0 else 1)


def dispatch_with_room_for_no_mapping(paths: StorePaths, store: StoreBuilder, make: type) -> int:
    """Dispatch while no file can be mapped, which is an error, and again when they can; return the count of units."""
    dispatcher = make(paths, store.geometry)
    offset, data = next(iter(store.runs()))
    mapped = psutil.Process().memory_info().vms
    resource.setrlimit(
        resource.RLIMIT_AS, (mapped + store.geometry.consume_queue_file_size // 2, resource.RLIM_INFINITY)
    )
    try:
        with pytest.raises(StoreError, match="Cannot allocate memory"):
            dispatcher.dispatch(data, offset)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    dispatch_each(dispatcher, store)
    dispatcher.close()
    return int(dispatcher.unit_count)


@dispatchers
def test_a_first_file_that_could_not_be_mapped_is_gone_on_with_at_its_offset(tmp_path, make):
    store = StoreBuilder(
        tmp_path / "store",
        StoreGeometry(commit_log_file_size=1 << 16, consume_queue_file_size=20 * 1_000_000, index_enabled=False),
    )
    for number in range(3):
        store.append(queue_offset=7 + number)
    child = multiprocessing.get_context("fork").Process(
        target=exit_after, args=(dispatch_with_room_for_no_mapping, store.paths, store, make)
    )
    child.start()
    child.join()
    assert child.exitcode == 0
    with (store.paths.queue("TopicA", 0) / "0".zfill(20)).open("rb") as file:
        units = list(CONSUME_QUEUE_UNIT.struct.iter_unpack(file.read(20 * 10)))
    assert {unit[1] for unit in units[:7]} == {PRE_FILL_SIZE}
    assert [unit[:2] for unit in units[7:]] == [(one.physical_offset, one.total_size) for one in store.records]


@pytest.mark.root
@dispatchers
def test_a_full_disk_is_an_error_that_the_process_survives(small_disk, long_log, make):
    """Units go to blocks that were reserved; a store into a hole would end the process with SIGBUS."""
    paths = StorePaths.at(small_disk / "store")
    paths.make_directories()
    (small_disk / "ballast").write_bytes(bytes(700_000))
    child = multiprocessing.get_context("fork").Process(
        target=exit_after, args=(dispatch_until_full, paths, long_log, make)
    )
    child.start()
    child.join()
    assert child.exitcode == 0
    (file,) = paths.queue("TopicA", 0).iterdir()
    assert file.stat().st_size == long_log.geometry.consume_queue_file_size
    assert list(small_disk.rglob("*.making")) == []


@pytest.mark.root
@dispatchers
def test_a_disk_that_has_room_again_is_gone_on_with(small_disk, long_log, make):
    paths = StorePaths.at(small_disk / "store")
    paths.make_directories()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(700_000))
    dispatcher = make(paths, long_log.geometry)
    with pytest.raises(StoreError, match="No space left on device"):
        dispatch_each(dispatcher, long_log)
    assert 0 < dispatcher.unit_count < 20_000
    ballast.unlink()
    dispatch_each(dispatcher, long_log)
    assert (dispatcher.unit_count, dispatcher.order_error_count) == (20_000, 0)
    dispatcher.close()
    assert len(queue_units(paths, 0)) == 20_000


@pytest.mark.root
@dispatchers
def test_no_room_for_a_new_file_leaves_nothing_behind(small_disk, long_log, make):
    paths = StorePaths.at(small_disk / "store")
    paths.make_directories()
    status = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(status.f_bavail * status.f_frsize))
    dispatcher = make(paths, long_log.geometry)
    offset, data = next(iter(long_log.runs()))
    with pytest.raises(StoreError, match="No space left on device"):
        dispatcher.dispatch(data, offset)
    dispatcher.close()
    assert [path for path in paths.consume_queue.rglob("*") if path.is_file()] == []
