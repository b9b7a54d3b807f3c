"""Appending to the commit log: what is acknowledged can be read, lies where it was said, and nothing else changed."""

from __future__ import annotations

import itertools
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_rig import HOST, TOPIC, Appended, Log, Mortals, RawSegment, commit_log, mortals, shared_segment
from hypothesis import given
from hypothesis import strategies as st

from mqcore import layout
from mqcore.codes import SysFlag
from mqcore.errors import StoreError
from mqcore.store.log.record import PackedHost, join_properties
from mqcore.store.paths import file_name
from tests.waiting import wait_until

PUT = layout.constants("PutStatus")
STORE_FLAG = layout.constants("StoreFlag")
OK, ILLEGAL = PUT["PUT_OK"], PUT["MESSAGE_ILLEGAL"]
FILE_SIZE = 64 * 1024
BARE_SIZE = 91 + len(TOPIC)
BLANK = layout.FILE_END_MIN_BLANK_SIZE
REFUSED = Appended(ILLEGAL, [], 0, 0, 0, 0)
REFUSING = (
    "NOT_WRITABLE", "CONSUME_QUEUE_ERROR", "INDEX_ERROR", "DISK_FULL", "SYNC_FAILED", "SHUTTING_DOWN", "WORKER_MISSING",
)  # fmt: skip


@pytest.fixture
def log() -> Iterator[Log]:
    with commit_log(FILE_SIZE) as made:
        yield made


@pytest.fixture(scope="module")
def children() -> Iterator[Mortals]:
    with mortals() as found:
        yield found


# One message -----------------------------------------------------------------------------------------------------


addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
ports = st.integers(0, 65535)


@given(
    body=st.binary(max_size=300),
    properties=st.binary(max_size=100),
    topic=st.binary(min_size=1, max_size=127),
    queue_id=st.integers(0, 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.integers(0, 2**31 - 1),
    born_timestamp=st.integers(-(2**63), 2**63 - 1),
    born=st.tuples(addresses, ports),
    store=st.tuples(addresses, ports),
    reconsume_times=st.integers(-(2**31), 2**31 - 1),
    prepared_transaction_offset=st.integers(-(2**63), 2**63 - 1),
)
def test_a_record_says_what_was_appended(
    born: tuple[bytes, int], store: tuple[bytes, int], sys_flag: int, **message: Any
) -> None:
    with commit_log() as log:
        done = log.append(
            **message,
            sys_flag=sys_flag,
            born_address=born[0],
            born_port=born[1],
            store_address=store[0],
            store_port=store[1],
        )
        (record,) = log.check()
    host_bits = int(SysFlag.BORNHOST_V6) * (len(born[0]) == 16) | int(SysFlag.STOREHOST_V6) * (len(store[0]) == 16)
    assert record.sys_flag == sys_flag & ~int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6) | host_bits
    assert (record.born_host, record.store_host) == (PackedHost(*born), PackedHost(*store))
    assert {name: getattr(record, name) for name in message} == message
    assert (record.physical_offset, record.queue_offset, record.store_timestamp) == (0, 0, done.timestamp)
    assert done == Appended(OK, [0], record.total_size, 0, record.store_timestamp, record.total_size)


