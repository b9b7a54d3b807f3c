"""The three threads of the flush worker, one turn at a time: what is durable, what is ready ahead, what is deleted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fast_rig import shared_segment
from store_builder import GEOMETRY, StoreBuilder

from mqcore import layout
from mqcore._fast.log.append import CommitLogWriter
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import Settings, load
from mqcore.files import sync_content
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.codec import Dispatcher
from mqcore.store.disk import DiskVerdict
from mqcore.store.geometry import StoreGeometry
from mqcore.store.paths import file_name
from mqcore.store.queues.consume_queue import ConsumeQueue
from mqcore.store.retention import clean_consume_queues
from mqcore.workers import file_keeper, store_keeper
from mqcore.workers.commit_log_flusher import CommitLogFlusher
from mqcore.workers.file_keeper import FileKeeper
from mqcore.workers.handover import Handover, Peer
from mqcore.workers.store_keeper import StoreKeeper

STORE_FLAG = layout.constants("StoreFlag")
KIND = layout.constants("WorkerKind")
FILE_SIZE = GEOMETRY.commit_log_file_size
UNITS = GEOMETRY.consume_queue_file_size // layout.CONSUME_QUEUE_UNIT.size
FLUSH_ROW, SEND_ROW, REPUT_ROW = 1, 2, 3
PAGE = 4096


@dataclass(slots=True)
class Rig:
    """A store that a broker has written, its boards, and the settings of its flush worker."""

    root: Path
    store: StoreBuilder
    segment: SharedSegment
    wakes: dict[str, int]

    def settings(self, **overrides: str) -> Settings:
        given = {
            "bindAddress": "127.0.0.1", "storePathRootDir": str(self.root), "mappedFileSizeCommitLog": str(FILE_SIZE),
            "mappedFileSizeConsumeQueue": str(GEOMETRY.consume_queue_file_size),
            "maxHashSlotNum": str(GEOMETRY.index.slot_count), "maxIndexNum": str(GEOMETRY.index.entry_count),
        }  # fmt: skip
        return load(overrides=given | overrides, environment={})

    def flusher(self, **overrides: str) -> CommitLogFlusher:
        handover = Handover(
            "flush", 0, FLUSH_ROW, os.getpid(), self.segment.fd, self.wakes["flush"], -1, "",
            senders=[Peer(SEND_ROW, self.wakes["send"])], reput=Peer(REPUT_ROW, self.wakes["reput"]),
        )  # fmt: skip
        return CommitLogFlusher(self.settings(**overrides), self.segment, handover)

    def publish(self) -> None:
        """Put the end of the log onto the board, as the appends would have."""
        self.segment.set("wrote_offset", self.store.end)
        self.segment.set("wrote_timestamp", self.store.records[-1].store_timestamp)

    def dispatch(self, geometry: StoreGeometry = GEOMETRY) -> None:
        """Write the consume queues and their bounds, as the reput worker would have."""
        dispatcher = Dispatcher(self.store.paths, geometry)
        for start, data in self.store.runs():
            dispatcher.dispatch(data, start)
        dispatcher.close()
        for (topic, queue_id), count in self.store.next_offsets.items():
            row = self.segment.queue_row(topic.encode(), queue_id, True)
            self.segment.set_queue_word(row, "max_offset", count)
        self.segment.set("dispatched_timestamp", self.store.records[-1].store_timestamp)

    def flush(self) -> None:
        """Have on disk what is written, as the commit log flusher would have."""
        self.segment.set_flushed(self.store.end)

    def word(self, name: str, queue_id: int = 0) -> int:
        return self.segment.queue_word(self.segment.queue_row(b"TopicA", queue_id), name)

    def log_files(self) -> list[str]:
        return sorted(path.name for path in self.store.paths.commit_log.iterdir())

    def was_woken(self, name: str) -> bool:
        try:
            return os.eventfd_read(self.wakes[name]) > 0
        except BlockingIOError:
            return False


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    wakes = {name: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for name in ("flush", "send", "reput")}
    with shared_segment() as segment:
        yield Rig(tmp_path, StoreBuilder(tmp_path), segment, wakes)
    for wake in wakes.values():
        os.close(wake)


# Durability ------------------------------------------------------------------------------------------------------


def test_a_queue_in_a_cradle_is_not_called_durable_and_the_checkpoint_waits_for_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_keeper, "FIRST_FILE_DEADLINE_S", 0.01)
    rig.store.append_many(4)
    rig.publish()
    rig.dispatch()
    row = rig.segment.queue_row(b"TopicA", 1)
    rig.segment.set_queue_word(row, "cradle", 1 << 16 | 1)
    keeper = StoreKeeper(rig.settings(), rig.segment)
    keeper.flush_all()
    assert (rig.word("flushed_units", 0), rig.word("flushed_units", 1)) == (2, 0)
    assert Checkpoint.read(rig.store.paths.checkpoint).logics_timestamp == 0
    rig.segment.set_queue_word(row, "cradle", 0)
    keeper.flush_all()
    assert rig.word("flushed_units", 1) == 2
    assert Checkpoint.read(rig.store.paths.checkpoint).logics_timestamp == rig.store.records[-1].store_timestamp


def test_a_group_is_flushed_up_to_the_end_over_several_files(rig: Rig) -> None:
    rig.store.append_many(70)
    rig.publish()
    assert rig.store.end > 2 * FILE_SIZE
    rig.flusher().follow_groups()
    assert rig.segment.get("flushed_offset") == rig.store.end
    assert rig.segment.get("flushed_timestamp") == rig.store.records[-1].store_timestamp
    assert rig.segment.worker_word(FLUSH_ROW, "units") == 1


@pytest.mark.parametrize(("parked", "sleeping", "is_woken"), [(1, 1, True), (1, 0, False), (0, 1, False)])
def test_who_sleeps_over_answers_is_woken_behind_a_flush(rig: Rig, parked: int, sleeping: int, is_woken: bool) -> None:
    rig.store.append()
    rig.publish()
    rig.segment.set_worker_word(SEND_ROW, "parked", parked)
    rig.segment.set_worker_word(SEND_ROW, "sleeping", sleeping)
    rig.segment.set_worker_word(REPUT_ROW, "sleeping", sleeping)
    rig.flusher().follow_groups()
    assert rig.was_woken("send") == is_woken
    assert rig.was_woken("reput") == bool(sleeping)


@pytest.mark.parametrize(("least_pages", "is_flushed"), [("1", True), ("3", False)])
def test_the_timed_rules_wait_for_enough_pages(rig: Rig, least_pages: str, is_flushed: bool) -> None:
    rig.store.append_many(70)
    rig.publish()
    pages = rig.store.end // PAGE
    assert pages == 2
    timed = {"flushIntervalCommitLog": "1", "flushCommitLogThoroughInterval": "3600000"}
    rig.flusher(flushCommitLogLeastPages=least_pages, **timed).follow_time()
    assert rig.segment.get("flushed_offset") == (rig.store.end if is_flushed else 0)


def test_a_thorough_flush_takes_any_number_of_pages(rig: Rig) -> None:
    rig.store.append()
    rig.publish()
    rules = {"flushIntervalCommitLog": "1", "flushCommitLogThoroughInterval": "0", "flushCommitLogLeastPages": "1000"}
    rig.flusher(**rules).follow_time()
    assert rig.segment.get("flushed_offset") == rig.store.end


def test_a_failed_sync_is_final(rig: Rig) -> None:
    rig.store.append_many(70)
    rig.publish()
    lost = rig.store.log_file(FILE_SIZE)
    kept = lost.read_bytes()
    lost.unlink()
    flusher = rig.flusher()
    flusher.follow_groups()
    # What was synced before is durable, nothing behind it is, and no later success changes that.
    assert rig.segment.get("flushed_offset") == FILE_SIZE
    assert rig.segment.failure() == (2, KIND["FLUSH"], FILE_SIZE)
    assert rig.segment.get("store_flags") == STORE_FLAG["SYNC_FAILED"] | STORE_FLAG["NOT_WRITABLE"]
    assert flusher.has_failed
    lost.write_bytes(kept)
    flusher.flush_all()
    assert rig.segment.get("flushed_offset") == FILE_SIZE


def test_the_timed_flush_goes_by_rules_that_change(rig: Rig) -> None:
    rig.store.append_many(70)
    rig.publish()
    slow = {"flushIntervalCommitLog": "1", "flushCommitLogThoroughInterval": "3600000"}
    flusher = rig.flusher(flushCommitLogLeastPages="1000", **slow)
    flusher.follow_time()
    assert rig.segment.get("flushed_offset") == 0
    flusher.use(rig.settings(flushCommitLogLeastPages="1", **slow))
    flusher.follow_time()
    assert rig.segment.get("flushed_offset") == rig.store.end


@pytest.mark.parametrize("is_timed", [True, False])
def test_without_timed_rules_who_writes_is_asked_to_wake_it(
    rig: Rig, is_timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[tuple[int, int]] = []

    def rest(flusher: CommitLogFlusher, timeout_ms: int) -> None:
        slept.append((rig.segment.worker_word(FLUSH_ROW, "sleeping"), timeout_ms))

    monkeypatch.setattr(CommitLogFlusher, "_rest", rest)
    flusher = rig.flusher()
    flusher.use(rig.settings(flushCommitLogTimed=str(is_timed), flushIntervalCommitLog="700"))
    flusher.follow_time()
    assert slept == [(0 if is_timed else 1, 700)]
    rig.store.append()
    rig.publish()
    flusher.follow_time()
    # What has come meanwhile is seen without a wake; then it sleeps again, however much waits for more pages.
    assert len(slept) == (2 if is_timed else 1)
    flusher.follow_time()
    assert len(slept) == (3 if is_timed else 2)
    assert rig.segment.worker_word(FLUSH_ROW, "sleeping") == 0


# Files ahead -----------------------------------------------------------------------------------------------------


def test_the_next_file_is_there_and_warm_before_it_is_needed(rig: Rig) -> None:
    rig.store.append()
    rig.publish()
    rig.segment.set_flags(STORE_FLAG["NO_NEXT_FILE"])
    before = rig.store.log_bytes(0, FILE_SIZE)
    FileKeeper(rig.settings(), rig.segment).keep_ahead()
    assert rig.log_files() == [file_name(0), file_name(FILE_SIZE)]
    assert rig.segment.get("prepared_end") == rig.segment.get("warmed_end") == 2 * FILE_SIZE
    assert rig.segment.get("store_flags") == 0
    assert rig.store.log_bytes(0, FILE_SIZE) == before


def test_a_file_that_cannot_be_made_is_tried_again_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], time_ns=time.time_ns)
    monkeypatch.setattr(file_keeper, "time", clock)
    keeper = FileKeeper(rig.settings(), rig.segment)
    rig.store.paths.commit_log.rmdir()
    keeper.keep_ahead()
    assert rig.segment.get("prepared_end") == 0
    rig.store.paths.commit_log.mkdir()
    now_s[0] += file_keeper.RETRY_S - 0.1
    keeper.keep_ahead()
    assert rig.segment.get("prepared_end") == 0, "not within the second after a failure"
    now_s[0] += 0.1
    keeper.keep_ahead()
    assert rig.segment.get("prepared_end") == 2 * FILE_SIZE


# Housekeeping ----------------------------------------------------------------------------------------------------


def test_consume_queues_and_the_checkpoint_are_flushed_at_the_end(rig: Rig) -> None:
    rig.store.append_many(70)
    rig.publish()
    rig.dispatch()
    rig.segment.set("flushed_timestamp", 1_234)
    StoreKeeper(rig.settings(), rig.segment).flush_all()
    assert (rig.word("flushed_units"), rig.word("flushed_units", 1)) == (35, 35)
    times = Checkpoint.read(rig.store.paths.checkpoint)
    assert (times.physic_timestamp, times.logics_timestamp) == (1_234, rig.store.records[-1].store_timestamp)


def test_ext_files_are_synced_before_the_units_that_name_them(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def note_sync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(rig.root)))

    monkeypatch.setattr(store_keeper, "sync_content", note_sync)
    geometry = replace(GEOMETRY, ext_enabled=True, ext_file_size=100)
    keeper = StoreKeeper(rig.settings(enableConsumeQueueExt="true", mappedFileSizeConsumeQueueExt="100"), rig.segment)
    for files in ((0, 100), (100, 200)):
        for _ in range(5):
            rig.store.append()
        rig.dispatch(geometry)
        synced.clear()
        keeper.flush_all()
        ext = [f"consumequeue_ext/TopicA/0/{file_name(start)}" for start in files]
        assert [path for path in synced if path != "checkpoint"] == [*ext, f"consumequeue/TopicA/0/{file_name(0)}"]


def test_a_checkpoint_never_goes_back(rig: Rig) -> None:
    Checkpoint(physic_timestamp=50, logics_timestamp=60, index_timestamp=70).write(rig.store.paths.checkpoint)
    StoreKeeper(rig.settings(), rig.segment).flush_all()
    times = Checkpoint.read(rig.store.paths.checkpoint)
    assert (times.physic_timestamp, times.logics_timestamp, times.index_timestamp) == (50, 60, 70)


def test_an_order_deletes_expired_files_and_moves_the_bounds_first(rig: Rig) -> None:
    rig.store.append_many(100)
    rig.publish()
    rig.flush()
    rig.dispatch()
    long_ago = time.time() - 100 * 3600
    for path in rig.store.paths.commit_log.iterdir():
        os.utime(path, (long_ago, long_ago))
    hour = (time.localtime().tm_hour + 12) % 24
    keeper = StoreKeeper(rig.settings(deleteWhen=f"{hour:02d}", diskMaxUsedSpaceRatio="95"), rig.segment)
    keeper.tick(time.monotonic())
    assert rig.log_files()[0] == file_name(0), "nobody has asked yet"
    rig.segment.add("delete_orders", 1)
    keeper.tick(time.monotonic())
    # Every file but the one that is written.
    kept = rig.store.end - rig.store.end % FILE_SIZE
    assert rig.log_files() == [file_name(kept)]
    assert rig.segment.get("min_offset") == kept
    oldest = min(r.queue_offset for r in rig.store.records if r.physical_offset >= kept and r.queue_id == 0)
    assert rig.word("min_offset") == oldest
    queue_files = sorted(path.name for path in rig.store.paths.queue("TopicA", 0).iterdir())
    assert queue_files[0] == file_name(oldest // UNITS * GEOMETRY.consume_queue_file_size)


def test_retention_looks_at_one_queue_after_the_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have 65,530 mappings by default, and a store more queues."""
    queue_ids = range(40)
    for _ in range(3 * UNITS):
        for queue_id in queue_ids:
            rig.store.append("Many", queue_id)
    rig.publish()
    rig.flush()
    rig.dispatch()
    long_ago = time.time() - 100 * 3600
    for path in rig.store.paths.commit_log.iterdir():
        os.utime(path, (long_ago, long_ago))
    open_queues: set[int] = set()
    open_at_once: list[int] = []

    class Watched(ConsumeQueue):
        def delete_expired(self, physical_offset: int) -> int:
            open_queues.add(self.queue_id)
            open_at_once.append(len(open_queues))
            return super().delete_expired(physical_offset)

        def close(self) -> None:
            open_queues.discard(self.queue_id)
            super().close()

    monkeypatch.setattr(store_keeper, "ConsumeQueue", Watched)
    keeper = StoreKeeper(rig.settings(diskMaxUsedSpaceRatio="95"), rig.segment)
    rig.segment.add("delete_orders", 1)
    keeper.tick(time.monotonic())
    rows = [rig.segment.queue_row(b"Many", queue_id) for queue_id in queue_ids]
    assert all(rig.segment.queue_bounds(row)[0] > 0 for row in rows), "each queue has been looked at"
    assert open_at_once == [1] * len(queue_ids)


