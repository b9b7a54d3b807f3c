"""The glance at all consume queues says what the close look says, or that it does not know; neither maps a queue."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from store_builder import StoreBuilder

from mqcore._fast.queues import survey as survey_module
from mqcore._fast.queues.survey import survey_topic
from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store import codec, queue_survey
from mqcore.store.abort_file import AbortFile
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.paths import StorePaths, file_name
from mqcore.store.queue_survey import look_closely
from mqcore.store.queues.consume_queue import list_queues
from mqcore.store.queues.index_file import IndexGeometry
from mqcore.store.queues.units import Unit
from mqcore.store.recovery import Recovery

PER_FILE = 1000
FILE_SIZE = PER_FILE * CONSUME_QUEUE_UNIT.size
GEOMETRY = StoreGeometry(
    commit_log_file_size=1 << 16, consume_queue_file_size=FILE_SIZE, index=IndexGeometry(slot_count=50, entry_count=40)
)
RECORD_SIZE = 100
SHAPES = 100
CUT_SHAPES = 40


def write_queue(paths: StorePaths, topic: str, first: int, count: int, filled: int) -> None:
    """Write *count* units from queue offset *first* on, the first *filled* of which only hold a place."""
    directory = paths.queue(topic, 0)
    directory.mkdir(parents=True)
    end = first + count
    for start in range(first // PER_FILE * PER_FILE, max(end, first + 1), PER_FILE):
        units = []
        for offset in range(start, min(end, start + PER_FILE)):
            is_real = offset >= first + filled
            unit = (offset * RECORD_SIZE, RECORD_SIZE, 7) if is_real else (0, PRE_FILL_SIZE, 0)
            units.append(CONSUME_QUEUE_UNIT.struct.pack(*unit))
        data = b"".join(units)
        (directory / file_name(start * CONSUME_QUEUE_UNIT.size)).write_bytes(data + bytes(FILE_SIZE - len(data)))


def glance(paths: StorePaths, topic: str, commit_log_min: int) -> tuple[int, bool, int, int, int]:
    (found,) = survey_topic(os.fsencode(paths.consume_queue / topic), FILE_SIZE, commit_log_min)
    return found


@pytest.mark.parametrize("_round", range(4))
def test_the_glance_says_what_the_close_look_says(tmp_path: Path, _round: int, chance: random.Random) -> None:
    paths = StorePaths.at(tmp_path)
    for number in range(SHAPES):
        topic = f"T{number}"
        first = chance.choice((0, 0, PER_FILE, 7 * PER_FILE, chance.randrange(5 * PER_FILE) // PER_FILE * PER_FILE))
        count = chance.choice((0, 1, 203, 204, 205, PER_FILE, PER_FILE + 1, chance.randrange(5 * PER_FILE)))
        filled = chance.choice((0, 0, 0, min(count, chance.randrange(PER_FILE))))
        write_queue(paths, topic, first, count, filled)
        for at in (0, first, first + chance.randrange(count + 1), first + count + 1):
            minimum = at * RECORD_SIZE + chance.choice((0, 0, 1))
            queue_id, is_odd, *bounds = glance(paths, topic, minimum)
            close = look_closely(paths, topic, queue_id, GEOMETRY, minimum)
            if not is_odd:
                wanted = [close.min_offset, close.max_offset, close.max_physical]
                assert bounds == wanted, (first, count, filled, minimum)
            # It knows nearly all; units that only hold a place may hide where the kept ones begin.
            assert filled or not is_odd


def files_of(paths: StorePaths) -> dict[str, bytes]:
    root = paths.consume_queue
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def tear(paths: StorePaths, topic: str, chance: random.Random) -> None:
    """Leave what a power cut may: zeros among the units, and a page that came to the disk before the ones in front."""
    for path in paths.queue(topic, 0).iterdir():
        with path.open("r+b") as file:
            for size in chance.choices((0, 20, 7, 4096), k=2):
                file.seek(chance.randrange(FILE_SIZE - size))
                file.write(chance.choice((bytes(size), chance.randbytes(size))))


@pytest.mark.parametrize("is_torn", [False, True], ids=["whole", "torn"])
def test_queues_are_cut_as_the_close_look_cuts_them(tmp_path: Path, chance: random.Random, is_torn: bool) -> None:
    paths, by_hand = StorePaths.at(tmp_path / "glance"), StorePaths.at(tmp_path / "close")
    for number in range(CUT_SHAPES):
        first = chance.choice((0, 0, 0, PER_FILE, 7 * PER_FILE))
        count = chance.choice((0, 1, 203, 204, 205, PER_FILE, PER_FILE + 1, chance.randrange(3 * PER_FILE)))
        write_queue(paths, f"T{number}", first, count, chance.choice((0, 0, min(count, chance.randrange(PER_FILE)))))
        if is_torn:
            tear(paths, f"T{number}", chance)
    shutil.copytree(paths.root, by_hand.root)
    ends = [0, chance.randrange(9 * PER_FILE) * RECORD_SIZE, chance.randrange(9 * PER_FILE) * RECORD_SIZE]
    for end in sorted(ends, reverse=True):
        lost = chance.randrange(9 * PER_FILE) * RECORD_SIZE

        def is_record(unit: Unit, lost: int = lost) -> bool:
            return unit.physical_offset < lost and unit.record_size == RECORD_SIZE

        looked_for = chance.choice((None, is_record))
        wanted = [path for queue in list_queues(by_hand, FILE_SIZE) for path in queue.truncate(end, looked_for)]
        cut = queue_survey.cut(paths, GEOMETRY, end, looked_for)
        assert files_of(paths) == files_of(by_hand)
        # What was cut at a glance may be looked at once more, and then there is nothing to be done.
        told = {Path(path).relative_to(paths.root) for path in cut}
        assert told >= {path.relative_to(by_hand.root) for path in wanted}


def test_what_cannot_be_read_at_a_glance_is_left_to_the_close_look(tmp_path: Path) -> None:
    paths = StorePaths.at(tmp_path)
    write_queue(paths, "Linked", 0, 3, 0)
    file = paths.queue("Linked", 0) / file_name(0)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    ((_, is_odd, *_),) = survey_module.cut_topic(os.fsencode(paths.consume_queue / "Linked"), FILE_SIZE, 0)
    assert is_odd
    assert codec.cut_topic(os.fsencode(paths.consume_queue / "Nothing"), FILE_SIZE, 0) == []


def spoil_length(directory: Path) -> None:
    os.truncate(directory / file_name(FILE_SIZE), FILE_SIZE - 1)


def spoil_name(directory: Path) -> None:
    (directory / "notes").write_bytes(b"")


def spoil_order(directory: Path) -> None:
    (directory / file_name(FILE_SIZE)).unlink()


def spoil_kind(directory: Path) -> None:
    (directory / file_name(FILE_SIZE)).rename(directory.parent / "elsewhere")
    (directory / file_name(FILE_SIZE)).symlink_to(directory.parent / "elsewhere")


def spoil_middle(directory: Path) -> None:
    with (directory / file_name(FILE_SIZE)).open("r+b") as file:
        file.seek(FILE_SIZE - CONSUME_QUEUE_UNIT.size)
        file.write(bytes(CONSUME_QUEUE_UNIT.size))


@pytest.mark.parametrize("spoil", [spoil_length, spoil_name, spoil_order, spoil_kind, spoil_middle])
def test_the_glance_does_not_know_a_queue_that_is_not_as_it_should_be(tmp_path: Path, spoil) -> None:
    paths = StorePaths.at(tmp_path)
    write_queue(paths, "T", 0, 2 * PER_FILE + 5, 0)
    assert glance(paths, "T", 0) == (0, False, 0, 2 * PER_FILE + 5, (2 * PER_FILE + 5) * RECORD_SIZE)
    spoil(paths.queue("T", 0))
    assert glance(paths, "T", 0)[1]


def test_what_is_no_queue_is_passed_over(tmp_path: Path) -> None:
    paths = StorePaths.at(tmp_path)
    write_queue(paths, "T", 0, 1, 0)
    for name in ("00", "x", "2147483648", "-1", "0.making"):
        (paths.consume_queue / "T" / name).mkdir()
    assert glance(paths, "T", 0)[0] == 0
    assert survey_topic(os.fsencode(tmp_path / "nowhere"), FILE_SIZE, 0) == []


@pytest.mark.parametrize("crashed", [False, True])
def test_recovery_maps_no_consume_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashed: bool) -> None:
    store = StoreBuilder(tmp_path / "store", GEOMETRY)
    for number in range(200):
        store.append(f"Topic{number}", number % 3)
    Recovery(store.paths, GEOMETRY).run()
    map_file = MappedFileQueue._map

    def map_log_only(files: MappedFileQueue, start: int) -> None:
        assert files.directories[0] == store.paths.commit_log
        map_file(files, start)

    monkeypatch.setattr(MappedFileQueue, "_map", map_log_only)
    if crashed:
        AbortFile(store.paths.abort).create()
    else:
        AbortFile(store.paths.abort).remove()  # the consume queues were missing, which counts as a crash until the stop
    result = Recovery(store.paths, GEOMETRY).run()
    assert result.after_crash == crashed
    assert {(queue.min_offset, queue.max_offset) for queue in result.queues} == {(0, 1)}
    assert len(result.queues) == 200
