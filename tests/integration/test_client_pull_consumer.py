"""The pull consumer: sharing and assigning queues, polling, moving about, pausing, committing, and its limits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mqcore import aio, compat
from mqcore.client import Client, Message
from mqcore.client.errors import BrokerNotFoundError, ClientClosedError, ClientStateError
from mqcore.errors import ArgumentError, ClientError, ConfigError, MQError
from tests.integration.client_helpers import committed, eventually, make_topic, read_queue, running_broker, send_numbers
from tests.rigs import RunningBroker, wire
from tests.waiting import wait_until

POLL_S = 30.0


@pytest.fixture
async def mq(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=4)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return "G_" + "".join(c if c.isalnum() else "_" for c in request.node.name)


async def poll_count(consumer: aio.PullConsumer, count: int) -> list[aio.ReceivedMessage]:
    """Poll until *count* messages have come."""
    found: list[aio.ReceivedMessage] = []
    while len(found) < count:
        messages = await consumer.poll(POLL_S)
        assert messages, f"only {len(found)} of {count} came"
        found += messages
    return found


def numbers(messages: Sequence[aio.ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def first_queue(mq: aio.Client, topic: str) -> aio.MessageQueue:
    return (await mq.queues(topic))[0]


# Subscribing.


async def test_polls_bring_every_message_once_and_each_queue_in_order(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(200))
    async with mq.pull_consumer(group, topic, from_where="earliest") as consumer:
        assert consumer.assignment == await consumer.queues(topic)
        found = await poll_count(consumer, 200)
    assert sorted(numbers(found)) == list(range(200))
    for queue in {message.queue for message in found}:
        offsets = [message.queue_offset for message in found if message.queue == queue]
        assert offsets == list(range(len(offsets)))
    assert await committed(mq, group, topic) == 200


async def test_iterating_brings_message_by_message_and_a_break_leaves_the_rest(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(50))
    seen: list[aio.ReceivedMessage] = []
    async with mq.pull_consumer(group, topic, from_where="earliest") as consumer:
        async for message in consumer:
            seen.append(message)
            if len(seen) == 23:
                break
        async for message in consumer:
            seen.append(message)
            if len(seen) == 50:
                break
    assert sorted(numbers(seen)) == list(range(50))
    assert await committed(mq, group, topic) == 50


async def test_a_member_that_leaves_by_an_exception_leaves_its_last_batch_to_the_next(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(40))
    done: list[aio.ReceivedMessage] = []
    last: list[aio.ReceivedMessage] = []

    async def fail_at_the_second_batch() -> None:
        async with mq.pull_consumer(group, topic, from_where="earliest") as consumer:
            done.extend(await consumer.poll(POLL_S))
            last.extend(await consumer.poll(POLL_S))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail_at_the_second_batch()
    assert done
    assert last
    async with mq.pull_consumer(group, topic, from_where="earliest") as consumer:
        found = await poll_count(consumer, 40 - len(done))
    assert sorted(numbers(found)) == sorted(set(range(40)) - set(numbers(done)))
    assert set(numbers(last)) <= set(numbers(found))


async def test_a_tag_expression_filters_and_what_is_filtered_is_committed_too(
    mq: aio.Client, topic: str, group: str
) -> None:
    queue = await first_queue(mq, topic)
    async with mq.producer("P_" + group) as producer:
        for number in range(30):
            tag = "even" if number % 2 == 0 else "odd"
            await producer.send(aio.Message(topic, str(number).encode(), tag=tag), queue=queue)
    async with mq.pull_consumer(group, {topic: "even || other"}, from_where="earliest") as consumer:
        assert numbers(await poll_count(consumer, 15)) == list(range(0, 30, 2))
        await eventually(lambda: consumer.position(queue) == 30, "the position passes the last filtered message")
    assert await mq.committed_offset(group, queue) == 30


async def test_two_members_share_and_the_one_that_stays_takes_over(
    broker: RunningBroker, mq: aio.Client, topic: str, group: str
) -> None:
    gained: list[aio.MessageQueue] = []
    lost: list[aio.MessageQueue] = []
    async with mq.pull_consumer(
        group, topic, on_assigned=gained.extend, on_revoked=lost.extend, rebalance_interval_s=0.5
    ) as consumer:
        assert len(gained) == 4
        async with (
            aio.Client(broker.name_server) as other,
            other.pull_consumer(group, topic, rebalance_interval_s=0.5) as second,
        ):
            await eventually(lambda: len(second.assignment) == 2 and len(consumer.assignment) == 2, "halves")
            assert sorted(consumer.assignment + second.assignment) == gained
            assert sorted(lost) == second.assignment
        await eventually(lambda: len(consumer.assignment) == 4, "everything again")
        assert len(gained) == 6
    assert len(lost) == 6


async def test_a_revoked_queue_can_still_be_committed_by_the_callback(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(20))

    async def commit(queues: Sequence[aio.MessageQueue]) -> None:
        await consumer.commit(queues)

    consumer = mq.pull_consumer(group, topic, from_where="earliest", auto_commit=False, on_revoked=commit)
    async with consumer:
        await poll_count(consumer, 20)
        await consumer.unsubscribe(topic)
        assert consumer.assignment == []
        assert await committed(mq, group, topic) == 20


async def test_topics_come_and_go_while_it_runs(broker: RunningBroker, mq: aio.Client, topic: str, group: str) -> None:
    second = make_topic(broker, topic + "_second", queues=1)
    async with mq.pull_consumer(group, from_where="earliest") as consumer:
        assert consumer.assignment == []
        await consumer.subscribe(topic)
        await consumer.subscribe(second)
        assert len(consumer.assignment) == 5
        await send_numbers(mq, second, range(3))
        assert numbers(await poll_count(consumer, 3)) == [0, 1, 2]
        await consumer.unsubscribe(topic)
        assert [queue.topic for queue in consumer.assignment] == [second]
        await send_numbers(mq, topic, range(3))
        await send_numbers(mq, second, range(3, 5))
        assert numbers(await poll_count(consumer, 2)) == [3, 4]


async def test_every_member_of_a_broadcasting_group_gets_everything(
    broker: RunningBroker, mq: aio.Client, topic: str, group: str, tmp_path: Path
) -> None:
    await send_numbers(mq, topic, range(20))
    options: dict[str, Any] = {"from_where": "earliest", "message_model": "broadcasting"}
    async with mq.pull_consumer(group, topic, offsets_dir=tmp_path, **options) as consumer:
        assert sorted(numbers(await poll_count(consumer, 20))) == list(range(20))
        async with aio.Client(broker.name_server) as other, other.pull_consumer(group, topic, **options) as second:
            assert sorted(numbers(await poll_count(second, 20))) == list(range(20))
    assert b"offsetTable" in next(tmp_path.rglob("offsets.json")).read_bytes()
    assert await committed(mq, group, topic) == 0


# Assigning.


async def test_assigned_queues_are_read_whatever_others_read(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(8))
    queues = await mq.queues(topic)
    async with mq.pull_consumer(group, from_where="earliest") as consumer:
        await consumer.assign(queues[:2])
        assert consumer.assignment == queues[:2]
        found = await poll_count(consumer, 4)
        assert {message.queue for message in found} == set(queues[:2])
        await consumer.assign([queues[1], queues[3]])
        assert consumer.assignment == [queues[1], queues[3]]
        assert {message.queue for message in await poll_count(consumer, 2)} == {queues[3]}
        with pytest.raises(ClientStateError, match="mutually exclusive"):
            await consumer.subscribe(topic)


async def test_subscribing_excludes_assigning(mq: aio.Client, topic: str, group: str) -> None:
    async with mq.pull_consumer(group, topic) as consumer:
        with pytest.raises(ClientStateError, match="Subscribe and assign are mutually exclusive"):
            await consumer.assign(await mq.queues(topic))


async def test_an_assignment_made_before_the_start_waits_for_it(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(4), each_queue=True)
    queue = await first_queue(mq, topic)
    consumer = mq.pull_consumer(group, from_where="earliest")
    await consumer.assign([queue])
    async with consumer:
        assert numbers(await poll_count(consumer, 4)) == [0, 1, 2, 3]


# Moving about.


async def test_seeks_go_to_offset_begin_end_and_time(mq: aio.Client, topic: str, group: str) -> None:
    queue = await first_queue(mq, topic)
    await send_numbers(mq, topic, range(20), each_queue=True)
    stored = await read_queue(mq, queue, 20)
    async with mq.pull_consumer(group, from_where="earliest") as consumer:
        await consumer.assign([queue])
        await consumer.seek(queue, 17)
        assert numbers(await poll_count(consumer, 3)) == [17, 18, 19]
        await consumer.seek_to_begin(queue)
        assert numbers(await poll_count(consumer, 20)) == list(range(20))
        assert consumer.position(queue) == 20
        await consumer.seek(queue, 3)
        assert consumer.position(queue) == 3
        await consumer.seek_to_end(queue)
        assert consumer.position(queue) == 20
        at = stored[10].store_timestamp / 1000
        await consumer.seek_to_time(queue, at)
        first = (await poll_count(consumer, 1))[0]
        assert first.queue_offset == await consumer.offset_for_time(queue, at)
        assert first.store_timestamp >= stored[10].store_timestamp


async def test_a_seek_outside_the_queue_or_the_assignment_is_refused(mq: aio.Client, topic: str, group: str) -> None:
    queues = await mq.queues(topic)
    async with mq.pull_consumer(group) as consumer:
        await consumer.assign(queues[:1])
        with pytest.raises(ClientError, match="Seek offset illegal, seek offset = 7, min offset = 0, max offset = 0"):
            await consumer.seek(queues[0], 7)
        with pytest.raises(ClientError, match="not in assigned list, message queue"):
            await consumer.seek_to_begin(queues[1])
    async with mq.pull_consumer(group, topic) as consumer:
        with pytest.raises(ClientError, match="not in assigned list, may be rebalancing"):
            await consumer.seek_to_end(aio.MessageQueue(topic, "nowhere", 0))


async def test_a_seek_while_pulls_are_under_way_never_brings_what_lies_before_it(
    mq: aio.Client, topic: str, group: str
) -> None:
    queue = await first_queue(mq, topic)
    await send_numbers(mq, topic, range(300), each_queue=True)
    await read_queue(mq, queue, 300)
    async with mq.pull_consumer(group, from_where="earliest", pull_batch_size=1) as consumer:
        await consumer.assign([queue])
        for start in (250, 10, 299, 120, 0, 200, 30):
            await consumer.seek(queue, start)
            count = min(5, 300 - start)
            assert numbers(await poll_count(consumer, count)) == list(range(start, start + count))


async def test_what_a_pull_brings_after_a_seek_is_dropped_even_if_the_pull_goes_on(
    mq: aio.Client, topic: str, group: str
) -> None:
    queue = await first_queue(mq, topic)
    async with mq.pull_consumer(group, from_where="earliest") as consumer:
        await consumer.assign([queue])
        assigned, loop = consumer._assignment.queues[queue], consumer._assignment._pulls[queue]
        # When the loop has run once it waits for the broker, which holds the pull.
        await asyncio.sleep(0)
        assigned.turn_to(0)
        await send_numbers(mq, topic, range(1), each_queue=True)
        async with asyncio.timeout(POLL_S):
            await loop
        assert (len(consumer._ready), assigned.held.count) == (0, 0)


async def test_a_seek_back_wakes_a_consumer_that_waits_at_the_end(mq: aio.Client, topic: str, group: str) -> None:
    queue = await first_queue(mq, topic)
    await send_numbers(mq, topic, range(5), each_queue=True)
    async with mq.pull_consumer(group, from_where="earliest", hold_timeout_s=600, pull_timeout_s=700) as consumer:
        await consumer.assign([queue])
        await poll_count(consumer, 5)
        assert await consumer.poll(0.0) == []
        waiting = asyncio.create_task(consumer.poll(POLL_S))
        await consumer.seek(queue, 4)
        assert numbers(await waiting) == [4]


async def test_the_callback_of_an_assignment_may_seek_before_anything_is_pulled(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(10), each_queue=True)
    for queue in await mq.queues(topic):
        await read_queue(mq, queue, 10)

    early: list[aio.ReceivedMessage] = []

    async def go_to_eight(queues: Sequence[aio.MessageQueue]) -> None:
        early.extend(await consumer.poll(0.3))
        for queue in queues:
            await consumer.seek(queue, 8)

    consumer = mq.pull_consumer(group, topic, from_where="earliest", on_assigned=go_to_eight)
    async with consumer:
        assert Counter(numbers(await poll_count(consumer, 8))) == {8: 4, 9: 4}
    assert early == []


async def test_an_offset_that_the_queue_does_not_have_is_corrected(mq: aio.Client, topic: str, group: str) -> None:
    queue = await first_queue(mq, topic)
    await send_numbers(mq, topic, range(5), each_queue=True)
    await read_queue(mq, queue, 5)
    await mq.admin.create_group(group)
    await mq.admin.set_offset(group, queue, 1000)
    async with mq.pull_consumer(group) as consumer:
        await consumer.assign([queue])
        await eventually(lambda: consumer.position(queue) <= 5, "the offset that the broker names")
        async with mq.producer("P_" + group) as producer:
            await producer.send(aio.Message(topic, b"5"), queue=queue)
        assert numbers(await poll_count(consumer, 1)) in ([5], [0, 1, 2, 3, 4, 5])


async def test_a_callback_that_fails_does_not_stop_the_consumer(
    mq: aio.Client, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(queues: Sequence[aio.MessageQueue]) -> None:
        raise RuntimeError("no")

    await send_numbers(mq, topic, range(3))
    async with mq.pull_consumer(group, topic, from_where="earliest", on_assigned=fail) as consumer:
        await poll_count(consumer, 3)
    assert "failed" in caplog.text


# Pausing and limits.


async def test_a_paused_queue_is_not_pulled_until_it_is_resumed(mq: aio.Client, topic: str, group: str) -> None:
    queues = await mq.queues(topic)
    async with mq.pull_consumer(group, from_where="earliest", hold_timeout_s=0.1) as consumer:
        await consumer.assign(queues[:2])
        consumer.pause(queues[0])
        assert consumer.paused == [queues[0]]
        held = consumer._assignment.queues[queues[0]].held
        before = held.last_pull_s
        # The pull that was under way ends, and the loop comes round to the pause.
        await eventually(lambda: held.last_pull_s > before, "the loop looks at the pause")
        await send_numbers(mq, topic, range(4), each_queue=True)
        assert {message.queue for message in await poll_count(consumer, 4)} == {queues[1]}
        assert consumer.position(queues[0]) == 0
        consumer.resume()
        assert consumer.paused == []
        assert {message.queue for message in await poll_count(consumer, 4)} == {queues[0]}


@pytest.mark.parametrize(
    ("limits", "cached_max"),
    [
        ({"pull_threshold_for_queue": 20}, 20 + 10),
        ({"max_span": 25}, 25 + 1 + 10),
        # Batches that wait, times the size of a pull.
        ({"pull_threshold_for_all": 40}, 40 + 10),
        ({"pull_threshold_size_for_queue_mib": 1}, 2 * 16 + 10),
    ],
    ids=["count", "span", "all", "size"],
)
async def test_no_more_is_cached_than_the_limits_say(
    mq: aio.Client, broker: RunningBroker, group: str, limits: dict[str, Any], cached_max: int
) -> None:
    topic = make_topic(broker, group, queues=1)
    queue = await first_queue(mq, topic)
    count = 200
    async with mq.producer("P_" + group) as producer:
        for _ in range(count):
            await producer.send(aio.Message(topic, b"x" * 65536), queue=queue)
    wait_until(lambda: wire.max_offset(broker.broker_address, topic, 0) == count, describe="all are there")
    async with mq.pull_consumer(group, topic, from_where="earliest", **limits) as consumer:
        held = consumer._assignment.queues[queue].held
        await eventually(lambda: held.count >= cached_max - 10, "the cache is filled")
        for _ in range(50):
            await asyncio.sleep(0)
        assert cached_max - 10 <= held.count <= cached_max
        polled = 0
        while polled < count:
            polled += len(await poll_count(consumer, 1))
            assert held.count <= cached_max


# Committing.


async def test_explicit_commits_are_stored_when_they_return(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(20), each_queue=True)
    queues = await mq.queues(topic)
    async with mq.pull_consumer(group, from_where="earliest", auto_commit=False) as consumer:
        await consumer.assign(queues[:2])
        await poll_count(consumer, 40)
        assert await mq.committed_offset(group, queues[0]) in (None, 0)
        await consumer.commit([queues[0]])
        assert await mq.committed_offset(group, queues[0]) == 20
        assert await mq.committed_offset(group, queues[1]) in (None, 0)
        await consumer.commit()
        assert await mq.committed_offset(group, queues[1]) == 20
        await consumer.commit({queues[1]: 7})
        assert await mq.committed_offset(group, queues[1]) == 7
        assert await consumer.committed(queues[1]) == 7
        with pytest.raises(ClientError, match="not in assigned list"):
            await consumer.commit({queues[2]: 1})
    assert await mq.committed_offset(group, queues[1]) == 7


async def test_without_auto_commit_nothing_is_committed(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(20))
    for _ in range(2):
        async with mq.pull_consumer(group, topic, from_where="earliest", auto_commit=False) as consumer:
            await poll_count(consumer, 20)


async def test_a_message_is_not_committed_before_the_next_step_of_the_iteration(
    mq: aio.Client, topic: str, group: str
) -> None:
    queue = await first_queue(mq, topic)
    await send_numbers(mq, topic, range(6), each_queue=True)
    async with mq.pull_consumer(group, from_where="earliest", auto_commit_interval_s=0.05) as consumer:
        await consumer.assign([queue])
        steps = aiter(consumer)
        await anext(steps)
        await anext(steps)
        await consumer.persist_offsets()
        assert await mq.committed_offset(group, queue) in (None, 0, 1)
        for _ in range(3):
            await anext(steps)
        last = await anext(steps)
        assert last.queue_offset == 5
    assert await mq.committed_offset(group, queue) == 6


async def test_auto_commit_stores_what_was_polled_before(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(20))
    stored = 0
    async with mq.pull_consumer(group, topic, from_where="earliest", auto_commit_interval_s=0.05) as consumer:
        await poll_count(consumer, 20)
        async with asyncio.timeout(30):
            while stored != 20:
                await consumer.poll(0.06)
                stored = await committed(mq, group, topic)


async def test_a_commit_that_a_broker_does_not_take_is_an_error(tmp_path: Path) -> None:
    for broker in running_broker(tmp_path):
        topic = make_topic(broker, "Gone", queues=1)
        async with aio.Client(broker.name_server, close_timeout_s=0.5) as mq:
            await send_numbers(mq, topic, range(1))
            async with mq.pull_consumer("Gone", topic, from_where="earliest") as consumer:
                await poll_count(consumer, 1)
                await asyncio.to_thread(broker.stop)
                with pytest.raises(MQError) as raised:
                    await consumer.commit()
                assert raised.value.retryable


# Listeners.


async def test_a_watched_topic_tells_of_new_queues(
    broker: RunningBroker, mq: aio.Client, topic: str, group: str
) -> None:
    seen: list[tuple[str, int]] = []
    async with mq.pull_consumer(group, topic_check_interval_s=0.2) as consumer:
        consumer.watch_queues(topic, lambda name, queues: seen.append((name, len(queues))))
        await eventually(lambda: consumer._watch._seen, "the first look")
        await asyncio.to_thread(wire.create_topic, broker.broker_address, topic, queues=6)
        await eventually(lambda: seen, "the callback")
    assert seen == [(topic, 6)]


# States.


async def test_what_needs_a_running_consumer_says_so(mq: aio.Client, topic: str, group: str) -> None:
    consumer = mq.pull_consumer(group, topic)
    with pytest.raises(ClientStateError, match="The consumer not running"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(ArgumentError, match="timeout_s"):
            await consumer.poll(-1)
        with pytest.raises(ClientStateError, match="has been created before"):
            await mq.pull_consumer(group, topic).start()
    with pytest.raises(ClientStateError):
        await consumer.poll()
    with pytest.raises(ClientClosedError):
        await consumer.start()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"autocommit": True}, TypeError),
        ({"concurrency": 3}, TypeError),
        ({"pull_timeout_s": 1.0}, ConfigError),
        ({"pull_batch_size": 0}, ConfigError),
        ({"strategy": "NONE"}, ConfigError),
        ({"from_where": "somewhere"}, ConfigError),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        aio.Client("127.0.0.1:1").pull_consumer("G", "T", **changes)


async def test_a_close_ends_a_poll_and_an_iteration(mq: aio.Client, topic: str, group: str) -> None:
    consumer = mq.pull_consumer(group, topic)
    await consumer.start()
    polling = asyncio.create_task(consumer.poll(POLL_S))
    iterating = asyncio.create_task(anext(aiter(consumer), None))
    await asyncio.sleep(0)
    await consumer.close()
    assert (await polling, await iterating) == ([], None)


async def test_a_closed_consumer_leaves_no_task_behind(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(20))

    def own_tasks() -> set[str]:
        return {task.get_name() for task in asyncio.all_tasks() if topic in task.get_name() or group in task.get_name()}

    async with mq.pull_consumer(group, topic, from_where="earliest") as consumer:
        await poll_count(consumer, 10)
        await consumer.seek_to_begin(consumer.assignment[0])
        assert own_tasks()
    assert own_tasks() == set()


async def test_closing_the_client_closes_and_commits(broker: RunningBroker, topic: str, group: str) -> None:
    async with aio.Client(broker.name_server) as mq:
        await send_numbers(mq, topic, range(20))
        consumer = mq.pull_consumer(group, topic, from_where="earliest")
        await consumer.start()
        await poll_count(consumer, 20)
    async with aio.Client(broker.name_server) as mq:
        assert await committed(mq, group, topic) == 20
        assert await mq.admin.group_members(group) == []


# The plain face.


def test_the_plain_consumer_does_the_same_from_threads(broker: RunningBroker, topic: str, group: str) -> None:
    told: list[tuple[str, int, int]] = []

    def assigned(queues: Sequence[aio.MessageQueue]) -> None:
        for queue in queues:
            told.append(("assigned", queue.queue_id, consumer.position(queue)))

    with Client(broker.name_server) as mq:
        with mq.producer("P_" + group) as producer:
            queues = producer.queues(topic)
            for number in range(40):
                producer.send(aio.Message(topic, str(number).encode()), queue=queues[number % 4])
        consumer = mq.pull_consumer(group, topic, from_where="earliest", on_assigned=assigned)
        with consumer:
            assert told == [("assigned", queue_id, 0) for queue_id in range(4)]
            seen = []
            for message in consumer:
                seen.append(int(message.body))
                consumer.commit()
                assert consumer.committed(message.queue) == message.queue_offset + 1
                if len(seen) == 13:
                    break
            while len(seen) < 40:
                messages = consumer.poll(POLL_S)
                assert messages
                seen += [int(message.body) for message in messages]
            assert sorted(seen) == list(range(40))
            consumer.pause(queues[0])
            assert consumer.paused == [queues[0]]
            consumer.seek_to_begin(queues[1])
            assert [m.queue_offset for m in consumer.poll(POLL_S)][:1] == [0]
            waiter = threading.Thread(target=lambda: list(consumer))
            waiter.start()
        waiter.join(POLL_S)
        assert not waiter.is_alive()
        assert list(consumer) == []
        assert sum(mq.committed_offset(group, queue) or 0 for queue in queues) >= 30
    assert list(consumer) == []


def test_many_threads_poll_and_iterate_and_each_message_comes_once(
    broker: RunningBroker, topic: str, group: str
) -> None:
    count, lock = 2000, threading.Lock()
    seen: list[int] = []

    def note(messages: Sequence[aio.ReceivedMessage]) -> None:
        with lock:
            seen.extend(int(message.body) for message in messages)

    def poll(max_messages: int | None) -> None:
        while len(seen) < count:
            note(consumer.poll(0.05, max_messages))

    def iterate() -> None:
        for message in consumer:
            note([message])

    with Client(broker.name_server) as mq:
        with mq.producer("P_" + group) as producer:
            for future in [producer.send_soon(aio.Message(topic, str(n).encode())) for n in range(count)]:
                future.result()
        with mq.pull_consumer(group, topic, from_where="earliest", pull_batch_size=32) as consumer:
            threads = [threading.Thread(target=poll, args=(size,)) for size in (None, 1, 7)]
            threads += [threading.Thread(target=iterate) for _ in range(2)]
            for thread in threads:
                thread.start()
            wait_until(lambda: len(seen) >= count, POLL_S, "all messages")
        for thread in threads:
            thread.join(POLL_S)
            assert not thread.is_alive()
        assert sorted(seen) == list(range(count))
        # All was got, and leaving in order makes it done.
        assert sum(mq.committed_offset(group, queue) or 0 for queue in mq.queues(topic)) == count


def test_a_poll_does_not_wait_for_a_thread_that_iterates(broker: RunningBroker, topic: str, group: str) -> None:
    with Client(broker.name_server) as mq:
        with mq.pull_consumer(group, topic) as consumer:
            waiter = threading.Thread(target=lambda: list(consumer))
            waiter.start()
            wait_until(consumer._claiming.locked, POLL_S, "the iteration waits")
            assert consumer.poll(0) == []
        waiter.join(POLL_S)
        assert not waiter.is_alive()


def test_a_plain_poll_after_a_seek_brings_nothing_from_before(broker: RunningBroker, topic: str, group: str) -> None:
    with Client(broker.name_server) as mq:
        with mq.producer("P_" + group) as producer:
            queue = producer.queues(topic)[0]
            for number in range(100):
                producer.send(aio.Message(topic, str(number).encode()), queue=queue)
        with mq.pull_consumer(group, topic, from_where="earliest", auto_commit_interval_s=0.05) as consumer:
            for offset in (90, 0, 55, 3, 98):
                assert next(consumer) is not None  # the batch that it is from is claimed, and not used up
                consumer.seek(queue, offset)
                (message,) = consumer.poll(POLL_S, 1)
                assert (message.queue_offset, consumer.position(queue)) == (offset, offset + 1)
            # What is in hand is not committed, and what was before it is.
            wait_until(
                lambda: consumer.poll(0) == [] and mq.committed_offset(group, queue) == 100, POLL_S, "the commit"
            )


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own(broker: RunningBroker, topic: str, group: str) -> None:
    with Client(broker.name_server) as mq, mq.pull_consumer(group, topic) as consumer:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.poll(0)
            except ClientStateError as error:
                consumer.close()
                code = 0 if "make a new client after the fork" in str(error) else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert consumer.poll(0) == []


# Hooks and traces: at the pull, as in Java.


class OnlyEven(aio.ConsumerHook):
    """Takes out odd numbers, and remembers what it sees."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    async def filter_messages(self, context: aio.FilterContext) -> None:
        await asyncio.sleep(0)
        context.messages[:] = [message for message in context.messages if int(message.body) % 2 == 0]

    def before_consume(self, context: aio.ConsumeContext) -> None:
        self.calls.append(("before", numbers(context.messages)))

    def after_consume(self, context: aio.ConsumeContext) -> None:
        self.calls.append(
            (f"after {context.code.name} {context.is_success} {context.group}", numbers(context.messages))
        )


