"""A SYNC_MASTER and its slave on two machines, and a wire that is cut, loses packets, is slow or goes one way only.

Whatever the wire does: what was acknowledged is on both, once per queue offset, and the logs are the same bytes up to
the end of the shorter one. In the end the wire is cut and the master gone: the slave's files alone must have it all.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from tests.fault.history import History
from tests.fault.replicas import PAIR, await_slave, logs_agree
from tests.fault.rig import DEADLINE_S, check_history, check_store, find_worker, new_history, seeded, seeds, under_load
from tests.rigs import MqcoreBroker, network
from tests.rigs.network import Machine, Network
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(network.missing_tools()), reason=network.missing_tools()),
]

# Who is silent for two seconds is left; some faults are over before that, others are not.
ON_A_WIRE = {**PAIR, "bindAddress": "0.0.0.0", "haHousekeepingInterval": "2000", "slaveTimeout": "500"}
HOLD_MAX_S = 4.0
SLOW_DELAY_S = 0.1
LOSSY = 0.3
EVERYDAY_FAULTS = 2
PRODUCERS = 2
SLOW_ROUNDS = 6


class Pair:
    """A master and its slave, each on a machine of its own."""

    def __init__(self, wire: Network, home: Path, role: str = "SYNC_MASTER") -> None:
        self.wire = wire
        self.master_machine, self.slave_machine = wire.machines
        self.master = self._start(self.master_machine, home / "master", {"brokerRole": role})
        try:
            slave = {"namesrvAddr": self.master.name_server, "brokerId": "1", "brokerRole": "SLAVE"}
            self.slave = self._start(self.slave_machine, home / "slave", slave)
        except BaseException:
            self.master.kill()
            raise

    def _start(self, machine: Machine, store: Path, role: dict[str, str]) -> MqcoreBroker:
        address = {"brokerIP1": machine.address, "brokerIP2": machine.address}
        with machine.entered():
            return MqcoreBroker(store, {**ON_A_WIRE, **address, **role})

    def start_again(self, broker: MqcoreBroker) -> None:
        with (self.master_machine if broker is self.master else self.slave_machine).entered():
            broker.start_again()

    def kill(self) -> None:
        self.slave.kill()
        self.master.kill()


@pytest.fixture
def pair(tmp_path: Path, chance: random.Random) -> Iterator[Pair]:
    with Network(chance) as wire:
        pair = Pair(wire, tmp_path)
        try:
            yield pair
        finally:
            pair.kill()


# What happens -----------------------------------------------------------------------------------------------------

Fault = Callable[[Pair, History, random.Random], None]


def await_refusals(history: History) -> None:
    """Wait until sends are told that no slave has them: what is broken is broken."""
    codes = (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)

    def count() -> int:
        return sum(history.refused.get(code, 0) for code in codes)

    before = count()
    wait_until(lambda: count() > before, DEADLINE_S, "a send is told that no slave has it")


def hold(rng: random.Random) -> None:
    time.sleep(rng.uniform(0, HOLD_MAX_S))


def cut(pair: Pair, history: History, rng: random.Random) -> None:
    pair.wire.cut()
    await_refusals(history)
    hold(rng)


def lose_what_the_master_says(pair: Pair, history: History, rng: random.Random) -> None:
    pair.wire.there.loss = 1.0
    await_refusals(history)
    hold(rng)


def lose_what_the_slave_says(pair: Pair, history: History, rng: random.Random) -> None:
    pair.wire.back.loss = 1.0
    await_refusals(history)
    hold(rng)


def lose_some(pair: Pair, history: History, rng: random.Random) -> None:
    pair.wire.there.loss = pair.wire.back.loss = LOSSY
    lost = pair.wire.there.lost + pair.wire.back.lost
    hold(rng)
    wait_until(lambda: pair.wire.there.lost + pair.wire.back.lost > lost, DEADLINE_S, "a packet is lost")


def be_slow(pair: Pair, history: History, rng: random.Random) -> None:
    pair.wire.there.delay_s = pair.wire.back.delay_s = SLOW_DELAY_S
    began = time.monotonic()
    hold(rng)
    wait_until(lambda: history.newest_acked > began, DEADLINE_S, "a send over the slow wire is acknowledged")


def flap(pair: Pair, history: History, rng: random.Random) -> None:
    for _ in range(rng.randrange(2, 6)):
        pair.wire.cut()
        time.sleep(rng.uniform(0.05, 1.0))
        pair.wire.heal()
        time.sleep(rng.uniform(0.05, 1.0))


def leave_the_master_half_a_connection(pair: Pair, history: History, rng: random.Random) -> None:
    """The slave dies and comes back, and its master does not hear that the connection is over."""
    pair.wire.cut()
    pair.slave.kill()
    hold(rng)
    pair.wire.heal()
    pair.start_again(pair.slave)


def leave_the_slave_half_a_connection(pair: Pair, history: History, rng: random.Random) -> None:
    """The master dies and comes back, and its slave does not hear that the connection is over."""
    pair.wire.cut()
    pair.master.kill()
    hold(rng)
    pair.start_again(pair.master)
    await_refusals(history)


def let_a_slave_come_twice(pair: Pair, history: History, rng: random.Random) -> None:
    """A slave connects anew while its master takes the old connection for alive."""
    pair.wire.cut()
    os.kill(find_worker(pair.slave, "ha").pid, signal.SIGKILL)
    await_refusals(history)
    hold(rng)


FAULTS: tuple[Fault, ...] = (
    cut,
    lose_what_the_master_says,
    lose_what_the_slave_says,
    lose_some,
    be_slow,
    flap,
    leave_the_master_half_a_connection,
    leave_the_slave_half_a_connection,
    let_a_slave_come_twice,
)
SILENT: tuple[Fault, ...] = (cut, lose_what_the_master_says, lose_what_the_slave_says)
"""Nothing is acknowledged until the wire is healed."""


# And what must hold -----------------------------------------------------------------------------------------------


def await_acknowledgement(history: History, since: float, what: str) -> None:
    wait_until(lambda: history.newest_acked > since, DEADLINE_S, f"sends are acknowledged again after {what}")
    print(f"{what}: acknowledged again after {time.monotonic() - since:.2f} s, {history.summary()}")


def suffer(pair: Pair, faults: list[Fault], seed: int) -> None:
    rng = seeded(seed)
    with pair.master_machine.entered():
        history = new_history(pair.master, "OnBoth", str(seed))
        await_slave(pair.master)
        with under_load(history, pair.master, producers=PRODUCERS):
            await_acknowledgement(history, time.monotonic(), "a start")
            for fault in faults:
                fault(pair, history, rng)
                pair.wire.heal()
                await_acknowledgement(history, time.monotonic(), fault.__name__)
                time.sleep(rng.uniform(0, 0.3))
            last = rng.choice(SILENT)
            last(pair, history, rng)
            pair.master.kill()
        pair.slave.stop()
        check_store_of_slave(history, pair)
        pair.start_again(pair.master)
        check_history(history, pair.master)


def check_store_of_slave(history: History, pair: Pair) -> None:
    seen = dict(history.seen)
    history.forget_reads()
    check_store(history, pair.slave.store_dir)
    history.seen.update(seen)
    logs_agree(pair.master.store_dir, pair.slave.store_dir)


def test_what_is_acknowledged_is_on_both_whatever_the_wire_does(pair: Pair, chance: random.Random) -> None:
    suffer(pair, chance.sample(FAULTS, EVERYDAY_FAULTS), seeds(1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(SLOW_ROUNDS))
def test_what_is_acknowledged_is_on_both_after_all_that_a_wire_does(
    pair: Pair, chance: random.Random, number: int
) -> None:
    suffer(pair, chance.sample(FAULTS, len(FAULTS)), seeds(1)[0])
