"""Dropping queues from the broker process: births are on disk, and nothing of the log stays mapped for them."""

from __future__ import annotations

from pathlib import Path

from fast_rig import shared_segment
from store_builder import GEOMETRY, StoreBuilder

from mqcore.broker.segment.queue_drops import QueueDrops
from mqcore.config import load
from mqcore.store.incarnations import Incarnations


async def test_a_drop_keeps_no_file_of_the_log_mapped(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path)
    store.append_many(100)
    given = {
        "bindAddress": "127.0.0.1",
        "storePathRootDir": str(tmp_path),
        "mappedFileSizeCommitLog": str(GEOMETRY.commit_log_file_size),
    }
    with shared_segment() as segment:
        row = segment.queue_row(b"TopicA", 0, True)
        segment.fill_queue(row, 0, 0, 50, store.end)
        for name in ("wrote_offset", "dispatched_offset"):
            segment.set(name, store.end)
        # Stands for the reput worker, which clears at once.
        drops = QueueDrops(
            load(overrides=given, environment={}), segment, Incarnations(store.paths.incarnations),
            lambda: segment.set_queue_word(row, "max_born", store.end),
        )  # fmt: skip
        await drops.drop([row])
        assert segment.queue_births(row) == (store.end, store.end)
    assert Incarnations.read(store.paths.incarnations).born("TopicA", 0) == store.end
    assert str(store.paths.commit_log) not in Path("/proc/self/maps").read_text()
