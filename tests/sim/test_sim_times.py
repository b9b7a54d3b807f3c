"""When things happen by themselves, as RocketMQ's clients and brokers have it, on virtual time.

Limits are tight: a wire takes up to 4 ms for one way (``network.LATENCY_S``), a timer is up to 1 ms late.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from mqcore.client.model.backoff import Backoff
from mqcore.client.model.messages import ReceivedMessage
from mqcore.codes import RequestCode
from mqcore.delay_levels import DELAY_LEVELS_S
from mqcore.protocol.names import dlq_topic
from tests.sim.schedules import SEED, SEED_BITS, in_world
from tests.sim.world import Member, World

SOON_S = 0.1
"""For some requests, one after the other."""

Play = Callable[[World], Coroutine[Any, Any, object]]


@pytest.fixture(params=[1, pytest.param(10, marks=pytest.mark.slow)])
def play(root: Path, chance: random.Random, request: pytest.FixtureRequest) -> Callable[[Play], None]:
    """Play a schedule in worlds of any seeds: what is promised holds whatever timers and wires do."""

    def play_it(schedule: Play) -> None:
        for _ in range(request.param):
            seed = int(os.environ.get(SEED) or chance.getrandbits(SEED_BITS))
            try:
                in_world(root, schedule)(seed)
            except BaseException as error:
                error.add_note(f"{SEED}={seed} plays it again")
                raise

    return play_it


async def failing(member: Member, message: ReceivedMessage) -> None:
    raise RuntimeError("this handler always fails")


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def begins(world: World, group: str = "g") -> list[float]:
    """When each delivery began, the first body's only."""
    ((_, deliveries),) = world.history.deliveries[group].items()
    return [delivery.begin_s for delivery in deliveries]


# What a client does by itself.


@pytest.mark.parametrize(
    ("code", "every_s"),
    [
        pytest.param(RequestCode.HEART_BEAT, 30, id="heart-beat"),
        pytest.param(RequestCode.UPDATE_CONSUMER_OFFSET, 5, id="offset commit"),
        pytest.param(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 20, id="rebalance"),
    ],
)
def test_what_a_member_tells_its_broker_comes_in_its_interval(
    play: Callable[[Play], None], code: RequestCode, every_s: int
) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        await world.join().joined()
        assert await producer.send("T")
        await asyncio.sleep(31)  # what comes with a start, or is told by others, is over
        world.history.keeps_requests = True
        await asyncio.sleep(300)
        member_ip = world.members[0].host.address
        times: dict[str, list[float]] = {}
        for request in world.history.asked(code):
            if request.client_ip == member_ip:
                times.setdefault(request.fields.get("topic", ""), []).append(request.time_s)
        told = times["T"] if "T" in times else times[""]
        if code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            told = told[::2]  # for the topic, then for the retry topic
        assert 300 / (every_s + 0.1) - 1 <= len(told) <= 300 / every_s + 1
        assert all(every_s <= gap < every_s + SOON_S for gap in gaps(told)), told

    play(schedule)


def test_routes_are_asked_for_again_every_30_s_and_a_new_broker_takes_part_from_then_on(
    play: Callable[[Play], None],
) -> None:
    async def schedule(world: World) -> None:
        await world.start(brokers=1, topics={"T": 2})
        member = world.join()
        await member.joined()
        await asyncio.sleep(world.random.uniform(0, 60))
        begin_s = world.now_s
        await world.add_broker(topics={"T": 2})
        joined_s = await world.until(lambda: len(member.queues) == 4, 60, "the new broker's queues are taken")
        assert joined_s - begin_s <= 30 + 20 + 1

    play(schedule)


