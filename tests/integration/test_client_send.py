"""A producer's messages lie where its receipts say, as they were sent."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from mqcore import aio
from mqcore.client.errors import ClientClosedError, ClientStateError, InvalidMessageError, NoRouteError
from mqcore.codes import SysFlag
from mqcore.errors import ArgumentError, RemotingConnectError
from tests.integration.client_helpers import make_topic, read_queue
from tests.rigs import RunningBroker


@pytest.fixture
async def mq(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name)


async def stored(mq: aio.Client, receipt: aio.SendReceipt) -> aio.ReceivedMessage:
    """Read the message that lies where *receipt* says."""
    return (await read_queue(mq, receipt.queue, 1, receipt.offset))[0]


async def test_a_receipt_says_where_the_message_lies(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer:
        sent = aio.Message(topic, b"\x00body\xff", tag="a", keys=["k1", "k2"], properties={"color": "rot"}, flag=7)
        receipt = await producer.send(sent)
    message = await stored(mq, receipt)
    assert receipt.status is aio.SendStatus.SEND_OK
    assert (message.msg_id, message.offset_msg_id) == (receipt.msg_id, receipt.offset_msg_id)
    assert (message.body, message.tag, message.keys, message.flag) == (sent.body, "a", ("k1", "k2"), 7)
    assert message.properties["color"] == "rot"


async def test_messages_go_to_every_queue_in_turn(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer:
        receipts = [await producer.send(aio.Message(topic, b"x")) for _ in range(12)]
    assert Counter(receipt.queue.queue_id for receipt in receipts) == dict.fromkeys(range(4), 3)


async def test_an_unknown_topic_is_made_by_the_first_send(mq: aio.Client, request: pytest.FixtureRequest) -> None:
    name = f"{request.node.name}_{random.getrandbits(32)}"
    async with mq.producer("P") as producer:
        receipt = await producer.send(aio.Message(name, b"first"))
        assert len(await producer.queues(name)) == 4  # the default topic has eight; a new one gets four of them
    assert (await stored(mq, receipt)).body == b"first"


async def test_a_topic_that_nobody_may_make_has_no_route(mq: aio.Client) -> None:
    async with mq.producer("P", create_topic_key="NoSuchTopic") as producer:
        with pytest.raises(NoRouteError, match="No route info of this topic: Nowhere"):
            await producer.send(aio.Message("Nowhere", b"x"))


async def test_equal_shard_keys_go_to_one_queue_in_order(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer:
        receipts = [await producer.send(aio.Message(topic, b"x"), shard_key="order-42") for _ in range(5)]
        others = {(await producer.send(aio.Message(topic, b"x"), shard_key=key)).queue for key in range(4)}
    assert len({receipt.queue for receipt in receipts}) == 1
    assert [receipt.offset for receipt in receipts] == list(range(receipts[0].offset, receipts[0].offset + 5))
    assert len(others) == 4


async def test_a_queue_may_be_chosen_by_hand_or_by_a_function(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer:
        queues = await producer.queues(topic)
        by_hand = await producer.send(aio.Message(topic, b"x"), queue=queues[2])
        by_function = await producer.send(aio.Message(topic, b"x"), selector=lambda queues, message: queues[-1])
        with pytest.raises(ArgumentError, match="give one of queue, shard_key and selector"):
            await producer.send(aio.Message(topic, b"x"), queue=queues[0], shard_key=1)
        with pytest.raises(ArgumentError, match="message's topic not equal mq's topic"):
            await producer.send(aio.Message(topic, b"x"), queue=aio.MessageQueue("Other", "broker-a", 0))
    assert (by_hand.queue, by_function.queue) == (queues[2], queues[-1])


async def test_a_batch_lies_in_one_queue_one_after_the_other(mq: aio.Client, topic: str) -> None:
    messages = [aio.Message(topic, b"%d" % number, tag=f"t{number}", keys=[f"k{number}"]) for number in range(10)]
    async with mq.producer("P") as producer:
        receipts = await producer.send_batch(messages)
    assert len({receipt.queue for receipt in receipts}) == 1
    assert [receipt.offset for receipt in receipts] == list(range(10))
    found = await read_queue(mq, receipts[0].queue, 10)
    assert [(m.body, m.tag, m.keys) for m in found] == [(m.body, m.tag, m.keys) for m in messages]
    assert [m.msg_id for m in found] == [receipt.msg_id for receipt in receipts]
    assert [m.offset_msg_id for m in found] == [receipt.offset_msg_id for receipt in receipts]


async def test_batches_that_break_the_rules_are_not_sent(mq: aio.Client, topic: str) -> None:
    good = aio.Message(topic, b"x")
    async with mq.producer("P", max_message_size_bytes=1000) as producer:
        for batch in (
            [],
            [good, aio.Message("Other", b"x")],
            [good, aio.Message(topic, b"x", delay_level=1)],
            [good, aio.Message(topic, b"x", wait_store_ok=False)],
            [aio.Message(topic, b"x" * 1001)],
        ):
            with pytest.raises(InvalidMessageError):
                await producer.send_batch(batch)
        with pytest.raises(InvalidMessageError, match="over max value, MAX: 1000"):
            await producer.send_batch([aio.Message(topic, b"x" * 600)] * 2, split=False)
    assert sum([await mq.max_offset(queue) for queue in await mq.queues(topic)]) == 0


@pytest.mark.parametrize("by_hand", [True, False])
async def test_a_long_list_is_cut_into_batches_that_fit(mq: aio.Client, topic: str, by_hand: bool) -> None:
    sizes = [400, 400, 100, 990, 5, 300, 300, 1000, 20]
    messages = [aio.Message(topic, b"%d" % at * size, keys=[f"k{at}"]) for at, size in enumerate(sizes)]
    async with mq.producer("P", max_message_size_bytes=1000) as producer:
        queue = (await producer.queues(topic))[1] if by_hand else None
        receipts = await producer.send_batch(messages, queue=queue)
    assert len(receipts) == len(messages)
    for receipt, message in zip(receipts, messages, strict=True):
        found = await stored(mq, receipt)
        assert (found.body, found.keys, found.msg_id) == (message.body, message.keys, receipt.msg_id)
    places = [(receipt.queue.queue_id, receipt.offset) for receipt in receipts]
    assert len(set(places)) == len(places)
    if queue is not None:
        assert places == [(queue.queue_id, at) for at in range(len(sizes))]


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
async def test_large_bodies_travel_compressed_and_arrive_whole(mq: aio.Client, topic: str, codec: str) -> None:
    body = b"a line of text\n" * 1000
    async with mq.producer("P", compression=codec) as producer:
        message = await stored(mq, await producer.send(aio.Message(topic, body)))
    assert message.body == body
    assert message.ext.sys_flag & SysFlag.COMPRESSED
    assert message.ext.store_size < len(body) / 4


async def test_bodies_below_the_limit_and_unwilling_producers_do_not_compress(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer, mq.producer("Q", compression="none") as plain:
        receipts = [
            await producer.send(aio.Message(topic, b"x" * 4095)),
            await plain.send(aio.Message(topic, b"x" * 9999)),
        ]
    for receipt in receipts:
        assert not (await stored(mq, receipt)).ext.sys_flag & SysFlag.COMPRESSED


async def test_messages_may_take_the_broker_s_second_port(mq: aio.Client, broker: RunningBroker, topic: str) -> None:
    seen: list[str] = []
    mq.instance.remoting.request_hooks.append(lambda address, command: seen.append(address))
    async with mq.producer("P", vip_channel=True) as producer:
        receipt = await producer.send(aio.Message(topic, b"x"))
    host, _, port = broker.broker_address.rpartition(":")
    assert f"{host}:{int(port) - 2}" in seen
    assert (await stored(mq, receipt)).body == b"x"


async def test_oneway_messages_arrive(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer:
        queue = (await producer.queues(topic))[0]
        for number in range(20):
            await producer.send_oneway(aio.Message(topic, b"%d" % number), queue=queue)
    found = {message.body for message in await read_queue(mq, queue, 20)}
    assert found == {b"%d" % number for number in range(20)}


async def test_what_may_not_be_sent_is_refused_before_it_is(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P", max_message_size_bytes=10) as producer:
        for message, reason in (
            (aio.Message(topic, b""), "body length is zero"),
            (aio.Message(topic, b"x" * 11), "over max value, MAX: 10"),
            (aio.Message(topic, b"x", properties={"p": "v" * 40_000}), "properties are too long"),
        ):
            with pytest.raises(InvalidMessageError, match=reason):
                await producer.send(message)


async def test_closing_waits_for_sends_under_way_and_refuses_new_ones(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer:
        sends = [asyncio.create_task(producer.send(aio.Message(topic, b"x"))) for _ in range(300)]
        await asyncio.sleep(0)
    receipts = await asyncio.gather(*sends)
    assert len({(receipt.queue, receipt.offset) for receipt in receipts}) == 300
    with pytest.raises(ClientClosedError):
        await producer.send(aio.Message(topic, b"x"))


async def test_no_more_are_under_way_than_allowed_and_all_arrive(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P", max_inflight_messages=3, max_inflight_bytes=250) as producer:
        receipts = await asyncio.gather(*(producer.send(aio.Message(topic, b"x" * 100)) for _ in range(100)))
    assert len({(receipt.queue, receipt.offset) for receipt in receipts}) == 100


async def test_a_group_has_one_producer_in_a_client(mq: aio.Client) -> None:
    async with mq.producer("P"):
        with pytest.raises(ClientStateError, match=r"producer group\[P\] has been created before"):
            async with mq.producer("P"):
                pass
    async with mq.producer("P"):
        pass


async def test_without_a_name_server_a_send_says_who_could_not_be_reached(topic: str) -> None:
    async with aio.Client("127.0.0.1:1") as lost, lost.producer("P") as producer:
        with pytest.raises(RemotingConnectError, match=r"connect to \['127.0.0.1:1'\] failed"):
            await producer.send(aio.Message(topic, b"x"))


async def test_the_second_name_server_is_used_when_the_first_is_down(broker: RunningBroker, topic: str) -> None:
    for _ in range(4):  # which one is asked first is chance
        async with aio.Client(f"127.0.0.1:1;{broker.name_server}") as mq, mq.producer("P") as producer:
            assert (await producer.send(aio.Message(topic, b"x"))).status is aio.SendStatus.SEND_OK


async def test_queues_can_be_asked_where_they_begin_and_end(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer:
        queue = (await producer.queues(topic))[0]
        receipts = [await producer.send(aio.Message(topic, b"%d" % n), queue=queue) for n in range(5)]
    messages = await read_queue(mq, queue, 5)
    assert (await mq.min_offset(queue), await mq.max_offset(queue)) == (0, 5)
    at = await mq.search_offset(queue, messages[0].store_timestamp / 1000)
    assert messages[at].store_timestamp == messages[0].store_timestamp  # any of those stored in that millisecond
    assert await mq.search_offset(queue, messages[-1].store_timestamp / 1000 + 3600) == 4
    assert await mq.committed_offset("unheard_of", aio.MessageQueue(topic, "broker-a", 3)) in (None, 0)
    await mq.commit_offset("C", queue, 3)
    assert await mq.committed_offset("C", queue) == 3
    assert [receipt.offset for receipt in receipts] == list(range(5))


async def test_a_pull_says_what_it_found(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer:
        queue = (await producer.queues(topic))[0]
        for tag in ("a", "b"):
            await producer.send(aio.Message(topic, b"x", tag=tag), queue=queue)
    await read_queue(mq, queue, 2)
    only_b = await mq.pull(queue, 0, expression="b")
    assert ([message.tag for message in only_b.messages], only_b.next_offset) == (["b"], 2)
    at_end = await mq.pull(queue, 2)
    assert (at_end.status, at_end.next_offset, at_end.max_offset) == (aio.PullStatus.NO_NEW_MSG, 2, 2)
    beyond = await mq.pull(queue, 100)
    assert (beyond.status, beyond.next_offset) == (aio.PullStatus.OFFSET_ILLEGAL, 2)
    nothing = await mq.pull(queue, 0, expression="c")
    assert (nothing.status, nothing.next_offset) == (aio.PullStatus.NO_MATCHED_MSG, 2)
    with pytest.raises(ArgumentError, match="got offset -1"):
        await mq.pull(queue, -1)