async def test_hooks_see_and_filter_what_a_pull_brought_before_anybody_polls(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(10), each_queue=True)
    queue = await first_queue(mq, topic)
    await read_queue(mq, queue, 10)  # the last one, which the hook takes out, is there, too
    hook = OnlyEven()
    consumer = mq.pull_consumer(group, pull_batch_size=4)
    consumer.add_hook(hook)
    async with consumer:
        await consumer.assign([queue])
        await consumer.seek_to_begin(queue)
        await eventually(lambda: sum(len(call[1]) for call in hook.calls) == 10, "two calls for each even number")
        assert consumer.position(queue) == 0
        assert numbers(await poll_count(consumer, 5)) == [0, 2, 4, 6, 8]
        await consumer.commit()
        assert await mq.committed_offset(group, queue) == 10, "what a filter takes out is done"
    before, after = ([numbers for kind, numbers in hook.calls if kind.startswith(word)] for word in ("before", "after"))
    assert before == after
    assert {kind for kind, _ in hook.calls} == {"before", f"after SUCCESS True {group}"}


async def test_a_seek_while_a_hook_looks_leaves_nothing_of_that_pull(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(6), each_queue=True)
    queue = await first_queue(mq, topic)
    await read_queue(mq, queue, 6)  # so that there is a place to seek to
    looks, goes_on = asyncio.Event(), asyncio.Event()

    class Slow(aio.ConsumerHook):
        async def before_consume(self, context: aio.ConsumeContext) -> None:
            looks.set()
            await goes_on.wait()

    consumer = mq.pull_consumer(group)
    consumer.add_hook(Slow())
    async with consumer:
        await consumer.assign([queue])
        await consumer.seek_to_begin(queue)
        await looks.wait()
        assert consumer.position(queue) == 0, "what hooks look at is not done"
        await consumer.seek(queue, 4)
        goes_on.set()
        assert numbers(await poll_count(consumer, 2)) == [4, 5]