def test_what_is_not_on_disk_yet_is_not_deleted_and_the_sync_finds_its_files(rig: Rig) -> None:
    """Not even when the disk is full: a sync that finds no file would make the store read-only for good."""
    rig.store.append_many(100)
    rig.publish()
    rig.dispatch()
    for path in rig.store.paths.commit_log.iterdir():
        os.utime(path, (1, 1))
    keeper = StoreKeeper(rig.settings(diskMaxUsedSpaceRatio="10"), rig.segment)
    for flushed, kept in ((0, 0), (FILE_SIZE - 1, 0), (FILE_SIZE, FILE_SIZE), (2 * FILE_SIZE + 1, 2 * FILE_SIZE)):
        rig.segment.set_flushed(flushed)
        rig.segment.add("delete_orders", 1)
        keeper.tick(time.monotonic() + 60 * (1 + flushed))
        assert (rig.log_files()[0], rig.segment.get("min_offset")) == (file_name(kept), kept)
    rig.flusher().flush_all()
    assert rig.segment.get("flushed_offset") == rig.store.end
    assert not rig.segment.get("store_flags")


@pytest.mark.parametrize("used_percent", [0, 100], ids=["disk has room", "disk is nearly full"])
def test_expired_files_wait_for_slaves_until_the_disk_forces_them_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, used_percent: int
) -> None:
    rig.store.append_many(100)
    rig.publish()
    rig.flush()
    rig.dispatch()
    for path in rig.store.paths.commit_log.iterdir():
        os.utime(path, (1, 1))
    is_forced = used_percent == 100
    monkeypatch.setattr(
        store_keeper, "judge_disk", lambda *_: DiskVerdict(full=False, clean=is_forced, clean_at_once=is_forced)
    )
    rig.segment.set("ha_wanted", 2 * FILE_SIZE + 1)
    keeper = StoreKeeper(rig.settings(), rig.segment)
    rig.segment.add("delete_orders", 1)
    keeper.tick(time.monotonic())
    newest = rig.store.end - rig.store.end % FILE_SIZE
    assert newest > 2 * FILE_SIZE
    assert rig.segment.get("min_offset") == (newest if is_forced else 2 * FILE_SIZE)
    rig.segment.set("ha_wanted", 0)
    rig.segment.add("delete_orders", 1)
    keeper.tick(time.monotonic() + 20)
    assert rig.segment.get("min_offset") == newest