def test_offsets_are_dense_in_each_queue(log: Log) -> None:
    appended = [log.append(b"%d" % number, queue_id=number % 3) for number in range(30)]
    assert [done.queue_offset for done in appended] == [number // 3 for number in range(30)]
    assert [done.offsets[0] for done in appended] == [0, *(done.end for done in appended[:-1])]
    assert [record.body for record in log.check()] == [b"%d" % number for number in range(30)]


def test_the_board_says_what_was_appended(log: Log) -> None:
    appended = [log.append(bytes(size)) for size in (1, 1000, 3)]
    get = log.segment.get
    assert (get("put_times"), get("put_bytes")) == (3, sum(done.size for done in appended))
    tallies = [get(f"put_tally_{number}") for number in range(len(layout.PUT_TALLY_BOUNDS_MS) + 1)]
    assert sum(tallies) == 3
    assert max(number for number, count in enumerate(tallies) if count) == sum(
        get("put_ms_max") >= bound for bound in layout.PUT_TALLY_BOUNDS_MS
    )
    assert get("wrote_offset") == appended[-1].end
    assert get("wrote_timestamp") == appended[-1].timestamp
    assert (get("locked_since"), get("intent_end"), get("put_repairs")) == (0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        (SysFlag.TRANSACTION_PREPARED, False),
        (SysFlag.TRANSACTION_ROLLBACK, False),
        (SysFlag.TRANSACTION_COMMIT, True),
        (SysFlag.COMPRESSED, True),
    ],
)
def test_prepared_and_rolled_back_messages_take_no_place_in_their_queue(log: Log, kind: SysFlag, counts: bool) -> None:
    log.append()
    done = log.append(sys_flag=int(kind))
    assert done.queue_offset == (1 if counts else 0)
    assert log.append().queue_offset == (2 if counts else 1)
    assert [record.queue_offset for record in log.check()] == ([0, 1, 2] if counts else [0, 0, 1])


# The end of a file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [*range(BLANK + 8), 60, 89, 90, 91, 92, 106, 107, BARE_SIZE, BARE_SIZE + BLANK, 1000])
def test_a_record_that_does_not_fit_goes_to_the_next_file_behind_a_filler(log: Log, rest: int) -> None:
    # The first record ends *rest* bytes before the end of its file, or starts the next one if that leaves no filler.
    first = log.append(bytes(FILE_SIZE - rest - BARE_SIZE), properties=b"")
    if rest < BLANK:
        assert first == REFUSED
        return
    second = log.append(b"", properties=b"")
    fits = rest >= BARE_SIZE + BLANK
    assert second.offsets == [FILE_SIZE - rest if fits else FILE_SIZE]
    assert log.segment.get("file_rolls") == (0 if fits else 1)
    assert [record.physical_offset for record in log.check()] == [0, second.offsets[0]]
    if not fits:
        filler = log.read(first.end, layout.BLANK_RECORD.size)
        assert layout.BLANK_RECORD.struct.unpack(filler) == (rest, layout.BLANK_MAGIC)


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=40))
def test_a_log_of_any_sizes_over_several_files_is_whole(sizes: list[int]) -> None:
    with commit_log() as log:
        appended = [log.append(bytes([size % 256]) * size) for size in sizes]
        assert all(done.status == OK for done in appended)
        records = log.check()
        assert [record.body for record in records] == [bytes([size % 256]) * size for size in sizes]
        files = (log.end + FILE_SIZE - 1) // FILE_SIZE
        assert sorted(path.name for path in log.directory.iterdir()) == [file_name(n * FILE_SIZE) for n in range(files)]
        for record in records:
            end = record.physical_offset + record.total_size
            assert end // FILE_SIZE == record.physical_offset // FILE_SIZE, "a record lies over the end of its file"
            assert FILE_SIZE - end % FILE_SIZE >= BLANK, "no room for the filler"


def test_an_append_goes_on_where_another_process_stopped(log: Log) -> None:
    first = log.append()
    second = log.append(writer=log.another_writer())
    assert second.offsets == [first.end]
    assert log.append().queue_offset == 2
    assert len(log.check()) == 3


# Batches ---------------------------------------------------------------------------------------------------------


