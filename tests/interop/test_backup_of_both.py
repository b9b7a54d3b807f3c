"""Backups of Apache's store, and restored stores under Apache's broker and ours."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqcore.store.backup.making import make_backup
from mqcore.store.backup.restoring import restore
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.codec import Dispatcher
from tests.compat import apache_requests as requests
from tests.compat.test_apache_opens_our_store import GEOMETRY, PROPERTIES, TOPICS, write_topics
from tests.integration.backup_rig import DEADLINE_S, QUEUES, TOPIC, assert_holds, back_up, grow, served, stored, talking
from tests.rigs import ApacheServer, MqcoreBroker, maven, wire
from tests.unit.store_builder import StoreBuilder
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

RELEASE = "4.9.8"
SMALL = {"mappedFileSizeCommitLog": str(1 << 20)}
assert set(TOPICS) == {"Orders", "Events"}


@pytest.mark.slow
def test_a_store_of_apaches_is_backed_up_while_it_is_written_and_serves_under_both(tmp_path: Path) -> None:
    target = tmp_path / "backup"
    with ApacheServer(RELEASE, tmp_path / "store", SMALL) as apache:
        wire.create_topic(apache.broker_address, TOPIC, queues=QUEUES)
        with talking(apache) as talker:
            for _ in range(2):
                grow(talker, 700)
                acknowledged = talker.so_far()
                back_up(target, tmp_path / "store")
                assert_holds(stored(target), acknowledged)
    wanted = stored(target)
    restore(target, tmp_path / "new")
    with ApacheServer(RELEASE, tmp_path / "new", SMALL) as apache:
        assert served(apache, TOPIC, QUEUES) == wanted
        _, high = requests.bounds(apache.broker_address, TOPIC, 0)
        sent = requests.send(apache.broker_address, TOPIC, 0, b"on it goes", int(time.time() * 1000), {})
        assert (sent.code, sent.ext_fields["queueOffset"]) == (wire.SUCCESS, str(high))
    restore(target, tmp_path / "ours")
    with MqcoreBroker(tmp_path / "ours", SMALL) as ours:
        assert served(ours, TOPIC, QUEUES) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("release", [RELEASE, "5.3.3"])
def test_a_store_of_ours_is_restored_under_apaches_broker_with_its_groups_where_they_stood(
    tmp_path: Path, release: str
) -> None:
    target = tmp_path / "backup"
    offsets = tmp_path / "store" / "config" / "consumerOffset.json"
    with MqcoreBroker(tmp_path / "store", SMALL | {"flushConsumerOffsetInterval": "100"}) as ours:
        wire.create_topic(ours.broker_address, TOPIC, queues=QUEUES)
        with talking(ours) as talker:
            grow(talker, 700)
            wire.commit_offset(ours.broker_address, "billing", TOPIC, 1, 123)
            wait_until(lambda: offsets.exists() and "billing" in offsets.read_text(), DEADLINE_S, "offsets on disk")
            acknowledged = talker.so_far()
            back_up(target, tmp_path / "store")
    wanted = stored(target)
    assert_holds(wanted, acknowledged)
    restore(target, tmp_path / "new")
    with ApacheServer(release, tmp_path / "new", SMALL) as apache:
        assert served(apache, TOPIC, QUEUES) == wanted
        assert wire.consumer_offset(apache.broker_address, "billing", TOPIC, 1) == 123
        _, high = requests.bounds(apache.broker_address, TOPIC, 0)
        sent = requests.send(apache.broker_address, TOPIC, 0, b"on it goes", int(time.time() * 1000), {})
        assert (sent.code, sent.ext_fields["queueOffset"]) == (wire.SUCCESS, str(high))


def test_a_queue_whose_messages_have_expired_goes_on_where_it_was_under_apaches_broker(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", GEOMETRY)
    write_topics(store)
    for _ in range(137):
        store.append("Events", 0, body=bytes(1000))
    for number in range(300):
        store.append("Orders", number % 2, body=bytes(500))
    dispatcher = Dispatcher(store.paths, GEOMETRY)
    for offset, data in store.runs():
        dispatcher.dispatch(data, offset)
    dispatcher.flush()
    dispatcher.close()
    Checkpoint(store.timestamp, store.timestamp, 0).write(store.paths.checkpoint)
    for path in sorted(store.paths.commit_log.iterdir())[:3]:
        path.unlink()
    make_backup(tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    with ApacheServer(RELEASE, tmp_path / "new", PROPERTIES) as apache:
        assert requests.bounds(apache.broker_address, "Events", 0)[1] == 137
        for queue in range(2):
            kept = [record for record in store.records if record.physical_offset >= 3 * GEOMETRY.commit_log_file_size]
            own = [record.queue_offset for record in kept if (record.topic, record.queue_id) == (b"Orders", queue)]
            assert requests.bounds(apache.broker_address, "Orders", queue) == (own[0], 150)
        for topic, queue, wanted in (("Events", 0, 137), ("Orders", 1, 150)):
            sent = requests.send(apache.broker_address, topic, queue, b"next", store.timestamp, {"KEYS": "next"})
            assert (sent.code, sent.ext_fields["queueOffset"]) == (wire.SUCCESS, str(wanted))
        (found,) = requests.split_records(requests.query(apache.broker_address, "Events", "next"))
        assert b"next" in bytes(found)
        assert b"next" in requests.pull(apache.broker_address, "Events", 0, 137).body
