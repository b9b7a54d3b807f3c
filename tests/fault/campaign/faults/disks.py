"""Disks that fail, fill up, lose their power or change what they have."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mqcore._fast.segment.boards import SharedSegment
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.log.record import SECTOR_SIZE
from mqcore.store.paths import StorePaths
from tests.fault.campaign.faults.pauses import AWAY_S, rest
from tests.fault.campaign.faults.processes import a_slave, all_processes, await_epoch, bury, epoch_of, stopped, strike
from tests.fault.campaign.faults.roles import empty, name_next
from tests.fault.campaign.rig import Group
from tests.fault.rig import DEADLINE_S, GEOMETRY, attach_segment
from tests.fault.store_scan import read_log
from tests.fault.test_full_disk import fill
from tests.rigs.process import ChildError
from tests.waiting import wait_until

BETWEEN_S: Final = (0.1, 5.0)
FULL_S: Final = (1.0, 8.0)
TAIL_SIZE: Final = 1 << 16
FILLER: Final = "filler"
ANOTHER_BOOT: Final = "another boot of the machine"


def lose_power_of_one(group: Group, chance: random.Random) -> None:
    """Another one has all, so that nothing is lost."""
    group.await_in_sync(group.size)
    lose_power(group, [chance.choice((group.master_number(), chance.randrange(group.size)))], chance)


def lose_power_of_all(group: Group, chance: random.Random) -> None:
    lose_power(group, chance.sample(range(group.size), group.size), chance)


def lose_power(group: Group, numbers: Sequence[int], chance: random.Random) -> None:
    """Machines lose their power at one moment, with what their disks have not got, and come back."""
    processes = [process for number in numbers for process in all_processes(group, number)]
    with stopped(processes):
        for number in numbers:
            group.disks[number].cut()
        bury(group, strike(group, numbers))
    for number in numbers:
        _mount_again(group, number)
        forget_the_boot(group, number)
    rest(chance, AWAY_S)
    for number in numbers:
        group.start_again(number)


def _mount_again(group: Group, number: int) -> None:
    """Have a disk come back, as soon as nothing runs any more that has a file of it open."""

    def is_mounted() -> bool:
        with contextlib.suppress(OSError):
            group.disks[number].remount()
            return True
        return False

    wait_until(is_mounted, DEADLINE_S, f"the disk of broker {number} is mounted again")


def forget_the_boot(group: Group, number: int) -> None:
    """Let a broker that has ended find that its machine was started anew since."""
    files = FailoverFiles(StorePaths.at(group.brokers[number].store_dir))
    identity = files.read_identity()
    if identity is not None:
        files.write_identity(replace(identity, boot_id=ANOTHER_BOOT))


def tear_a_tail(group: Group, chance: random.Random) -> None:
    """A machine comes back without the end of its log, which ends in the middle of a record."""
    group.await_in_sync(group.size)
    number = chance.randrange(group.size)
    said = said_of(group, number)
    group.brokers[number].kill()
    tear_off(group, number, chance.randrange(1, TAIL_SIZE), safe_of(said))
    forget_the_boot(group, number)
    group.start_again(number)


def die_together(group: Group, chance: random.Random) -> None:
    """All die at once, some with their machines' power, and come back in any order: the others have everything."""
    group.await_in_sync(group.size)
    numbers = chance.sample(range(group.size), group.size)
    said = [said_of(group, number) for number in range(group.size)]
    bury(group, strike(group, numbers))
    for number in numbers[: chance.randrange(1, group.size)]:
        tear_off(group, number, chance.randrange(1, TAIL_SIZE), safe_of(said[number]))
        forget_the_boot(group, number)
    chance.shuffle(numbers)
    for number in numbers:
        group.start_again(number)
        rest(chance, BETWEEN_S)


def said_of(group: Group, number: int) -> SharedSegment | None:
    """The shared memory of a broker that acknowledges what is on its disk; it can be read when the broker has ended."""
    return attach_segment(group.brokers[number]) if group.acks_flushed else None


def safe_of(said: SharedSegment | None) -> int:
    """Up to where no power cut takes anything of the log of a broker that has ended, by what it said of its disk.

    A broker that acknowledges what is on its disk trusts its log behind a power cut: a disk that then lacks some of it
    has lied, and nobody promises anything about such. Others do not trust theirs, and may lack whatever it be.
    """
    return 0 if said is None else int(said.get("flushed_offset"))


def tear_off(group: Group, number: int, size: int, safe: int = 0) -> None:
    """Take so many bytes, and the rest of their sector, from the end of the log of a broker that has ended.

    What lies before *safe* stays.
    """
    cut = max(0, read_log(StorePaths.at(group.brokers[number].store_dir), GEOMETRY).end - size)
    cut = max(cut - cut % SECTOR_SIZE, safe)
    for path in log_files(group, number):
        position = max(0, cut - int(path.name))
        if position < GEOMETRY.commit_log_file_size:
            with path.open("r+b") as file:
                file.seek(position)
                file.write(bytes(GEOMETRY.commit_log_file_size - position))


def log_files(group: Group, number: int) -> list[Path]:
    return sorted((group.brokers[number].store_dir / "commitlog").iterdir())


def flip_a_bit(group: Group, chance: random.Random) -> None:
    """An old file of a slave's log has another bit: the group goes on, and the slave is set up anew."""
    number = a_slave(group, chance)
    group.brokers[number].kill()
    path = log_files(group, number)[0]
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    # It may find the damage, and say so.
    with contextlib.suppress(ChildError):
        group.start_again(number)
        rest(chance, AWAY_S)
    group.brokers[number].kill()
    empty(group.brokers[number].store_dir)
    group.start_again(number)


def fill_a_disk(group: Group, chance: random.Random) -> None:
    number = chance.choice((group.master_number(), chance.randrange(group.size)))
    with _filled(group, number):
        rest(chance, FULL_S)
    _revive(group, number)


def fill_the_disk_of_the_next_master(group: Group, chance: random.Random) -> None:
    """Who is to lead has no room to note its epoch."""
    group.await_in_sync(group.size)
    epoch, number = epoch_of(group), a_slave(group, chance)
    with _filled(group, number):
        name_next(group, number)
        await_epoch(group, behind=epoch)
        rest(chance, FULL_S)
    _revive(group, number)


def _revive(group: Group, number: int) -> None:
    """Start a broker if it has ended; one that is about to says nothing any more."""
    broker = group.brokers[number]
    wait_until(
        lambda: not broker.child.is_alive or group.said_by(number), DEADLINE_S, f"broker {number} answers or ends"
    )
    group.start_the_ended()


@contextlib.contextmanager
def _filled(group: Group, number: int) -> Iterator[None]:
    filler = group.disks[number].path / FILLER
    fill(filler)
    try:
        yield
    finally:
        filler.unlink()


def fail_a_disk(group: Group, chance: random.Random) -> None:
    """Nothing more reaches a disk, and every sync fails; it is mounted again, and its machine goes on all the while."""
    group.await_in_sync(group.size)
    number = chance.choice((group.master_number(), chance.randrange(group.size)))
    group.disks[number].cut()
    rest(chance, FULL_S)
    group.brokers[number].kill()
    _mount_again(group, number)
    group.start_again(number)