def member(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    size = layout.BATCH_MEMBER_HEAD.size + len(body) + 2 + len(properties)
    head = layout.BATCH_MEMBER_HEAD.struct.pack(size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


members = st.tuples(st.binary(max_size=100), st.binary(max_size=40), st.integers(-(2**31), 2**31 - 1))


@given(st.lists(members, min_size=1, max_size=20), st.binary(max_size=30))
def test_members_of_a_batch_become_records_of_their_own(batch: list[tuple[bytes, bytes, int]], shared: bytes) -> None:
    with commit_log() as log:
        before = log.append(b"before")
        done = log.append(b"".join(member(*each) for each in batch), properties=shared, is_batch=True)
        after = log.append(b"after")
        records = log.check()
    assert [record.body for record in records] == [b"before", *(body for body, _, _ in batch), b"after"]
    inner = records[1:-1]
    assert [record.flag for record in inner] == [flag for _, _, flag in batch]
    assert [record.properties for record in inner] == [join_properties(own, shared) for _, own, _ in batch]
    assert done.offsets == [record.physical_offset for record in inner]
    assert (done.status, done.queue_offset, done.size) == (OK, 1, sum(record.total_size for record in inner))
    assert (done.offsets[0], after.offsets[0], after.queue_offset) == (before.end, done.end, 1 + len(batch))


def test_a_batch_is_never_split_over_files(log: Log) -> None:
    log.append(bytes(FILE_SIZE - 1000))
    done = log.append(b"".join(member(bytes(200)) for _ in range(5)), properties=b"", is_batch=True)
    assert done.offsets[0] == FILE_SIZE
    assert len(log.check()) == 6


GOOD_MEMBER = member(b"body", b"k\x01v")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="no member"),
        *[pytest.param(GOOD_MEMBER + GOOD_MEMBER[:cut], id=f"cut at {cut}") for cut in range(1, len(GOOD_MEMBER))],
        pytest.param(GOOD_MEMBER + struct.pack(">iiiii", 99, 0, 0, 0, -1) + b"\0\0", id="negative body size"),
        pytest.param(GOOD_MEMBER + struct.pack(">iiiii", 99, 0, 0, 0, 2**31 - 1) + b"\0\0", id="huge body size"),
        pytest.param(GOOD_MEMBER + struct.pack(">iiiiih", 99, 0, 0, 0, 0, -1), id="negative properties size"),
        pytest.param(member(bytes(FILE_SIZE // 2)) * 2, id="more than a file"),
        pytest.param(member(b"", bytes(32767)), id="properties too long with the shared ones"),
    ],
)
def test_a_batch_that_cannot_be_stored_whole_is_not_stored_at_all(log: Log, body: bytes) -> None:
    log.append()
    assert log.append(body, properties=b"CLUSTER\x01c", is_batch=True) == REFUSED
    assert len(log.check()) == 1


# Limits and refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"topic": b""}, id="no topic"),
        pytest.param({"topic": b"t" * 128}, id="topic of 128 bytes"),
        pytest.param({"queue_id": -1}, id="negative queue"),
        pytest.param({"properties": bytes(32768)}, id="properties of 32768 bytes"),
        pytest.param({"body": bytes(FILE_SIZE - BARE_SIZE - BLANK + 1), "properties": b""}, id="more than a file"),
    ],
)
def test_a_message_beyond_the_layout_is_not_stored(log: Log, changes: dict[str, Any]) -> None:
    log.append()
    assert log.append(**changes) == REFUSED
    assert len(log.check()) == 1
    assert log.segment.get("put_times") == 1


def test_a_message_of_the_largest_size_is_stored() -> None:
    size_max = 1000
    with commit_log(FILE_SIZE * 4) as log:
        writer = log.another_writer(max_message_size=size_max)
        largest = size_max + 65536 - BARE_SIZE
        assert log.append(bytes(largest), writer, properties=b"").status == OK
        assert log.append(bytes(largest + 1), writer, properties=b"") == REFUSED
        assert log.append(member(bytes(largest + 1)), writer, properties=b"", is_batch=True) == REFUSED
        assert len(log.check()) == 1


@pytest.mark.parametrize("flag", REFUSING)
def test_a_store_that_refuses_stores_nothing(log: Log, flag: str) -> None:
    log.append()
    log.segment.set_flags(STORE_FLAG[flag])
    assert log.append().status == PUT["SERVICE_NOT_AVAILABLE"]
    assert log.append(GOOD_MEMBER, is_batch=True).status == PUT["SERVICE_NOT_AVAILABLE"]
    assert len(log.check()) == 1
    assert log.segment.get("locked_since") == 0
    if flag != "SYNC_FAILED":
        log.segment.clear_flags(STORE_FLAG[flag])
        assert log.append().status == OK


