"""Administrative calls, typed: topics, groups, offsets, lag, messages, dead letters, brokers and name servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest

from mqcore import aio
from mqcore.client import Client, Message
from mqcore.client.admin.dead_letters import origin_topic
from mqcore.client.admin.groups import is_system_group
from mqcore.client.admin.offsets import ResetTo
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.codes import PermName
from mqcore.errors import BrokerError, ClientError
from mqcore.protocol.admin_bodies import BrokerStatsItem, CMResult
from tests.integration.client_helpers import (
    DEADLINE_S,
    committed,
    eventually,
    make_topic,
    read_queue,
    running_broker,
    send_numbers,
)
from tests.rigs import RunningBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    yield from running_broker(tmp_path_factory.mktemp("admin_calls"))


@pytest.fixture(scope="module", autouse=True)
def counted_topic(broker: RunningBroker) -> str:
    """A topic with three messages, sent at the beginning: a broker takes its counts every ten seconds."""
    topic = make_topic(broker, "counted")
    with Client(broker.name_server) as mq, mq.producer("counted") as producer:
        for _ in range(3):
            producer.send(Message(topic, b"x"))
    return topic


@pytest.fixture
async def mq(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
def admin(mq: aio.Client) -> aio.Admin:
    return mq.admin


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=2)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return "G_" + "".join(c if c.isalnum() else "_" for c in request.node.name)


async def consume_all(mq: aio.Client, group: str, topic: str, count: int) -> None:
    """Consume and commit *count* messages of *topic*."""
    async with mq.pull_consumer(group, topic, from_where="earliest") as consumer:
        seen = 0
        while seen < count:
            messages = await consumer.poll(DEADLINE_S)
            assert messages, f"only {seen} of {count} came"
            seen += len(messages)


# Topics.


async def test_a_topic_is_created_changed_in_part_and_deleted(
    admin: aio.Admin, broker: RunningBroker, topic: str
) -> None:
    name = topic + "_new"
    outcomes = await admin.create_topic(name, read_queues=4, write_queues=3, order=True)
    assert outcomes == {broker.broker_address: None, broker.name_server: None}
    assert await admin.get_kv("ORDER_TOPIC_CONFIG", name) == "broker-a:3"
    await admin.update_topic(name, write_queues=2, perm=PermName.READ)
    assert await admin.get_kv("ORDER_TOPIC_CONFIG", name) == "broker-a:2"
    config = (await admin.topic_configs(name))[broker.broker_address]
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 2, PermName.READ)
    await admin.update_topic(name, order=False)
    with pytest.raises(NotFoundError):
        await admin.get_kv("ORDER_TOPIC_CONFIG", name)
    await admin.update_topic(name, order=True)
    deleted = await admin.delete_topic(name)
    assert set(deleted.values()) == {None}
    with pytest.raises(NotFoundError):
        await admin.get_kv("ORDER_TOPIC_CONFIG", name)
    assert broker.broker_address in deleted
    assert name not in await admin.list_topics()
    with pytest.raises(NotFoundError, match="no broker has the topic"):
        await admin.topic_configs(name)
    for call in (admin.delete_topic(name), admin.update_topic(name, perm=PermName.READ)):
        with pytest.raises(NotFoundError):
            await call


async def test_topics_of_a_cluster_and_of_the_system_are_listed(admin: aio.Admin, topic: str) -> None:
    assert topic in await admin.list_topics("DefaultCluster")
    assert "TBW102" in await admin.system_topics()
    with pytest.raises(NotFoundError, match="cluster 'Nowhere' has no broker"):
        await admin.list_topics("Nowhere")


async def test_a_broker_is_known_by_its_name(admin: aio.Admin, broker: RunningBroker) -> None:
    assert await admin.broker_address("broker-a") == broker.broker_address
    assert await admin.broker_address(broker.broker_address) == broker.broker_address
    (place,) = await admin.brokers()
    assert (place.cluster, place.name, place.broker_id, place.is_master) == ("DefaultCluster", "broker-a", 0, True)
    with pytest.raises(NotFoundError, match="no broker named 'broker-z'"):
        await admin.broker_address("broker-z")


async def test_the_groups_of_a_topic_are_those_that_consume_it(
    mq: aio.Client, admin: aio.Admin, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(2))
    assert group not in await admin.topic_groups(topic)
    await consume_all(mq, group, topic, 2)
    assert group in await admin.topic_groups(topic)
    assert topic in await admin.group_topics(group)


# Groups.


async def test_a_group_is_created_changed_in_part_and_deleted(
    admin: aio.Admin, broker: RunningBroker, group: str
) -> None:
    assert await admin.create_group(group, retry_max_times=3) == {broker.broker_address: None}
    await admin.update_group(group, consume_enable=False, retry_queues=2)
    config = (await admin.group_configs(group))[broker.broker_address]
    assert (config.retry_max_times, config.consume_enable, config.retry_queue_nums) == (3, False, 2)
    assert group in await admin.list_groups()
    assert await admin.delete_group(group, remove_offsets=True) == {broker.broker_address: None}
    for call in (admin.delete_group(group), admin.update_group(group, retry_queues=1), admin.group_configs(group)):
        with pytest.raises(NotFoundError, match=f"no broker has the group {group}"):
            await call
    assert is_system_group("TOOLS_CONSUMER")
    assert not is_system_group(group)


async def test_a_deleted_group_may_leave_its_offsets_or_not(
    mq: aio.Client, admin: aio.Admin, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(4))
    await consume_all(mq, group, topic, 4)
    await admin.delete_group(group)
    assert await committed(mq, group, topic) == 4
    await admin.create_group(group)
    await admin.delete_group(group, remove_offsets=True)
    with pytest.raises(NotFoundError, match="has no offsets"):
        await admin.lag(group, topic)


async def test_members_and_their_subscription_are_seen(
    mq: aio.Client, admin: aio.Admin, topic: str, group: str
) -> None:
    with pytest.raises(NotFoundError, match=f"the group {group} is not online"):
        await admin.group_subscription(group)
    assert await admin.group_members(group) == []
    async with mq.pull_consumer(group, {topic: "a || b"}):
        (member,) = await admin.group_members(group)
        assert (member.client_id, member.language.name) == (mq.client_id, "PYTHON")
        subscription = await admin.group_subscription(group)
        assert (subscription[topic].sub_string, subscription[topic].tags_set) == ("a || b", {"a", "b"})


@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_a_member_tells_of_itself(mq: aio.Client, admin: aio.Admin, topic: str, group: str, kind: str) -> None:
    consumer: aio.Consumer | aio.PullConsumer
    if kind == "push":
        consumer = mq.consumer(group, topic)
    else:
        consumer = mq.pull_consumer(group, topic, pull_batch_size=7)
    async with consumer:
        info = await admin.consumer_running_info(group, mq.client_id, with_stacks=True)
        assert info.properties["PROP_CONSUME_TYPE"] == ("CONSUME_PASSIVELY" if kind == "push" else "CONSUME_ACTIVELY")
        if kind == "pull":
            assert info.properties["pull_batch_size"] == "7"
            assert "concurrency" not in info.properties
        assert {queue for queue in info.mq_table if queue.topic == topic} == set(await mq.queues(topic))
        assert info.jstack
        assert "mqcore" in info.jstack
        assert list(await admin.consumer_status(group, topic)) == [mq.client_id]
    with pytest.raises(BrokerError):
        await admin.consumer_running_info(group, mq.client_id)


async def test_a_member_consumes_one_message_on_demand(
    mq: aio.Client, admin: aio.Admin, topic: str, group: str
) -> None:
    got: list[bytes] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        got.append(message.body)
        if message.body == b"bad":
            raise RuntimeError("no")

    async with mq.producer("P_" + group) as producer:
        receipts = [await producer.send(aio.Message(topic, body)) for body in (b"good", b"bad")]
    for receipt in receipts:
        await read_queue(mq, receipt.queue, 1, receipt.offset)
    await consume_all(mq, group, topic, 2)
    async with mq.consumer(group, topic, handler=handle):
        results = [
            await admin.consume_directly(group, mq.client_id, receipt.offset_msg_id, topic) for receipt in receipts
        ]
    assert [result.consume_result for result in results] == [CMResult.CR_SUCCESS, CMResult.CR_THROW_EXCEPTION]
    assert got == [b"good", b"bad"]


async def test_a_pull_consumer_cannot_consume_on_demand_and_says_so(
    mq: aio.Client, admin: aio.Admin, topic: str, group: str
) -> None:
    async with mq.producer("P_" + group) as producer:
        receipt = await producer.send(aio.Message(topic, b"x"))
    await read_queue(mq, receipt.queue, 1, receipt.offset)
    async with mq.pull_consumer(group, topic):
        result = await admin.consume_directly(group, mq.client_id, receipt.offset_msg_id, topic)
    assert result.consume_result != CMResult.CR_SUCCESS
    assert "no handler" in (result.remark or "")


async def test_producers_are_listed(mq: aio.Client, admin: aio.Admin, topic: str, group: str) -> None:
    with pytest.raises(NotFoundError, match="is not online"):
        await admin.producer_connection(group)
    async with mq.producer(group) as producer:
        await producer.send(aio.Message(topic, b"x"))
        await mq.instance.heartbeat()
        (client,) = await admin.producer_connection(group)
        assert client.client_id == mq.client_id
        assert (await admin.producers())[group] == [mq.client_id]


# Offsets.


async def test_lag_is_told_per_queue_per_topic_and_in_all(
    mq: aio.Client, admin: aio.Admin, broker: RunningBroker, topic: str, group: str
) -> None:
    second = make_topic(broker, topic + "_second", queues=1)
    with pytest.raises(NotFoundError, match=f"the group {group} has no offsets"):
        await admin.lag(group)
    for name in (topic, second):
        await send_numbers(mq, name, range(4))
        await consume_all(mq, group, name, 4)
    await send_numbers(mq, topic, range(6))
    for queue in await mq.queues(topic):
        await read_queue(mq, queue, 5)
    found = await admin.lag(group, topic)
    assert [(row.queue.queue_id, row.broker_offset, row.consumer_offset, row.lag) for row in found.queues] == [
        (0, 5, 2, 3),
        (1, 5, 2, 3),
    ]
    assert found.total == 6
    assert 0 < found.last_consumed_ms <= time.time() * 1000
    assert found.delay_ms > 0
    everything = await admin.lag(group)
    assert {name: part.total for name, part in everything.by_topic().items() if name in (topic, second)} == {
        topic: 6,
        second: 0,
    }
    assert everything.by_topic()[second].delay_ms == 0
    assert {row.consumer_offset for row in (await admin.group_offsets(group, topic)).values()} == {2}


async def test_offsets_of_an_offline_group_are_reset_with_a_preview(
    mq: aio.Client, admin: aio.Admin, topic: str, group: str
) -> None:
    queues = await mq.queues(topic)
    await send_numbers(mq, topic, range(5), each_queue=True)
    stored = await read_queue(mq, queues[0], 5)
    await consume_all(mq, group, topic, 10)

    preview = await admin.reset_offsets(group, topic, ResetTo.EARLIEST, dry_run=True)
    assert [(row.before, row.after) for row in preview.queues] == [(5, 0), (5, 0)]
    assert (preview.dry_run, preview.by_members) == (True, False)
    assert await committed(mq, group, topic) == 10
    await admin.reset_offsets(group, topic, ResetTo.EARLIEST)
    assert await committed(mq, group, topic) == 0
    await admin.reset_offsets(group, topic, 3)
    assert await committed(mq, group, topic) == 6
    await admin.reset_offsets(group, topic, 1, queues=queues[:1])
    assert [await mq.committed_offset(group, queue) for queue in queues] == [1, 3]
    at = datetime.fromtimestamp(stored[4].store_timestamp / 1000, UTC)
    await admin.reset_offsets(group, topic, at, queues=queues[:1])
    assert await mq.committed_offset(group, queues[0]) == await mq.search_offset(queues[0], at)
    report = await admin.reset_offsets(group, topic, ResetTo.LATEST, force=False)
    assert [row.after for row in report.queues] == [row.before for row in report.queues]
    await admin.skip_accumulated(group, topic)
    assert await committed(mq, group, topic) == 10
    with pytest.raises(ClientError, match="offset 77 is not in"):
        await admin.reset_offsets(group, topic, 77)
    with pytest.raises(NotFoundError, match="has no queue"):
        await admin.reset_offsets(group, topic, 1, queues=[aio.MessageQueue(topic, "broker-a", 9)])


@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_an_online_group_is_reset_by_its_members(
    mq: aio.Client, admin: aio.Admin, topic: str, group: str, kind: str
) -> None:
    await send_numbers(mq, topic, range(5), each_queue=True)
    await admin.create_group(group)
    for queue in await mq.queues(topic):
        await read_queue(mq, queue, 5)
        await admin.set_offset(group, queue, 5)
    seen: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append(int(message.body))

    async def poll() -> None:
        async for message in puller:
            seen.append(int(message.body))

    # Brokers of version 5 tell a member when its pull comes back to them.
    puller = mq.pull_consumer(group, topic, hold_timeout_s=1)
    consumer: aio.Consumer | aio.PullConsumer
    consumer = mq.consumer(group, topic, handler=handle, hold_timeout_s=1) if kind == "push" else puller
    async with consumer:
        polling = asyncio.create_task(poll()) if kind == "pull" else None
        with pytest.raises(ClientError, match="is online"):
            await admin.reset_offsets(group, topic, 2)
        report = await admin.reset_offsets(group, topic, ResetTo.EARLIEST)
        assert report.by_members
        assert [(row.before, row.after) for row in report.queues] == [(5, 0), (5, 0)]
        await eventually(lambda: sorted(seen) == sorted([*range(5)] * 2), f"everything again: {seen}")
    if polling is not None:
        await polling
    assert await committed(mq, group, topic) == 10


async def test_offsets_are_cloned(mq: aio.Client, admin: aio.Admin, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(6))
    await consume_all(mq, group, topic, 6)
    outcomes = await admin.clone_offsets(group, group + "_copy")
    assert set(outcomes.values()) == {None}
    assert await committed(mq, group + "_copy", topic) == 6
    with pytest.raises(NotFoundError, match="has no offsets"):
        await admin.clone_offsets(group + "_nobody", group)


# Messages.


async def test_a_message_is_found_by_its_place(mq: aio.Client, admin: aio.Admin, topic: str) -> None:
    await send_numbers(mq, topic, range(3), each_queue=True)
    queue = (await mq.queues(topic))[1]
    await read_queue(mq, queue, 3)
    found = await admin.message_at(queue, 2)
    assert (found.body, found.queue_offset, found.broker_name) == (b"2", 2, "broker-a")
    with pytest.raises(NotFoundError, match=r"no message at offset 3 of .*: it has 0 to 3"):
        await admin.message_at(queue, 3)


async def test_a_query_tells_whether_there_may_be_more(mq: aio.Client, admin: aio.Admin, topic: str) -> None:
    async with mq.producer("P_" + topic) as producer:
        for number in range(70):
            await producer.send(aio.Message(topic, b"%d" % number, keys=["many"]))
        await producer.send(aio.Message(topic, b"one", keys=["single"]))
    async with asyncio.timeout(DEADLINE_S):
        while not await admin.query_by_key(topic, "single"):
            await asyncio.sleep(0.05)
    single = await admin.query_by_key(topic, "single")
    assert (len(single), single.truncated) == (1, False)
    many = await admin.query_by_key(topic, "many")
    assert (len(many), many.truncated) == (64, True)
    few = await admin.query_by_key(topic, "many", max_messages=5)
    assert (len(few), few.truncated) == (5, True)


# Dead letters.


async def make_dead_letters(mq: aio.Client, group: str, topic: str, count: int) -> None:
    """Send *count* messages to *topic* and let *group* give them up."""

    async def refuse(message: aio.ReceivedMessage) -> None:
        raise aio.Reject

    async with mq.producer("P_" + group) as producer:
        for number in range(count):
            message = aio.Message(topic, b"%d" % number, tag="t", keys=[f"k{number}"], properties={"a": "b"})
            await producer.send(message)
    async with mq.consumer(group, topic, handler=refuse, from_where="earliest"):
        async with asyncio.timeout(DEADLINE_S):
            while len(await mq.admin.dead_letters(group)) < count:
                await asyncio.sleep(0.05)


async def test_dead_letters_are_listed_shown_and_sent_again_to_their_group_alone(
    mq: aio.Client, admin: aio.Admin, topic: str, group: str
) -> None:
    assert await admin.dead_letters(group) == []
    await make_dead_letters(mq, group, topic, 3)
    dead = await admin.dead_letters(group)
    assert sorted(ext.body for ext in dead) == [b"0", b"1", b"2"]
    assert {origin_topic(ext) for ext in dead} == {topic}
    assert not dead.truncated
    part = await admin.dead_letters(group, max_messages=2)
    assert (len(part), part.truncated) == (2, True)
    assert await admin.dead_letters(group, end=time.time() - 3600) == []
    assert len(await admin.dead_letters(group, begin=time.time() - 3600)) == 3
    shown = await admin.dead_letter(group, dead[0].msg_id)
    assert (shown.body, shown.tags) == (dead[0].body, "t")

    got: list[aio.ReceivedMessage] = []

    async def take(message: aio.ReceivedMessage) -> None:
        got.append(message)

    report = await admin.resend_dead_letters(group, dead[:2])
    assert report.sent == [ext.msg_id for ext in dead[:2]]
    assert report.failed == {}
    async with mq.consumer(group, topic, handler=take):
        await eventually(lambda: len(got) == 2, "the two letters")
    assert sorted(message.body for message in got) == sorted(ext.body for ext in dead[:2])
    for message in got:
        assert (message.topic, message.tag, message.properties["a"]) == (topic, "t", "b")
        assert message.msg_id in report.sent
        assert message.reconsume_times == 0
    assert sum([await mq.max_offset(queue) for queue in await mq.queues(topic)]) == 3


async def test_dead_letters_are_sent_again_to_a_topic(
    mq: aio.Client, admin: aio.Admin, broker: RunningBroker, topic: str, group: str
) -> None:
    await make_dead_letters(mq, group, topic, 1)
    target = make_topic(broker, topic + "_target", queues=1)
    dead = await admin.dead_letters(group)
    report = await admin.resend_dead_letters(group, dead, topic=target)
    assert len(report.sent) == 1
    (again,) = await read_queue(mq, (await mq.queues(target))[0], 1)
    assert (again.body, again.tag, again.msg_id) == (b"0", "t", dead[0].msg_id)
    report = await admin.resend_dead_letters(group, dead, topic="not legal")
    assert list(report.failed) == [dead[0].msg_id]


# Brokers and name servers.


async def test_a_broker_tells_how_it_is_and_changes_its_settings(admin: aio.Admin, broker: RunningBroker) -> None:
    runtime = await admin.broker_runtime("broker-a")
    assert {"brokerVersionDesc", "putTps", "bootTimestamp"} <= set(runtime)
    before = (await admin.broker_config(broker.broker_address))["fileReservedTime"]
    await admin.update_broker_config("broker-a", {"fileReservedTime": "71"})
    assert (await admin.broker_config("broker-a"))["fileReservedTime"] == "71"
    await admin.update_broker_config("broker-a", {"fileReservedTime": before})
    await admin.clean_consume_queues("broker-a")


async def test_a_broker_counts_what_is_sent_to_a_topic(admin: aio.Admin, counted_topic: str) -> None:
    async def minute() -> BrokerStatsItem:
        return (await admin.broker_stats("broker-a", "TOPIC_PUT_NUMS", counted_topic)).stats_minute

    async with asyncio.timeout(DEADLINE_S):
        while (await minute()).sum == 0:
            await asyncio.sleep(0.1)
    found = await minute()
    assert (found.sum, found.avgpt) == (3, 1.0)
    assert 0 < found.tps <= 3 / 10
    with pytest.raises(BrokerError):
        await admin.broker_stats("broker-a", "NO_SUCH_NUMS", counted_topic)


async def test_name_servers_keep_values_and_tell_their_settings(admin: aio.Admin, broker: RunningBroker) -> None:
    with pytest.raises(NotFoundError):
        await admin.get_kv("SPACE", "key")
    with pytest.raises(NotFoundError):
        await admin.list_kv("SPACE")
    assert await admin.put_kv("SPACE", "key", "välue") == {broker.name_server: None}
    assert await admin.get_kv("SPACE", "key") == "välue"
    assert await admin.list_kv("SPACE") == {"key": "välue"}
    assert await admin.delete_kv("SPACE", "key") == {broker.name_server: None}
    with pytest.raises(NotFoundError):
        await admin.get_kv("SPACE", "key")
    assert "kvConfigPath" in (await admin.name_server_config())[broker.name_server]


async def test_a_broker_is_hidden_from_producers_and_shown_again(mq: aio.Client, admin: aio.Admin, topic: str) -> None:
    assert await admin.wipe_write_perm("broker-a") > 0
    try:
        (data,) = (await admin.topic_route(topic)).queue_datas
        assert data.perm == PermName.READ
    finally:
        assert await admin.add_write_perm("broker-a") > 0
    (data,) = (await admin.topic_route(topic)).queue_datas
    assert data.perm == PermName.READ | PermName.WRITE


# The plain face.


def test_the_plain_face_has_the_same_calls(broker: RunningBroker, topic: str, group: str) -> None:
    with Client(broker.name_server) as mq:
        assert topic in mq.admin.list_topics()
        assert mq.admin.create_group(group, retry_max_times=2) == {broker.broker_address: None}
        assert mq.admin.group_configs(group)[broker.broker_address].retry_max_times == 2
        with pytest.raises(NoRouteError):
            mq.admin.topic_route("Nowhere")
        queue = mq.queues(topic)[0]
        with mq.producer("P_" + group) as producer:
            producer.send(aio.Message(topic, b"x"), queue=queue)
        assert mq.pull(queue, 0, wait_s=DEADLINE_S).messages
        mq.commit_offset(group, queue, 0)
        assert mq.admin.lag(group, topic).total == 1
        mq.admin.skip_accumulated(group, topic)
        assert mq.committed_offset(group, queue) == 1
    public = {name for name in dir(aio.Admin) if not name.startswith("_")}
    assert public == {name for name in dir(type(mq.admin)) if not name.startswith("_")}