def test_a_held_pull_is_asked_again_after_15_s_and_no_sooner(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        await world.join().joined()
        await asyncio.sleep(20)
        world.history.keeps_requests = True
        await asyncio.sleep(300)
        pulls = [one for one in world.history.asked(RequestCode.PULL_MESSAGE) if one.fields["topic"] == "T"]
        assert len(pulls) in (19, 20)
        assert all(15 <= gap < 15.02 for gap in gaps([pull.time_s for pull in pulls]))

    play(schedule)


def test_a_message_wakes_a_held_pull_at_once(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        await world.join().joined()
        for _ in range(20):
            await asyncio.sleep(world.random.uniform(0, 40))
            body = await producer.send("T")
            assert body is not None
            sent_s = world.history.acknowledgements[body].time_s
            await asyncio.sleep(0.02)
            (delivery,) = world.history.deliveries["g"][body]
            assert delivery.begin_s - sent_s < 0.015

    play(schedule)


# Members that come and go.


@pytest.mark.parametrize("way", ["leave", "crash"])
def test_joins_leaves_and_deaths_are_told_to_the_others_at_once(play: Callable[[Play], None], way: str) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 4})
        one, two = world.join(), world.join()
        await world.until(lambda: (len(one.queues), len(two.queues)) == (2, 2), 1, "the queues are shared")
        await asyncio.sleep(world.random.uniform(1, 19))
        begin_s = world.now_s
        if way == "leave":
            await two.leave()
        else:
            two.crash()
        assert await world.until(lambda: len(one.queues) == 4, 1, "all are taken over", 0.005) - begin_s < SOON_S

    play(schedule)


def test_who_is_not_told_finds_out_within_20_s(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 4}, notifyConsumerIdsChangedEnable="false")
        one = world.join()
        await one.joined()
        taken_s = world.now_s
        await asyncio.sleep(world.random.uniform(1, 19))
        begin_s = world.now_s
        world.join()
        shared_s = await world.until(lambda: len(one.queues) == 2, 25, "the queues are shared", 0.005)
        assert shared_s - begin_s <= 20 + SOON_S
        assert shared_s - taken_s == pytest.approx(20, abs=2 * SOON_S)

    play(schedule)


def test_a_machine_that_vanishes_is_out_after_120_s_and_the_others_have_its_queues_soon_after(
    play: Callable[[Play], None],
) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 4})
        one, two = world.join(), world.join()
        await world.until(lambda: len(one.queues) == 2, 1, "the queues are shared")
        await asyncio.sleep(world.random.uniform(30, 60))
        two.crash(silently=True)
        dead_s = world.now_s
        taken_s = await world.until(lambda: len(one.queues) == 4, 200, "the dead member's queues are taken")
        # Its last heart-beat was up to 30 s before; housekeeping looks every 10 s, a member every 20 s.
        assert 90 - SOON_S <= taken_s - dead_s <= 120 + 10 + 20 + 1

    play(schedule)


def test_a_connection_that_died_unnoticed_is_replaced_by_the_next_heart_beat(play: Callable[[Play], None]) -> None:
    """Its answer is waited for 3 s; pulls that time out keep the connection, for the broker may rightly hold them."""

    async def schedule(world: World) -> None:
        await world.start(topics={"T": 2})
        producer = await world.producer()
        member = world.join()
        await member.joined()
        await asyncio.sleep(world.random.uniform(1, 60))
        world.network.lose(member.host, world.brokers[0].host)
        lost_s = world.now_s
        assert await producer.send("T")
        there_s = await world.until(lambda: not world.history.missing("g"), 60, "the message is consumed")
        assert there_s - lost_s <= 30 + 3 + 1 + SOON_S

    play(schedule)