def test_a_directory_that_is_gone_is_an_error_code(tmp_path: Path) -> None:
    with shared_segment() as segment:
        log = Log(tmp_path / "gone", segment, FILE_SIZE)
        assert log.append().status == PUT["CREATE_MAPEDFILE_FAILED"]
        assert (segment.get("wrote_offset"), segment.get("locked_since"), segment.get("intent_end")) == (0, 0, 0)
        log.directory.mkdir()
        assert log.append().status == OK


@pytest.mark.parametrize("length", [0, FILE_SIZE - 1, FILE_SIZE + 1])
def test_a_file_of_another_length_is_not_written(log: Log, length: int) -> None:
    path = log.directory / file_name(0)
    path.write_bytes(bytes(length))
    assert log.append().status == PUT["CREATE_MAPEDFILE_FAILED"]
    assert path.read_bytes() == bytes(length)


def test_a_full_disk_is_told_apart_and_leaves_the_log_as_it_was() -> None:
    with commit_log(1 << 44) as log:
        assert log.append().status == PUT["SERVICE_NOT_AVAILABLE"]
        assert log.segment.get("store_flags") == STORE_FLAG["NO_NEXT_FILE"]
        assert (log.end, log.segment.get("locked_since")) == (0, 0)
        assert list(log.directory.iterdir()) == []


def test_a_lock_that_is_not_to_be_had_is_busy(log: Log, children: Mortals) -> None:
    log.append()
    board = RawSegment(log.segment.fd).board
    children.begin(log.segment, "keep_put_lock")
    wait_until(lambda: board["locked_since"] != 0, describe="the child has the put lock")
    impatient = log.another_writer(lock_timeout_ms=50)
    assert log.append(writer=impatient).status == PUT["OS_PAGECACHE_BUSY"]
    (pid,) = children.pids()
    # Who waits longer inherits it. Nothing else of this process runs meanwhile, so another one ends the owner.
    with subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -9 {pid}"]):
        assert log.append().status == OK
    assert children.finish() == [-9]
    assert len(log.check()) == 2
    assert (log.segment.get("put_repairs"), log.segment.get("locked_since")) == (1, 0)


def test_trimmed_files_are_let_go(log: Log) -> None:
    for _ in range(4):
        log.append(bytes(FILE_SIZE - 1000))
    log.writer.trim(2 * FILE_SIZE)
    maps = Path("/proc/self/maps").read_text()
    assert [f"{log.directory}/{file_name(n * FILE_SIZE)}" in maps for n in range(4)] == [False, False, True, True]
    assert log.append(store_address=HOST.address).status == OK


# Further queues --------------------------------------------------------------------------------------------------

LISTED = b"INNER_MULTI_DISPATCH\x01a,b\x02INNER_MULTI_QUEUE_OFFSET\x01"


def next_offset(log: Log, topic: bytes, queue_id: int = 0) -> int:
    return log.segment.queue_word(log.segment.queue_row(topic, queue_id), "next_offset")


def test_a_record_takes_an_offset_of_every_queue_that_it_lists(log: Log) -> None:
    log.append(topic=b"b")
    for number in range(12):
        done = log.append(properties=LISTED, more_queues=[(b"a", 0), (b"b", 0)])
        assert (done.status, done.queue_offset) == (OK, number)
    records = list(log.walk())
    assert [record.properties for record in records[1:]] == [LISTED + b"%d,%d" % (n, n + 1) for n in range(12)]
    assert (next_offset(log, b"a"), next_offset(log, b"b"), next_offset(log, TOPIC)) == (12, 13, 12)


def test_a_queue_that_is_listed_twice_or_is_the_records_own_counts_once(log: Log) -> None:
    for _ in range(2):
        log.append(properties=LISTED, more_queues=[(b"a", 0), (TOPIC, 0), (b"a", 0)])
    assert [record.properties.rpartition(b"\x01")[2] for record in list(log.walk())] == [b"0,0,0", b"1,1,1"]
    assert (next_offset(log, b"a"), next_offset(log, TOPIC)) == (2, 2)