@pytest.mark.parametrize("disk_ratio", ["95", "10"])
def test_what_waits_for_its_time_is_not_deleted(rig: Rig, disk_ratio: str) -> None:
    rig.store.append_many(100)
    rig.publish()
    rig.flush()
    rig.dispatch()
    long_ago = time.time() - 100 * 3600
    for path in rig.store.paths.commit_log.iterdir():
        os.utime(path, (long_ago, long_ago))
    rig.segment.set("timer_keeps", 1)  # the timer worker has not said yet what it needs
    keeper = StoreKeeper(rig.settings(diskMaxUsedSpaceRatio=disk_ratio), rig.segment)
    rig.segment.add("delete_orders", 1)
    keeper.tick(time.monotonic())
    assert rig.log_files()[0] == file_name(0)
    rig.segment.set("timer_keeps", 2 * FILE_SIZE + 7)  # a message waits in the third file
    keeper.tick(time.monotonic() + 60)
    assert rig.log_files()[0] == file_name(2 * FILE_SIZE)
    assert rig.segment.get("min_offset") == 2 * FILE_SIZE


def drop_queue(rig: Rig) -> int:
    """Drop queue 0 as the broker process does; where it is born anew."""
    row = rig.segment.queue_row(b"TopicA", 0)
    rig.segment.set_queue_word(row, "next_offset", 50)
    settings = rig.settings().store
    writer = CommitLogWriter(rig.segment, str(rig.store.paths.commit_log), FILE_SIZE, settings.max_message_size)
    born, taken = writer.begin_drop([row])
    assert taken == [row]
    writer.end_drop(taken, born)
    return born


