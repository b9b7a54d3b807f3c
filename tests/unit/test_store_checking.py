"""``mqcore store check``: whatever is damaged is found and named, and what a store in order holds is no damage."""

from __future__ import annotations

import random
import struct
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqcore._fast.queues import index_tally as fast_index
from mqcore._fast.queues import tally as fast
from mqcore.codes import SysFlag
from mqcore.layout import CHECKPOINT, CONSUME_QUEUE_UNIT, INDEX_ENTRY, INDEX_HEADER, RECORD_HEAD
from mqcore.store.checking import checker, log_check, log_part, state
from mqcore.store.checking.checker import CheckOptions, CheckReport, check_store
from mqcore.store.checking.damage import DAMAGE_DOCS, DamageKind
from mqcore.store.checking.index_files import list_index_files
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.geometry import StoreGeometry
from mqcore.store.incarnations import Birth, Incarnations, anchors_at
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.log.record import Record, encode
from mqcore.store.paths import file_name
from mqcore.store.queues import index_tally as plain_index
from mqcore.store.queues import tally as plain
from mqcore.store.queues.index_file import IndexGeometry
from mqcore.store.reader import StoreReader
from mqcore.store.recovery import Recovery
from tests.compat.make_apache_store import ARCHIVE
from tests.rows import walked
from tests.suite.seeds import chance_of_run
from tests.unit.store_builder import GEOMETRY, StoreBuilder, memory_directory

LOG_SIZE = GEOMETRY.commit_log_file_size
QUEUE_SIZE = GEOMETRY.consume_queue_file_size
UNIT = CONSUME_QUEUE_UNIT.size
TOPICS = ("Orders", "Events", "Orders", "%RETRY%G")
ROUNDS = 2


