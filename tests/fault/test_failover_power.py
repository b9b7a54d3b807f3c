"""What was on no disk is gone with a machine's power, or with a mount, and what was acknowledged is in the group."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqcore.broker.failover.facts import Announcement
from mqcore.client import Client
from tests.fault import ext4
from tests.fault.campaign.faults.disks import lose_power_of_all
from tests.fault.campaign.modes import Mode
from tests.fault.campaign.rig import Group, replica_of
from tests.integration.group_sends import Sends
from tests.rigs import etcd
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(bool(ext4.missing_means()), reason=ext4.missing_means()),
    pytest.mark.skipif(bool(etcd.missing_tools()), reason=etcd.missing_tools()),
]

CUTS = 3
DEADLINE_S = 60.0
NEVER_SYNCED = {
    "flushIntervalCommitLog": "60000",
    "flushCommitLogThoroughInterval": "60000",
    "flushConsumeQueueThoroughInterval": "60000",
}
"""Nobody finds out that a disk has failed."""


def test_who_has_lost_what_was_on_no_disk_does_not_lead_though_its_machine_was_not_down(
    tmp_path: Path, chance: random.Random
) -> None:
    with Group(tmp_path, chance, has_machines=False, has_disks=True, properties=NEVER_SYNCED) as group:
        group.await_in_sync(3)
        one = group.others(group.master_number())[0]
        member = group.member_of(one)
        with Client(group.name_server) as client, client.producer("sends") as producer:
            sends = Sends(producer)
            sends.send(20)
            group.disks[one].cut()
            sends.send(5)
            assert member in in_sync(group)
            nonce = group.view().alive[member].nonce
            for number in (one, *group.others(one)):
                group.brokers[number].kill()
            group.disks[one].remount()
            group.start_again(one)
            wait_until(lambda: said_anew(group, member, nonce) is not None, DEADLINE_S, "its next process is there")
            said = said_anew(group, member, nonce)
            assert said is not None
            assert not said.trusted
            group.start_the_ended()
            group.await_in_sync(3)
            sends.send(5)
        group.await_equal_ends()
        group.stop_all()
        for number, broker in enumerate(group.brokers):
            sends.check(replica_of(f"broker{number}", broker.store_dir))


def in_sync(group: Group) -> frozenset[int]:
    state = group.view().state
    return state.isr if state is not None else frozenset()


def said_anew(group: Group, member: int, nonce: int) -> Announcement | None:
    """What a member says of itself in another life than that of *nonce*."""
    said = group.view().alive.get(member)
    return said if said is not None and said.nonce != nonce else None


def test_what_was_acknowledged_as_flushed_outlives_the_power_of_all(tmp_path: Path, chance: random.Random) -> None:
    properties = Mode.FLUSHED.properties
    with Group(tmp_path, chance, has_machines=False, has_disks=True, properties=properties) as group:
        with Client(group.name_server) as client, client.producer("sends") as producer:
            sends = Sends(producer)
            for _ in range(CUTS):
                group.await_in_sync(3)
                sends.send(50)
                lose_power_of_all(group, chance)
            group.await_in_sync(3)
            sends.send(5)
        group.await_equal_ends()
        group.stop_all()
        for number, broker in enumerate(group.brokers):
            assert "messages that were acknowledged may be lost" not in broker.child.log.read_text()
            sends.check(replica_of(f"broker{number}", broker.store_dir))
