"""New queues are readable before their files are there: cradles, the thread that makes files, and who comes after."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fast_rig import shared_segment
from store_builder import StoreBuilder

from mqcore import layout
from mqcore._fast.reput.loop import ReputLoop, ReputNews
from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.segment.shared_ports import SegmentWatermarks
from mqcore.errors import StoreError
from mqcore.protocol.names import METADATA_TOPIC
from mqcore.store.codec import Dispatcher
from mqcore.store.geometry import StoreGeometry
from mqcore.store.message_store import MessageStoreReader
from mqcore.store.queues.consume_queue import to_unit
from tests.waiting import wait_until

COMMAND = layout.constants("WorkerCommand")
UNIT_SIZE = layout.CONSUME_QUEUE_UNIT.size
ROW = 1
TIMER_ROW = 2
DEADLINE_S = 20.0
GEOMETRY = StoreGeometry(commit_log_file_size=1 << 20, consume_queue_file_size=2000 * UNIT_SIZE, index_enabled=False)


class Rig:
    """A store without consume queues, its boards, and the loop that dispatches it."""

    def __init__(self, root: Path, segment: SharedSegment, wake: int, link: int) -> None:
        self.store = StoreBuilder(root / "store", GEOMETRY)
        self.expected = root / "expected"
        self.segment = segment
        self._descriptors = wake, link
        self.loop = self.make_loop()

    def make_loop(self, geometry: StoreGeometry = GEOMETRY) -> ReputLoop:
        """The loop of a worker that has just been started, and has nothing to clear."""
        wake, link = self._descriptors
        loop = ReputLoop(self.store.paths, geometry)
        loop.attach(
            self.segment,
            {
                "row": ROW, "wake": wake, "link": link, "commit_log": self.store.paths.log,
                "commit_log_file_size": GEOMETRY.commit_log_file_size, "pullers": [],
                "metadata_topic": METADATA_TOPIC.encode(), "timer": (TIMER_ROW, wake),
            },
        )  # fmt: skip
        return loop

    def follow_predecessor(self) -> None:
        """The worker died; another one takes over."""
        self.loop = self.make_loop()
        self.loop.drops_done(self.loop.note_drops())
        self.loop.resume_cradles()

    def dispatch(self) -> None:
        """Have everything dispatched that is in the log, and no file made by the way that can wait."""
        self.begin()
        wait_until(lambda: self.segment.get("dispatched_offset") == self.store.end, DEADLINE_S, "all is dispatched")
        self.end()

    def begin(self) -> None:
        self.segment.set("wrote_offset", self.store.end)
        self.segment.set("readable_offset", self.store.end)
        self.segment.set_worker_word(ROW, "command", 0)
        self.loop.drops_done(self.loop.note_drops())
        self.news: list[ReputNews] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.news or self.news[-1] == ReputNews.REPUT_HOUSEKEEPING:
            self.news.append(self.loop.run())

    def end(self) -> None:
        self.segment.set_worker_word(ROW, "command", COMMAND["STOP"])
        os.eventfd_write(self._descriptors[0], 1)
        self._thread.join()

    @contextlib.contextmanager
    def maker(self) -> Iterator[None]:
        """The thread that makes the files."""
        thread = threading.Thread(target=self.loop.make_first_files)
        thread.start()
        try:
            yield
        finally:
            self.loop.stop_maker()
            thread.join()

    def row(self, topic: str = "TopicA", queue_id: int = 0) -> int:
        return self.segment.queue_row(topic.encode(), queue_id)

    def file(self, topic: str = "TopicA", queue_id: int = 0) -> Path:
        return self.store.paths.queue(topic, queue_id) / "0".zfill(20)

    def young_rows(self) -> list[int]:
        return [row for row in range(self.segment.queue_count()) if self.segment.queue_word(row, "cradle")]

    def check_files(self) -> None:
        """Every queue's files are what recovery would make of the log."""
        paths = StoreBuilder(self.expected, GEOMETRY).paths
        dispatcher = Dispatcher(paths, GEOMETRY)
        for start, data in self.store.runs():
            dispatcher.dispatch(data, start)
        dispatcher.close()
        wanted = {path.relative_to(paths.consume_queue): path.read_bytes() for path in files(paths.consume_queue)}
        root = self.store.paths.consume_queue
        assert {path.relative_to(root): path.read_bytes() for path in files(root)} == wanted


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    link, other = os.pipe()
    with shared_segment() as segment:
        yield Rig(tmp_path, segment, wake, link)
    for descriptor in (wake, link, other):
        os.close(descriptor)


