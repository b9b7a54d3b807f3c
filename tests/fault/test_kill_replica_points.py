"""Workers of a SYNC_MASTER and of its slave killed between two instructions, or at a system call, of copying messages.

The worker stands still, a burst of messages is sent, and it is moved on by so many steps before it dies: with bytes
received and not published, published and not reported, reported and not taken note of, appended and waited for. What
was acknowledged must be in the slave's files alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault import stepping
from tests.fault.replicas import PAIR, await_slave, logs_agree, start_slave
from tests.fault.rig import (
    KILLS_PER_LIFE,
    await_successor,
    check_history,
    check_store,
    find_worker,
    new_history,
    seeded,
    seeds,
)
from tests.fault.stepping import Stopped
from tests.fault.talker import Talker
from tests.fault.test_kill_points import OneByOne
from tests.rigs import MqcoreBroker

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission()),
]

Move = Callable[[random.Random, Stopped], None]

POINTS = 5
MANY_POINTS = 60
STEPS_MAX = 6_000
CALLS_MAX = 14
BURST_MAX = 6


def at_an_instruction(rng: random.Random, stopped: Stopped) -> None:
    stopped.step(rng.randrange(STEPS_MAX))


def at_a_system_call(rng: random.Random, stopped: Stopped) -> None:
    stopped.to_system_call(rng.randrange(CALLS_MAX))


VICTIMS = [("slave", "ha"), ("master", "ha"), ("master", "send"), ("slave", "reput")]
MOVES: list[Move] = [at_an_instruction, at_a_system_call]


def revive(master: MqcoreBroker, slave: MqcoreBroker) -> None:
    """Start both anew, after deaths of their own: their workers have died as often as they bear."""
    for broker in (slave, master):
        broker.kill()
        broker.start_again()


def kill_one(master: MqcoreBroker, slave: MqcoreBroker, sends: OneByOne, rng: random.Random, victim: tuple[str, str],
             move: Move) -> None:  # fmt: skip
    number, kind = victim
    broker = master if number == "master" else slave
    await_slave(master)
    sends.send()
    worker = find_worker(broker, kind)
    with Talker(master.broker_address) as talker:
        with Stopped(worker.pid) as stopped:
            bodies = [sends.begin(talker)[1] for _ in range(rng.randrange(1, BURST_MAX))]
            move(rng, stopped)
        for body in bodies:
            sends.finish(talker, body)
    await_successor(broker, kind, worker.pid)


def kill_at_points(tmp_path: Path, seed: int, points: list[tuple[tuple[str, str], Move]]) -> None:
    rng = seeded(seed)
    with MqcoreBroker(tmp_path / "master", {**PAIR, "brokerRole": "SYNC_MASTER", "slaveTimeout": "1000"}) as master:
        history = new_history(master, "OnBoth", f"points{seed}", queues=2)
        with start_slave(master, tmp_path / "slave") as slave:
            sends = OneByOne(master, history)
            for count, (victim, move) in enumerate(points):
                if count and count % KILLS_PER_LIFE == 0:
                    revive(master, slave)
                kill_one(master, slave, sends, rng, victim, move)
            await_slave(master)
            sends.send()
            print(history.summary())
            master.kill()
            slave.stop()
            check_store(history, slave.store_dir)
            logs_agree(master.store_dir, slave.store_dir)
            master.start_again()
            check_history(history, master)


def test_a_worker_of_either_may_die_at_any_step_of_copying(tmp_path: Path, chance: random.Random) -> None:
    first = chance.randrange(len(VICTIMS))
    points = [(VICTIMS[(first + number) % len(VICTIMS)], chance.choice(MOVES)) for number in range(POINTS)]
    kill_at_points(tmp_path, seeds(1)[0], points)


@pytest.mark.slow
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("victim", VICTIMS, ids=lambda victim: "'s ".join(victim))
def test_a_worker_may_die_at_many_steps_of_copying(tmp_path: Path, victim: tuple[str, str], move: Move) -> None:
    kill_at_points(tmp_path, seeds(1)[0], [(victim, move)] * MANY_POINTS)
