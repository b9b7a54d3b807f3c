"""What becomes of a group's stores: wiped, left behind, ahead, copied, and of an etcd that is another one or old.

The tests of this module break one group, one after the other; the last one reads what its stores have.
"""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore.client import Client
from mqcore.codes import RequestCode
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.paths import StorePaths
from tests.fault.campaign.rig import TOPIC, Group, replica_of
from tests.fault.rig import COMMIT_LOG_FILE_SIZE, attach_segment, find_worker
from tests.fault.talker import Talker, send_request
from tests.integration.group_sends import Sends, await_epoch_behind, epoch_of, hold
from tests.rigs import MqcoreBroker, wire
from tests.rigs import etcd as etcd_rig
from tests.rigs.apache import write_properties
from tests.rigs.etcd import Etcd
from tests.rigs.ports import free_broker_ports
from tests.rigs.process import Child
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(etcd_rig.missing_tools()), reason=f"etcd cannot run here: {etcd_rig.missing_tools()}"),
]

DEADLINE_S = 60.0
FILES = 3
RECORD_SIZE_MIN = 91 + len("unconfirmed-1-0") + len(TOPIC)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    in_twelve_hours = f"{(time.localtime().tm_hour + 12) % 24:02d}"
    properties = {"fileReservedTime": "0", "deleteWhen": in_twelve_hours, "cleanResourceInterval": "100"}
    home = tmp_path_factory.mktemp("group")
    with Group(home, random.Random(), has_machines=False, properties=properties) as group:
        group.await_in_sync(3)
        yield group


@pytest.fixture(scope="module")
def sends(group: Group) -> Iterator[Sends]:
    with Client(group.name_server) as client, client.producer("sends") as producer:
        yield Sends(producer)


def a_slave(group: Group) -> int:
    master = group.master_number()
    return next(number for number in range(group.size) if number != master)


def end_of(group: Group, number: int) -> int:
    return int(str(group.said_by(number)["maxOffset"]))


def member_of(group: Group, number: int) -> int:
    identity = FailoverFiles(StorePaths.at(group.brokers[number].store_dir)).read_identity()
    assert identity is not None
    assert identity.member is not None
    return identity.member


def test_a_store_that_was_emptied_joins_as_a_new_member_and_is_in_sync_when_it_has_all(
    group: Group, sends: Sends
) -> None:
    sends.send(50)
    wiped = a_slave(group)
    end, before = end_of(group, group.master_number()), group.view()
    old = member_of(group, wiped)
    group.brokers[wiped].kill()
    shutil.rmtree(group.brokers[wiped].store_dir)
    group.start_again(wiped)
    new = member_of(group, wiped)
    assert new == max(before.members) + 1

    def is_in_sync() -> bool:
        state = group.view().state
        assert state is not None
        if new not in state.isr:
            return False
        assert end_of(group, wiped) >= end, "it counts, and lacks something"
        return True

    wait_until(is_in_sync, DEADLINE_S, "the new member is in sync")
    view = group.view()
    assert view.state is not None
    assert old not in view.state.isr
    assert view.members[old].uuid != view.members[new].uuid
    sends.send(5)


def test_who_was_away_for_longer_than_the_masters_log_goes_back_copies_it_anew(group: Group, sends: Sends) -> None:
    group.await_in_sync(3)
    away = a_slave(group)
    end, member = end_of(group, away), member_of(group, away)
    group.brokers[away].kill()
    group.await_in_sync(2)
    while end_of(group, group.master_number()) < end + FILES * COMMIT_LOG_FILE_SIZE:
        sends.send(20, padding="x" * 4000)
    others = [number for number in range(group.size) if number != away]

    def are_gone() -> bool:
        for number in others:
            wire.call(group.brokers[number].broker_address, RequestCode.DELETE_EXPIRED_COMMITLOG)
        return all(start_of(group, number) > end for number in others)

    wait_until(are_gone, DEADLINE_S, "the files are gone that the one that is away ends in")
    group.start_again(away)
    group.await_in_sync(3)
    assert member_of(group, away) == member
    assert start_of(group, away) > end
    assert "has nothing in common" in group.brokers[away].child.log.read_text()
    sends.send(5)
    first = {queue_id: first_of(group, queue_id) for queue_id in range(4)}
    sends.forget(lambda queue_id, offset: offset < first[queue_id])


@pytest.mark.parametrize("has_left", [False, True], ids=["no slave has it", "one slave has it"])
def test_what_was_not_confirmed_is_cut_or_confirmed_and_no_place_is_given_twice(
    group: Group, sends: Sends, has_left: bool
) -> None:
    """The master's broker process is held: it takes nobody out of the set meanwhile."""
    group.await_in_sync(3)
    sends.send(10)
    group.await_equal_ends()
    epoch, master = epoch_of(group), group.master_number()
    cuts = cuts_of(group.brokers[master])
    slow, fast = (number for number in range(group.size) if number != master)
    segment, copy = attach_segment(group.brokers[master]), attach_segment(group.brokers[fast])
    end = segment.get("wrote_offset")
    with contextlib.ExitStack() as held:
        if has_left:
            hold(held, psutil.Process(group.brokers[slow].pid), *group.brokers[slow].workers())
            hold(held, psutil.Process(group.brokers[master].pid))
        else:
            hold(held, psutil.Process(group.brokers[master].pid), find_worker(group.brokers[master], "ha"))
        bodies = {f"unconfirmed-{has_left:d}-{number}" for number in range(8)}
        talker = held.enter_context(Talker(group.brokers[master].broker_address))
        talker.send(send_request(TOPIC, number % 4, body.encode()) for number, body in enumerate(sorted(bodies)))
        least = end + len(bodies) * RECORD_SIZE_MIN
        wait_until(lambda: segment.get("wrote_offset") >= least, DEADLINE_S, "the master's log has them")
        if has_left:
            wait_until(lambda: copy.get("wrote_offset") == segment.get("wrote_offset"), DEADLINE_S, "a slave has them")
        assert segment.get("confirmed_offset") <= end
        group.brokers[master].kill()
    alone = replica_of("killed", group.brokers[master].store_dir)
    assert bodies <= {body for found in alone.messages.values() for body in found}
    sends.send(20)
    assert epoch_of(group) > epoch
    group.start_again(master)
    group.await_in_sync(3)
    group.await_equal_ends()
    assert cuts_of(group.brokers[master]) - cuts == (0 if has_left else 1)
    group.stop_all()
    for number, broker in enumerate(group.brokers):
        replica = replica_of(f"broker{number}", broker.store_dir)
        sends.check(replica)
        assert {body for (body,) in replica.messages.values()} & bodies == (bodies if has_left else set())
    for number in range(group.size):
        group.start_again(number)
    group.await_in_sync(3)