def test_units_can_be_read_before_their_queue_has_a_file(rig: Rig) -> None:
    for _ in range(3):
        rig.store.append()
    rig.dispatch()
    assert files(rig.store.paths.consume_queue) == []
    assert rig.segment.queue_bounds(rig.row()) == (0, 3)
    units = rig.segment.cradle_units(rig.row())
    assert units is not None
    rig.loop.leave_cradles()
    assert rig.file().read_bytes()[: 3 * UNIT_SIZE] == units
    assert rig.segment.cradle_units(rig.row()) is None
    assert rig.segment.queue_bounds(rig.row()) == (0, 3)
    rig.check_files()


def test_who_reads_a_store_finds_what_lies_in_a_cradle(rig: Rig) -> None:
    records = [rig.store.append() for _ in range(3)]
    rig.dispatch()
    reader = MessageStoreReader(rig.store.paths, GEOMETRY, SegmentWatermarks(rig.segment))
    for _ in range(2):
        found = [to_unit(unit).physical_offset for unit in reader.read_units("TopicA", 0, 1, 10)]
        assert found == [record.physical_offset for record in records[1:]]
        assert reader.physical_offset("TopicA", 0, 0) == 0
        assert reader.offset_by_time("TopicA", 0, records[1].store_timestamp) == 1
        assert reader.earliest_message_time("TopicA", 0) == records[0].store_timestamp
        rig.loop.leave_cradles()
    reader.close()


def test_a_thread_makes_the_files_while_messages_come(rig: Rig) -> None:
    with rig.maker():
        rig.begin()
        for _round in range(20):
            for queue_id in range(8):
                rig.store.append("Many", queue_id)
            rig.segment.set("wrote_offset", rig.store.end)
            rig.segment.set("readable_offset", rig.store.end)
        wait_until(lambda: rig.segment.get("dispatched_offset") == rig.store.end, DEADLINE_S, "all is dispatched")
        wait_until(lambda: not rig.young_rows(), DEADLINE_S, "all files are made")
        rig.end()
    rig.check_files()


def test_more_units_than_a_cradle_holds_wait_for_the_file(rig: Rig) -> None:
    for _ in range(layout.CRADLE_UNITS + 5):
        rig.store.append()
    rig.dispatch()
    assert rig.segment.queue_word(rig.row(), "cradle") == 0
    rig.check_files()


def test_where_all_cradles_are_taken_queues_get_their_files_at_once(rig: Rig) -> None:
    for queue_id in range(layout.CRADLE_CAPACITY + 3):
        rig.store.append("Many", queue_id)
    rig.dispatch()
    assert len(rig.young_rows()) == layout.CRADLE_CAPACITY
    assert len(files(rig.store.paths.consume_queue)) == 3
    rig.loop.leave_cradles()
    rig.check_files()


@pytest.mark.parametrize("is_file_there", [False, True], ids=["no file", "a file without units"])
def test_the_successor_of_a_dead_worker_goes_on_with_what_lies_in_cradles(rig: Rig, is_file_there: bool) -> None:
    for queue_id in (0, 1, 1):
        rig.store.append("TopicA", queue_id)
    rig.dispatch()
    if is_file_there:
        rig.file().parent.mkdir(parents=True)
        rig.file().write_bytes(bytes(GEOMETRY.consume_queue_file_size))
    rig.follow_predecessor()
    for queue_id in (0, 1, 2):
        rig.store.append("TopicA", queue_id)
    rig.dispatch()
    rig.loop.leave_cradles()
    rig.check_files()


def test_the_successor_knows_which_records_have_units(rig: Rig) -> None:
    rig.store.append()
    rig.store.append()
    rig.dispatch()
    rig.segment.set("dispatched_offset", 0)
    rig.follow_predecessor()
    rig.dispatch()
    assert rig.segment.queue_bounds(rig.row()) == (0, 2)
    rig.loop.leave_cradles()
    rig.check_files()


@pytest.mark.parametrize("is_successor", [False, True], ids=["worker", "successor"])
def test_units_of_a_dropped_queue_go_with_its_cradle(rig: Rig, is_successor: bool) -> None:
    rig.store.append()
    rig.dispatch()
    if is_successor:
        rig.loop = rig.make_loop()
    born = rig.store.end
    rig.segment.set_queue_word(rig.row(), "born", born)
    rig.loop.bear(b"TopicA", 0, born)
    rig.loop.clear_queue(rig.row(), born)
    if is_successor:
        rig.loop.resume_cradles()
    assert rig.segment.queue_word(rig.row(), "cradle") == 0
    rig.loop.leave_cradles()
    assert files(rig.store.paths.consume_queue) == []
    # A new queue of that name begins at 0, and its cradle is not the old one's.
    rig.store.next_offsets.clear()
    record = rig.store.append()
    rig.dispatch()
    assert rig.segment.queue_bounds(rig.row()) == (0, 1)
    rig.loop.leave_cradles()
    (physical_offset, _, _) = layout.CONSUME_QUEUE_UNIT.struct.unpack_from(rig.file().read_bytes())
    assert physical_offset == record.physical_offset


