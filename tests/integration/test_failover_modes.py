"""What a group promises besides: fewer in sync than are wanted, and an asynchronous group, which waits for nobody.

The tests of this module use one group, one after the other, with other settings each time.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Mapping

import psutil
import pytest

from mqcore.client import Client
from mqcore.codes import ResponseCode
from mqcore.protocol.command import RemotingCommand
from tests.fault.campaign.rig import TOPIC, Group, replica_of
from tests.fault.rig import find_worker
from tests.fault.talker import Talker, max_offset_request, pull_request, send_request
from tests.integration.group_sends import Sends, await_epoch_behind, epoch_of, hold
from tests.rigs import etcd as etcd_rig
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(etcd_rig.missing_tools()), reason=f"etcd cannot run here: {etcd_rig.missing_tools()}"),
]

DEADLINE_S = 60.0
WAIT_FOR_SLAVES_S = 3.0
"""How long a send waits where it waits for slaves: ``slaveTimeout``."""


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with Group(tmp_path_factory.mktemp("group"), random.Random(), has_machines=False) as group:
        group.await_in_sync(3)
        yield group


@pytest.fixture(scope="module")
def sends(group: Group) -> Iterator[Sends]:
    with Client(group.name_server) as client, client.producer("sends") as producer:
        yield Sends(producer)


def settle(group: Group, properties: Mapping[str, str]) -> None:
    """Start all brokers again with *properties*."""
    epoch = epoch_of(group)
    group.stop_all()
    for number, broker in enumerate(group.brokers):
        broker.properties.update(properties)
        group.start_again(number)
    await_epoch_behind(group, epoch)
    group.await_in_sync(3)


def sent_to(address: str, body: bytes) -> RemotingCommand:
    with Talker(address) as talker:
        return talker.call(send_request(TOPIC, 0, body))


def await_answer(address: str, code: ResponseCode) -> RemotingCommand:
    answer = RemotingCommand(-1)

    def look() -> bool:
        nonlocal answer
        answer = sent_to(address, b"any")
        return answer.code == code

    wait_until(look, DEADLINE_S, f"sends are answered {code.name}")
    return answer


def test_sends_are_refused_with_the_cause_while_fewer_are_in_sync_than_are_wanted(group: Group, sends: Sends) -> None:
    settle(group, {"minInSyncReplicas": "2"})
    master = group.master_number()
    first, second = (number for number in range(group.size) if number != master)
    sends.send(5)
    group.brokers[first].kill()
    group.await_in_sync(2)
    sends.send(5)
    group.brokers[second].kill()
    group.await_in_sync(1)
    answer = await_answer(group.brokers[master].broker_address, ResponseCode.SYSTEM_ERROR)
    assert "in-sync replicas not enough: fewer members than minInSyncReplicas" in str(answer.remark)
    group.start_again(first)
    group.await_in_sync(2)
    sends.send(5)
    group.start_again(second)
    group.await_in_sync(3)
    assert group.master_number() == master


def test_an_asynchronous_master_refuses_sends_while_others_may_have_elected_another(group: Group) -> None:
    settle(group, {"brokerRole": "ASYNC_MASTER", "minInSyncReplicas": "1"})
    master = group.master_number()
    silent = next(number for number in range(group.size) if number != master)
    address = group.brokers[master].broker_address
    for engine in group.engines:
        engine.kill()
    assert sent_to(address, b"any").code == ResponseCode.SUCCESS, "as long as all of the set are there"
    group.brokers[silent].kill()
    answer = await_answer(address, ResponseCode.SYSTEM_ERROR)
    assert "this broker reaches neither etcd nor all of them" in str(answer.remark)
    for number in range(len(group.engines)):
        group.start_engine(number)
    await_answer(address, ResponseCode.SUCCESS)
    group.start_again(silent)
    group.await_in_sync(3)


def test_an_asynchronous_group_waits_for_nobody_and_no_place_has_two_messages_of_what_stays(group: Group) -> None:
    group.await_in_sync(3)
    epoch, master = epoch_of(group), group.master_number()
    address = group.brokers[master].broker_address
    before = sent_to(address, b"before")
    assert before.ext_fields is not None
    end = int(before.ext_fields["queueOffset"]) + 1
    group.await_equal_ends()
    lost = [f"lost-{number}" for number in range(8)]
    with contextlib.ExitStack() as held:
        # Nobody gets what is sent now, and nobody is taken out of the set for it.
        hold(held, psutil.Process(group.brokers[master].pid), find_worker(group.brokers[master], "ha"))
        began_s = time.monotonic()
        assert [sent_to(address, body.encode()).code for body in lost] == [ResponseCode.SUCCESS] * len(lost)
        assert time.monotonic() - began_s < WAIT_FOR_SLAVES_S * len(lost) / 2
        group.brokers[master].kill()
    await_epoch_behind(group, epoch)
    other = group.master().broker_address
    wait_until(lambda: max_offset(other) == end, DEADLINE_S, "what the new master has not got is lost")
    with Talker(other) as talker:
        # Who has read the lost ones is put back to the end.
        answer = talker.call(pull_request(TOPIC, 0, end + len(lost)))
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert answer.ext_fields is not None
        assert answer.ext_fields["nextBeginOffset"] == str(end)
    kept = [f"kept-{number}" for number in range(4)]
    for body in kept:
        assert sent_to(other, body.encode()).code == ResponseCode.SUCCESS
    group.start_again(master)
    group.await_in_sync(3)
    group.await_equal_ends()
    group.stop_all()
    for number, broker in enumerate(group.brokers):
        messages = replica_of(f"broker{number}", broker.store_dir).messages
        assert [messages[0, end + number] for number in range(len(kept))] == [[body] for body in kept]
        assert all(len(found) == 1 for found in messages.values())
        assert {body for (body,) in messages.values()}.isdisjoint(lost)


def max_offset(address: str) -> int:
    with Talker(address) as talker:
        answer = talker.call(max_offset_request(TOPIC, 0))
    assert answer.ext_fields is not None
    return int(answer.ext_fields["offset"])
