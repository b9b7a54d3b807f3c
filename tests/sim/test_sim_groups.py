"""What a group is promised, over random schedules of joins, leaves, deaths, broken wires and restarted brokers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.queue_locks import QueueLocks as LocksOfBroker
from mqcore.client.consume.assignment import Assignment
from mqcore.client.consume.offsets import RemoteOffsets
from mqcore.client.consume.pull_loop import QueuePullLoop
from mqcore.client.model.process_queue import ProcessQueue
from mqcore.client.session.session import Session
from mqcore.errors import MQError
from mqcore.protocol.message import MessageQueue
from tests.sim.schedules import Chaos, Habits, Player, in_world, seeds_until_found
from tests.sim.world import Manner, World

WHAT = "a cluster of 1 or 2 brokers, up to 4 members, 14 events, until all is consumed and divided"
FOUND_WITHIN = 60
"""Schedules that a broken rule may take to be found."""


def chaos(**changes: Any) -> Callable[[World], Any]:
    """Random events of all kinds; *changes* are fields of Chaos."""

    async def play(world: World) -> None:
        chance = world.random
        await world.start(brokers=chance.choice((1, 2)), topics={"T": 2}, messageDelayLevel=FEW_LEVELS)
        given = {"habits": Habits(fails=chance.choice((0.0, 0.2)), seconds=chance.choice(HANDLERS_S))} | changes
        await Chaos(world, **given).play()

    return play


FEW_LEVELS = "1s 5s 10s 30s 1m"
HANDLERS_S = ((0.0,), (0.0, 0.01, 0.2), (0.0, 1.0, 5.0))


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_what_was_acknowledged_is_consumed_whatever_happens_to_members_brokers_and_wires(
    root: Path, player: Player, orderly: bool
) -> None:
    """And no commit goes back or passes what handlers have ended, and orderly members never share a queue."""
    name = "orderly groups" if orderly else "concurrent groups"
    player.play(name, WHAT, in_world(root, chaos(settings={"orderly": orderly})), seconds=0.5)


def test_members_without_handlers_lose_nothing_either(root: Path, player: Player) -> None:
    """They iterate, receive or take batches, in two tasks each, in one group with others that have handlers."""

    async def play(world: World) -> None:
        settings = {"orderly": world.random.random() < 0.5}
        await chaos(settings=settings, manners=(Manner.HANDLER, Manner.ITERATE, Manner.RECEIVE, Manner.BATCHES))(world)

    player.play("members without handlers", WHAT, in_world(root, play), seconds=0.5)


def test_members_that_pause_and_change_their_topics_lose_nothing_either(root: Path, player: Player) -> None:
    """Delayed messages are among them, and for a while the members of the group disagree about its topics."""

    async def play(world: World) -> None:
        await world.start(brokers=world.random.choice((1, 2)), topics={"T": 2, "U": 1}, messageDelayLevel=FEW_LEVELS)
        settings = {"orderly": world.random.random() < 0.5}
        events = (*Chaos.events, "subscription", "subscription", "pause")
        changes = {"topics": ("T", "U"), "delay_levels": (0, 0, 1, 2), "events": events, "settings": settings}
        await Chaos(world, habits=Habits(fails=0.1), **changes).play()

    player.play("pauses and changes of topics", WHAT, in_world(root, play), seconds=0.5)


def test_pull_consumers_lose_nothing_either(root: Path, player: Player) -> None:
    async def play(world: World) -> None:
        habits = Habits(seconds=world.random.choice(HANDLERS_S))  # who polls has no retry
        await chaos(manners=(Manner.POLL,), habits=habits)(world)

    player.play("pull consumers", WHAT, in_world(root, play), seconds=0.5)


@pytest.mark.slow
def test_two_groups_keep_their_promises_through_long_bad_times(root: Path, player: Player) -> None:
    async def play(world: World) -> None:
        chance = world.random
        settings = {
            "orderly": chance.random() < 0.5,
            "strategy": chance.choice(("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")),
            "concurrency": chance.choice((1, 20)),
        }
        habits = Habits(fails=chance.choice((0.0, 0.2)), seconds=chance.choice((*HANDLERS_S, (0.1, 20.0))))
        bad_times = chaos(
            steps=40, pause_s=chance.choice((0.3, 1, 6)), groups=("g", "h"), members_max=5, settings=settings,
            habits=habits,
        )  # fmt: skip
        await bad_times(world)

    player.play(
        "two groups in long bad times", "40 events, up to 5 members of 2 groups", in_world(root, play), seconds=120
    )


SLOW = Habits(fails=0.2, seconds=(0.1, 20.0))


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_a_backlog_that_takes_long_by_its_handlers_alone_is_no_loss(root: Path, orderly: bool) -> None:
    """One member with one handler at a time has work for longer than anything else may take."""

    async def play(world: World) -> None:
        await world.start(brokers=1, topics={"T": 2}, messageDelayLevel=FEW_LEVELS)
        settings = {"orderly": orderly, "concurrency": 1}
        await Chaos(world, steps=40, pause_s=0.3, events=("send",), settings=settings, habits=SLOW).play()
        assert world.history.worked_s("g") > 700

    in_world(root, play)(1)


CALM = ("send", "send", "join", "leave")


def test_an_orderly_group_consumes_each_message_once_and_in_order_while_members_come_and_go(
    root: Path, player: Player
) -> None:
    async def play(world: World) -> None:
        await world.start(brokers=2, topics={"T": 2}, messageDelayLevel=FEW_LEVELS)
        await Chaos(world, settings={"orderly": True}, events=CALM, habits=Habits(seconds=(0.0, 0.01, 0.2))).play()
        last: dict[MessageQueue, int] = {}
        deliveries = [delivery for each in world.history.deliveries["g"].values() for delivery in each]
        for delivery in sorted(deliveries, key=lambda delivery: delivery.begin_s):
            assert delivery.offset == last.get(delivery.queue, -1) + 1, f"{delivery} after {last}"
            last[delivery.queue] = delivery.offset

    player.play("orderly groups without faults", WHAT, in_world(root, play), seconds=0.5)


# That these schedules can find something: one rule is taken out of the product, and they have to.


def test_a_member_that_goes_on_believing_in_one_that_left_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def once_known(hub: Session, topic: str, group: str) -> list[str] | None:
        known: list[str] = hub.__dict__.setdefault("believes_in", [])
        for client_id in await original(hub, topic, group) or []:
            if client_id not in known:
                known.append(client_id)
        return known

    original = Session.consumer_ids
    monkeypatch.setattr(Session, "consumer_ids", once_known)
    assert seeds_until_found(in_world(root, chaos()), limit=FOUND_WITHIN)


def test_a_commit_of_what_has_only_been_pulled_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(held: ProcessQueue[Any], messages: Any) -> int:
        original(held, messages)
        return held._offset_max + 1

    original = ProcessQueue.remove
    monkeypatch.setattr(ProcessQueue, "remove", remove)
    assert seeds_until_found(in_world(root, chaos()), limit=FOUND_WITHIN)


def test_a_queue_given_up_without_a_commit_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes twice, which only an orderly group without faults is promised not to see."""

    async def persist(offsets: RemoteOffsets, queues: Any) -> None:
        """Forget to."""

    monkeypatch.setattr(RemoteOffsets, "persist", persist)

    async def play(world: World) -> None:
        await world.start(brokers=1, topics={"T": 2}, messageDelayLevel=FEW_LEVELS)
        await Chaos(world, settings={"orderly": True}, events=CALM).play()
        for bodies in world.history.deliveries.values():
            assert all(len(each) == 1 for each in bodies.values())

    assert seeds_until_found(in_world(root, play), limit=FOUND_WITHIN)


