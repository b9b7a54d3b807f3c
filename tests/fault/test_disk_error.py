"""A disk that fails under a living broker: nothing is acknowledged any more, and the store says why.

Apache's broker goes on answering SEND_OK here.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from mqcore.testing.leftovers import those_left
from tests.fault import ext4
from tests.fault.ext4 import Disk
from tests.fault.history import History, key_of, make_body, read_all
from tests.fault.rig import (
    ASYNC_FLUSH,
    DEADLINE_S,
    SYNC_FLUSH,
    attach_segment,
    check_store,
    new_history,
    seeded,
    seeds,
    start_broker,
    under_load,
)
from tests.fault.talker import Talker, send_request
from tests.rigs import MqcoreBroker
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(ext4.missing_means()), reason=ext4.missing_means()),
]

DISK_SIZE = 256 << 20
SLOW_SEEDS = 20
REFUSED_SENDS = 20
EIO = 5


def answers_after(broker: MqcoreBroker, history: History) -> list[tuple[int, str]]:
    """Send some messages, each over a connection of its own; the codes and remarks of their answers."""
    answers = []
    for number in range(REFUSED_SENDS):
        body = make_body(history.run, 99, number, 100)
        history.note_sent([body])
        with Talker(broker.broker_address) as talker:
            response = talker.call(send_request(history.topic, number % history.queues, body, keys=key_of(body)))
        answers.append((response.code, response.remark or ""))
    return answers


def fail_disk(tmp_path: Path, properties: dict[str, str], seed: int) -> None:
    rng = seeded(seed)
    with Disk(tmp_path / "store", DISK_SIZE) as disk, start_broker(tmp_path, properties) as broker:
        history = new_history(broker, "Failing", f"fail{seed}")
        with under_load(history, broker):
            wait_until(lambda: history.acked_count > 100, DEADLINE_S, "messages are accepted")
            time.sleep(rng.uniform(0, 0.5))
            disk.cut()
            failed_at = time.monotonic()
            if properties is SYNC_FLUSH:
                wait_until(lambda: history.refused, DEADLINE_S, "messages are refused")
            else:
                wait_until(
                    lambda: attach_segment(broker).failure() is not None, DEADLINE_S, "the failure is written down"
                )
        # A file that cannot be made is SYSTEM_ERROR, as in RocketMQ, until a sync has failed.
        allowed = {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR}
        assert history.refused.keys() <= allowed, history.summary()
        if properties is SYNC_FLUSH:
            assert history.newest_acked <= failed_at, "a message sent after the failure was acknowledged"
        for code, remark in answers_after(broker, history):
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE, remark
            assert remark
        failure = attach_segment(broker).failure()
        assert failure is not None
        assert failure[0] == EIO
        wait_until(lambda: "the store is read-only" in broker.child.log.read_text(), DEADLINE_S, "the log says so")
        workers = broker.workers()
        broker.child.stop(DEADLINE_S)
        assert those_left(workers, DEADLINE_S) == []
        print(history.summary())
        disk.remount()
        broker.start_again()
        is_durable = properties is SYNC_FLUSH
        history.check(read_all(history, broker.broker_address, is_durable=is_durable), is_durable=is_durable)
        broker.stop()
        if is_durable:
            check_store(history, broker.store_dir)


def test_nothing_is_acknowledged_after_a_sync_has_failed(tmp_path: Path) -> None:
    fail_disk(tmp_path, SYNC_FLUSH, seeds(1)[0])


def test_a_failed_sync_ends_the_service_under_async_flush_too(tmp_path: Path) -> None:
    fail_disk(tmp_path, ASYNC_FLUSH, seeds(1)[0])


@pytest.mark.slow
def test_nothing_is_acknowledged_after_a_sync_has_failed_at_any_moment(tmp_path: Path) -> None:
    for seed in seeds(SLOW_SEEDS):
        fail_disk(tmp_path / str(seed), SYNC_FLUSH, seed)
