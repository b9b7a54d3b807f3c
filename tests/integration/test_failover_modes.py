"""What a group promises besides: what waits for its time, fewer in sync than are wanted, and an asynchronous group.

The tests of this module use one group, one after the other, with other settings each time.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Mapping

import pytest

from mqcore import clock
from mqcore.client import Client, Message
from mqcore.codes import ResponseCode
from mqcore.protocol.command import RemotingCommand
from tests.fault.campaign.rig import TOPIC, Group, replica_of
from tests.fault.talker import Talker, max_offset_request, pull_request, pulled, send_request
from tests.integration.group_sends import Sends, await_epoch_behind, epoch_of, lost_with_its_master
from tests.rigs import etcd as etcd_rig
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(etcd_rig.missing_tools()), reason=f"etcd cannot run here: {etcd_rig.missing_tools()}"),
]

DEADLINE_S = 60.0
AT_ONCE_S = 20.0
TIMED, TIMED_LATE_MS, TIMED_STEP_MS = 60, 5_000, 100
WAIT_FOR_SLAVES_S = 3.0
"""How long a send waits where it waits for slaves: ``slaveTimeout``."""


ASYNCHRONOUS = {"brokerRole": "ASYNC_MASTER", "minInSyncReplicas": "1"}


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
    """Start all brokers again with *properties*, unless they have them."""
    if all(broker.properties.items() >= properties.items() for broker in group.brokers):
        group.await_in_sync(3)
        return
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


def test_what_waits_for_its_time_comes_once_whoever_delivers_it(group: Group) -> None:
    group.await_in_sync(3)
    epoch, master = epoch_of(group), group.master_number()
    first_ms = clock.now_ms() + TIMED_LATE_MS
    bodies = [f"timed-{number}" for number in range(TIMED)]
    with Client(group.name_server) as client, client.producer("timed") as producer:
        (queue,) = (queue for queue in producer.queues(TOPIC) if queue.queue_id == 0)
        begin = max_offset(group.brokers[master].broker_address)
        for number, body in enumerate(bodies):
            producer.send(Message(TOPIC, body.encode(), deliver_at=first_ms + number * TIMED_STEP_MS), queue=queue)
    old = group.brokers[master].broker_address
    wait_until(lambda: max_offset(old) > begin + 5, DEADLINE_S, "some are delivered")
    group.brokers[master].kill()
    await_epoch_behind(group, epoch)
    other = group.master().broker_address
    # They come in the order of their times: what came twice would be there before the last one is.
    wait_until(lambda: bodies[-1] in bodies_of(other, begin), DEADLINE_S, "all are delivered")
    assert bodies_of(other, begin) == bodies
    group.start_again(master)


def bodies_of(address: str, begin: int) -> list[str]:
    """What queue 0 has from there on."""
    found: list[str] = []
    with Talker(address) as talker:
        while messages := pulled(talker.call(pull_request(TOPIC, 0, begin + len(found)))):
            found += [message.body.decode() for message in messages]
    return found


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
    settle(group, ASYNCHRONOUS)
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


def test_who_has_read_what_an_asynchronous_group_loses_gets_everything_that_comes_instead(group: Group) -> None:
    settle(group, ASYNCHRONOUS)
    master = group.master_number()
    slaves = [broker.broker_address for number, broker in enumerate(group.brokers) if number != master]
    seen: list[str] = []
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(group.name_server, offset_commit_interval_s=0.2))
        stack.enter_context(client.consumer("ahead", TOPIC, handler=lambda message: seen.append(message.body.decode())))
        end = queue_offset_of(sent_to(group.master().broker_address, b"first")) + 1
        wait_until(lambda: "first" in seen, DEADLINE_S, "the group reads")
        group.await_equal_ends()
        lost = [f"read-and-lost-{number}" for number in range(8)]
        # They wait where the master's readers will have come to.
        waiting = {address: stack.enter_context(Talker(address)) for address in slaves}
        for talker in waiting.values():
            talker.send([pull_request(TOPIC, 0, end + len(lost), suspend_ms=int(DEADLINE_S * 1000))])
        with lost_with_its_master(group) as address:
            assert [sent_to(address, body.encode()).code for body in lost] == [ResponseCode.SUCCESS] * len(lost)
            wait_until(lambda: set(lost) <= set(seen), DEADLINE_S, "the group has read what is about to be lost")
        other = group.master().broker_address
        assert sent_back_to(waiting[other].receive(AT_ONCE_S)) <= end
        # More than are lost: where the group stands there is something by the time it comes.
        kept = [f"kept-instead-{number}" for number in range(len(lost) + 4)]
        for body in kept:
            assert sent_to(other, body.encode()).code == ResponseCode.SUCCESS
        wait_until(lambda: set(kept) <= set(seen), DEADLINE_S, "the group gets all that was acknowledged since")
    group.start_again(master)
    group.await_in_sync(3)


def test_an_asynchronous_group_waits_for_nobody_and_no_place_has_two_messages_of_what_stays(group: Group) -> None:
    settle(group, ASYNCHRONOUS)
    master = group.master_number()
    end = queue_offset_of(sent_to(group.brokers[master].broker_address, b"before")) + 1
    group.await_equal_ends()
    lost = [f"lost-{number}" for number in range(8)]
    with lost_with_its_master(group) as address:
        began_s = time.monotonic()
        assert [sent_to(address, body.encode()).code for body in lost] == [ResponseCode.SUCCESS] * len(lost)
        assert time.monotonic() - began_s < WAIT_FOR_SLAVES_S * len(lost) / 2
    other = group.master().broker_address
    wait_until(lambda: max_offset(other) == end, DEADLINE_S, "what the new master has not got is lost")
    with Talker(other) as talker:
        # Who has read the lost ones is put back to the end.
        assert sent_back_to(talker.call(pull_request(TOPIC, 0, end + len(lost)))) <= end
    kept = [f"kept-{number}" for number in range(4)]
    for body in kept:
        assert sent_to(other, body.encode()).code == ResponseCode.SUCCESS
    group.start_again(master)
    given: set[str] = set()

    def is_back() -> bool:
        with contextlib.suppress(OSError):
            given.update(bodies_of(address, end))
        state = group.view().state
        return state is not None and len(state.isr) == 3

    wait_until(is_back, DEADLINE_S, "the old master has what the new one has")
    assert given.isdisjoint(lost), "until it has met the new one it gives nobody what it alone has"
    group.await_equal_ends()
    group.stop_all()
    for number, broker in enumerate(group.brokers):
        messages = replica_of(f"broker{number}", broker.store_dir).messages
        assert [messages[0, end + number] for number in range(len(kept))] == [[body] for body in kept]
        assert all(len(found) == 1 for found in messages.values())
        assert {body for (body,) in messages.values()}.isdisjoint(lost)


def queue_offset_of(answer: RemotingCommand) -> int:
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields is not None
    return int(answer.ext_fields["queueOffset"])


def sent_back_to(answer: RemotingCommand) -> int:
    """Where a pull is to go on: where an epoch began, of those that tests before have begun within the last minutes."""
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.ext_fields is not None
    return int(answer.ext_fields["nextBeginOffset"])


def max_offset(address: str) -> int:
    with Talker(address) as talker:
        answer = talker.call(max_offset_request(TOPIC, 0))
    assert answer.ext_fields is not None
    return int(answer.ext_fields["offset"])
