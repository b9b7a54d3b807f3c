"""A running Apache broker on a store that ours wrote: it starts, serves what is there, and gives the store back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqcore.codes import SysFlag
from mqcore.errors import StoreLockedError
from mqcore.store.abort_file import AbortFile
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.codec import Dispatcher
from mqcore.store.geometry import StoreGeometry
from mqcore.store.incarnations import Birth, Incarnations, anchors_at
from mqcore.store.lock_file import LockFile
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.message_store import MessageStoreReader
from mqcore.store.queues.index_file import IndexGeometry
from mqcore.store.recovery import Recovery
from tests.compat import apache_requests as requests
from tests.rigs import ApacheServer, ChildError, maven
from tests.unit.store_builder import StoreBuilder

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

RELEASE = "4.9.8"
GEOMETRY = StoreGeometry(
    commit_log_file_size=65536, consume_queue_file_size=1000, index=IndexGeometry(slot_count=50, entry_count=100)
)
PROPERTIES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "1000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "100",
}
TOPICS = {"Orders": 2, "Events": 1}
ENDS = ("stopped", "crashed here and there")
QUEUES = [("Orders", 0), ("Orders", 1), ("Events", 0)]


def write_topics(store: StoreBuilder) -> None:
    table = {
        name: {
            "order": False, "perm": 6, "readQueueNums": queues, "topicFilterType": "SINGLE_TAG", "topicName": name,
            "topicSysFlag": 0, "writeQueueNums": queues,
        }
        for name, queues in TOPICS.items()
    }  # fmt: skip
    value = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}
    (store.paths.config / "topics.json").write_text(json.dumps(value))


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    """300 messages over several files, some of them compressed in name only, from IPv6 hosts, or rolled back."""
    store = StoreBuilder(tmp_path / "store", GEOMETRY)
    write_topics(store)
    for number in range(300):
        topic, queue_id = QUEUES[number % 3]
        store.append(
            topic, queue_id, body=b"b" * (number * 7 % 900), KEYS=f"k{number % 9} x", UNIQ_KEY=f"U{number}", TAGS="標籤"
        )
        if number % 50 == 49:
            store.append("Events", 0, sys_flag=int(SysFlag.TRANSACTION_ROLLBACK), TAGS="gone")
            store.append("Events", 0, sys_flag=int(SysFlag.TRANSACTION_COMMIT), TAGS="committed")
    return store


def dispatch(store: StoreBuilder) -> None:
    dispatcher = Dispatcher(store.paths, store.geometry)
    for offset, data in store.runs():
        assert dispatcher.dispatch(data, offset).consumed == len(data)
    dispatcher.flush()
    dispatcher.close()


def write_checkpoint(store: StoreBuilder) -> None:
    newest = store.records[-1].store_timestamp
    Checkpoint(newest, newest, 0).write(store.paths.checkpoint)


@contextmanager
def apache(store: StoreBuilder, *, is_stopped: bool = False) -> Iterator[str]:
    """Apache's broker on the store; at the end killed, or stopped in order, which takes it ten seconds."""
    with ApacheServer(RELEASE, store.paths.root, PROPERTIES) as server:
        yield server.broker_address
        if is_stopped:
            server.stop()


def queue_bytes(store: StoreBuilder, topic: str, queue_id: int) -> list[bytes]:
    own = [
        record
        for record in store.records
        if (record.topic.decode(), record.queue_id) == (topic, queue_id)
        and record.sys_flag & SysFlag.TRANSACTION_ROLLBACK != SysFlag.TRANSACTION_ROLLBACK
    ]
    return [store.log_bytes(record.physical_offset, record.physical_offset + record.total_size) for record in own]


def assert_serves(broker: str, store: StoreBuilder) -> None:
    """Everything in the store comes out of the broker by every way that reads."""
    for topic, queue_id in QUEUES:
        wanted = queue_bytes(store, topic, queue_id)
        assert requests.bounds(broker, topic, queue_id) == (0, len(wanted))
        assert list(requests.split_records(requests.pull_all(broker, topic, queue_id))) == wanted
    for record in store.records[::37]:
        raw = store.log_bytes(record.physical_offset, record.physical_offset + record.total_size)
        assert requests.view(broker, record.physical_offset) == raw


def assert_indexed(broker: str, store: StoreBuilder) -> None:
    for number in range(0, 300, 23):
        topic = QUEUES[number % 3][0]
        found = list(requests.split_records(requests.query(broker, topic, f"U{number}")))
        assert found == [raw for raw in map(bytes, found) if f"UNIQ_KEY\x01U{number}\x02".encode() in raw]
        assert len(found) == 1