async def test_traces_tell_of_what_was_pulled(mq: aio.Client, broker: RunningBroker, topic: str, group: str) -> None:
    trace_topic = make_topic(broker, "traces_of_" + topic, queues=1)
    async with mq.producer("P_" + topic) as producer:
        receipt = await producer.send(aio.Message(topic, b"x", keys=["k1"]))
    settings = {"from_where": "earliest", "trace": True, "trace_topic": trace_topic}
    async with mq.pull_consumer(group, topic, **settings) as consumer:
        await poll_count(consumer, 1)
        # In one message, or in two if the half second was over between them.
        text, offset = "", 0
        while text.count("\x02") < 2:
            (found,) = await read_queue(mq, aio.MessageQueue(trace_topic, "broker-a", 0), 1, offset)
            text, offset = text + found.body.decode(), offset + 1
    before, after = (record.split("\x01") for record in text.split("\x02")[:2])
    assert (before[0], before[3], before[5], before[7]) == ("SubBefore", group, receipt.msg_id, "k1")
    assert (after[0], after[2], after[4], after[6]) == ("SubAfter", receipt.msg_id, "true", "0")
    assert before[4] == after[1], "a request id ties the two together"


async def test_queues_can_be_divided_by_a_function(mq: aio.Client, topic: str, group: str) -> None:
    def last_two(client_id: str, queues: Sequence[aio.MessageQueue], members: Sequence[str]) -> list[aio.MessageQueue]:
        return list(queues[-2:])

    async with mq.pull_consumer(group, topic, strategy=last_two) as consumer:
        assert [queue.queue_id for queue in consumer.assignment] == [2, 3]


