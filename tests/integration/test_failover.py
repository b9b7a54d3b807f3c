"""A group of three brokers over etcd: who leads, who takes over, and that nothing acknowledged is lost on the way.

The tests of this module break one group, one after the other; the last one reads what its stores have.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore import layout
from mqcore.broker.failover.facts import Announcement
from mqcore.client import Client
from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.names import NOT_MASTER
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.paths import StorePaths
from tests.fault.campaign.rig import TOPIC, Group, replica_of
from tests.fault.rig import COMMIT_LOG_FILE_SIZE, GEOMETRY, attach_segment, find_worker
from tests.fault.store_scan import read_log
from tests.integration.group_sends import Sends, await_epoch_behind, epoch_of
from tests.rigs import etcd as etcd_rig
from tests.rigs import wire
from tests.rigs.command_line import CommandLine
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    bool(etcd_rig.missing_tools()), reason=f"etcd cannot run here: {etcd_rig.missing_tools()}"
)

STORE_FLAG = layout.constants("StoreFlag")
WORKER_KIND = layout.constants("WorkerKind")
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with Group(tmp_path_factory.mktemp("group"), random.Random(), has_machines=False) as group:
        yield group


@pytest.fixture(scope="module")
def sends(group: Group) -> Iterator[Sends]:
    with Client(group.name_server) as client, client.producer("sends") as producer:
        yield Sends(producer)


def test_who_founds_the_group_leads_and_who_joins_is_soon_in_sync(group: Group, sends: Sends) -> None:
    view = group.await_in_sync(3)
    assert view.state is not None
    assert (view.state.epoch, view.state.master) == (1, 1)
    assert view.state.address == group.brokers[0].broker_address
    assert sorted(view.members) == [1, 2, 3]
    assert [group.said_by(number)["role"] for number in range(3)] == ["MASTER", "SLAVE", "SLAVE"]
    sends.send(20)


SEND = {"producerGroup": "g", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false",
        "maxReconsumeTimes": "16", "batch": "false"}  # fmt: skip
COMMIT = {"consumerGroup": "of-a-slave", "topic": TOPIC, "queueId": "0", "commitOffset": "7"}
SEND_BACK = {"group": "of-a-slave", "offset": "0", "delayLevel": "1", "originMsgId": "", "originTopic": TOPIC}
END_TRANSACTION = {"producerGroup": "g", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8",
                   "fromTransactionCheck": "false", "msgId": "", "transactionId": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        pytest.param(RequestCode.SEND_MESSAGE, SEND, id="send"),
        pytest.param(RequestCode.CONSUMER_SEND_MSG_BACK, SEND_BACK, id="send back"),
        pytest.param(RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT, id="commit"),
        pytest.param(RequestCode.END_TRANSACTION, END_TRANSACTION, id="end of a transaction"),
    ],
)
def test_a_slave_says_that_another_is_the_master_and_does_nothing(
    group: Group, code: RequestCode, fields: dict[str, str]
) -> None:
    slave = group.brokers[next(number for number in range(3) if number != group.master_number())]
    answer = wire.call(slave.broker_address, code, fields, b"x")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert NOT_MASTER in str(answer.remark)
    assert wire.consumer_offset(slave.broker_address, "of-a-slave", TOPIC, 0) != 7


def test_another_leads_when_the_master_is_killed_and_it_comes_back_as_a_slave(group: Group, sends: Sends) -> None:
    epoch, killed = epoch_of(group), group.master_number()
    sends.send(20)
    group.brokers[killed].kill()
    sends.send(20)
    assert epoch_of(group) > epoch
    assert group.master_number() != killed
    group.start_again(killed)
    group.await_in_sync(3)
    assert group.said_by(killed)["term"] == 0
    sends.send(20)


def test_ha_workers_that_die_are_replaced_and_everybody_is_in_sync_again(group: Group, sends: Sends) -> None:
    group.await_in_sync(3)
    epoch, master = epoch_of(group), group.master_number()
    for number in (master, (master + 1) % group.size):
        find_worker(group.brokers[number], "ha").kill()
        sends.send(10)
        group.await_in_sync(3)
    assert epoch_of(group) == epoch


def test_a_master_that_stops_in_order_gives_its_place_away(group: Group, sends: Sends) -> None:
    epoch, stopped = epoch_of(group), group.master_number()
    sends.send(5)
    group.brokers[stopped].stop()
    view = group.view()
    assert view.state is not None
    assert view.state.epoch == epoch + 1
    # It has said good-bye: nobody waits for a lease to end.
    assert view.order is not None
    assert view.order.to == view.state.master
    assert len(view.alive) == 2
    sends.send(20)
    group.start_again(stopped)
    group.await_in_sync(3)


def test_a_master_whose_disk_fails_gives_its_place_away_and_copies_again_what_it_may_have_lost(
    group: Group, sends: Sends
) -> None:
    group.await_in_sync(3)
    epoch, failed = epoch_of(group), group.master_number()
    sends.send(20)
    segment = attach_segment(group.brokers[failed])
    segment.fail(STORE_FLAG["SYNC_FAILED"] | STORE_FLAG["NOT_WRITABLE"], errno.EIO, WORKER_KIND["FLUSH"], 0)
    sends.send(20)
    assert epoch_of(group) == epoch + 1
    assert group.master_number() != failed
    group.await_in_sync(3)
    log = group.brokers[failed].child.log
    assert "the place of the master is to be given away" in log.read_text()
    has_all = "the log has all again that it ever acknowledged"
    wait_until(lambda: has_all in log.read_text(), DEADLINE_S, "what may be lost was copied again")
    sends.send(5)


@pytest.mark.slow
def test_a_master_that_stood_still_cannot_acknowledge_and_follows(group: Group, sends: Sends) -> None:
    epoch, stopped = epoch_of(group), group.master_number()
    broker = group.brokers[stopped]
    processes = [psutil.Process(broker.pid), *broker.workers()]
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        # The first one waits at the broker that stands still, and not until its time is over.
        began_s = time.monotonic()
        sends.send(1, timeout_s=10 * DEADLINE_S)
        assert time.monotonic() - began_s < DEADLINE_S
        assert epoch_of(group) > epoch
        sends.send(20)
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)
    group.await_in_sync(3)
    assert group.said_by(stopped)["term"] == 0
    sends.send(20)


@pytest.mark.slow
def test_all_killed_at_once_come_back_with_everything(group: Group, sends: Sends) -> None:
    epoch = epoch_of(group)
    sends.send(20)
    for broker in group.brokers:
        broker.kill()
    for number in range(3):
        group.start_again(number)
    await_epoch_behind(group, epoch)
    group.await_in_sync(3)
    sends.send(20)


@pytest.mark.slow
def test_brokers_go_on_while_etcd_is_away(group: Group, sends: Sends) -> None:
    epoch = epoch_of(group)
    for engine in group.engines:
        engine.kill()
    sends.send(20)
    for number in range(len(group.engines)):
        group.start_engine(number)
    for engine in group.engines:
        engine.await_ready()
    sends.send(20)
    group.await_in_sync(3)
    assert epoch_of(group) == epoch


@pytest.mark.slow
def test_a_master_that_may_have_been_replaced_is_not_to_be_found_until_it_is_known_that_it_has_not(
    group: Group, sends: Sends
) -> None:
    group.await_in_sync(3)
    epoch, master = epoch_of(group), group.master_number()
    silent = next(number for number in range(3) if number != master)
    for engine in group.engines:
        engine.kill()
    assert registered(group)["0"] == group.brokers[master].broker_address
    group.brokers[silent].kill()
    wait_until(lambda: "0" not in registered(group), DEADLINE_S, "name servers know no master")
    assert group.brokers[master].broker_address in registered(group).values()
    for number in range(len(group.engines)):
        group.start_engine(number)
    wait_until(
        lambda: registered(group).get("0") == group.brokers[master].broker_address, DEADLINE_S, "they know it again"
    )
    sends.send(5)
    assert epoch_of(group) == epoch
    group.start_again(silent)
    group.await_in_sync(3)


@pytest.mark.slow
def test_who_has_lost_the_end_of_its_log_does_not_lead_while_others_have_it(group: Group, sends: Sends) -> None:
    """The machine has not been down: what was noted as confirmed tells of it."""
    group.await_in_sync(3)
    sends.send(20)
    group.await_equal_ends()
    losing = next(number for number in range(3) if number != group.master_number())
    store = StorePaths.at(group.brokers[losing].store_dir)
    end = int(str(group.said_by(losing)["maxOffset"]))
    wait_until(lambda: FailoverFiles(store).read_confirmed() == end, DEADLINE_S, "it is noted what is confirmed")
    epoch, nonce = epoch_of(group), group.view().alive[losing + 1].nonce
    for broker in group.brokers:
        broker.kill()
    damage_last_record(store)
    group.start_again(losing)

    def said() -> Announcement | None:
        return group.view().alive.get(losing + 1)

    wait_until(lambda: (now := said()) is not None and now.nonce != nonce, DEADLINE_S, "its next process is there")
    now = said()
    assert now is not None
    assert not now.trusted
    assert now.end < end
    for number in set(range(3)) - {losing}:
        group.start_again(number)
    await_epoch_behind(group, epoch)
    view = group.await_in_sync(3)
    assert view.state is not None
    assert view.alive[losing + 1].trusted, "it has all again"
    sends.send(5)


def registered(group: Group) -> dict[str, str]:
    """By id, the brokers of the group that the name server knows."""
    return wire.registered_brokers(group.name_server).get(group.brokers[0].properties["brokerName"], {})


def damage_last_record(store: StorePaths) -> None:
    record = read_log(store, GEOMETRY).records[-1]
    start = record.physical_offset - record.physical_offset % COMMIT_LOG_FILE_SIZE
    data = bytearray(store.log.path_of(start).read_bytes())
    data[data.index(record.body, record.physical_offset - start)] ^= 1
    store.log.path_of(start).write_bytes(data)


def test_an_operator_lets_another_one_lead(group: Group, sends: Sends) -> None:
    group.await_in_sync(3)
    epoch, master = epoch_of(group), group.master_number()
    of, to = group.said_by(master)["brokerId"], group.said_by((master + 1) % 3)["brokerId"]
    mqcore = CommandLine(group.name_server)
    assert mqcore.json("ha", "switch", "--to", str(to), "--dry-run")["epoch"] == epoch
    assert (epoch_of(group), group.master_number()) == (epoch, master)
    sends.send(5)
    done = mqcore.json("ha", "switch", "--to", str(to))
    assert (done["epoch"], done["masterBefore"]) == (epoch + 1, of)
    assert group.master_number() == (master + 1) % 3
    sends.send(5)


def test_everything_acknowledged_is_in_all_stores_where_it_was_said_to_be(group: Group, sends: Sends) -> None:
    sends.send(1)
    group.await_equal_ends()
    group.stop_all()
    for number, broker in enumerate(group.brokers):
        sends.check(replica_of(f"broker{number}", Path(broker.store_dir)))
