"""A power cut: what was acknowledged under SYNC_FLUSH is there afterwards, the topic and the group included.

The disk is a real file system that loses, at the chosen instant, whatever was not synced.
"""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import psutil
import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.command import RemotingCommand
from mqcore.testing.leftovers import those_left
from tests.fault import ext4
from tests.fault.ext4 import Disk
from tests.fault.history import History, read_all, wait_for_acks
from tests.fault.rig import (
    ASYNC_FLUSH,
    DEADLINE_S,
    QUEUES,
    SYNC_FLUSH,
    check_store,
    seeded,
    seeds,
    start_broker,
    under_load,
)
from tests.fault.talker import Talker
from tests.rigs import MqcoreBroker, wire

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(ext4.missing_means()), reason=ext4.missing_means()),
]

DISK_SIZE = 256 << 20
CUTS = 4
PRODUCERS = 4
SLOW_SEEDS = 20
GET_ALL_SUBSCRIPTIONGROUP = 201


def cut_power(broker: MqcoreBroker, disk: Disk) -> None:
    """Everything stands still, the disk goes, everything is gone, the disk comes back."""
    processes = [*broker.workers(), psutil.Process(broker.pid)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    disk.cut()
    for process in processes:
        process.send_signal(signal.SIGKILL)
    broker.kill()
    assert those_left(processes, DEADLINE_S) == []
    disk.remount()


def create_group(broker: MqcoreBroker, name: str) -> None:
    command = RemotingCommand(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=f'{{"groupName":"{name}"}}'.encode()
    )
    with Talker(broker.broker_address) as talker:
        response = talker.call(command)
    assert response.code == ResponseCode.SUCCESS, response.remark


def group_names(broker: MqcoreBroker) -> set[str]:
    answer = wire.call(broker.broker_address, GET_ALL_SUBSCRIPTIONGROUP)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return set(answer.json()["subscriptionGroupTable"])


def cut_again_and_again(tmp_path: Path, properties: dict[str, str], seed: int, *, is_durable: bool) -> None:
    """Cut the power several times on one store, each time soon after a topic was made by its first message."""
    rng = seeded(seed)
    histories: list[History] = []
    groups: set[str] = set()
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(Disk(tmp_path / "store", DISK_SIZE))
        broker = stack.enter_context(start_broker(tmp_path, properties))
        for number in range(CUTS):
            history = History(f"cut{seed}.{number}", f"Cut{number}", QUEUES)
            histories.append(history)
            # One at a time: of two that a connection has under way together the second may find the topic made while
            # the first is still making it, and come before it.
            with under_load(history, broker, producers=PRODUCERS, burst_max=1):
                wait_for_acks(history, 1, DEADLINE_S)
            with under_load(history, broker, producers=PRODUCERS, first=PRODUCERS):
                wait_for_acks(history, history.acked_count + 1, DEADLINE_S)
                groups.add(f"group{number}")
                create_group(broker, f"group{number}")
                time.sleep(rng.choice((0, rng.uniform(0, 0.05), rng.uniform(0, 1))))
                cut_power(broker, disk)
            broker.start_again()
            for earlier in histories:
                earlier.check(read_all(earlier, broker.broker_address, is_durable=is_durable), is_durable=is_durable)
                if not is_durable:
                    earlier.forget_lost()
            assert groups <= group_names(broker)
            print(history.summary())
        broker.stop()
        for history in histories:
            check_store(history, broker.store_dir)


def test_a_power_cut_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    cut_again_and_again(tmp_path, SYNC_FLUSH, seeds(1)[0], is_durable=True)


def test_a_power_cut_under_async_flush_takes_the_end_and_leaves_nothing_torn(tmp_path: Path) -> None:
    cut_again_and_again(tmp_path, ASYNC_FLUSH, seeds(1)[0], is_durable=False)


@pytest.mark.slow
def test_many_power_cuts_take_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    for seed in seeds(SLOW_SEEDS):
        cut_again_and_again(tmp_path / str(seed), SYNC_FLUSH, seed, is_durable=True)