UNCLOSED = """
import asyncio, sys
from mqcore import aio

async def main(address, topic, group):
    mq = aio.Client(address)
    await mq.start()
    consumer = mq.pull_consumer(group, topic)
    await consumer.start()
    print(len(consumer.assignment), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_program_that_ends_without_closing_leaves_no_new_task_behind(
    broker: RunningBroker, topic: str, group: str
) -> None:
    command = [sys.executable, "-X", "dev", "-c", UNCLOSED, broker.name_server, topic, group]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "4\n"), ended.stderr
    assert "Task was destroyed" not in ended.stderr
    assert "Traceback" not in ended.stderr


# Java's old pull consumer.


@pytest.fixture
def old_consumer(broker: RunningBroker, group: str) -> Iterator[compat.DefaultMQPullConsumer]:
    consumer = compat.DefaultMQPullConsumer(group)
    consumer.set_namesrv_addr(broker.name_server)
    consumer.set_broker_suspend_max_time_millis(500)
    consumer.set_heartbeat_broker_interval(100)
    consumer.start()
    yield consumer
    consumer.shutdown()


def is_member(mq: Client, group: str, client_id: str) -> bool:
    try:
        return client_id in [member.client_id for member in mq.admin.group_members(group)]
    except MQError:  # nobody is there yet
        return False


def test_the_old_pull_consumer_pulls_where_it_is_told_and_keeps_offsets(
    broker: RunningBroker, old_consumer: compat.DefaultMQPullConsumer, topic: str, group: str
) -> None:
    with Client(broker.name_server) as mq, mq.producer("P") as producer:
        queue = producer.queues(topic)[0]
        for tag in ("a", "b", "a"):
            producer.send(Message(topic, tag.encode(), tag=tag), queue=queue)
        wait_until(lambda: mq.max_offset(queue) == 3, describe="all three are there")
        (mq_0,) = [found for found in old_consumer.fetch_subscribe_message_queues(topic) if found == queue]
        assert (old_consumer.min_offset(mq_0), old_consumer.max_offset(mq_0)) == (0, 3)
        assert old_consumer.search_offset(mq_0, 0) == 0
        found = old_consumer.pull_block_if_not_found(mq_0, "a", 0, 32)
        assert found.get_pull_status() is compat.PullStatus.FOUND
        assert [message.get_body() for message in found.get_msg_found_list()] == [b"a", b"a"]
        assert (found.get_next_begin_offset(), found.get_max_offset()) == (3, 3)
        nothing = old_consumer.pull(mq_0, None, 3, 32)
        assert (nothing.get_pull_status(), nothing.get_msg_found_list()) == (compat.PullStatus.NO_NEW_MSG, [])
        assert old_consumer.pull(mq_0, "*", 9, 32).get_pull_status() is compat.PullStatus.OFFSET_ILLEGAL
        assert old_consumer.fetch_consume_offset(mq_0, True) == 0, "brokers say so of a queue that is young"
        old_consumer.update_consume_offset(mq_0, 3)
        assert mq.committed_offset(group, queue) == 3
        mq.commit_offset(group, queue, 1)
        assert [old_consumer.fetch_consume_offset(mq_0, from_store) for from_store in (False, True)] == [3, 1]
        wait_until(lambda: is_member(mq, group, old_consumer.get_client_id()), describe="brokers know of the member")
    with pytest.raises(ClientError, match="Can not find Message Queue for this topic, Nowhere"):
        old_consumer.fetch_subscribe_message_queues("Nowhere")


def test_the_old_pull_consumer_calls_back(
    broker: RunningBroker, old_consumer: compat.DefaultMQPullConsumer, topic: str
) -> None:
    with Client(broker.name_server) as mq, mq.producer("P") as producer:
        queue = producer.queues(topic)[0]
        heard: list[object] = []
        callback = compat.PullCallback(lambda found: heard.append(found.get_msg_found_list()), heard.append)
        old_consumer.pull_block_if_not_found(compat.MessageQueue.of(queue), "*", 0, 32, callback)
        producer.send(Message(topic, b"x"), queue=queue)
        wait_until(lambda: heard, describe="the callback")
        old_consumer.pull(compat.MessageQueue(topic, "nobody", 0), "*", 0, 32, callback)
        wait_until(lambda: len(heard) == 2, describe="the failure")
    assert isinstance(heard[1], BrokerNotFoundError)


def test_a_java_consumer_may_subscribe_while_it_runs(broker: RunningBroker, topic: str, group: str) -> None:
    seen: list[bytes] = []
    consumer = compat.DefaultMQPushConsumer(group)
    consumer.set_namesrv_addr(broker.name_server)
    consumer.set_consume_from_where(compat.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(topic + "_other")

    def consume(messages: Any, context: Any) -> compat.ConsumeConcurrentlyStatus:
        seen.extend(message.get_body() for message in messages)
        return compat.ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer.register_message_listener(consume)
    consumer.start()
    try:
        consumer.subscribe(topic)
        consumer.unsubscribe(topic + "_other")
        with Client(broker.name_server) as mq, mq.producer("P") as producer:
            producer.send(Message(topic, b"x"))
            wait_until(lambda: seen == [b"x"], 60, "the message of the new topic")
    finally:
        consumer.shutdown()