def test_a_half_message_takes_no_offset(log: Log) -> None:
    log.append(properties=LISTED, more_queues=[(b"a", 0)], sys_flag=int(SysFlag.TRANSACTION_PREPARED))
    assert (next_offset(log, b"a"), next_offset(log, TOPIC)) == (0, 0)


@pytest.mark.parametrize(
    ("free", "status"), [(3, "PUT_OK"), (2, "PROPERTIES_SIZE_EXCEEDED"), (-1, "PROPERTIES_SIZE_EXCEEDED")]
)
def test_offsets_that_do_not_fit_are_refused_and_not_taken(log: Log, free: int, status: str) -> None:
    text = LISTED[:-1].rjust(32767 - free - 1, b"x") + b"\x01"
    done = log.append(b"", properties=text, more_queues=[(b"a", 0), (b"b", 0)])
    assert done.status == PUT[status]
    taken = int(status == "PUT_OK")
    assert (next_offset(log, TOPIC), log.end > 0) == (taken, bool(taken))
    assert log.append(b"after").status == OK


def test_a_record_that_is_too_large_with_its_offsets_is_refused(log: Log) -> None:
    room = FILE_SIZE - BLANK - BARE_SIZE - len(LISTED)
    assert log.append(bytes(room - 2), properties=LISTED, more_queues=[(b"a", 0), (b"b", 0)]).status == ILLEGAL
    assert log.append(bytes(room - 3), properties=LISTED, more_queues=[(b"a", 0), (b"b", 0)]).status == OK


# Drops -----------------------------------------------------------------------------------------------------------


def drop(log: Log, topic: bytes = TOPIC, dead_before: int = -1) -> list[int]:
    born, taken = log.writer.begin_drop([log.queue_row(topic=topic)], dead_before)
    log.writer.end_drop(taken, born)
    return taken


def test_a_queue_that_is_being_dropped_takes_no_message_and_begins_anew(log: Log) -> None:
    log.append()
    log.append(topic=b"other")
    row = log.queue_row()
    born, taken = log.writer.begin_drop([row])
    assert (born, taken) == (log.end, [row])
    refused = [
        log.append(),
        log.append(member(b"x"), is_batch=True),
        log.append(topic=b"other", properties=LISTED, more_queues=[(TOPIC, 0), (b"b", 0)]),
    ]
    assert {done.status for done in refused} == {PUT["SERVICE_NOT_AVAILABLE"]}
    assert log.end == born
    assert log.append(topic=b"other").queue_offset == 1
    drops = log.segment.get("drops")
    log.writer.end_drop(taken, born)
    assert log.segment.get("drops") == drops + 1
    assert log.segment.queue_births(row) == (born, 0)
    assert log.append().queue_offset == 0


def test_a_drop_that_could_not_be_written_down_changes_nothing(log: Log) -> None:
    log.append()
    drops = log.segment.get("drops")
    _, taken = log.writer.begin_drop([log.queue_row()])
    log.writer.end_drop(taken, -1)
    assert log.append().queue_offset == 1
    assert (log.segment.queue_births(log.queue_row()), log.segment.get("drops")) == ((0, 0), drops)


def test_a_queue_is_not_dropped_twice_at_a_time_nor_without_a_message_nor_while_its_topic_exists(log: Log) -> None:
    log.append()
    row = log.queue_row()
    born, taken = log.writer.begin_drop([row])
    assert log.writer.begin_drop([row]) == (born, [])
    log.writer.end_drop(taken, born)
    assert drop(log) == []
    log.append()
    log.segment.publish_topic(TOPIC, 6, 1, 1, True, False)
    assert drop(log) == []
    log.segment.remove_topic(TOPIC)
    assert drop(log) == [row]


