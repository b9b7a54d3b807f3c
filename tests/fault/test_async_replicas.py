"""An ASYNC_MASTER and its slave: sends wait for nobody, whoever comes back goes on, and what is not copied is the end.

The faults are those of a SYNC_MASTER (test_kill_replicas, test_partitions, test_replica_disks); what is promised is
less: a master that is gone takes with it what its slave had not got yet.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.fault import ext4
from tests.fault.ext4 import Disk
from tests.fault.history import History, read_all, wait_for_acks
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
from tests.fault.test_full_disk import fill
from tests.fault.test_kill_replicas import SLOW, kill
from tests.fault.test_partitions import Pair
from tests.fault.test_power_cut import cut_power
from tests.fault.test_replica_disks import DISK_SIZE, LAZY, recovered_end, running_pair
from tests.rigs import MqcoreBroker, network
from tests.rigs.network import Network
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

ROLE = "ASYNC_MASTER"
BROKERS = [("slave", "broker"), ("master", "broker")]
ACKS = 200


def log_end(broker: MqcoreBroker) -> int:
    return int(attach_segment(broker).get("wrote_offset"))


def await_copy(master: MqcoreBroker, slave: MqcoreBroker) -> None:
    wait_until(lambda: log_end(slave) == log_end(master), DEADLINE_S, "the slave has what its master has")


def check_both(history: History, master: MqcoreBroker, slave: MqcoreBroker) -> None:
    """Whoever is there has everything, once the slave has gone on."""
    await_copy(master, slave)
    assert not history.refused, "a send was told something of slaves"
    check_history(history, master)
    slave.stop()
    check_store(history, slave.store_dir)
    logs_agree(master.store_dir, slave.store_dir)


def kill_some(tmp_path: Path, victims: list[tuple[str, str]], seed: int) -> None:
    rng = seeded(seed)
    with MqcoreBroker(tmp_path / "master", {**PAIR, "brokerRole": ROLE}) as master:
        history = new_history(master, "OnBoth", str(seed))
        with start_slave(master, tmp_path / "slave") as slave:
            await_slave(master)
            with under_load(history, master):
                for number, kind in rng.sample(victims, len(victims)):
                    time.sleep(rng.uniform(0, 0.3))
                    witness = Witness()
                    kill(master if number == "master" else slave, kind)
                    await_resumption(history, time.monotonic(), witness)
            check_both(history, master, slave)


def test_nothing_is_lost_of_an_async_pair_whose_dead_come_back(tmp_path: Path, chance: random.Random) -> None:
    workers = [victim for victim in SLOW if victim not in BROKERS]
    kill_some(tmp_path, [chance.choice(BROKERS), chance.choice(workers)], seeds(1)[0])


@pytest.mark.slow
def test_nothing_is_lost_of_an_async_pair_of_which_everybody_dies_and_comes_back(tmp_path: Path) -> None:
    for number, seed in enumerate(seeds(2)):
        kill_some(tmp_path / str(number), SLOW, seed)


def test_an_async_master_that_is_gone_leaves_its_slave_all_that_was_copied(tmp_path: Path) -> None:
    seed = seeds(1)[0]
    with MqcoreBroker(tmp_path / "master", {**PAIR, "brokerRole": ROLE}) as master:
        before = new_history(master, "Before", f"before{seed}")
        later = new_history(master, "Later", f"later{seed}")
        with start_slave(master, tmp_path / "slave") as slave:
            await_slave(master)
            with under_load(before, master):
                wait_for_acks(before, ACKS, DEADLINE_S)
            await_copy(master, slave)
            copier = find_worker(slave, "ha")
            copier.suspend()
            end = log_end(slave)
            with under_load(later, master):
                wait_for_acks(later, ACKS, DEADLINE_S)
                master.kill()
            assert log_end(slave) == end
            copier.resume()
            slave.stop()
            check_store(before, slave.store_dir)
            logs_agree(master.store_dir, slave.store_dir)


@pytest.mark.root
@pytest.mark.skipif(bool(network.missing_tools()), reason=network.missing_tools())
def test_sends_of_an_async_master_go_on_behind_a_cut_and_the_slave_goes_on_after_it(
    tmp_path: Path, chance: random.Random
) -> None:
    with Network(chance) as wire:
        pair = Pair(wire, tmp_path, ROLE)
        try:
            with pair.master_machine.entered():
                history = new_history(pair.master, "OnBoth", str(seeds(1)[0]))
                await_slave(pair.master)
                with under_load(history, pair.master):
                    for break_it in (wire.cut, lambda: lose_one_way(wire, chance)):
                        wait_for_acks(history, ACKS, DEADLINE_S)
                        break_it()
                        wait_for_acks(history, ACKS, DEADLINE_S)
                        wire.heal()
                check_both(history, pair.master, pair.slave)
        finally:
            pair.kill()


def lose_one_way(wire: Network, chance: random.Random) -> None:
    chance.choice([wire.there, wire.back]).loss = 1.0


needs_disks = pytest.mark.skipif(bool(ext4.missing_means()), reason=ext4.missing_means())


@needs_disks
@pytest.mark.root
@pytest.mark.slow
def test_what_a_power_cut_takes_from_the_slave_of_an_async_master_comes_again(tmp_path: Path) -> None:
    with Disk(tmp_path / "slave", DISK_SIZE) as disk, running_pair(tmp_path, ROLE, **LAZY) as (master, slave):
        history = new_history(master, "OnBoth", f"cut{seeds(1)[0]}")
        with under_load(history, master):
            wait_for_acks(history, ACKS, DEADLINE_S)
            end = log_end(slave)
            cut_power(slave, disk)
            wait_for_acks(history, ACKS, DEADLINE_S)
            slave.start_again()
            assert recovered_end(slave) < end, "the power cut took nothing"
            wait_for_acks(history, ACKS, DEADLINE_S)
        check_both(history, master, slave)


@needs_disks
@pytest.mark.root
@pytest.mark.slow
def test_what_a_power_cut_takes_from_an_async_master_its_slave_has_and_is_refused(tmp_path: Path) -> None:
    seed = seeds(1)[0]
    with Disk(tmp_path / "master", DISK_SIZE) as disk, running_pair(tmp_path, ROLE, **LAZY) as (master, slave):
        history = new_history(master, "OnBoth", f"cut{seed}")
        await_topic(slave, history.topic)
        with under_load(history, master):
            wait_for_acks(history, ACKS, DEADLINE_S)
        await_copy(master, slave)
        cut_power(master, disk)
        master.start_again()
        assert log_end(master) < log_end(slave), "the power cut took nothing"
        wait_until(lambda: "another history" in refusal(slave), DEADLINE_S, "the slave says why it does not copy")
        later = History(f"later{seed}", "OnBoth", history.queues)
        with under_load(later, master):
            wait_for_acks(later, ACKS, DEADLINE_S)
        assert not later.refused, "a send was told something of slaves"
        history.forget_reads()
        history.check(read_all(history, slave.broker_address))


@needs_disks
@pytest.mark.root
@pytest.mark.slow
def test_a_slave_of_an_async_master_without_room_goes_on_when_it_has_some(tmp_path: Path) -> None:
    with Disk(tmp_path / "slave", DISK_SIZE), running_pair(tmp_path, ROLE) as (master, slave):
        history = new_history(master, "OnBoth", f"full{seeds(1)[0]}")
        filler = tmp_path / "slave" / "filler"
        with under_load(history, master):
            wait_for_acks(history, ACKS, DEADLINE_S)
            fill(filler)
            wait_for_acks(history, ACKS, DEADLINE_S)
            filler.unlink()
            wait_for_acks(history, ACKS, DEADLINE_S)
        check_both(history, master, slave)
