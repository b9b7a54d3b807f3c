"""Reading stores without a broker: whatever was written comes out once, and nothing that is torn."""

from __future__ import annotations

import datetime
import shutil
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from mqcore.errors import ConfigError, CorruptFileError, CorruptRecordError, OffsetOutOfRangeError
from mqcore.layout import CONSUME_QUEUE_UNIT
from mqcore.store.checkpoint import SAFETY_MARGIN_MS, Checkpoint
from mqcore.store.columns import ColumnDecoder, Selection
from mqcore.store.incarnations import Birth, Incarnations, anchors_at
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.paths import file_name
from mqcore.store.reader import StoreReader
from mqcore.store.reader_segments import Segment
from mqcore.store.recovery import Recovery
from tests.suite.seeds import chance_of_run
from tests.unit.store_builder import FIRST_TIMESTAMP, GEOMETRY, STEP_MS, StoreBuilder, memory_directory

COLUMNS = ["topic", "queue_id", "queue_offset", "physical_offset", "body", "store_timestamp"]
FILE_SIZE = GEOMETRY.commit_log_file_size
TOPICS = ("Orders", "Events", "Orders", "Logs", "%RETRY%G")


def fill(store: StoreBuilder, count: int = 200) -> None:
    """Messages of five topics and any sizes in files of 4 KiB; each queue of Orders has three files.

    The topic Rare is only in two places.
    """
    generator = chance_of_run(f"store of {count}")
    for number in range(count):
        topic = "Rare" if number % 90 == 17 else TOPICS[number // 3 % len(TOPICS)]
        store.append(topic, number % 3, generator.randbytes(generator.randrange(200)), TAGS=f"T{number % 2}",
                     KEYS=f"k{number}", UNIQ_KEY=f"U{number:06d}")  # fmt: skip


@pytest.fixture(scope="module")
def original() -> Iterator[StoreBuilder]:
    with memory_directory() as directory:
        builder = StoreBuilder(directory / "store")
        fill(builder)
        builder.crash()
        Recovery(builder.paths, GEOMETRY).run()
        builder.paths.abort.unlink()
        yield builder


@pytest.fixture
def store(original: StoreBuilder) -> Iterator[StoreBuilder]:
    """A store that was stopped cleanly, with its consume queues."""
    with memory_directory() as directory:
        yield original.copy_to(directory / "store")


def rows(reader: StoreReader, **options: object) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for batch in reader.batches(COLUMNS, **options):  # type: ignore[arg-type]
        columns = batch.to_dict()
        found += zip(*(list(columns[name]) for name in COLUMNS[:5]), strict=True)
    return found


def stored(store: StoreBuilder, end: int | None = None) -> list[tuple[object, ...]]:
    return [
        (record.topic.decode(), record.queue_id, record.queue_offset, record.physical_offset, record.body)
        for record in store.records
        if end is None or record.physical_offset < end
    ]


def test_every_message_of_a_store_comes_out_once_in_order(store):
    before = store.files()
    with StoreReader(store.paths.root) as reader:
        assert rows(reader) == stored(store)
        assert reader.extent.end == store.end
    assert store.files() == before


@pytest.mark.parametrize("topics", [None, ["Orders", "Rare"]], ids=["all topics", "by name"])
@pytest.mark.parametrize("crashed", [False, True])
def test_messages_of_a_dropped_queue_come_out_only_when_they_are_asked_for(store, topics, crashed):
    log = MappedFileQueue(store.paths.log, FILE_SIZE)
    log.load()
    born = store.end
    Incarnations.read(store.paths.incarnations).add([Birth("Orders", 1, born, anchors_at(log, born))])
    store.next_offsets[("Orders", 1)] = 0
    for number in range(3):
        store.append("Orders", 1, b"new %d" % number)
    store.crash()
    Recovery(store.paths, GEOMETRY).run()
    if not crashed:
        store.paths.abort.unlink()
    wanted = [row for row in stored(store) if topics is None or row[0] in topics]
    alive = [row for row in wanted if row[:2] != ("Orders", 1) or row[3] >= born]
    with StoreReader(store.paths.root) as reader:
        assert rows(reader, topics=topics) == alive
        assert rows(reader, topics=topics, dropped=True) == wanted
        assert reader.queue("Orders", 1).bounds() == (0, 3)


@pytest.mark.parametrize("batch_bytes", [1, 500, 5000])
def test_small_batches_hold_the_same_messages(store, batch_bytes):
    with StoreReader(store.paths.root) as reader:
        assert rows(reader, batch_bytes=batch_bytes) == stored(store)


def test_a_store_that_is_being_written_is_read_to_its_end_each_time(store):
    store.crash()  # as it is while a broker runs
    with StoreReader(store.paths.root) as reader:
        assert rows(reader) == stored(store)
        fill(store, 50)
        reader.refresh()
        assert rows(reader) == stored(store)
        assert len(stored(store)) == 250


@pytest.mark.parametrize("kept", [0, 3, 8, 48, 90])
def test_a_torn_tail_is_not_followed(store, kept):
    store.crash()
    last = store.records[-1]
    store.write(last.physical_offset + kept, bytes(last.total_size - kept))
    with StoreReader(store.paths.root) as reader:
        assert rows(reader) == stored(store, last.physical_offset)
        assert reader.extent.end == last.physical_offset


def test_what_recovery_would_drop_is_not_read(store):
    """The checkpoint vouches for nothing: a record that is torn ends the log, whatever lies behind it."""
    store.crash()
    Checkpoint().write(store.paths.checkpoint)
    torn = next(record for record in store.records[-20:] if record.body)
    store.flip(torn.physical_offset + 90, 0xFF)
    with StoreReader(store.paths.root) as reader:
        end = reader.extent.end
        assert rows(reader) == stored(store, torn.physical_offset)
        units = [unit for queues in reader.queues.values() for queue in queues.values() for unit in queue.units()]
        assert max(int(unit["physical_offset"]) for unit in units) < torn.physical_offset
    assert Recovery(store.paths, GEOMETRY).run().commit_log_end == end == torn.physical_offset


def test_damage_that_the_checkpoint_vouches_for_is_named_or_passed_over(store):
    store.crash()
    now = store.timestamp + 10_000
    Checkpoint(now, now, 0).write(store.paths.checkpoint)
    bad = store.records[40]
    store.flip(bad.physical_offset + 88, 0xFF)
    with StoreReader(store.paths.root) as reader:
        with pytest.raises(CorruptRecordError, match="CRC") as caught:
            rows(reader)
        assert caught.value.physical_offset == bad.physical_offset
        found = rows(reader, on_damage="skip")
        assert found == [row for row in stored(store) if row[3] != bad.physical_offset]
        skipped: list[Segment] = []
        decoder = ColumnDecoder(["physical_offset"], check_crc=True)
        list(reader.read_segments(reader.segments(), decoder, "skip", lambda segment, _: skipped.append(segment)))
        assert skipped == [Segment(bad.physical_offset, store.records[41].physical_offset)]
        assert len(rows(reader, check_crc=False)) == len(store.records)


def test_a_damaged_end_of_a_file_leads_to_the_next_one_when_passed_over(store):
    ends = [a for a, b in zip(store.records, store.records[1:], strict=False) if b.physical_offset % FILE_SIZE == 0]
    last = ends[1]
    store.write(last.physical_offset, b"\xff" * 8)
    with StoreReader(store.paths.root) as reader:
        with pytest.raises(CorruptRecordError, match="bad magic"):
            rows(reader)
        assert rows(reader, on_damage="skip") == [row for row in stored(store) if row[3] != last.physical_offset]


def test_a_wrong_word_about_damage_is_refused(store):
    with StoreReader(store.paths.root) as reader, pytest.raises(ConfigError, match="on_damage"):
        rows(reader, on_damage="ignore")


def test_a_copy_that_was_cut_short_is_read_as_far_as_it_goes(store, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(store.paths.commit_log, copy / "commitlog")
    last = sorted((copy / "commitlog").iterdir())[-1]
    kept = store.records[-1]  # in the last file, whatever sizes they have
    last.write_bytes(last.read_bytes()[: kept.physical_offset % FILE_SIZE + 10])
    with StoreReader(copy) as reader:
        assert rows(reader) == stored(store, kept.physical_offset)


def test_damage_in_a_copy_of_the_log_alone_is_not_taken_for_its_end(store, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(store.paths.commit_log, copy / "commitlog")
    bad = next(record for record in store.records[-20:] if record.body)
    path = copy / "commitlog" / store.log_file(bad.physical_offset).name
    data = bytearray(path.read_bytes())
    data[bad.physical_offset % FILE_SIZE + 88] ^= 0xFF
    path.write_bytes(data)
    with StoreReader(copy) as reader:
        with pytest.raises(CorruptRecordError, match=f"physical_offset={bad.physical_offset}"):
            rows(reader)
        assert rows(reader, on_damage="skip") == [row for row in stored(store) if row[3] != bad.physical_offset]


def test_a_backup_without_consume_queues_gives_the_same_messages(store):
    shutil.rmtree(store.paths.consume_queue)
    with StoreReader(store.paths.root) as reader:
        assert reader.topics == []
        assert rows(reader) == stored(store)
        assert rows(reader, topics="Rare") == [row for row in stored(store) if row[0] == "Rare"]


def test_a_missing_file_is_named_or_passed_over(store):
    store.log_file(2 * FILE_SIZE).unlink()
    left = [row for row in stored(store) if not 2 * FILE_SIZE <= int(str(row[3])) < 3 * FILE_SIZE]
    with StoreReader(store.paths.root) as reader:
        with pytest.raises(CorruptFileError, match="missing between"):
            rows(reader)
        assert rows(reader, on_damage="skip") == left


def test_a_commit_log_in_several_directories_is_one(store, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for number, path in enumerate(sorted(store.paths.commit_log.iterdir())):
        if number % 2:
            shutil.move(path, other / path.name)
    for places in ([store.paths.commit_log, other], f"{store.paths.commit_log},{other}"):
        with StoreReader(store.paths.root, places) as reader:
            assert rows(reader) == stored(store)


def test_a_commit_log_without_one_of_its_directories_is_not_read_as_a_shorter_one(store, tmp_path):
    files = sorted(store.paths.commit_log.iterdir())
    other = tmp_path / "other"
    with pytest.raises(CorruptFileError, match=r"no commit log.*other"):
        StoreReader(store.paths.root, [store.paths.commit_log, other])
    other.mkdir()
    with StoreReader(store.paths.root, [store.paths.commit_log, other]) as reader:
        assert rows(reader) == stored(store)
    newest = store.records[-1].store_timestamp
    Checkpoint(newest, newest, 0).write(store.paths.checkpoint)
    files[-1].unlink()
    with (
        StoreReader(store.paths.root, [store.paths.commit_log, other]) as reader,
        pytest.raises(CorruptFileError, match="is its disk mounted"),
    ):
        rows(reader)


def test_of_two_files_of_a_name_the_one_with_records_is_read(store, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / file_name(FILE_SIZE)).write_bytes(bytes(FILE_SIZE))
    for places in ([store.paths.commit_log, other], [other, store.paths.commit_log]):
        with StoreReader(store.paths.root, places) as reader:
            assert rows(reader) == stored(store)


def test_the_oldest_files_may_be_gone(store):
    store.log_file(0).unlink()
    with StoreReader(store.paths.root) as reader:
        assert rows(reader) == [row for row in stored(store) if int(str(row[3])) >= FILE_SIZE]
        for queues in reader.queues.values():
            for queue in queues.values():
                units = queue.units()
                assert not len(units) or int(units[0]["physical_offset"]) >= FILE_SIZE


def test_an_empty_store_has_no_messages_and_a_directory_that_is_none_is_named(tmp_path):
    builder = StoreBuilder(tmp_path / "empty")
    with StoreReader(builder.paths.root) as reader:
        assert rows(reader) == []
        assert reader.topics == []
    with pytest.raises(CorruptFileError, match="not the directory of a store"):
        StoreReader(tmp_path)


# Selections


def times_of(store: StoreBuilder, start: int, end: int) -> list[tuple[object, ...]]:
    low, high = FIRST_TIMESTAMP + start * STEP_MS, FIRST_TIMESTAMP + end * STEP_MS
    wanted = {r.physical_offset for r in store.records if low <= r.store_timestamp < high}
    return [row for row in stored(store) if row[3] in wanted]


def test_messages_are_selected_by_all_conditions(store):
    everything = stored(store)
    with StoreReader(store.paths.root) as reader:
        assert rows(reader, topics="Orders") == [row for row in everything if row[0] == "Orders"]
        assert rows(reader, topics=["Orders", "Logs"], queue_ids=[1]) == [
            row for row in everything if row[0] in ("Orders", "Logs") and row[1] == 1
        ]
        assert rows(reader, topic_pattern="E.*", offset_min=3, offset_max=5) == [
            row for row in everything if row[0] == "Events" and row[2] in (3, 4)
        ]
        assert rows(reader, topics="Nobody") == []
        half = {record.physical_offset for record in store.records if b"TAGS\x01T1" in record.properties}
        assert rows(reader, tags="T1") == [row for row in everything if row[3] in half]
        start = FIRST_TIMESTAMP + 100 * STEP_MS
        assert rows(reader, start_time=start, end_time=start + 40 * STEP_MS) == times_of(store, 100, 140)
        zoned = datetime.datetime.fromtimestamp(start / 1000, datetime.UTC)
        assert rows(reader, start_time=zoned) == times_of(store, 100, 1000)
        with pytest.raises(ConfigError, match="time zone"):
            rows(reader, start_time=zoned.replace(tzinfo=None))


def test_files_without_a_wanted_message_are_left_out(store):
    files = len(list(store.paths.commit_log.iterdir()))
    with StoreReader(store.paths.root) as reader:
        assert len(reader.segments()) == files
        rare = reader.segments(Selection(topics=frozenset({"Rare"})))
        assert 0 < len(rare) <= 3
        assert sum(segment.size for segment in rare) < 3 * FILE_SIZE
        assert reader.segments(Selection(topics=frozenset({"Rare"}), offset_min=1000)) == []
        late = Selection(store_timestamp_min=FIRST_TIMESTAMP + 190 * STEP_MS)
        assert len(reader.segments(late)) < files
        early = Selection(store_timestamp_max=FIRST_TIMESTAMP + 5 * STEP_MS)
        assert 0 < len(reader.segments(early)) < files
        assert len(reader.segments(Selection(topics=frozenset({"Rare"})), by_queues=False)) == files


def test_messages_whose_units_are_not_safe_yet_are_not_left_out(store):
    """As long as a broker runs, or after a crash, the newest units may be missing."""
    store.crash()
    safe = store.records[150].store_timestamp
    Checkpoint(safe + SAFETY_MARGIN_MS, safe + SAFETY_MARGIN_MS, 0).write(store.paths.checkpoint)
    for record in store.records[151:]:
        at = record.queue_offset * CONSUME_QUEUE_UNIT.size
        start = at - at % GEOMETRY.consume_queue_file_size
        with (store.paths.queue(record.topic.decode(), record.queue_id) / file_name(start)).open("r+b") as file:
            file.seek(at - start)
            file.write(bytes(CONSUME_QUEUE_UNIT.size))
    with StoreReader(store.paths.root) as reader:
        for topic in ("Orders", "Events", "Logs", "%RETRY%G", "Rare"):
            assert rows(reader, topics=topic) == [row for row in stored(store) if row[0] == topic]


def test_a_queue_with_a_missing_file_does_not_hide_messages(store):
    queue = max(store.paths.consume_queue.glob("*/*"), key=lambda path: len(list(path.iterdir())))
    files = sorted(queue.iterdir())
    assert len(files) > 2
    files[1].unlink()
    topic = queue.parent.name
    with StoreReader(store.paths.root) as reader:
        assert rows(reader, topics=topic) == [row for row in stored(store) if row[0] == topic]


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("size_max", [100, 1000, 3000, 1 << 30])
def test_ranges_of_any_size_hold_every_message_once(store, size_max, with_queues):
    if not with_queues:
        shutil.rmtree(store.paths.consume_queue)
    with StoreReader(store.paths.root) as reader:
        whole = reader.segments()
        segments = reader.segments(size_max=size_max)
        assert segments == sorted(segments)
        assert sum(segment.size for segment in segments) == sum(segment.size for segment in whole)
        assert len(segments) >= len(whole)
        if size_max == 1000:
            assert len(segments) > len(whole)
        found: list[int] = []
        for segment in segments:
            decoder = ColumnDecoder(["physical_offset"])
            for batch in reader.read_segments([segment], decoder):
                found += batch.columns["physical_offset"].values.tolist()
    assert found == [record.physical_offset for record in store.records]


def test_without_queues_files_stay_whole_unless_they_may_be_walked(store):
    shutil.rmtree(store.paths.consume_queue)
    with StoreReader(store.paths.root) as reader:
        assert reader.segments(size_max=500, may_walk=False) == reader.segments()


def test_a_forged_record_in_a_body_does_not_split_a_range(store):
    """A body may hold bytes that look like a record in the right place; only real units and whole walks count."""
    place = store.end + 88
    inner = StoreBuilder(store.paths.root.parent / "inner", start=place)
    inner.append(body=b"forged", TAGS="x")
    data = inner.log_bytes(place, inner.end)
    store.append("Orders", 0, data + bytes(1000))
    fill(store, 20)
    store.crash()
    Recovery(store.paths, GEOMETRY).run()
    for queues in (True, False):
        if not queues:
            shutil.rmtree(store.paths.consume_queue)
        with StoreReader(store.paths.root) as reader:
            for size_max in range(50, 2000, 130):
                decoder = ColumnDecoder(["physical_offset"])
                found = [
                    place
                    for segment in reader.segments(size_max=size_max)
                    for batch in reader.read_segments([segment], decoder)
                    for place in batch.columns["physical_offset"].values.tolist()
                ]
                assert found == [record.physical_offset for record in store.records]


# Consume queues


def test_units_are_a_view_of_the_file_with_the_layout_of_the_table(store):
    with StoreReader(store.paths.root) as reader:
        queue = reader.queue("Orders", 1)
        runs = list(queue.runs())
        own = [r for r in store.records if (r.topic, r.queue_id) == (b"Orders", 1)]
        assert len(runs) == -(-len(own) // 10)
        places: list[int] = []
        for first, units in runs:
            assert units.dtype == CONSUME_QUEUE_UNIT.dtype
            assert not units.flags.owndata
            assert not units.flags.writeable
            assert first == len(places)
            places += units["physical_offset"].tolist()
        assert places == [record.physical_offset for record in own]
        assert queue.bounds() == (0, len(own))
        np.testing.assert_array_equal(queue.units()["record_size"], [record.total_size for record in own])
        assert queue.units(3, 7)["physical_offset"].tolist() == places[3:7]
        assert [first for first, _ in queue.runs(12, 15)] == [12]
        assert len(queue.units(1000)) == 0


def test_an_unknown_queue_is_named(store):
    with StoreReader(store.paths.root) as reader:
        assert reader.topics == ["%RETRY%G", "Events", "Logs", "Orders", "Rare"]
        with pytest.raises(OffsetOutOfRangeError, match="queue id of topic Orders 9"):
            reader.queue("Orders", 9)
        with pytest.raises(OffsetOutOfRangeError, match="Nobody"):
            reader.queue("Nobody", 0)


def test_a_file_deleted_after_planning_is_an_error_and_not_silence(store):
    with StoreReader(store.paths.root) as reader:
        segments = reader.segments()
        store.log_file(0).unlink()
        with pytest.raises(OffsetOutOfRangeError):
            list(reader.read_segments(segments, ColumnDecoder()))


def test_files_of_another_kind_are_passed_over(store):
    (store.paths.commit_log / "notes.txt").write_text("x")
    (store.paths.commit_log / file_name(99 * FILE_SIZE)).write_bytes(b"")
    (store.paths.commit_log / "00000000000000000001.d").mkdir()
    (store.paths.consume_queue / "Orders" / "backup").mkdir()
    with StoreReader(store.paths.root) as reader:
        assert rows(reader) == stored(store)
        assert Counter(row[0] for row in rows(reader)).keys() == set(reader.topics)
