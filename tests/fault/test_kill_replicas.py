"""SIGKILL to a SYNC_MASTER, its slave, and their workers, while producers wait for acknowledgements.

Whatever dies: what was acknowledged is on both, once per queue offset, and the logs are the same bytes up to the end of
the shorter one. At the end the master is gone, and the slave's files alone must have it all.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.fault.history import History, wait_for_acks
from tests.fault.replicas import PAIR, await_slave, await_topic, logs_agree, refusal, start_slave
from tests.fault.rig import (
    DEADLINE_S,
    Witness,
    attach_segment,
    await_resumption,
    check_history,
    check_store,
    find_worker,
    new_history,
    seeded,
    seeds,
    under_load,
)
from tests.rigs import MqcoreBroker
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

WORKERS = [("master", "ha"), ("slave", "ha"), ("slave", "reput"), ("slave", "flush"), ("master", "send")]
EVERYDAY = [("slave", "ha")]
SLOW = [*WORKERS, ("slave", "broker"), ("master", "broker")]
SLOW_ROUNDS = 5
ACKS = 300
TURNS = 4


def kill(broker: MqcoreBroker, kind: str) -> None:
    """SIGKILL a worker, or the whole broker, which is then started again."""
    if kind == "broker":
        broker.kill()
        broker.start_again()
    else:
        os.kill(find_worker(broker, kind).pid, signal.SIGKILL)


def kill_some(tmp_path: Path, victims: list[tuple[str, str]], seed: int) -> None:
    rng = seeded(seed)
    with MqcoreBroker(tmp_path / "master", {**PAIR, "brokerRole": "SYNC_MASTER"}) as master:
        history: History = new_history(master, "OnBoth", str(seed))
        with start_slave(master, tmp_path / "slave") as slave:
            await_slave(master)
            with under_load(history, master):
                for number, kind in rng.sample(victims, len(victims)):
                    time.sleep(rng.uniform(0, 0.3))
                    witness = Witness()
                    kill(master if number == "master" else slave, kind)
                    taken_s = await_resumption(history, time.monotonic(), witness)
                    print(f"{number}'s {kind}: resumed after {taken_s:.2f} s, {history.summary()}")
                time.sleep(rng.uniform(0, 0.3))
                master.kill()
            slave.stop()
            history.forget_reads()
            check_store(history, slave.store_dir)
            logs_agree(master.store_dir, slave.store_dir)
            master.start_again()
            check_history(history, master)


def test_what_is_acknowledged_is_on_both_whoever_is_killed(tmp_path: Path) -> None:
    kill_some(tmp_path, EVERYDAY, seeds(1)[0])


def test_a_slave_that_is_made_master_has_everything_and_goes_on_behind_it(tmp_path: Path) -> None:
    seed = seeds(1)[0]
    seeded(seed)
    with MqcoreBroker(tmp_path / "master", {**PAIR, "brokerRole": "SYNC_MASTER"}) as master:
        history = new_history(master, "OnBoth", str(seed))
        with start_slave(master, tmp_path / "slave") as slave:
            await_slave(master)
            await_topic(slave, history.topic)
            with under_load(history, master):
                wait_for_acks(history, ACKS, DEADLINE_S)
                master.kill()
            slave.stop()
    history.forget_reads()
    with MqcoreBroker(tmp_path / "slave", {**PAIR, "brokerRole": "ASYNC_MASTER"}) as successor:
        check_history(history, successor)
        with under_load(history, successor, first=100):
            wait_for_acks(history, ACKS, DEADLINE_S)
        check_history(history, successor)
        # The old master is behind, or another history: messages that no slave had.
        with start_slave(successor, tmp_path / "master") as deposed:
            end = attach_segment(successor).get("wrote_offset")
            wait_until(
                lambda: refusal(deposed) or attach_segment(deposed).get("wrote_offset") == end,
                DEADLINE_S, "the old master copies, or says why it does not",
            )  # fmt: skip
            if not refusal(deposed):
                logs_agree(tmp_path / "master", tmp_path / "slave")
        check_history(history, successor)
        successor.stop()
        check_store(history, tmp_path / "slave")


def test_of_two_slaves_the_one_that_is_ahead_has_everything(tmp_path: Path) -> None:
    """One slave's word is enough for an acknowledgement, and it is not always the same one's."""
    seed = seeds(1)[0]
    rng = seeded(seed)
    with MqcoreBroker(tmp_path / "master", {**PAIR, "brokerRole": "SYNC_MASTER"}) as master:
        history = new_history(master, "OnOne", str(seed))
        with (
            start_slave(master, tmp_path / "one") as one,
            start_slave(master, tmp_path / "two", brokerId="2") as two,
        ):
            slaves = [one, two]
            await_slave(master, len(slaves))
            copiers = [find_worker(slave, "ha") for slave in slaves]
            with under_load(history, master, producers=2):
                for number in rng.choices(range(len(slaves)), k=TURNS):
                    copiers[number].suspend()
                    wait_for_acks(history, ACKS // TURNS, DEADLINE_S)
                    copiers[number].resume()
                    time.sleep(rng.uniform(0, 0.1))
                copiers[rng.randrange(len(slaves))].suspend()
                wait_for_acks(history, ACKS // TURNS, DEADLINE_S)
                master.kill()
            ends = [attach_segment(slave).get("wrote_offset") for slave in slaves]
            for copier in copiers:
                copier.resume()
            ahead = slaves[ends.index(max(ends))]
            for slave in slaves:
                slave.stop()
            history.forget_reads()
            check_store(history, ahead.store_dir)
            for slave in slaves:
                logs_agree(master.store_dir, slave.store_dir)


@pytest.mark.slow
def test_what_is_acknowledged_is_on_both_after_many_kills(tmp_path: Path) -> None:
    for number, seed in enumerate(seeds(SLOW_ROUNDS)):
        kill_some(tmp_path / str(number), SLOW, seed)