@pytest.mark.parametrize(("max_offset", "dead_before", "is_taken"), [(2, 0, True), (2, -1, False), (1, 0, False)])
def test_an_expired_queue_is_dropped_unless_it_has_a_message_that_is_kept_or_not_dispatched(
    log: Log, max_offset: int, dead_before: int, is_taken: bool
) -> None:
    log.segment.publish_topic(TOPIC, 6, 1, 1, True, False)
    log.append()
    log.append()
    row = log.queue_row()
    log.segment.fill_queue(row, 0, 0, 2, log.end)
    log.segment.set_queue_word(row, "max_offset", max_offset)
    assert drop(log, dead_before=log.end + dead_before) == ([row] if is_taken else [])


# Another broker's bytes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 100, 333, 5_000, 70_000, 1 << 20])
def test_raw_bytes_in_pieces_of_any_size_make_the_same_log(chunk: int) -> None:
    with commit_log() as source, commit_log() as copy:
        for number in range(60):
            source.append(bytes(number * 97 % 4000), topic=b"t%d" % (number % 3))
        data = b"".join(path.read_bytes() for path in sorted(source.directory.iterdir()))[: source.end]
        at, sent = 0, 0
        while sent < len(data):
            sent = min(len(data), sent + chunk)
            at = copy.writer.append_raw(at, data[at:sent])
            assert copy.segment.get("readable_offset") == copy.end == at
        assert at == source.end > FILE_SIZE
        assert list(copy.walk()) == list(source.walk())
        for offset in range(0, at, FILE_SIZE):
            assert copy.read(offset, min(FILE_SIZE, at - offset)) == source.read(offset, min(FILE_SIZE, at - offset))
        assert copy.segment.get("wrote_timestamp") == source.segment.get("wrote_timestamp")


def test_raw_bytes_of_another_place_are_refused_and_what_was_whole_before_them_is_kept(log: Log) -> None:
    with commit_log() as source:
        for number in range(3):
            source.append(b"%d" % number)
        data = source.read(0, source.end)
        second = next(itertools.islice(source.walk(), 1, 2)).physical_offset
    with pytest.raises(StoreError, match="the log ends at 0"):
        log.writer.append_raw(second, data[second:])
    damaged = data[: second + 4] + b"\0" + data[second + 5 :]
    with pytest.raises(StoreError, match=f"bytes for {second}"):
        log.writer.append_raw(0, damaged)
    assert log.end == second
    with pytest.raises(StoreError):
        log.writer.append_raw(second, data[:second])
    assert log.writer.append_raw(second, data[second:]) == len(data)
    assert log.append(b"own", topic=b"own").queue_offset == 0


def test_a_store_that_refuses_messages_refuses_raw_bytes(log: Log) -> None:
    with commit_log() as source:
        source.append()
        data = source.read(0, source.end)
    log.segment.set_flags(layout.constants("StoreFlag")["DISK_FULL"])
    with pytest.raises(StoreError, match="PutStatus"):
        log.writer.append_raw(0, data)


def test_too_few_members_in_sync_refuse_messages_by_a_status_of_their_own(log: Log) -> None:
    flags = layout.constants("StoreFlag")
    log.segment.set_flags(flags["NOT_ENOUGH_REPLICAS"])
    assert log.append().status == layout.constants("PutStatus")["IN_SYNC_REPLICAS_NOT_ENOUGH"]
    log.segment.set_flags(flags["DISK_FULL"])
    assert log.append().status == layout.constants("PutStatus")["SERVICE_NOT_AVAILABLE"]
    assert log.end == 0


# How far may be read ---------------------------------------------------------------------------------------------


def test_what_is_written_may_be_read_unless_it_must_be_flushed_before(log: Log) -> None:
    log.append()
    first = log.end
    assert log.segment.get("readable_offset") == first
    log.segment.set("read_gates", layout.constants("ReadGate")["FLUSHED"])
    log.append()
    assert log.segment.get("readable_offset") == first
    log.segment.set_flushed(log.end)
    assert log.segment.get("readable_offset") == log.end
    log.segment.set_flushed(first)
    assert log.segment.get("readable_offset") == log.end, "what may be read never goes back"