def test_bounds_that_were_looked_up_before_a_queue_was_dropped_are_not_those_of_the_new_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.store.append_many(100)
    rig.publish()
    rig.flush()
    rig.dispatch()
    row = rig.segment.queue_row(b"TopicA", 0)
    long_ago = time.time() - 100 * 3600
    for path in rig.store.paths.commit_log.iterdir():
        os.utime(path, (long_ago, long_ago))

    def clean_and_drop(queues: Iterable[ConsumeQueue], kept: int) -> dict[tuple[str, int], int]:
        bounds = clean_consume_queues(queues, kept)
        assert bounds[("TopicA", 0)] > 0
        drop_queue(rig)
        return bounds

    monkeypatch.setattr(store_keeper, "clean_consume_queues", clean_and_drop)
    keeper = StoreKeeper(rig.settings(diskMaxUsedSpaceRatio="95"), rig.segment)
    rig.segment.add("delete_orders", 1)
    keeper.tick(time.monotonic())
    born, files_of = rig.segment.queue_births(row)
    assert born > files_of
    assert rig.segment.queue_bounds(row) == (0, 0)
    rig.segment.set_queue_word(row, "max_offset", 3)
    rig.segment.set_queue_word(row, "max_born", born)
    assert rig.segment.queue_bounds(row) == (0, 3)
    assert rig.segment.queue_bounds(rig.segment.queue_row(b"TopicA", 1))[0] > 0


