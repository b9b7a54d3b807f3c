"""Processes of brokers that are killed, stopped in order, or stand still."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import psutil

from mqcore.errors import EngineError
from mqcore.testing.leftovers import those_left
from tests.fault.campaign.faults.pauses import AWAY_S, STOPPED_S, rest
from tests.fault.campaign.rig import Group
from tests.fault.rig import DEADLINE_S, worker_kind
from tests.waiting import POLL_S_MAX, wait_until

KINDS_OF_WORKERS: Final = ("send", "pull", "reput", "flush", "ha", "timer")
TAIL_S: Final = (0.1, 0.5)
LEADS_WITHIN_S: Final = 15.0
"""Three leases and more: who may lead does by then, and who may not, does not."""

BEHIND_S: Final = (0.1, 3.0)


def kill_the_master(group: Group, chance: random.Random) -> None:
    kill_and_start(group, [group.master_number()], chance)


def kill_a_broker(group: Group, chance: random.Random) -> None:
    kill_and_start(group, [chance.randrange(group.size)], chance)


def kill_all_brokers(group: Group, chance: random.Random) -> None:
    kill_and_start(group, chance.sample(range(group.size), group.size), chance)


def kill_and_start(group: Group, numbers: Sequence[int], chance: random.Random) -> None:
    for number in numbers:
        group.brokers[number].kill()
    rest(chance, AWAY_S)
    for number in numbers:
        group.start_again(number)


def stop_the_master_in_order(group: Group, chance: random.Random) -> None:
    _stop_in_order(group, group.master_number(), chance)


def stop_a_slave_in_order(group: Group, chance: random.Random) -> None:
    _stop_in_order(group, a_slave(group, chance), chance)


def _stop_in_order(group: Group, number: int, chance: random.Random) -> None:
    group.brokers[number].stop()
    rest(chance, AWAY_S)
    group.start_again(number)


def a_slave(group: Group, chance: random.Random) -> int:
    return chance.choice(group.others(group.master_number()))


def kill_a_worker(group: Group, chance: random.Random) -> None:
    number = chance.choice((group.master_number(), chance.randrange(group.size)))
    for process in _workers(group, number, chance.choice(KINDS_OF_WORKERS)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _workers(group: Group, number: int, kind: str) -> list[psutil.Process]:
    found = []
    for process in group.brokers[number].workers():
        # One that is being started has no command line of a worker yet.
        with contextlib.suppress(psutil.NoSuchProcess, ValueError):
            if worker_kind(process) == kind:
                found.append(process)
    return found


def all_processes(group: Group, number: int) -> list[psutil.Process]:
    """The broker process first: what stands still is not started anew by it."""
    broker = group.brokers[number]
    return [psutil.Process(broker.pid), *broker.workers()]


@contextlib.contextmanager
def stopped(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """Let processes stand still; those that were killed meanwhile are gone."""
    _signal(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(processes, signal.SIGCONT)


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def hold_the_master(group: Group, chance: random.Random) -> None:
    """The whole master stands still, as a machine does that is moved."""
    with stopped(all_processes(group, group.master_number())):
        rest(chance, STOPPED_S)


def hold_a_process(group: Group, chance: random.Random) -> None:
    """The broker process, an ha worker or a send worker stands still, mostly the master's."""
    number = chance.choice((group.master_number(), chance.randrange(group.size)))
    kind = chance.choice(("broker", "ha", "send"))
    processes = [psutil.Process(group.brokers[number].pid)] if kind == "broker" else _workers(group, number, kind)
    with stopped(processes):
        rest(chance, STOPPED_S)


def hold_a_slave(group: Group, chance: random.Random) -> None:
    with stopped(all_processes(group, a_slave(group, chance))):
        rest(chance, STOPPED_S)


def leave_a_tail(group: Group, chance: random.Random) -> None:
    """The master has what no slave has when it dies, and comes back to another history, if they lead without it."""
    master, epoch = group.master_number(), epoch_of(group)
    slaves = group.others(master)
    dead = strike(group, slaves)
    rest(chance, TAIL_S)
    bury(group, [*dead, *strike(group, [master])])
    for number in slaves:
        group.start_again(number)
    linger(lambda: epoch_of(group) > epoch, LEADS_WITHIN_S)
    group.start_again(master)


def strike(group: Group, numbers: Sequence[int]) -> list[psutil.Process]:
    """Kill brokers at once, workers too: who dies a second later may have taken the others out of the set."""
    processes = [process for number in numbers for process in all_processes(group, number)]
    _signal(processes, signal.SIGKILL)
    return processes


def bury(group: Group, processes: Sequence[psutil.Process]) -> None:
    """Wait until nothing runs of what was struck."""
    left = those_left(processes, DEADLINE_S)
    assert not left, f"they outlive SIGKILL: {left}"
    for broker in group.brokers:
        if not broker.child.is_alive:
            broker.kill()


def leave_one_alone(group: Group, chance: random.Random) -> None:
    """A slave stands still for a while, then the others die: if it leads, it has everything."""
    one = a_slave(group, chance)
    others = group.others(one)
    with stopped(all_processes(group, one)):
        rest(chance, BEHIND_S)
        for number in others:
            group.brokers[number].kill()
    rest(chance, AWAY_S)
    for number in others:
        group.start_again(number)


def epoch_of(group: Group) -> int:
    """The epoch that etcd has; 0 while it does not answer."""
    with contextlib.suppress(EngineError):
        state = group.view().state
        return state.epoch if state is not None else 0
    return 0


def await_epoch(group: Group, *, behind: int) -> None:
    wait_until(lambda: epoch_of(group) > behind, DEADLINE_S, f"somebody leads an epoch behind {behind}")


def linger(condition: Callable[[], bool], at_most_s: float) -> None:
    """Give something time that may happen, or may not."""
    end_s = time.monotonic() + at_most_s
    while time.monotonic() < end_s and not condition():
        time.sleep(POLL_S_MAX)


def flicker(processes: Sequence[psutil.Process], for_s: float, *, stopped_s: float, running_s: float) -> None:
    """Let processes stand still again and again, for so long: they are slow then."""
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        with stopped(processes):
            time.sleep(stopped_s)
        time.sleep(running_s)