def fill(store: StoreBuilder, count: int = 240) -> None:
    chance = chance_of_run(f"checked store of {count}")
    for number in range(count):
        topic = TOPICS[number // 2 % len(TOPICS)]
        body = chance.randbytes(1 + chance.randrange(150))
        store.append(
            topic, number % 2, body, TAGS=f"T{number % 3}", KEYS=f"k{number} k{number // 7}", UNIQ_KEY=f"U{number}"
        )


def finish(store: StoreBuilder, geometry: StoreGeometry = GEOMETRY) -> StoreBuilder:
    """Build queues and index, and leave the store as one that was stopped in order."""
    store.crash()
    Recovery(store.paths, geometry).run()
    store.paths.abort.unlink()
    return store


def check(root: Path, **options: object) -> CheckReport:
    with StoreReader(root) as reader:
        return check_store(reader, CheckOptions(jobs=2, **options))  # type: ignore[arg-type]


def assert_sound(result: CheckReport, notes: bool = False) -> None:
    assert [str(one) for one in result.damage.kept] == []
    assert notes or result.notes == []


@pytest.fixture(scope="module")
def original() -> Iterator[StoreBuilder]:
    with memory_directory() as directory:
        store = StoreBuilder(directory / "store")
        fill(store)
        yield finish(store)


@pytest.fixture
def chance() -> random.Random:
    return chance_of_run("damage")


# What is in order


def test_a_store_that_was_stopped_has_no_damage(original):
    before = original.files()
    result = check(original.paths.root)
    assert_sound(result)
    assert result.log.record_count == result.unit_count == len(original.records)
    assert (result.log.start, result.log.end) == (0, original.end)
    assert result.entry_count == 3 * len(original.records)
    assert original.files() == before


@walked("name, state", [("clean", "stopped"), ("killed", "crashed")])
def test_stores_of_apaches_broker_have_no_damage(name, state, tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / name, filter="data")
    result = check(tmp_path / name / name)
    assert_sound(result, notes=True)
    assert result.state.use == state
    assert result.unit_count == result.log.record_count > 100


def test_transactions_dropped_queues_expired_files_and_new_topics_are_no_damage(tmp_path):
    store = StoreBuilder(tmp_path)
    for number in range(200):
        flag = (0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK)[number % 4]
        store.append("A", number % 3, b"x" * 60, int(flag), KEYS=f"k{number}")
        store.append("SCHEDULE_TOPIC_XXXX", 2, b"y", DELAY="3", REAL_TOPIC="A")
    # Queue 1 of A is dropped, and made anew.
    log = MappedFileQueue(store.paths.log, LOG_SIZE)
    log.refresh()
    Incarnations(store.paths.incarnations).add([Birth("A", 1, store.end, anchors_at(log, store.end))])
    store.next_offsets[("A", 1)] = 0
    for number in range(50):
        store.append("A", 1, b"new", TAGS=f"T{number}")
    finish(store)
    assert_sound(check(tmp_path))
    for start in (0, LOG_SIZE):
        (store.paths.commit_log / file_name(start)).unlink()
    assert_sound(check(tmp_path))


def test_a_topic_that_apache_has_deleted_and_made_again_is_no_damage(tmp_path):
    store = StoreBuilder(tmp_path)
    store.append_many(30, topic="Gone")
    store.append_many(30, topic="Again")
    store.next_offsets.clear()
    store.append_many(30, topic="Again")
    store.paths.config.mkdir(exist_ok=True)
    (store.paths.config / "topics.json").write_text('{"topicConfigTable":{"Again":{}}}')
    # Its consume queues have what came since.
    for (topic, queue_id), count in {("Again", 0): 15, ("Again", 1): 15}.items():
        own = [record for record in store.records if (record.topic.decode(), record.queue_id) == (topic, queue_id)][
            -count:
        ]
        write_units(store, topic, queue_id, own)
    Checkpoint(store.timestamp - 1000, store.timestamp - 1000, 0).write(store.paths.checkpoint)
    result = check(tmp_path)
    assert_sound(result, notes=True)
    assert [note for note in result.notes if "Gone" in note]


def write_units(store: StoreBuilder, topic: str, queue_id: int, records: list[Record]) -> None:
    """Write a queue's files as a broker has them."""
    data = bytearray()
    for record in records:
        tags = plain.property_value(record.properties, b"TAGS")
        code = plain.tags_code_of(record, ())
        assert tags is None or code
        data += CONSUME_QUEUE_UNIT.struct.pack(record.physical_offset, record.total_size, code)
    directory = store.paths.queue(topic, queue_id)
    directory.mkdir(parents=True)
    for start in range(0, len(data), QUEUE_SIZE):
        part = bytes(data[start : start + QUEUE_SIZE])
        (directory / file_name(start)).write_bytes(part.ljust(QUEUE_SIZE, b"\0"))


def test_what_a_crash_leaves_behind_the_end_is_no_damage(original, tmp_path):
    store = original.copy_to(tmp_path / "store")
    Checkpoint(0, 0, 0).write(store.paths.checkpoint)
    store.crash()
    torn = store.records[-20]
    store.flip(torn.physical_offset + torn.total_size - 3, 0xFF)
    store.flip(torn.physical_offset + RECORD_HEAD.offsets["magic"])
    result = check(store.paths.root)
    assert_sound(result, notes=True)
    assert result.log.end == torn.physical_offset
    assert result.log.behind == sum(record.total_size for record in store.records[-19:])


def test_a_backup_of_the_log_alone_has_no_damage(original, tmp_path):
    store = original.copy_to(tmp_path / "store")
    for directory in (store.paths.consume_queue, store.paths.index):
        for path in sorted(directory.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        directory.rmdir()
    store.paths.checkpoint.unlink()
    result = check(store.paths.root)
    assert_sound(result, notes=True)
    assert result.notes == ["no consume queues: the next start of a broker builds them"]


def test_an_empty_store_has_no_damage(tmp_path):
    store = StoreBuilder(tmp_path)
    result = check(store.paths.root)
    assert_sound(result)
    assert (result.log.record_count, result.log.end, result.unit_count) == (0, 0, 0)


def test_files_that_expire_while_a_store_in_use_is_read_are_no_damage(original, tmp_path, monkeypatch):
    store = original.copy_to(tmp_path / "store")
    monkeypatch.setattr(state, "is_held", lambda path: True)
    with StoreReader(store.paths.root) as reader:
        store.log_file(0).unlink()
        store.log_file(LOG_SIZE).unlink()
        result = check_store(reader, CheckOptions(jobs=2))
    assert_sound(result)
    assert (result.log.start, result.log.end) == (2 * LOG_SIZE, store.end)


def test_what_is_being_written_in_a_store_in_use_is_looked_at_again(original, tmp_path, monkeypatch):
    store = original.copy_to(tmp_path / "store")
    monkeypatch.setattr(state, "is_held", lambda path: True)
    start = 3 * LOG_SIZE
    torn = next(record for record in store.records if record.physical_offset > start + 1000)
    early = tmp_path / "early"
    whole = store.log_file(start).read_bytes()
    real = log_check.check_part
    for rest in (bytes(LOG_SIZE), b"\1" * 20 + bytes(LOG_SIZE)):
        early.write_bytes((whole[: torn.physical_offset - start] + rest)[:LOG_SIZE])
        looks = []

        def as_it_was(path: Path, *rest: object) -> object:
            looks.append(path)  # noqa: B023
            is_first = looks.count(store.log_file(start)) == 1  # noqa: B023
            return real(early if path == store.log_file(start) and is_first else path, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(log_check, "check_part", as_it_was)
        result = check(store.paths.root)
        assert_sound(result)
        assert result.log.record_count == len(store.records)
        assert looks.count(store.log_file(start)) == 2


def test_damage_in_a_store_in_use_is_found_though_it_is_looked_at_again(original, tmp_path, monkeypatch):
    store = original.copy_to(tmp_path / "store")
    monkeypatch.setattr(state, "is_held", lambda path: True)
    monkeypatch.setattr(log_check, "PAUSE_S", 0.0)
    monkeypatch.setattr(checker, "PAUSE_S", 0.0)
    record = store.records[50]
    store.flip(record.physical_offset + 88)
    other = unit_place(store, store.records[20], DamageKind.UNIT)
    flip(other[1], other[2] + 7)
    places = {(one.kind, one.path, one.position) for one in check(store.paths.root).damage.kept}
    assert places == {other, (DamageKind.RECORD, *log_place(store, record.physical_offset))}


def test_parts_of_any_size_say_the_same(original, monkeypatch):
    whole = check(original.paths.root).record()
    for size in (300, 1000, 5000):
        monkeypatch.setattr(checker, "PART_SIZE", size)
        assert check(original.paths.root).record() | {"seconds": 0} == whole | {"seconds": 0}


def test_a_body_that_looks_like_a_record_of_its_place_is_none(tmp_path, monkeypatch):
    store = StoreBuilder(tmp_path)
    fill(store, 20)
    for _ in range(40):
        model = replace(store.records[-1], body=b"inside", physical_offset=store.end + 88)
        store.append("Orders", 0, encode(model) + bytes(50))
    finish(store)
    for size in (100, 150, 400, 1500):
        monkeypatch.setattr(checker, "PART_SIZE", size)
        result = check(tmp_path)
        assert_sound(result)
        assert result.log.record_count == 60


# What is damaged


Damaged = tuple[DamageKind, Path, int]
"""The kind that must be named, the file, and the position there."""


def log_place(store: StoreBuilder, offset: int) -> tuple[Path, int]:
    return store.log_file(offset), offset % LOG_SIZE


def pick(store: StoreBuilder, chance: random.Random) -> Record:
    """A record that has others around it in its file."""
    return chance.choice(store.records[5:-5])


def head_damage(name: str, kind: DamageKind, bits: int = 0x01) -> Callable[[StoreBuilder, random.Random], Damaged]:
    def damage(store: StoreBuilder, chance: random.Random) -> Damaged:
        record = pick(store, chance)
        place = record.physical_offset + RECORD_HEAD.offsets[name] + 3
        store.flip(place, bits)
        return (kind, *log_place(store, record.physical_offset))

    return damage


def queue_offset_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    record = pick(store, chance)
    store.flip(record.physical_offset + RECORD_HEAD.offsets["queue_offset"] + 4)
    return (DamageKind.QUEUE_OFFSET, *log_place(store, record.physical_offset))


def body_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    record = pick(store, chance)
    body_at = record.physical_offset + 88
    store.flip(body_at + chance.randrange(len(record.body)), 1 << chance.randrange(8))
    return (DamageKind.RECORD, *log_place(store, record.physical_offset))


def zeros_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    record = pick(store, chance)
    store.write(record.physical_offset, bytes(record.total_size))
    return (DamageKind.RECORD, *log_place(store, record.physical_offset))


def last_record_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    record = store.records[-1]
    store.flip(record.physical_offset + 88)
    return (DamageKind.RECORD, *log_place(store, record.physical_offset))


def filler_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    start = chance.choice(sorted({record.physical_offset // LOG_SIZE * LOG_SIZE for record in store.records})[:-1])
    last = max(
        (record for record in store.records if record.physical_offset < start + LOG_SIZE),
        key=lambda r: r.physical_offset,
    )
    place = last.physical_offset + last.total_size
    store.flip(place + 3)
    return (DamageKind.FILLER, *log_place(store, place))


def queue_id_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    record = pick(store, chance)
    store.flip(record.physical_offset + RECORD_HEAD.offsets["queue_id"] + 3, 0x01)
    return unit_place(store, record, DamageKind.UNIT)


def topic_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    record = pick(store, chance)
    store.flip(record.physical_offset + 89 + len(record.body) + len(record.topic) - 1, 0x02)
    return unit_place(store, record, DamageKind.UNIT)


def tag_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    record = pick(store, chance)
    data = store.log_bytes(record.physical_offset, record.physical_offset + record.total_size)
    store.flip(record.physical_offset + data.index(b"TAGS\x01T") + 6, 0x04)
    return unit_place(store, record, DamageKind.UNIT)


def unit_place(store: StoreBuilder, record: Record, kind: DamageKind) -> Damaged:
    place = record.queue_offset * UNIT
    path = store.paths.queue(record.topic.decode(), record.queue_id) / file_name(place // QUEUE_SIZE * QUEUE_SIZE)
    return kind, path, place % QUEUE_SIZE


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, bits: int = 0x01) -> None:
    patch(path, position, bytes([path.read_bytes()[position] ^ bits]))


def unit_damage(name: str, byte: int) -> Callable[[StoreBuilder, random.Random], Damaged]:
    def damage(store: StoreBuilder, chance: random.Random) -> Damaged:
        found = unit_place(store, pick(store, chance), DamageKind.UNIT)
        flip(found[1], found[2] + CONSUME_QUEUE_UNIT.offsets[name] + byte, 1 << chance.randrange(4))
        return found

    return damage


def unit_zeros(store: StoreBuilder, chance: random.Random) -> Damaged:
    found = unit_place(store, pick(store, chance), DamageKind.UNIT_MISSING)
    patch(found[1], found[2], bytes(UNIT))
    return found


def units_swapped(store: StoreBuilder, chance: random.Random) -> Damaged:
    record = pick(store, chance)
    (other,) = [one for one in store.records if one.topic == record.topic and one.queue_id == record.queue_id
                and one.queue_offset == record.queue_offset + 1]  # fmt: skip
    one, two = (unit_place(store, each, DamageKind.UNIT) for each in (record, other))
    first, second = (each[1].read_bytes()[each[2] : each[2] + UNIT] for each in (one, two))
    patch(one[1], one[2], second)
    patch(two[1], two[2], first)
    return one


def queue_file_gone(number: int) -> Callable[[StoreBuilder, random.Random], Damaged]:
    def damage(store: StoreBuilder, chance: random.Random) -> Damaged:
        files = sorted(store.paths.queue("Orders", 0).iterdir())
        files[number].unlink()
        kind = DamageKind.UNIT_MISSING if files[number] in (files[0], files[-1]) else DamageKind.FILE_MISSING
        return kind, files[number], 0 if kind is DamageKind.UNIT_MISSING else -1

    return damage


def queue_file_short(store: StoreBuilder, chance: random.Random) -> Damaged:
    path = chance.choice(sorted(store.paths.queue("Orders", 1).iterdir()))
    with path.open("r+b") as file:
        file.truncate(chance.randrange(1, QUEUE_SIZE))
    return DamageKind.FILE_SIZE, path, -1


def queue_gone(store: StoreBuilder, chance: random.Random) -> Damaged:
    directory = store.paths.queue("Events", 1)
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    return DamageKind.FILE_MISSING, directory, -1


def log_file_gone(store: StoreBuilder, chance: random.Random) -> Damaged:
    path = chance.choice(sorted(store.paths.commit_log.iterdir())[1:-1])
    path.unlink()
    return DamageKind.FILE_MISSING, path, -1


def last_log_file_gone(store: StoreBuilder, chance: random.Random) -> Damaged:
    store.log_file(store.end).unlink()
    return DamageKind.CHECKPOINT, store.paths.checkpoint, 0


def log_file_short(store: StoreBuilder, chance: random.Random) -> Damaged:
    path = chance.choice(sorted(store.paths.commit_log.iterdir()))
    with path.open("r+b") as file:
        file.truncate(chance.randrange(100, LOG_SIZE // 2))
    return DamageKind.FILE_SIZE, path, -1


def foreign_file(store: StoreBuilder, chance: random.Random) -> Damaged:
    path = store.paths.commit_log / "notes.txt"
    path.write_text("mine")
    return DamageKind.FOREIGN_FILE, path, -1


def entry_damage(name: str, byte: int, kind: DamageKind) -> Callable[[StoreBuilder, random.Random], Damaged]:
    def damage(store: StoreBuilder, chance: random.Random) -> Damaged:
        path = chance.choice(sorted(store.paths.index.iterdir())[:-1])
        number = chance.randrange(3, GEOMETRY.index.entry_count - 3)
        position = GEOMETRY.index.entry_position(number)
        flip(path, position + INDEX_ENTRY.offsets[name] + byte, 0x01)
        return kind, path, position

    return damage


def slot_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    path = chance.choice(sorted(store.paths.index.iterdir())[:-1])
    data = path.read_bytes()
    slots = [INDEX_HEADER.size + 4 * slot for slot in range(GEOMETRY.index.slot_count)]
    position = chance.choice([at for at in slots if any(data[at : at + 4])])
    patch(path, position, bytes(4))
    return DamageKind.INDEX_CHAIN, path, position


def index_header_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    path = chance.choice(sorted(store.paths.index.iterdir()))
    flip(path, INDEX_HEADER.offsets["used_slot_count"] + 3, 0x01)
    return DamageKind.INDEX_HEADER, path, INDEX_HEADER.offsets["used_slot_count"]


def index_bound(name: str) -> Callable[[StoreBuilder, random.Random], Damaged]:
    def damage(store: StoreBuilder, chance: random.Random) -> Damaged:
        path = chance.choice(sorted(store.paths.index.iterdir())[1:-1])
        flip(path, INDEX_HEADER.offsets[name] + 6)
        return DamageKind.INDEX_HEADER, path, INDEX_HEADER.offsets[name]

    return damage


def index_short(store: StoreBuilder, chance: random.Random) -> Damaged:
    path = chance.choice(sorted(store.paths.index.iterdir()))
    with path.open("r+b") as file:
        file.truncate(chance.randrange(1, GEOMETRY.index.file_size))
    return DamageKind.FILE_SIZE, path, -1


def checkpoint_ahead(name: str) -> Callable[[StoreBuilder, random.Random], Damaged]:
    def damage(store: StoreBuilder, chance: random.Random) -> Damaged:
        newest = store.records[-1].store_timestamp
        position = CHECKPOINT.offsets[name]
        patch(store.paths.checkpoint, position, struct.pack(">q", newest + chance.randrange(1, 10_000)))
        return DamageKind.CHECKPOINT, store.paths.checkpoint, position

    return damage


def checkpoint_short(store: StoreBuilder, chance: random.Random) -> Damaged:
    store.paths.checkpoint.write_bytes(b"1234")
    return DamageKind.CHECKPOINT, store.paths.checkpoint, -1


def births_damage(store: StoreBuilder, chance: random.Random) -> Damaged:
    births = Incarnations(store.paths.incarnations)
    births.add([Birth("X", number, 1) for number in range(3)])
    flip(store.paths.incarnations, 20)
    return DamageKind.TABLE, store.paths.incarnations, -1


DAMAGES = [
    pytest.param(damage, id=name)
    for name, damage in {
        "body": body_damage,
        "crc": head_damage("body_crc", DamageKind.RECORD),
        "magic": head_damage("magic", DamageKind.RECORD),
        "total size": head_damage("total_size", DamageKind.RECORD, 0x40),
        "physical offset": head_damage("physical_offset", DamageKind.RECORD),
        "queue offset": queue_offset_damage,
        "zeros": zeros_damage,
        "last record": last_record_damage,
        "filler": filler_damage,
        "queue id": queue_id_damage,
        "topic": topic_damage,
        "tag": tag_damage,
        "unit offset": unit_damage("physical_offset", 6),
        "unit far offset": unit_damage("physical_offset", 2),
        "unit size": unit_damage("record_size", 3),
        "unit tags code": unit_damage("tags_code", 7),
        "unit zeros": unit_zeros,
        "units swapped": units_swapped,
        "queue file gone": queue_file_gone(1),
        "first queue file gone": queue_file_gone(0),
        "last queue file gone": queue_file_gone(-1),
        "queue file short": queue_file_short,
        "queue gone": queue_gone,
        "log file gone": log_file_gone,
        "last log file gone": last_log_file_gone,
        "log file short": log_file_short,
        "foreign file": foreign_file,
        "entry hash": entry_damage("key_hash", 1, DamageKind.INDEX_CHAIN),
        "entry offset": entry_damage("physical_offset", 6, DamageKind.INDEX_ENTRY),
        "entry far offset": entry_damage("physical_offset", 2, DamageKind.INDEX_ENTRY),
        "entry seconds": entry_damage("seconds_since_begin", 3, DamageKind.INDEX_ENTRY),
        "entry chain": entry_damage("previous_entry", 3, DamageKind.INDEX_CHAIN),
        "slot": slot_damage,
        "index header": index_header_damage,
        "index begin": index_bound("begin_physical_offset"),
        "index end": index_bound("end_physical_offset"),
        "index short": index_short,
        "physic time": checkpoint_ahead("physic_timestamp"),
        "logics time": checkpoint_ahead("logics_timestamp"),
        "checkpoint short": checkpoint_short,
        "births": births_damage,
    }.items()
]


@walked("damage", DAMAGES)
def test_damage_at_a_random_place_is_found_and_named(damage, original, chance):
    for _ in range(ROUNDS):
        with memory_directory() as directory:
            store = original.copy_to(directory / "store")
            kind, path, position = damage(store, chance)
            result = check(store.paths.root)
            places = {(one.kind, one.path, one.position) for one in result.damage.kept}
            # What breaks a chain is found there first, unless the entry is the only one of both slots.
            also = DamageKind.INDEX_ENTRY if kind is DamageKind.INDEX_CHAIN else kind
            assert {(kind, path, position), (also, path, position)} & places, (
                f"{[str(one) for one in result.damage.kept]}"
            )
            assert all(one.found != one.wanted for one in result.damage.kept)


@pytest.mark.parametrize("sizes", [(50, 40), (7, 33), (13, 1000)])
def test_the_geometry_of_an_index_is_found_out(tmp_path, sizes):
    geometry = replace(GEOMETRY, index=IndexGeometry(*sizes))
    store = StoreBuilder(tmp_path, geometry)
    fill(store, 60)
    finish(store, geometry)
    damage: list[object] = []
    found = list_index_files(store.paths.index, damage)  # type: ignore[arg-type]
    assert not damage
    assert {file.geometry for file in found} == {geometry.index}
    assert_sound(check(tmp_path))


@pytest.mark.parametrize("place", ["gone", "tags code", "time", "whole file"])
def test_ext_units_are_looked_up(tmp_path, place):
    geometry = replace(GEOMETRY, ext_enabled=True, ext_file_size=400)
    store = StoreBuilder(tmp_path, geometry)
    fill(store, 100)
    finish(store, geometry)
    assert_sound(check(tmp_path))
    directory = store.paths.queue_ext("Orders", 0)
    path = sorted(directory.iterdir())[1]
    if place == "whole file":
        path.unlink()
    else:
        flip(path, {"gone": 1, "tags code": 9, "time": 17}[place])
    found = check(tmp_path).damage.kept
    assert {one.kind for one in found} == {DamageKind.EXT_UNIT}
    assert {one.path.parent for one in found} == {store.paths.queue("Orders", 0)}


def test_a_disk_that_cannot_read_is_named(original, monkeypatch, tmp_path):
    store = original.copy_to(tmp_path / "store")
    broken = store.log_file(2 * LOG_SIZE)
    read = log_part.Reading.read

    def fail(self: object, target: memoryview, position: int) -> int:
        if Path(f"/proc/self/fd/{self.descriptor}").readlink() == broken:  # type: ignore[attr-defined]
            raise OSError(5, "Input/output error")
        return read(self, target, position)  # type: ignore[arg-type]

    monkeypatch.setattr(log_part.Reading, "read", fail)
    found = [one for one in check(store.paths.root).damage.kept if one.kind is DamageKind.UNREADABLE]
    assert [one.path for one in found] == [broken]


# The tallies


def tallies(module: object, store: StoreBuilder, cut: int = 0, **options: object) -> tuple[object, ...]:
    tally = module.LogTally(**options)  # type: ignore[attr-defined]
    tally.bear(b"Events", 1, store.records[50].physical_offset)
    tally.know(b"%LMQ%x", 0)
    tally.know(b"Other", 1)
    tally.want(b"Orders", 1)
    tally.want(b"%LMQ%x", 0)
    tally.want_keys()
    outcomes = [tally.feed(data[: len(data) - cut], start) for start, data in store.runs()]
    return (
        outcomes, sorted(tally.queues()), tally.breaks(), tally.break_count, tally.record_count, tally.first_timestamp,
        tally.key_count, tally.key_sum, tally.unit_rows().tolist(), tally.key_rows().tolist(),
    )  # fmt: skip


def test_the_twins_of_the_tally_say_the_same(tmp_path):
    store = StoreBuilder(tmp_path)
    fill(store, 100)
    store.append("Orders", 0, queue_offset=7)
    store.append("Orders", 0)
    store.append("Orders", 1, queue_offset=0)
    store.append("SCHEDULE_TOPIC_XXXX", 1, DELAY="4", TAGS="x")
    store.append("bad topic", 1, queue_offset=3)
    store.append("A", 1, INNER_MULTI_DISPATCH="%LMQ%x,Other,None", INNER_MULTI_QUEUE_OFFSET="4,5,6")
    store.append("A", 1, INNER_MULTI_DISPATCH="%LMQ%x,Other", INNER_MULTI_QUEUE_OFFSET="4")
    store.append("A", 1, sys_flag=int(SysFlag.TRANSACTION_PREPARED), KEYS="a  b")
    store.append("A", 1, sys_flag=int(SysFlag.TRANSACTION_ROLLBACK), KEYS="a  b")
    places = [record.physical_offset for record in store.records]
    covers = [
        plain.Coverage(places[3], places[40], 0),
        plain.Coverage(places[40], places[90], store.timestamp - 90_000),
    ]
    for options in (
        {}, {"coverage": covers}, {"unit_end": places[60]}, {"check_crc": False}, {"delay_levels_ms": (5, 6)},
    ):  # fmt: skip
        for cut in (0, 3):
            assert tallies(plain, store, cut, **options) == tallies(fast, store, cut, **options)


def test_the_twins_sum_the_same_units():
    chance = chance_of_run("units")
    units = [(4096 * chance.randrange(6) + chance.randrange(4096), chance.choice([100, 0, -3, 0x7FFFFFFF]),
              chance.choice([0, -5, -(1 << 62)])) for _ in range(300)]  # fmt: skip
    data = b"".join(CONSUME_QUEUE_UNIT.struct.pack(*unit) for unit in units)
    for bounds in ((0, 4096, 0, 1 << 62), (4096, 4096, 5000, 20_000), (0, 1 << 20, 0, 10)):
        assert plain.sum_units(data, 17, *bounds) == fast.sum_units(data, 17, *bounds)
    assert plain.sum_units(b"", 0, 0, 1, 0, 1) == fast.sum_units(b"", 0, 0, 1, 0, 1)


def test_the_twins_follow_the_same_entries():
    chance = chance_of_run("entries")
    entries = [(chance.randrange(-3, 40), chance.randrange(20_000), chance.randrange(9), chance.randrange(12))
               for _ in range(300)]  # fmt: skip
    data = b"".join(INDEX_ENTRY.struct.pack(*entry) for entry in entries)
    slots = b"".join(struct.pack(">i", chance.randrange(-2, 310)) for _ in range(11))
    found = []
    for module in (plain_index, fast_index):
        tally = module.IndexTally(11, (100, 15_000), 0, 4096, 50, 16_000)
        tally.feed(data[:2000])
        tally.feed(data[2000:])
        found.append(
            (tally.breaks(), tally.break_count, tally.runs(), tally.run_count, tally.sums(), tally.slots(slots))
        )
    assert found[0] == found[1]
    assert found[0][1] > plain.BREAKS_MAX


def test_the_page_lists_every_kind_of_damage_and_each_is_injected():
    page = Path("docs/operations.md").read_text()
    for kind, doc in DAMAGE_DOCS.items():
        assert f"| `{kind}` | {doc} |" in page
    # The others have tests of their own above.
    named = {kind for kind in DamageKind if f"DamageKind.{kind.name}" in Path(__file__).read_text()}
    assert named == set(DamageKind)
