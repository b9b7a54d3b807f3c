"""What a new consume queue costs: no wait for the disk, a page of memory, a block of disk."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import without_sync
from store_builder import StoreBuilder

from mqcore._fast.queues.dispatch import Dispatcher as FastDispatcher
from mqcore.errors import StoreError
from mqcore.store.geometry import StoreGeometry
from mqcore.store.queues import dispatch as plain
from tests.page_cache import keeps_pages, resident_share

GEOMETRY = StoreGeometry(commit_log_file_size=1 << 20, consume_queue_file_size=300_000 * 20)
PAGE_SIZE = 4096
dispatchers = pytest.mark.parametrize("make", [plain.Dispatcher, FastDispatcher], ids=["python", "cython"])


def dispatch_where_syncs_fail(store: StoreBuilder, make: type) -> None:
    without_sync.refuse_syncs()
    dispatcher = make(store.paths, store.geometry)
    for start, data in store.runs():
        dispatcher.dispatch(data, start)
    try:
        dispatcher.flush()
    except (StoreError, OSError):
        os._exit(dispatcher.unit_count)
    os._exit(99)


@pytest.mark.skipif(not without_sync.is_possible(), reason="system calls of this machine are not known")
@dispatchers
def test_the_first_units_of_new_queues_wait_for_no_disk(tmp_path: Path, make: type) -> None:
    store = StoreBuilder(tmp_path / "store", GEOMETRY)
    for queue_id in range(8):
        store.append("New", queue_id)
    child = multiprocessing.get_context("fork").Process(target=dispatch_where_syncs_fail, args=(store, make))
    child.start()
    child.join()
    assert child.exitcode == 8


@dispatchers
def test_a_new_queue_holds_a_page_of_memory_and_a_block_of_disk(tmp_path: Path, make: type) -> None:
    if keeps_pages(tmp_path):
        pytest.skip("a file system in memory")
    store = StoreBuilder(tmp_path / "store", GEOMETRY)
    for _ in range(3):
        store.append("New")
    dispatcher = make(store.paths, store.geometry)
    for start, data in store.runs():
        dispatcher.dispatch(data, start)
    (file,) = store.paths.queue("New", 0).iterdir()
    assert resident_share(file) * GEOMETRY.consume_queue_file_size < 4 * PAGE_SIZE
    assert file.stat().st_blocks * 512 <= 2 * PAGE_SIZE
    dispatcher.close()


@dispatchers
def test_a_load_reads_no_more_than_what_is_written(tmp_path: Path, make: type) -> None:
    if keeps_pages(tmp_path):
        pytest.skip("a file system in memory")
    store = StoreBuilder(tmp_path / "store", GEOMETRY)
    for _ in range(3):
        store.append("New")
    dispatcher = make(store.paths, store.geometry)
    for start, data in store.runs():
        dispatcher.dispatch(data, start)
    dispatcher.flush()
    dispatcher.close()
    (file,) = store.paths.queue("New", 0).iterdir()
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    again = make(store.paths, store.geometry)
    assert again.queue_end(b"New", 0) == (3, store.end)
    assert resident_share(file) * GEOMETRY.consume_queue_file_size <= 16 * PAGE_SIZE
    again.close()