def test_a_broker_that_vanishes_is_in_no_route_after_120_s(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(brokers=2, topics={"T": 2})
        member = world.join()
        await world.until(lambda: len(member.queues) == 4, 2, "both brokers' queues are held")
        await asyncio.sleep(world.random.uniform(20, 60))
        routes = world.name_servers[0].server.routes
        world.brokers[1].kill(silently=True)
        begin_s = world.now_s
        gone_s = await world.until(
            lambda: [data.broker_name for data in routes.route("T").broker_datas] == ["broker-a"], 140, "out of routes"
        )
        assert 90 - SOON_S <= gone_s - begin_s <= 120 + 10 + SOON_S  # it had registered up to 30 s before
        left_s = await world.until(lambda: len(member.queues) == 2, 60, "the member has left its queues", 0.5)
        assert left_s - gone_s <= 30 + 20 + 3 * 3

    play(schedule)


# Failures, retries, dead letters.


def test_a_message_that_always_fails_comes_17_times_at_the_levels_times_and_is_a_dead_letter(root: Path) -> None:
    """Ten seconds to two hours, as RocketMQ has it: nearly five hours in all."""

    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        # Long holds and rare commits, so that five hours are no more work than they must.
        await world.join(
            handle=failing, client={"offset_commit_interval_s": 600}, hold_timeout_s=600, pull_timeout_s=700
        ).joined()
        assert await producer.send("T")
        store = world.brokers[0].store
        await world.until(lambda: store.messages(dlq_topic("g")), sum(DELAY_LEVELS_S) + 60, "a dead letter", 60)
        assert len(begins(world)) == 17
        for waited_s, level_s in zip(gaps(begins(world)), DELAY_LEVELS_S[2:], strict=True):
            assert level_s <= waited_s < level_s + 0.3
        (dead,) = store.messages(dlq_topic("g"))
        assert (dead.body, dead.reconsume_times) == (b"p1-1", 17)

    in_world(root, schedule)(1)


def test_a_back_off_of_ones_own_is_rounded_up_to_delay_levels(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        await world.join(handle=failing, retry=Backoff(max_attempts=4, first_s=4, factor=5, longest_s=61)).joined()
        assert await producer.send("T")
        store = world.brokers[0].store
        await world.until(lambda: store.messages(dlq_topic("g")), 200, "a dead letter")
        for waited_s, level_s in zip(gaps(begins(world)), (5, 30, 120), strict=True):
            assert level_s <= waited_s < level_s + 0.3

    play(schedule)


def test_a_failure_rests_an_orderly_queue_for_a_second_and_nothing_overtakes(play: Callable[[Play], None]) -> None:
    async def fails_thrice(member: Member, message: ReceivedMessage) -> None:
        if message.reconsume_times < 3:
            raise RuntimeError("not yet")

    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        await world.join(handle=fails_thrice, orderly=True).joined()
        for _ in range(3):
            assert await producer.send("T")
        await world.until(lambda: not world.history.missing("g"), 30, "all are consumed")
        deliveries = [one for each in world.history.deliveries["g"].values() for one in each]
        deliveries.sort(key=lambda one: one.begin_s)
        assert [one.offset for one in deliveries] == [0] * 4 + [1] * 4 + [2] * 4
        for first in range(0, 12, 4):
            times = [one.begin_s for one in deliveries[first : first + 4]]
            assert all(1 <= gap < 1.05 for gap in gaps(times))

    play(schedule)


def test_an_orderly_message_beyond_its_tries_is_a_dead_letter_and_the_next_one_comes(
    play: Callable[[Play], None],
) -> None:
    async def first_one_fails(member: Member, message: ReceivedMessage) -> None:
        if message.body == b"p1-1":
            raise RuntimeError("never")

    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        await world.join(handle=first_one_fails, orderly=True, max_reconsume_times=5).joined()
        assert await producer.send("T")
        assert await producer.send("T")
        await world.until(lambda: len(world.history.deliveries["g"]) == 2, 30, "the second one comes")
        assert len(world.history.deliveries["g"][b"p1-1"]) == 6
        store = world.brokers[0].store
        # It passes the delay level of its next try on the way, as RocketMQ's do.
        limit_s = DELAY_LEVELS_S[3 + 5 - 1] + 1
        await world.until(lambda: store.messages(dlq_topic("g")), limit_s, "a dead letter", 1)
        assert [one.body for one in store.messages(dlq_topic("g"))] == [b"p1-1"]

    play(schedule)


def test_a_handler_that_is_stuck_for_15_minutes_gives_its_message_to_another_try(
    play: Callable[[Play], None],
) -> None:
    async def stuck_once(member: Member, message: ReceivedMessage) -> None:
        if message.reconsume_times == 0:
            await asyncio.sleep(7200)

    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        await world.join(handle=stuck_once).joined()
        assert await producer.send("T")
        again_s = await world.until(lambda: not world.history.missing("g"), 2000, "it is consumed", 1)
        first_s = begins(world)[0]
        # The look at handlers comes every 15 minutes; level 3 is 10 s.
        assert 900 + 10 <= again_s - first_s <= 1800 + 10 + 2

    play(schedule)


# Delay levels.


def test_every_delay_level_delivers_at_its_time(root: Path) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        await world.join(hold_timeout_s=600, pull_timeout_s=700).joined()
        await asyncio.sleep(world.random.uniform(7, 20))  # every level has found its queue empty, and waits to be told
        due: dict[bytes, float] = {}
        for level, level_s in enumerate(DELAY_LEVELS_S, start=1):
            body = await producer.send("T", delay_level=level)
            assert body is not None
            due[body] = world.now_s + level_s
        await asyncio.sleep(DELAY_LEVELS_S[-1] + 5)
        for body, due_s in due.items():
            (delivery,) = world.history.deliveries["g"][body]
            assert -0.02 <= delivery.begin_s - due_s < 0.2, (body, delivery.begin_s, due_s)

    in_world(root, schedule)(1)


def test_a_delayed_message_outlives_its_broker_and_is_not_late_for_that(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        broker = world.brokers[0]
        producer = await world.producer()
        await world.join().joined()
        body = await producer.send("T", delay_level=5)
        assert body is not None
        due_s = world.now_s + 60
        await asyncio.sleep(world.random.uniform(1, 40))
        broker.kill()
        await asyncio.sleep(5)
        await broker.start()
        come_s = await world.until(lambda: not world.history.missing("g"), 120, "it comes")
        assert due_s - 0.02 <= come_s <= max(due_s, world.now_s) + 1

    play(schedule)


# Orderly members and their locks.


def test_locks_are_renewed_every_20_s(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 2})
        await world.join(orderly=True).joined()
        await asyncio.sleep(25)
        world.history.keeps_requests = True
        await asyncio.sleep(200)
        times = [request.time_s for request in world.history.asked(RequestCode.LOCK_BATCH_MQ)]
        assert len(times) in (9, 10, 11)
        assert all(20 <= gap < 20.05 for gap in gaps(times))

    play(schedule)


def test_a_vanished_members_lock_is_anothers_after_60_s_when_the_group_knows(play: Callable[[Play], None]) -> None:
    """The broker keeps it for 60 s; who has died for the group within 120 s has not renewed it for longer than that."""

    async def schedule(world: World) -> None:
        await world.start(topics={"T": 2})
        one, two = world.join(orderly=True), world.join(orderly=True)
        await world.until(lambda: len(one.queues) == len(two.queues) == 1, 21, "the queues are shared")
        producer = await world.producer()
        await asyncio.sleep(world.random.uniform(25, 50))
        world.network.stall(two.host, world.brokers[0].host)  # it lives, and nobody hears of it
        begin_s = world.now_s
        for _ in range(4):
            assert await producer.send("T")
        done_s = await world.until(lambda: not world.history.missing("g"), 200, "all is consumed")
        assert 60 - 20 <= done_s - begin_s <= 120 + 10 + 20 + 1
        world.history.check()

    play(schedule)


def test_a_member_that_cannot_renew_its_lock_for_30_s_consumes_no_more_of_what_it_has(
    play: Callable[[Play], None],
) -> None:
    async def slow(member: Member, message: ReceivedMessage) -> None:
        await asyncio.sleep(1)

    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        for _ in range(100):
            assert await producer.send("T")
        member = world.join(handle=slow, orderly=True)
        await member.joined()
        await asyncio.sleep(world.random.uniform(2, 5))
        world.network.stall(member.host, world.brokers[0].host)
        stalled_s = world.now_s
        await asyncio.sleep(70)
        last_s = max(one.begin_s for each in world.history.deliveries["g"].values() for one in each)
        assert 10 <= last_s - stalled_s <= 30 + 1
        assert world.history.missing("g")

    play(schedule)


# Limits.


def test_no_more_than_the_limit_is_kept_of_a_queue_whose_handler_is_slow(play: Callable[[Play], None]) -> None:
    async def slow(member: Member, message: ReceivedMessage) -> None:
        await asyncio.sleep(member.world.random.uniform(0.1, 2))

    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        await asyncio.gather(*(producer.send("T") for _ in range(400)))
        member = world.join(handle=slow, pull_threshold_for_queue=50, pull_batch_size=8, concurrency=10)
        most = 0

        def look() -> bool:
            nonlocal most
            assert member.consumer is not None
            most = max(most, *(held.count for held in member.consumer._membership.held.values()), 0)
            return not world.history.missing("g")

        await member.joined()
        await world.until(look, 200, "all is consumed")
        assert 50 < most <= 50 + 8

    play(schedule)


def test_a_broker_that_says_it_is_busy_is_asked_again_after_20_ms(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        await world.join().joined()
        broker = world.brokers[0]
        world.history.keeps_requests = True
        broker.refuse_pulls_until_s = world.now_s + 10
        assert await producer.send("T")  # wakes the held pull: the next one is refused
        await asyncio.sleep(9)
        pulls = [one for one in world.history.asked(RequestCode.PULL_MESSAGE) if one.fields["topic"] == "T"]
        assert all(0.02 <= gap < 0.035 for gap in gaps([pull.time_s for pull in pulls]))
        assert len(pulls) > 250
        assert await producer.send("T")
        await world.until(lambda: not world.history.missing("g"), 5, "it goes on")

    play(schedule)


# Producers.


def test_a_send_that_nobody_answers_ends_after_its_time_out_over_all_attempts(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(brokers=2, topics={"T": 1})
        producer = await world.producer(send_timeout_s=3)
        assert await producer.send("T")
        for broker in world.brokers:
            world.network.stall(producer.host, broker.host)
        begin_s = world.now_s
        assert await producer.send("T") is None
        assert 3 <= world.now_s - begin_s < 3.01

    play(schedule)


def test_a_dead_broker_costs_a_send_no_more_than_another_attempt(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(brokers=2, topics={"T": 1})
        producer = await world.producer()
        world.brokers[0].kill()
        for _ in range(6):
            begin_s = world.now_s
            assert await producer.send("T")
            assert world.now_s - begin_s < SOON_S
        assert {sent.queue.broker_name for sent in world.history.acknowledgements.values()} == {"broker-b"}

    play(schedule)


@pytest.mark.parametrize(
    ("fault", "avoided_s"), [("slow", 30), ("dead", 600)], ids=["550 ms for an answer", "a refused connection"]
)
def test_a_broker_is_avoided_for_as_long_as_the_table_says(
    play: Callable[[Play], None], fault: str, avoided_s: int
) -> None:
    async def schedule(world: World) -> None:
        await world.start(brokers=2, topics={"T": 1})
        producer = await world.producer(send_latency_fault_enable=True)
        broker = world.brokers[0]
        for _ in range(4):
            assert await producer.send("T")
        if fault == "slow":
            world.network.slow_down(producer.host, broker.host, (0.3, 0.4))
        else:
            broker.kill()
        failed_s = await world.until_noted(producer, broker.name)
        world.network.heal(producer.host, broker.host)
        if fault == "dead":
            await broker.start()
        while world.now_s < failed_s + avoided_s - 1:
            assert await producer.send("T")
            await asyncio.sleep(avoided_s / 20)
        since = [one for one in world.history.acknowledgements.values() if one.time_s > failed_s + 0.9]
        assert len(since) > 10
        assert {one.queue.broker_name for one in since} == {"broker-b"}
        await asyncio.sleep(max(0.0, failed_s + avoided_s + 1 - world.now_s))
        for _ in range(2):
            assert await producer.send("T")
        assert broker.name in {one.queue.broker_name for one in list(world.history.acknowledgements.values())[-2:]}

    play(schedule)


# Closing.


def test_a_close_waits_ten_seconds_for_a_handler_that_hangs_and_leaves(play: Callable[[Play], None]) -> None:
    async def hangs(member: Member, message: ReceivedMessage) -> None:
        await asyncio.sleep(10_000)

    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        producer = await world.producer()
        one = world.join(handle=hangs)
        await one.joined()
        assert await producer.send("T")
        await asyncio.sleep(1)
        two = world.join()
        begin_s = world.now_s
        await one.leave()
        assert 10 <= world.now_s - begin_s < 10 + SOON_S
        await world.until(lambda: not world.history.missing("g"), 1, "the other one consumes it")
        assert two.queues

    play(schedule)


def test_a_close_ends_although_no_broker_answers(play: Callable[[Play], None]) -> None:
    async def schedule(world: World) -> None:
        await world.start(topics={"T": 1})
        member = world.join(orderly=True)
        await member.joined()
        await asyncio.sleep(3)
        world.network.stall(member.host, world.brokers[0].host)
        begin_s = world.now_s
        await member.leave()
        assert world.now_s - begin_s <= 10 + 5 + 3 + 3 + SOON_S  # its time, the goodbye, a call, the connections

    play(schedule)
