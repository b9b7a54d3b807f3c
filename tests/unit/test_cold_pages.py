"""Which commit log pages leave the page cache, when, and that nothing else happens to them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fast_rig import shared_segment

from mqcore import layout
from mqcore._fast.log.mapped_file import MappedFiles
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import Settings, load
from mqcore.machine import memory_bytes
from mqcore.store.paths import file_name
from mqcore.workers.cold_pages import (
    CATCHING_UP_HOT,
    CATCHING_UP_MS,
    GRACE_S,
    READERS_KEPT_MS,
    READERS_LOOK_S,
    STEP,
    ColdPages,
)
from tests.page_cache import keeps_pages, resident_share

FILE_SIZE = 4 * STEP
HOT = 2 * STEP
FAR = 1 << 44
SEND_ROW, REPUT_ROW = ROWS = 1, 2
NOW_MS = 1_700_000_000_000
LATER = READERS_LOOK_S + 1
SLAVE = layout.constants("StoreFlag")["SLAVE"]
MUCH = {"commitLogHotBytes": str(4 * CATCHING_UP_HOT)}


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


def settings(root: Path, **overrides: str) -> Settings:
    given = {
        "bindAddress": "127.0.0.1", "storePathRootDir": str(root), "mappedFileSizeCommitLog": str(FILE_SIZE),
        "commitLogHotBytes": str(HOT),
    }  # fmt: skip
    return load(overrides=given | overrides, environment={})


def publish(segment: SharedSegment, wrote: int, *, flushed: int | None = None, dispatched: int | None = None) -> None:
    segment.set("wrote_offset", wrote)
    segment.set("flushed_offset", wrote if flushed is None else flushed)
    segment.set("dispatched_offset", wrote if dispatched is None else dispatched)


def test_an_eighth_of_the_memory_is_hot_unless_told_otherwise(tmp_path: Path) -> None:
    hot = load(overrides={"storePathRootDir": str(tmp_path)}, environment={}).mqcore.commit_log_hot_bytes
    assert hot == memory_bytes() // 8


@pytest.mark.parametrize(
    ("marks", "cold"),
    [
        ({"wrote": HOT + STEP - 1}, 0),
        ({"wrote": HOT + STEP}, STEP),
        ({"wrote": HOT + 3 * STEP + 7}, 3 * STEP),
        ({"wrote": HOT + 3 * STEP, "flushed": 2 * STEP + 1}, 2 * STEP),
        ({"wrote": HOT + 3 * STEP, "dispatched": STEP}, STEP),
        ({"wrote": HOT + 3 * STEP, "flushed": STEP - 1, "dispatched": 3 * STEP}, 0),
    ],
)
def test_pages_are_cold_when_they_are_old_and_on_disk_and_in_the_queues(
    tmp_path: Path, segment: SharedSegment, marks: dict[str, int], cold: int
) -> None:
    pages = ColdPages(settings(tmp_path), segment, ROWS)
    publish(segment, **marks)
    assert pages.let_go(0.0, NOW_MS) == cold
    assert segment.get("cold_end") == cold


def test_nothing_is_cold_when_that_is_left_to_the_kernel(tmp_path: Path, segment: SharedSegment) -> None:
    pages = ColdPages(settings(tmp_path, commitLogHotBytes="0"), segment, ROWS)
    publish(segment, FAR)
    assert pages.let_go(0.0, NOW_MS) == segment.get("cold_end") == 0


def test_what_was_written_before_the_start_is_left_alone(tmp_path: Path, segment: SharedSegment) -> None:
    publish(segment, FAR)
    pages = ColdPages(settings(tmp_path), segment, ROWS)
    assert pages.let_go(0.0, NOW_MS) == 0
    publish(segment, FAR + STEP)
    assert pages.let_go(0.0, NOW_MS) == FAR + STEP - HOT
    # One that is started anew goes on from there.
    assert ColdPages(settings(tmp_path), segment, ROWS).let_go(0.0, NOW_MS) == FAR + STEP - HOT


def test_a_slave_keeps_little_of_what_is_old_while_it_catches_up(tmp_path: Path, segment: SharedSegment) -> None:
    segment.set_flags(SLAVE)
    pages = ColdPages(settings(tmp_path, **MUCH), segment, ROWS)
    segment.set("wrote_timestamp", NOW_MS - CATCHING_UP_MS - 1)
    publish(segment, 3 * CATCHING_UP_HOT, flushed=CATCHING_UP_HOT)
    assert pages.let_go(0.0, NOW_MS) == CATCHING_UP_HOT
    # Nothing has come since: what is there stays.
    publish(segment, 3 * CATCHING_UP_HOT)
    assert pages.let_go(0.0, NOW_MS) == CATCHING_UP_HOT
    publish(segment, 3 * CATCHING_UP_HOT + STEP)
    assert pages.let_go(0.0, NOW_MS) == 2 * CATCHING_UP_HOT + STEP
    # What comes is new: as much stays as with others.
    publish(segment, 7 * CATCHING_UP_HOT)
    segment.set("wrote_timestamp", NOW_MS - CATCHING_UP_MS)
    assert pages.let_go(0.0, NOW_MS) == 3 * CATCHING_UP_HOT


def test_a_slave_that_catches_up_keeps_what_is_not_on_disk_and_what_a_group_reads(
    tmp_path: Path, segment: SharedSegment
) -> None:
    segment.set_flags(SLAVE)
    pages = ColdPages(settings(tmp_path, **MUCH), segment, ROWS)
    segment.set("wrote_timestamp", NOW_MS - CATCHING_UP_MS - 1)
    publish(segment, 3 * CATCHING_UP_HOT, flushed=CATCHING_UP_HOT)
    assert pages.let_go(0.0, NOW_MS) == CATCHING_UP_HOT
    row = segment.offset_row(b"billing", b"Orders", 0, True)
    segment.set_offset_word(row, "behind_bytes", CATCHING_UP_HOT)
    segment.set_offset_word(row, "get_timestamp", NOW_MS)
    publish(segment, 4 * CATCHING_UP_HOT)
    assert pages.let_go(LATER, NOW_MS) == 2 * CATCHING_UP_HOT


def test_a_master_keeps_what_it_writes_whatever_its_clock_says(tmp_path: Path, segment: SharedSegment) -> None:
    pages = ColdPages(settings(tmp_path, **MUCH), segment, ROWS)
    publish(segment, 3 * CATCHING_UP_HOT)
    segment.set("wrote_timestamp", NOW_MS - CATCHING_UP_MS - 1)
    assert pages.let_go(0.0, NOW_MS) == 0


def test_a_group_that_reads_far_behind_keeps_its_pages(tmp_path: Path, segment: SharedSegment) -> None:
    publish(segment, 100 * STEP)
    pages = ColdPages(settings(tmp_path), segment, ROWS)
    row = segment.offset_row(b"billing", b"Orders", 0, True)
    segment.set_offset_word(row, "behind_bytes", 8 * STEP)
    segment.set_offset_word(row, "get_timestamp", NOW_MS)
    publish(segment, 110 * STEP)
    # Twice as far as it was seen, since the end has gone on.
    assert pages.let_go(0.0, NOW_MS) == 0
    publish(segment, 120 * STEP)
    assert pages.let_go(LATER, NOW_MS) == 120 * STEP - 16 * STEP
    # It has caught up, or was given nothing for a while.
    assert pages.let_go(2 * LATER, NOW_MS + READERS_KEPT_MS + 1) == 120 * STEP - HOT


def test_a_group_beyond_the_share_for_readers_keeps_nothing_more(tmp_path: Path, segment: SharedSegment) -> None:
    share = memory_bytes() // 100
    pages = ColdPages(settings(tmp_path, accessMessageInMemoryMaxRatio="1"), segment, ROWS)
    row = segment.offset_row(b"billing", b"Orders", 0, True)
    segment.set_offset_word(row, "behind_bytes", FAR)
    segment.set_offset_word(row, "get_timestamp", NOW_MS)
    publish(segment, FAR + share)
    assert pages.let_go(0.0, NOW_MS) == FAR


@pytest.fixture
def log(tmp_path: Path) -> list[Path]:
    """Two files of the commit log that are on disk and in memory."""
    if keeps_pages(tmp_path):
        pytest.skip(f"{tmp_path} lies in memory: pages of its files never leave it")
    directory = settings(tmp_path).store.commit_log_dirs[0]
    directory.mkdir(parents=True)
    paths = [directory / file_name(start) for start in (0, FILE_SIZE)]
    for path in paths:
        path.write_bytes(os.urandom(FILE_SIZE))
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return paths


def test_pages_leave_as_soon_as_every_worker_has_let_go(
    tmp_path: Path, log: list[Path], segment: SharedSegment
) -> None:
    content = log[0].read_bytes()
    pages = ColdPages(settings(tmp_path), segment, ROWS)
    publish(segment, HOT + FILE_SIZE + STEP)
    assert pages.let_go(0.0, NOW_MS) == FILE_SIZE + STEP
    segment.set_worker_word(SEND_ROW, "released", FILE_SIZE + STEP)
    pages.let_go(0.0, NOW_MS)
    assert resident_share(log[0]) == 1
    segment.set_worker_word(REPUT_ROW, "released", STEP)
    pages.let_go(0.0, NOW_MS)
    assert resident_share(log[0], 0, STEP) == 0
    assert resident_share(log[0], STEP) == 1
    segment.set_worker_word(REPUT_ROW, "released", FILE_SIZE + STEP)
    pages.let_go(0.0, NOW_MS)
    assert resident_share(log[0]) == resident_share(log[1], 0, STEP) == 0
    assert resident_share(log[1], STEP) == 1
    assert log[0].read_bytes() == content


def test_the_kernel_is_asked_again_for_those_who_let_go_later(
    tmp_path: Path, log: list[Path], segment: SharedSegment
) -> None:
    broker = MappedFiles(str(log[0].parent), FILE_SIZE)
    with memoryview(broker.view(0)) as view:
        sum(view[::4096])
    pages = ColdPages(settings(tmp_path), segment, ROWS)
    publish(segment, HOT + FILE_SIZE)
    for row in ROWS:
        segment.set_worker_word(row, "released", FILE_SIZE)
    pages.let_go(0.0, NOW_MS)
    assert resident_share(log[0]) == 1
    broker.release(FILE_SIZE)
    pages.let_go(GRACE_S, NOW_MS)
    assert resident_share(log[0]) == 0


def test_pages_of_a_file_that_is_gone_are_nobodys(tmp_path: Path, segment: SharedSegment) -> None:
    pages = ColdPages(settings(tmp_path), segment, ROWS)
    publish(segment, HOT + 2 * FILE_SIZE)
    for row in ROWS:
        segment.set_worker_word(row, "released", 2 * FILE_SIZE)
    assert pages.let_go(0.0, NOW_MS) == pages.let_go(GRACE_S, NOW_MS) == 2 * FILE_SIZE


def mapped_bytes(path: Path) -> int:
    """How much of *path* this process has in its page tables, bytes."""
    resident = 0
    is_ours = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in line.split(" ", 1)[0] and not line[0].isupper():
            is_ours = line.endswith(str(path))
        elif is_ours and name == "Rss":
            resident += int(value.split()[0]) * 1024
    return resident


def test_released_pages_are_no_longer_mapped_and_read_the_same(tmp_path: Path) -> None:
    files = MappedFiles(str(tmp_path), FILE_SIZE)
    for start in (0, FILE_SIZE):
        files.make(start)
        view = memoryview(files.view(start))
        view[:] = bytes([start // FILE_SIZE + 1]) * FILE_SIZE
        view.release()
    first, second = tmp_path / file_name(0), tmp_path / file_name(FILE_SIZE)
    assert mapped_bytes(first) == mapped_bytes(second) == FILE_SIZE
    files.release(STEP + 5)
    assert mapped_bytes(first) == FILE_SIZE - STEP
    files.release(STEP)
    files.release(FILE_SIZE + STEP)
    assert mapped_bytes(first) == 0
    assert mapped_bytes(second) == FILE_SIZE - STEP
    for start in (0, FILE_SIZE):
        view = memoryview(files.view(start))
        assert bytes(view) == bytes([start // FILE_SIZE + 1]) * FILE_SIZE
        view.release()
