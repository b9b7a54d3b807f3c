"""A full disk is an answer to the producer, nobody dies of it, and with room again messages are accepted again."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from tests.fault import ext4
from tests.fault.ext4 import Disk
from tests.fault.history import read_all
from tests.fault.rig import (
    ASYNC_FLUSH,
    DEADLINE_S,
    SYNC_FLUSH,
    WORKER_KINDS,
    attach_segment,
    check_history,
    check_store,
    find_worker,
    new_history,
    start_broker,
    under_load,
)
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(ext4.missing_means()), reason=ext4.missing_means()),
]

DISK_SIZE = 64 << 20
CHUNK_SIZES = (1 << 20, 1 << 12, 1)
FULL_FOR_S = 4.0
SEEN_FULL_AFTER_S = 30.0
FLUSH_MODES = [pytest.param(SYNC_FLUSH, id="sync"), pytest.param(ASYNC_FLUSH, id="async")]


def fill(path: Path) -> None:
    """Write a file until not one more byte finds room."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for size in CHUNK_SIZES:
            try:
                while os.write(descriptor, bytes(size)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("properties", FLUSH_MODES)
def test_a_full_disk_refuses_messages_until_it_has_room_again(tmp_path: Path, properties: dict[str, str]) -> None:
    with Disk(tmp_path / "store", DISK_SIZE), start_broker(tmp_path, properties) as broker:
        history = new_history(broker, "Full", "full")
        pids = {kind: find_worker(broker, kind).pid for kind in WORKER_KINDS}
        filler = tmp_path / "store" / "filler"
        with under_load(history, broker):
            wait_until(lambda: history.acked_count > 100, DEADLINE_S, "messages are accepted")
            fill(filler)
            wait_until(lambda: history.refused, DEADLINE_S, "messages are refused")
            time.sleep(FULL_FOR_S)
            accepted = history.acked_count
            refused = dict(history.refused)
            filler.unlink()
            wait_until(lambda: history.acked_count > accepted + 100, SEEN_FULL_AFTER_S, "messages are accepted again")
        print(history.summary())
        assert refused.keys() == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert {kind: find_worker(broker, kind).pid for kind in WORKER_KINDS} == pids
        assert attach_segment(broker).failure() is None
        # What was refused by the send worker is tried again by the broker process: order is not promised here.
        history.check(read_all(history, broker.broker_address), in_order=False)
        broker.stop()
        assert "SIGBUS" not in broker.child.log.read_text()
        check_store(history, broker.store_dir, in_order=False)


def create_topics(broker: MqcoreBroker, count: int) -> None:
    for number in range(count):
        wire.create_topic(broker.broker_address, f"NoRoom{number}")


def test_a_topic_that_finds_no_room_is_refused_and_can_be_made_later(tmp_path: Path) -> None:
    with Disk(tmp_path / "store", DISK_SIZE), start_broker(tmp_path, SYNC_FLUSH) as broker:
        filler = tmp_path / "store" / "filler"
        fill(filler)
        with pytest.raises(AssertionError, match="No space left on device"):
            create_topics(broker, 200)
        filler.unlink()
        history = new_history(broker, "Room", "room")
        with under_load(history, broker):
            wait_until(lambda: history.acked_count > 100, DEADLINE_S, "messages are accepted")
        check_history(history, broker)
        broker.stop()


def test_a_broker_stops_in_order_on_a_full_disk(tmp_path: Path) -> None:
    with Disk(tmp_path / "store", DISK_SIZE), start_broker(tmp_path, SYNC_FLUSH) as broker:
        history = new_history(broker, "Stopped", "stopped")
        with under_load(history, broker):
            wait_until(lambda: history.acked_count > 100, DEADLINE_S, "messages are accepted")
            fill(tmp_path / "store" / "filler")
        broker.stop()
        (tmp_path / "store" / "filler").unlink()
        check_store(history, broker.store_dir, in_order=False)
        broker.start_again()
        history.check(read_all(history, broker.broker_address), in_order=False)
        broker.stop()