def test_units_of_a_queue_that_was_dropped_meanwhile_do_not_count_as_flushed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.store.append_many(20)
    rig.publish()
    rig.dispatch()
    row = rig.segment.queue_row(b"TopicA", 0)
    synced: list[int] = []

    def drop_first(descriptor: int) -> None:
        if not synced:
            drop_queue(rig)
        synced.append(descriptor)
        sync_content(descriptor)

    monkeypatch.setattr(store_keeper, "sync_content", drop_first)
    StoreKeeper(rig.settings(), rig.segment).flush_all()
    assert synced
    assert rig.segment.flushed_units(row) == 0
    rig.segment.set_queue_word(row, "max_offset", 3)
    rig.segment.set_queue_word(row, "max_born", rig.segment.queue_births(row)[0])
    assert rig.segment.unflushed_queues(0) == [row]


def test_retention_goes_by_rules_that_change(rig: Rig) -> None:
    rig.store.append_many(100)
    rig.publish()
    rig.flush()
    rig.dispatch()
    two_hours_ago = time.time() - 2 * 3600
    for path in rig.store.paths.commit_log.iterdir():
        os.utime(path, (two_hours_ago, two_hours_ago))
    hour = time.localtime().tm_hour
    rules = {
        "deleteWhen": f"{(hour + 12) % 24:02d}",
        "diskMaxUsedSpaceRatio": "95",
        "deleteCommitLogFilesInterval": "0",
    }
    keeper = StoreKeeper(rig.settings(fileReservedTime="1", **rules), rig.segment)
    now = time.monotonic() + 100
    keeper.tick(now)
    assert rig.log_files()[0] == file_name(0), "it is not the hour"
    keeper.use(rig.settings(fileReservedTime="72", cleanResourceInterval="1", **rules | {"deleteWhen": f"{hour:02d}"}))
    keeper.tick(now + 1)
    assert rig.log_files()[0] == file_name(0), "they are not old yet"
    keeper.use(
        rig.settings(fileReservedTime="1", cleanResourceInterval="60000", **rules | {"deleteWhen": f"{hour:02d}"})
    )
    keeper.tick(now + 2)
    assert rig.log_files()[0] == file_name(0), "it is too soon"
    keeper.use(
        rig.settings(fileReservedTime="1", cleanResourceInterval="1000", **rules | {"deleteWhen": f"{hour:02d}"})
    )
    keeper.tick(now + 2)
    assert len(rig.log_files()) == 1