def test_a_store_of_another_etcd_is_refused(group: Group, tmp_path: Path) -> None:
    group.await_in_sync(3)
    number = a_slave(group)
    group.brokers[number].kill()
    with Etcd(tmp_path) as other:
        other.await_ready()
        said = said_until_its_end(group.brokers[number], tmp_path, failoverEtcd=other.client)
    assert re.search(r"failoverEtcd is etcd's cluster \d+, and this store is of \d+", said)
    group.start_again(number)
    group.await_in_sync(3)


def test_a_copied_store_is_found_out_and_the_copy_stops(group: Group, sends: Sends, tmp_path: Path) -> None:
    group.await_in_sync(3)
    number = a_slave(group)
    member = member_of(group, number)
    nonce = group.view().alive[member].nonce
    group.brokers[number].kill()
    shutil.copytree(group.brokers[number].store_dir, tmp_path / "copy")
    group.start_again(number)
    # Of two that wait until the process that was killed is given up, either may be the first to announce itself.
    wait_until(
        lambda: (now := group.view().alive.get(member)) is not None and now.nonce != nonce,
        DEADLINE_S,
        "its next process is there",
    )
    epoch = epoch_of(group)
    said = said_until_its_end(
        group.brokers[number], tmp_path, listenPort=str(free_broker_ports().listen),
        storePathRootDir=str(tmp_path / "copy"), storePathCommitLog=str(tmp_path / "copy" / "commitlog"),
    )  # fmt: skip
    assert "another process" in said
    assert f"announces itself as member {member}: was this store copied?" in said
    sends.send(5)
    assert epoch_of(group) == epoch
    group.await_in_sync(3)


def test_a_group_whose_etcd_has_an_old_state_stops_and_elects_nobody(
    group: Group, sends: Sends, tmp_path: Path
) -> None:
    """The last one that breaks the group."""
    group.await_in_sync(3)
    sends.send(5)
    keep_engines(group, tmp_path / "old")
    epoch = epoch_of(group)
    group.master().kill()
    await_epoch_behind(group, epoch)
    sends.send(5)
    for number, broker in enumerate(group.brokers):
        if not broker.child.is_alive:
            group.start_again(number)
    group.await_in_sync(3)
    sends.send(5)
    put_back(group, tmp_path / "old")
    for broker in group.brokers:
        wait_until(lambda broker=broker: not broker.child.is_alive, DEADLINE_S, "it has stopped")  # type: ignore[misc]
        assert "an old state restored?" in broker.child.log.read_text()
    assert epoch_of(group) == epoch
    said = said_until_its_end(group.brokers[0], tmp_path)
    assert f"the group is at epoch {epoch}, and" in said


def test_everything_acknowledged_is_in_all_stores_where_it_was_said_to_be(group: Group, sends: Sends) -> None:
    group.stop_all()
    for number, broker in enumerate(group.brokers):
        sends.check(replica_of(f"broker{number}", broker.store_dir))


# What the tests do.


def start_of(group: Group, number: int) -> int:
    return int(str(group.said_by(number).get("minOffset", 0)))


def first_of(group: Group, queue_id: int) -> int:
    """The first offset of a queue that every broker of the group has."""
    fields = {"topic": TOPIC, "queueId": str(queue_id)}
    answers = [wire.call(broker.broker_address, RequestCode.GET_MIN_OFFSET, fields) for broker in group.brokers]
    return max(int(answer.ext_fields["offset"]) for answer in answers)


def cuts_of(broker: MqcoreBroker) -> int:
    return broker.child.log.read_text().count("commit log cut")


def said_until_its_end(broker: MqcoreBroker, home: Path, **properties: str) -> str:
    """Run a broker with other properties until it ends by itself; its log."""
    configuration = write_properties(home / "other.conf", {**broker.properties, **properties})
    with Child([sys.executable, "-m", "mqcore.broker", "-c", configuration], log=home / "other.out") as child:
        wait_until(lambda: not child.is_alive, DEADLINE_S, "the broker ends by itself")
        return child.log.read_text()


def keep_engines(group: Group, place: Path) -> None:
    """Copy what etcd has, while it does not run."""
    for engine in group.engines:
        engine.kill()
    for engine in group.engines:
        shutil.copytree(engine.directory / engine.name, place / engine.name)
    start_engines(group)


def put_back(group: Group, place: Path) -> None:
    for engine in group.engines:
        engine.kill()
    for engine in group.engines:
        shutil.rmtree(engine.directory / engine.name)
        shutil.copytree(place / engine.name, engine.directory / engine.name)
    start_engines(group)


def start_engines(group: Group) -> None:
    for number in range(len(group.engines)):
        group.start_engine(number)
    for engine in group.engines:
        engine.await_ready()
