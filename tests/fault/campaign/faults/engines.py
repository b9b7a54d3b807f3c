"""etcd that dies, stands still, is slow, or is put back to what it knew before."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from tests.fault.campaign.faults.pauses import AWAY_S, STOPPED_S, rest
from tests.fault.campaign.faults.processes import await_epoch, epoch_of, flicker, stopped
from tests.fault.campaign.rig import ASK_TIMEOUT_S, Group
from tests.fault.rig import DEADLINE_S
from tests.rigs.process import ChildError
from tests.waiting import wait_until

SLOW_FOR_S: Final = 6.0


def leader_of(group: Group) -> int:
    """The number of the etcd that leads the others; any one if none says who that is."""
    with group.on(group.outside):
        for number, engine in enumerate(group.engines):
            request = urllib.request.Request(f"http://{engine.client}/v3/maintenance/status", b"{}")
            with (
                contextlib.suppress(OSError, ValueError),
                urllib.request.urlopen(request, timeout=ASK_TIMEOUT_S) as answer,
            ):
                said = json.load(answer)
                if said.get("leader") == said["header"]["member_id"]:
                    return number
    return 0


def kill_an_engine(group: Group, chance: random.Random) -> None:
    _without(group, [chance.choice((leader_of(group), chance.randrange(group.engine_count)))], chance)


def kill_most_engines(group: Group, chance: random.Random) -> None:
    """No state can be read or changed until one is back; the master goes on."""
    _without(group, chance.sample(range(group.engine_count), 2), chance)


def _without(group: Group, numbers: Sequence[int], chance: random.Random) -> None:
    for number in numbers:
        group.engines[number].kill()
    rest(chance, AWAY_S)
    for number in numbers:
        group.start_engine(number)


def hold_the_leading_engine(group: Group, chance: random.Random) -> None:
    with stopped([psutil.Process(group.engines[leader_of(group)].pid)]):
        rest(chance, STOPPED_S)


def slow_an_engine_down(group: Group, chance: random.Random) -> None:
    """Everything that it does takes long, as with a disk that is slow to sync."""
    pid = group.engines[chance.choice((leader_of(group), chance.randrange(group.engine_count)))].pid
    flicker([psutil.Process(pid)], SLOW_FOR_S, stopped_s=0.15, running_s=0.01)


def restore_the_engines(group: Group, chance: random.Random) -> None:
    """etcd is put back to what it knew an epoch ago: no broker goes by that, and all go on by what it knew last."""
    group.await_in_sync(group.size)
    with engines_away(group):
        old = _copy(group, "old")
    _renew_epoch(group)
    for broker in group.brokers:
        broker.kill()
    with engines_away(group):
        new = _copy(group, "new")
        _put_back(group, old)
    for number in range(group.size):
        with contextlib.suppress(ChildError):
            group.start_again(number)
    wait_until(
        lambda: not any(broker.child.is_alive for broker in group.brokers),
        DEADLINE_S,
        "every broker has seen that etcd has an old state, and has ended",
    )
    with engines_away(group):
        _put_back(group, new)
    group.start_the_ended()


def _renew_epoch(group: Group) -> None:
    """Let another lead, and all know it."""
    epoch, master = epoch_of(group), group.master_number()
    group.brokers[master].kill()
    await_epoch(group, behind=epoch)
    group.start_again(master)
    group.await_in_sync(group.size)


@contextlib.contextmanager
def engines_away(group: Group) -> Iterator[None]:
    """Have no etcd for a while; all of them serve again at the end."""
    for engine in group.engines:
        engine.kill()
    yield
    for number in range(group.engine_count):
        group.start_engine(number)
    for number, engine in enumerate(group.engines):
        with group.on(group.size + number):
            engine.await_ready()


def _copy(group: Group, name: str) -> list[Path]:
    copies = []
    for engine in group.engines:
        copy = engine.data.with_name(f"{engine.data.name}.{name}")
        shutil.rmtree(copy, ignore_errors=True)
        copies.append(Path(shutil.copytree(engine.data, copy)))
    return copies


def _put_back(group: Group, copies: Sequence[Path]) -> None:
    for engine, copy in zip(group.engines, copies, strict=True):
        shutil.rmtree(engine.data)
        shutil.copytree(copy, engine.data)