def test_a_file_that_cannot_be_made_is_a_failure_and_loses_nothing(rig: Rig) -> None:
    obstacle = rig.store.paths.consume_queue / "TopicA"
    obstacle.parent.mkdir(parents=True, exist_ok=True)
    obstacle.symlink_to("nowhere")
    rig.store.append()
    with rig.maker():
        rig.begin()
        wait_until(lambda: rig.news[-1:] == [ReputNews.REPUT_FAILED], DEADLINE_S, "the failure is told")
        rig.end()
    assert "TopicA" in str(rig.loop.failure_error())
    assert rig.segment.queue_bounds(rig.row()) == (0, 1)
    with pytest.raises(StoreError, match="No such file"):
        rig.loop.leave_cradles()
    assert rig.segment.cradle_units(rig.row()) is not None
    obstacle.unlink()
    rig.loop.leave_cradles()
    rig.check_files()


def test_a_queue_with_ext_units_has_its_files_from_the_start(rig: Rig) -> None:
    rig.loop = rig.make_loop(replace(GEOMETRY, ext_enabled=True))
    rig.store.append()
    rig.dispatch()
    assert rig.young_rows() == []
    assert rig.file().exists()


def test_a_queue_without_units_on_the_board_is_not_looked_for_in_its_directory(rig: Rig) -> None:
    directory = rig.file().parent
    directory.parent.mkdir(parents=True)
    directory.write_bytes(b"no directory: who looks into it fails")
    rig.store.append()
    rig.begin()
    wait_until(lambda: rig.segment.queue_bounds(rig.row()) == (0, 1), DEADLINE_S, "the unit can be read")
    rig.end()
    assert ReputNews.REPUT_FAILED not in rig.news
    directory.unlink()
    rig.loop.leave_cradles()
    rig.check_files()


def test_a_unit_that_a_predecessor_wrote_and_did_not_tell_of_is_there_once(rig: Rig) -> None:
    for _ in range(3):
        rig.store.append()
    dispatcher = Dispatcher(rig.store.paths, GEOMETRY)
    start, data = next(iter(rig.store.runs()))
    dispatcher.dispatch(data[: len(data) // 3], start)
    dispatcher.close()
    assert rig.file().exists()
    rig.dispatch()
    assert rig.segment.queue_bounds(rig.row()) == (0, 3)
    rig.loop.leave_cradles()
    rig.check_files()


@pytest.mark.parametrize("is_started_anew", [False, True])
def test_dispatch_stands_behind_a_record_that_drops_queues_until_they_are(rig: Rig, is_started_anew: bool) -> None:
    rig.segment.set("keeps_metadata", 1)
    rig.store.append()
    rig.store.append(METADATA_TOPIC, flag=layout.METADATA_DROP_FLAG)
    place = rig.store.end
    rig.store.append("TopicA", flag=layout.METADATA_DROP_FLAG)  # a client's
    rig.begin()
    wait_until(lambda: rig.segment.get("dispatched_offset") == place, DEADLINE_S, "it has come to the drop")
    if is_started_anew:
        rig.end()
        rig.follow_predecessor()
        rig.begin()
    turns = rig.segment.worker_word(ROW, "turns")
    wait_until(lambda: rig.segment.worker_word(ROW, "turns") > turns + 2, DEADLINE_S, "it has looked again")
    assert rig.segment.get("dispatched_offset") == place
    assert rig.segment.queue_bounds(rig.row()) == (0, 1)
    rig.segment.set("drops_applied", place)
    os.eventfd_write(rig._descriptors[0], 1)
    wait_until(lambda: rig.segment.get("dispatched_offset") == rig.store.end, DEADLINE_S, "it goes on")
    rig.end()
    assert rig.segment.queue_bounds(rig.row()) == (0, 2)


def test_a_broker_of_no_group_passes_such_a_record(rig: Rig) -> None:
    rig.store.append(METADATA_TOPIC, flag=layout.METADATA_DROP_FLAG)
    rig.store.append()
    rig.dispatch()
    assert rig.segment.queue_bounds(rig.row()) == (0, 1)