def test_a_broker_that_gives_a_lock_to_everybody_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocksOfBroker, "lock", lambda locks, group, client_id, queues: list(queues))
    slow = Habits(seconds=(0.2, 1.0, 5.0))  # who hurries is done before the next one comes
    assert seeds_until_found(in_world(root, chaos(settings={"orderly": True}, habits=slow)), limit=FOUND_WITHIN)


@pytest.mark.parametrize("habits", [Habits(fails=0.2), SLOW], ids=["quick", "slow"])
def test_a_failure_that_counts_as_done_is_found(root: Path, monkeypatch: pytest.MonkeyPatch, habits: Habits) -> None:
    async def send_back(*_: object) -> bool:
        return True

    monkeypatch.setattr("mqcore.client.consume.push.concurrently.send_back", send_back)
    assert seeds_until_found(in_world(root, chaos(habits=habits)), limit=FOUND_WITHIN)


def test_an_owner_that_commits_backwards_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(offsets: RemoteOffsets, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        before = offsets._offsets.get(queue, 0)
        offsets._offsets[queue] = offset if before < 2 or offset % 2 else before - 1

    monkeypatch.setattr(RemoteOffsets, "update", update)
    assert seeds_until_found(in_world(root, chaos()), limit=FOUND_WITHIN)


def test_a_member_that_never_looks_at_the_group_again_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def rebalance_once(assignment: Assignment) -> None:
        if not assignment.__dict__.setdefault("has_looked", False):
            assignment.__dict__["has_looked"] = True
            await original(assignment)

    original = Assignment.rebalance
    monkeypatch.setattr(Assignment, "rebalance", rebalance_once)
    assert seeds_until_found(in_world(root, chaos()), limit=FOUND_WITHIN)


def test_a_pull_loop_that_ends_at_a_failure_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(loop: QueuePullLoop) -> None:
        try:
            while not loop._held.dropped:
                await loop._step()
        except MQError:
            loop._held.last_pull_s = math.inf  # or the queue would be taken anew after 120 s
            await asyncio.Event().wait()

    monkeypatch.setattr(QueuePullLoop, "run", run)
    assert seeds_until_found(in_world(root, chaos()), limit=FOUND_WITHIN)