def test_a_store_that_we_stopped_cleanly_is_served_and_given_back(store):
    dispatch(store)
    write_checkpoint(store)
    with apache(store, is_stopped=True) as broker:
        assert_serves(broker, store)
        assert_indexed(broker, store)
        with pytest.raises(StoreLockedError):
            LockFile(store.paths.lock).acquire()
        sent = requests.send(broker, "Orders", 1, b"from Apache", store.timestamp, {"KEYS": "apache"})
        assert sent.ext_fields["queueOffset"] == str(len(queue_bytes(store, "Orders", 1)))
    result = Recovery(store.paths, GEOMETRY).run()
    assert not result.after_crash
    reader = MessageStoreReader(store.paths, GEOMETRY, result.watermarks())
    (record,) = reader.query_message("Orders", "apache", 9, 0, requests.FAR_FUTURE).records
    assert b"from Apache" in record
    assert [reader.read_message(own.physical_offset) for own in store.records] == store.records
    assert reader.max_offset("Orders", 1) == len(queue_bytes(store, "Orders", 1)) + 1


def test_a_store_that_we_left_in_a_crash_is_recovered(store):
    dispatch(store)
    write_checkpoint(store)
    AbortFile(store.paths.abort).create()
    with apache(store) as broker:
        assert_serves(broker, store)


def test_a_log_without_consume_queues_and_index_is_enough(store):
    AbortFile(store.paths.abort).create()
    with apache(store) as broker:
        assert_serves(broker, store)
        assert_indexed(broker, store)


def test_a_store_that_we_recovered_after_a_crash_is_served(store):
    dispatch(store)
    torn = store.append("Orders", 0)
    store.flip(torn.physical_offset + 90)
    store.records.pop()
    AbortFile(store.paths.abort).create()
    assert Recovery(store.paths, GEOMETRY).run().commit_log_end == torn.physical_offset
    AbortFile(store.paths.abort).remove()
    with apache(store) as broker:
        assert_serves(broker, store)
        assert_indexed(broker, store)


def test_a_queue_that_begins_later_is_served_from_there(tmp_path):
    store = StoreBuilder(tmp_path / "store", GEOMETRY)
    write_topics(store)
    for number in range(120):
        store.append("Orders", 0, queue_offset=137 + number, TAGS="T")
    dispatch(store)
    write_checkpoint(store)
    with apache(store) as broker:
        assert requests.bounds(broker, "Orders", 0)[1] == 257
        records = [record.physical_offset for record in store.records]
        assert [requests.view(broker, offset)[:8] for offset in records] == [
            store.log_bytes(offset, offset + 8) for offset in records
        ]


def test_apache_refuses_a_store_that_we_hold(store):
    dispatch(store)
    lock = LockFile(store.paths.lock)
    lock.acquire()
    try:
        with pytest.raises(ChildError):
            ApacheServer(RELEASE, store.paths.root, PROPERTIES).kill()
    finally:
        lock.release()


def drop(store: StoreBuilder, topic: str, queue_id: int) -> Birth:
    """Drop a queue at the end of the log, as our broker writes it down."""
    log = MappedFileQueue(store.paths.log, GEOMETRY.commit_log_file_size)
    log.load()
    birth = Birth(topic, queue_id, store.end, anchors_at(log, store.end))
    Incarnations.read(store.paths.incarnations).add([birth])
    store.next_offsets[(topic, queue_id)] = 0
    return birth


@pytest.mark.parametrize("end", ["either", *(pytest.param(end, marks=pytest.mark.slow) for end in ENDS)])
def test_a_queue_that_was_dropped_here_stays_so_on_the_way_there_and_back(store, end, chance):
    """Apache's broker knows no births: a crash makes it build the old queue, and of the new one what claims offset 0.

    That is its own way with a topic that was deleted and made again. We pass over the old messages again.
    """
    crashed = (chance.choice(ENDS) if end == "either" else end) == "crashed here and there"
    dispatch(store)
    old = store.next_offsets[("Orders", 0)]
    birth = drop(store, "Orders", 0)
    for number in range(5):
        store.append("Orders", 0, body=b"new %d" % number)
    shutil.rmtree(store.paths.queue("Orders", 0))
    dispatcher = Dispatcher(store.paths, store.geometry)
    dispatcher.bear(b"Orders", 0, birth.born)
    for offset, data in store.runs():
        dispatcher.dispatch(data, offset)
    dispatcher.flush()
    dispatcher.close()
    write_checkpoint(store)
    if crashed:
        shutil.rmtree(store.paths.consume_queue)
        store.paths.checkpoint.unlink()
        store.crash()
    first, kept = (old, 1) if crashed else (0, 5)
    with ApacheServer(RELEASE, store.paths.root, PROPERTIES) as server:
        low, high = requests.bounds(server.broker_address, "Orders", 0)
        assert (low, high) == (0, first + kept)
        sent = requests.send(server.broker_address, "Orders", 0, b"from Apache", store.timestamp, {"KEYS": "apache"})
        assert sent.ext_fields["queueOffset"] == str(first + kept)
        server.stop()
    result = Recovery(store.paths, GEOMETRY).run()
    (state,) = [state for state in result.queues if (state.topic, state.queue_id) == ("Orders", 0)]
    assert (state.min_offset, state.max_offset) == (first, first + kept + 1)
    reader = MessageStoreReader(store.paths, GEOMETRY, result.watermarks())
    units = reader.read_units("Orders", 0, first, 32)
    bodies = [reader.read_message(int(unit["physical_offset"])).body for unit in units]
    assert bodies == [*(b"new %d" % number for number in range(kept)), b"from Apache"]
    reader.close()
