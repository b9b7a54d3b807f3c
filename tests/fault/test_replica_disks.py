"""The disk of a SYNC_MASTER or of its slave loses its power, or its room: what was acknowledged is on the other one.

A slave acknowledges what is in its memory, so a power cut of both at once takes what neither had on disk; of one it
must take nothing for good.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from tests.fault import ext4
from tests.fault.ext4 import Disk
from tests.fault.history import History, read_all, wait_for_acks
from tests.fault.replicas import PAIR, await_slave, await_topic, logs_agree, refusal, start_slave
from tests.fault.rig import DEADLINE_S, check_history, check_store, new_history, seeded, seeds, under_load
from tests.fault.test_full_disk import fill
from tests.fault.test_power_cut import cut_power
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(ext4.missing_means()), reason=ext4.missing_means()),
]

DISK_SIZE = 64 << 20
LAZY = {"flushIntervalCommitLog": "60000", "flushCommitLogThoroughInterval": "60000"}
"""The log reaches the disk by chance only."""
TIMELY = {"slaveTimeout": "1000", "haHousekeepingInterval": "3000"}
MANY_CUTS = 5
ACKS = 200
UNCOPIED = {ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}


@contextlib.contextmanager
def running_pair(
    tmp_path: Path, role: str = "SYNC_MASTER", **properties: str
) -> Iterator[tuple[MqcoreBroker, MqcoreBroker]]:
    """A master and a slave that copies; *properties* are of both."""
    given = {**TIMELY, **properties}
    with (
        MqcoreBroker(tmp_path / "master", {**PAIR, **given, "brokerRole": role}) as master,
        start_slave(master, tmp_path / "slave", **given) as slave,
    ):
        await_slave(master)
        yield master, slave


def await_more(history: History, what: str) -> None:
    print(f"{what}: {history.summary()}")
    wait_for_acks(history, ACKS, DEADLINE_S)


def check_pair(history: History, master: MqcoreBroker, slave: MqcoreBroker) -> None:
    """The master dies, and the slave's files have it all; then the master's have it, too."""
    seen = dict(history.seen)
    master.kill()
    slave.stop()
    history.forget_reads()
    check_store(history, slave.store_dir)
    logs_agree(master.store_dir, slave.store_dir)
    master.start_again()
    history.seen.update(seen)
    check_history(history, master)


def log_end(broker: MqcoreBroker) -> int:
    table = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    return int(table["commitLogMaxOffset"])


def recovered_end(broker: MqcoreBroker) -> int:
    """Where the log ended when the broker was started last."""
    return int(re.findall(r"recovery done end=(\d+)", broker.child.log.read_text())[-1])


def test_what_a_power_cut_takes_from_the_master_its_slave_has_and_the_two_do_not_mix(tmp_path: Path) -> None:
    seed = seeds(1)[0]
    seeded(seed)
    with Disk(tmp_path / "master", DISK_SIZE) as disk, running_pair(tmp_path, **LAZY) as (master, slave):
        history = new_history(master, "OnBoth", f"cut{seed}")
        await_topic(slave, history.topic)
        with under_load(history, master):
            await_more(history, "before the cut")
            cut_power(master, disk)
        history.forget_reads()
        history.check(read_all(history, slave.broker_address))
        end = log_end(slave)
        master.start_again()
        assert log_end(master) < end, "the power cut took nothing"
        wait_until(lambda: "another history" in refusal(slave), DEADLINE_S, "the slave says why it does not copy")
        later = History(f"later{seed}", "OnBoth", history.queues)
        with under_load(later, master):
            wait_until(lambda: later.refused, DEADLINE_S, "sends are told that no slave has them")
        assert later.refused.keys() == {ResponseCode.SLAVE_NOT_AVAILABLE}
        assert later.acked_count == 0
        assert log_end(slave) == end
        history.check(read_all(history, slave.broker_address))


@pytest.mark.parametrize("cuts", [1, pytest.param(MANY_CUTS, marks=pytest.mark.slow)])
def test_what_a_power_cut_takes_from_the_slave_comes_again(tmp_path: Path, cuts: int) -> None:
    seed = seeds(1)[0]
    seeded(seed)
    with Disk(tmp_path / "slave", DISK_SIZE) as disk, running_pair(tmp_path, **LAZY) as (master, slave):
        history = new_history(master, "OnBoth", f"cut{seed}")
        with under_load(history, master, producers=2):
            for number in range(cuts):
                await_more(history, f"before cut {number}")
                end = log_end(slave)
                cut_power(slave, disk)
                slave.start_again()
                assert recovered_end(slave) < end, "the power cut took nothing"
            await_more(history, "after the last cut")
        check_pair(history, master, slave)


def test_a_slave_without_room_is_not_counted_until_it_has_room_again(tmp_path: Path) -> None:
    seed = seeds(1)[0]
    seeded(seed)
    with Disk(tmp_path / "slave", DISK_SIZE), running_pair(tmp_path) as (master, slave):
        history = new_history(master, "OnBoth", f"full{seed}")
        filler = tmp_path / "slave" / "filler"
        with under_load(history, master, producers=2):
            await_more(history, "before the disk is full")
            fill(filler)
            wait_until(lambda: history.refused, DEADLINE_S, "sends are told that no slave has them")
            assert history.refused.keys() <= UNCOPIED
            filler.unlink()
            await_more(history, "with room again")
        check_pair(history, master, slave)
