"""Who is to lead, and who a broker is: an operator's wishes, wiped stores, and such as are started twice."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path
from typing import Final

from mqcore.broker.failover.etcd import EtcdEngine
from mqcore.broker.failover.facts import GroupOrder
from mqcore.broker.failover.group_keys import ORDER, encode
from tests.fault.campaign.faults.pauses import rest
from tests.fault.campaign.faults.processes import a_slave, all_processes, await_epoch, epoch_of, stopped
from tests.fault.campaign.rig import Group
from tests.fault.rig import DEADLINE_S
from tests.rigs.process import ChildError
from tests.waiting import wait_until

SWITCHES: Final = 4
SWITCH_PAUSE_S: Final = (0.05, 2.0)


def switch_again_and_again(group: Group, chance: random.Random) -> None:
    """An operator names the next master, each time as soon as the last one leads."""
    for _ in range(SWITCHES):
        group.await_in_sync(group.size)
        epoch = epoch_of(group)
        name_next(group, a_slave(group, chance))
        await_epoch(group, behind=epoch)
        rest(chance, SWITCH_PAUSE_S)


def name_next(group: Group, number: int) -> None:
    """Order that a broker lead next."""
    order = encode(GroupOrder(group.member_of(number), epoch_of(group)))

    async def put(engine: EtcdEngine) -> None:
        await engine.put(ORDER, order)

    group.ask_engine(put)


def wipe_a_slave(group: Group, chance: random.Random) -> None:
    """It loses its disk, and comes back as a new member."""
    number = a_slave(group, chance)
    group.brokers[number].kill()
    empty(group.brokers[number].store_dir)
    group.start_again(number)


def empty(directory: Path) -> None:
    """Remove all that is in a directory, which may be where a disk is mounted."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def start_a_copy(group: Group, chance: random.Random) -> None:
    """A slave's store is copied, and started beside it: the later one stops."""
    number = a_slave(group, chance)
    original = group.brokers[number]
    store = group.home / "copy"
    shutil.rmtree(store, ignore_errors=True)
    with stopped(all_processes(group, number)):
        shutil.copytree(original.store_dir, store, ignore=shutil.ignore_patterns("lock"))
    with contextlib.suppress(ChildError), group.start_copy(number, store) as copy:
        wait_until(lambda: not copy.child.is_alive, DEADLINE_S, "the copy has ended")
