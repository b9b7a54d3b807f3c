"""SIGKILL while producers wait for acknowledgements: to each kind of worker, to the broker process, to all at once.

After each: what was acknowledged is there, once per queue offset, and never changes; sends go on; nothing else was
started anew. At the end the store's files are read without a broker, and log, consume queues and index must agree.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mqcore.codes import ResponseCode
from tests.fault.history import History, wait_for_acks
from tests.fault.rig import (
    ASYNC_FLUSH,
    DEADLINE_S,
    KILLS_PER_LIFE,
    SYNC_FLUSH,
    WORKER_KINDS,
    Witness,
    await_resumption,
    check_history,
    check_store,
    find_worker,
    kill_worker,
    new_history,
    seeded,
    seeds,
    start_broker,
    under_load,
)
from tests.rigs import MqcoreBroker

pytestmark = pytest.mark.fault

EVERYDAY_KILLS = 2
SLOW_ROUNDS = 30
SLOW_KILLS = 12


def kill_one_kind(broker: MqcoreBroker, history: History, kind: str, rng: random.Random, kills: int) -> None:
    """Kill the worker of *kind* again and again at random moments under load."""
    before = {other: find_worker(broker, other).pid for other in WORKER_KINDS}
    broker_pid = broker.pid
    taken = []
    with under_load(history, broker):
        for _ in range(kills):
            time.sleep(rng.uniform(0, 0.3))
            witness = Witness()
            kill_worker(broker, kind)
            taken.append(await_resumption(history, time.monotonic(), witness))
    others = {other: find_worker(broker, other).pid for other in WORKER_KINDS if other != kind}
    assert others == {other: pid for other, pid in before.items() if other != kind}
    assert broker.pid == broker_pid
    assert broker.child.is_alive
    print(f"{kind}: {history.summary()} resumed after " + ", ".join(f"{seconds:.2f} s" for seconds in taken))
    check_history(history, broker)


def test_nothing_acknowledged_is_lost_when_a_worker_is_killed(tmp_path: Path, flush_mode: dict[str, str]) -> None:
    """Of each kind, one after the other in any order, in one life of a broker."""
    seed = seeds(1)[0]
    rng = seeded(seed)
    kinds = rng.sample(WORKER_KINDS, len(WORKER_KINDS))
    with start_broker(tmp_path, flush_mode) as broker:
        histories = []
        for kind in kinds:
            histories.append(new_history(broker, f"Killed-{kind}", f"{kind}{seed}"))
            kill_one_kind(broker, histories[-1], kind, rng, EVERYDAY_KILLS)
        for history in histories:
            check_history(history, broker)
        broker.stop()
        scan = check_store(histories[0], broker.store_dir)
        for history in histories[1:]:
            history.check(scan.bodies(history.topic))


def kill_broker(broker: MqcoreBroker) -> None:
    """SIGKILL the broker process alone; returns when its workers have gone with it."""
    broker.kill()


def kill_everything(broker: MqcoreBroker) -> None:
    """SIGKILL the broker process and every worker in one go."""
    processes = [*broker.workers(), psutil.Process(broker.pid)]
    for process in processes:
        process.send_signal(signal.SIGKILL)
    broker.kill()


VICTIMS = {"broker": kill_broker, "everything": kill_everything}


@pytest.fixture(params=["either", *(pytest.param(name, marks=pytest.mark.slow) for name in VICTIMS)])
def kill(request: pytest.FixtureRequest, chance: random.Random) -> Callable[[MqcoreBroker], None]:
    """Who is killed: in long runs each in turn, otherwise whom chance takes."""
    name = chance.choice(list(VICTIMS)) if request.param == "either" else request.param
    print(f"killed: {name}")
    return VICTIMS[name]


def restart_rounds(
    broker: MqcoreBroker, history: History, kill: Callable[[MqcoreBroker], None], seed: int, kills: int
) -> None:
    """Kill, start again, look: several times on one store."""
    rng = seeded(seed)
    for number in range(kills):
        wanted = rng.randrange(1, 500)
        with under_load(history, broker, first=10 * number):
            wait_for_acks(history, wanted, DEADLINE_S)
            time.sleep(rng.uniform(0, 0.05))
            kill(broker)
        broker.start_again()
        check_history(history, broker)
    print(history.summary())


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(
    tmp_path: Path, flush_mode: dict[str, str], kill: Callable[[MqcoreBroker], None]
) -> None:
    seed = seeds(1)[0]
    with start_broker(tmp_path, flush_mode) as broker:
        history = new_history(broker, "Killed", f"all{seed}")
        restart_rounds(broker, history, kill, seed, EVERYDAY_KILLS)
        broker.stop()
        check_store(history, broker.store_dir)
    assert ResponseCode.SYSTEM_ERROR not in history.refused


def random_round(tmp_path: Path, seed: int) -> None:
    """One store, one flush mode, some numbers of workers, and deaths of every kind at random moments."""
    rng = seeded(seed)
    properties = rng.choice([SYNC_FLUSH, ASYNC_FLUSH]) | {
        "sendWorkerNums": str(rng.randint(1, 2)),
        "pullWorkerNums": str(rng.randint(1, 2)),
    }
    with start_broker(tmp_path, properties) as broker:
        history = new_history(broker, "Random", f"random{seed}")
        worker_deaths = 0
        for number in range(SLOW_KILLS):
            with under_load(history, broker, first=10 * number, burst_max=rng.choice([1, 32, 200])):
                time.sleep(rng.uniform(0, 0.5))
                victim = rng.choice([*WORKER_KINDS, "broker", "everything"])
                if victim in WORKER_KINDS and worker_deaths < KILLS_PER_LIFE:
                    worker_deaths += 1
                    witness = Witness()
                    kill_worker(broker, victim)
                    await_resumption(history, time.monotonic(), witness)
                    continue
                (kill_broker if victim == "broker" else kill_everything)(broker)
                worker_deaths = 0
            broker.start_again()
            check_history(history, broker)
        print(history.summary())
        check_history(history, broker)
        broker.stop()
        check_store(history, broker.store_dir)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_many_random_deaths(tmp_path: Path) -> None:
    for seed in seeds(SLOW_ROUNDS):
        random_round(tmp_path / str(seed), seed)