def test_between_two_deletions_there_is_a_pause(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.store.append_many(100)
    rig.publish()
    rig.flush()
    rig.dispatch()
    for path in rig.store.paths.commit_log.iterdir():
        os.utime(path, (0, 0))
    count = len(rig.log_files())
    keeper = StoreKeeper(rig.settings(), rig.segment)
    keeper.use(rig.settings(deleteCommitLogFilesInterval="7", diskMaxUsedSpaceRatio="95"))
    pauses: list[float] = []
    monkeypatch.setattr(keeper._stop, "wait", pauses.append)
    rig.segment.add("delete_orders", 1)
    keeper.tick(time.monotonic())
    assert len(rig.log_files()) == 1
    assert pauses == [0.007] * (count - 2)


def test_consume_queues_are_flushed_by_rules_that_change(rig: Rig) -> None:
    rig.store.append_many(70)
    rig.publish()
    rig.dispatch()
    keeper = StoreKeeper(rig.settings(flushIntervalConsumeQueue="3600000"), rig.segment)
    now = time.monotonic()
    keeper.tick(now + 10)
    assert rig.word("flushed_units") == 0
    changed = {"flushIntervalConsumeQueue": "1000", "flushConsumeQueueThoroughInterval": "3600000"}
    keeper.use(rig.settings(flushConsumeQueueLeastPages="1000", **changed))
    keeper.tick(now + 11)
    assert rig.word("flushed_units") == 0, "too few pages"
    keeper.use(rig.settings(flushConsumeQueueLeastPages="0", **changed))
    keeper.tick(now + 12)
    assert rig.word("flushed_units") == 35


def test_files_that_are_made_ahead_do_not_count_as_old(rig: Rig) -> None:
    rig.store.append()
    rig.publish()
    rig.flush()
    FileKeeper(rig.settings(), rig.segment).keep_ahead()
    for path in rig.store.paths.commit_log.iterdir():
        os.utime(path, (0, 0))
    keeper = StoreKeeper(rig.settings(), rig.segment)
    rig.segment.add("delete_orders", 1)
    keeper.tick(time.monotonic())
    assert rig.log_files() == [file_name(0), file_name(FILE_SIZE)]
