"""New consume queues and a power cut: what was flushed is there, names included; what was not is whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.config import load
from mqcore.files import SYNCED_ONE_BY_ONE_MAX
from mqcore.layout import CONSUME_QUEUE_UNIT
from mqcore.store.codec import Dispatcher
from mqcore.store.queues.consume_queue import list_queues
from mqcore.workers.store_keeper import StoreKeeper
from tests.fault import ext4
from tests.fault.ext4 import Disk
from tests.unit.fast_rig import shared_segment
from tests.unit.store_builder import GEOMETRY, StoreBuilder

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(ext4.missing_means()), reason=ext4.missing_means()),
]

DISK_SIZE = 64 << 20
FILE_SIZE = GEOMETRY.consume_queue_file_size


def write_queues(root: Path, count: int, prefix: str) -> StoreBuilder:
    """Write a store with a message in each of *count* queues, and dispatch it without a sync."""
    store = StoreBuilder(root)
    for number in range(count):
        store.append(f"{prefix}{number}", 3)
    dispatcher = Dispatcher(store.paths, GEOMETRY)
    for start, data in store.runs():
        dispatcher.dispatch(data, start)
    dispatcher.close()
    return store


def keep(store: StoreBuilder) -> None:
    """Flush as the flush worker does."""
    settings = load(
        overrides={
            "bindAddress": "127.0.0.1", "storePathRootDir": str(store.paths.root),
            "mappedFileSizeCommitLog": str(GEOMETRY.commit_log_file_size),
            "mappedFileSizeConsumeQueue": str(FILE_SIZE),
        },
        environment={},
    )  # fmt: skip
    with shared_segment() as segment:
        for (topic, queue_id), count in store.next_offsets.items():
            segment.set_queue_word(segment.queue_row(topic.encode(), queue_id, True), "max_offset", count)
        StoreKeeper(settings, segment).flush_all()
        assert segment.unflushed_queues(0) == []


@pytest.mark.parametrize("count", [3, SYNCED_ONE_BY_ONE_MAX + 1])
def test_flushed_queues_outlive_a_power_cut_by_name_and_content(tmp_path: Path, count: int) -> None:
    with Disk(tmp_path / "disk", DISK_SIZE) as disk:
        store = write_queues(disk.path / "store", count, "Flushed")
        keep(store)
        disk.cut()
        disk.remount()
        for record in store.records:
            file = store.paths.queue(record.topic.decode(), 3) / "0".zfill(20)
            unit = CONSUME_QUEUE_UNIT.struct.unpack_from(file.read_bytes())
            assert unit[:2] == (record.physical_offset, record.total_size)


def test_what_a_power_cut_leaves_of_new_queues_is_a_store_that_starts(tmp_path: Path) -> None:
    with Disk(tmp_path / "disk", DISK_SIZE) as disk:
        store = write_queues(disk.path / "store", 3, "Flushed")
        keep(store)
        write_queues(disk.path / "store", 5, "Lost")
        disk.cut()
        disk.remount()
        queues = list(list_queues(store.paths, FILE_SIZE))
        assert {queue.topic for queue in queues} >= {"Flushed0", "Flushed1", "Flushed2"}
        for queue in queues:
            queue.files.load()  # refuses a file of another length
