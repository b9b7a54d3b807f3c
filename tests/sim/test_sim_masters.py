"""A broker name gets another master, at another address: how soon clients go there, and how often they ask for it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqcore.client.consume.pull_loop import FAILED_DELAY_S
from mqcore.client.session import master_search, waiting_sends
from mqcore.client.session.master_search import MasterSearch
from mqcore.client.session.routes import RouteTable
from mqcore.errors import RemotingTimeoutError
from mqcore.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mqcore.protocol.message import MessageQueue
from tests.sim.brokers import SimBroker
from tests.sim.schedules import Chaos, Habits, Player, in_world, seeds_until_found
from tests.sim.test_sim_parts import on_a_loop
from tests.sim.world import Manner, World

SECONDS = 0.15
FOUND_WITHIN = 60
SLOWEST_ANSWER_S = 0.02
LATE_S = 0.005
"""Timers are up to 1 ms late, and a question takes some of them."""


class Group:
    """A broker name as its name server tells of it; users complain of masters that are none."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.loop = asyncio.get_running_loop()
        self.master: str | None = "10.0.0.1:10911"
        self.told: str | None = self.master
        self.questions: list[float] = []
        self.found: list[float] = []

    async def ask(self, topic: str) -> TopicRouteData:
        self.questions.append(self.loop.time())
        if self._chance.random() < 0.1:
            raise RemotingTimeoutError("the name server is busy")
        await asyncio.sleep(self._chance.uniform(0, SLOWEST_ANSWER_S))
        others = {1: "10.0.0.3:10911"}
        return TopicRouteData(
            [QueueData("a", 1, 1)], [BrokerData("C", "a", others if self.told is None else {0: self.told} | others)]
        )


async def use(group: Group, routes: RouteTable, masters: MasterSearch, until_s: float) -> None:
    """Call the master that the routes name, again and again, as a producer or a pull does."""
    while group.loop.time() < until_s:
        address = routes.master_address("a")
        if address is not None and address == group.master:
            masters.trust("a")
            if address != "10.0.0.1:10911":
                group.found.append(group.loop.time())
                return
            await asyncio.sleep(0.01)
            continue
        if address is not None:
            masters.doubt(address)
        await masters.wait("a", address, 60)


async def search_schedule(chance: random.Random) -> None:
    """A master dies; the name server goes on to name it for a while; then there is none; then there is another one."""
    group = Group(chance)
    routes = RouteTable(group.ask)
    greeted: list[set[str]] = []
    masters = MasterSearch(routes, greeted.append)
    masters.start()
    while not routes.known("T"):
        await asyncio.gather(routes.refresh("T"), return_exceptions=True)
    users = [asyncio.create_task(use(group, routes, masters, 200)) for _ in range(chance.randint(1, 8))]
    await asyncio.sleep(chance.uniform(0, 1))
    asked, died_s = len(group.questions), group.loop.time()
    group.master = None
    for wait_s, told in ((chance.choice((0.0, 0.3)), None), (chance.choice((0.0, 0.1, 1, 5, 40)), "10.0.0.2:10911")):
        await asyncio.sleep(wait_s)
        group.told = told
    group.master, taken_s = group.told, group.loop.time()
    await asyncio.gather(*users)
    await masters.close()
    times = group.questions[asked:]
    assert times[0] - died_s <= 0.01 + LATE_S, "the first question comes at once"
    for earlier, later in itertools.pairwise(times[:-1]):  # the last one is asked when the master has been found
        assert later - earlier >= master_search.FIRST_REST_S[0], (earlier, later)
    searched_s = taken_s - died_s
    lost = sum(time_s > taken_s for time_s in times)  # answers that did not come cost a rest each
    rest_s = min(master_search.REST_S_MAX, 0.1 + 0.5 * searched_s)
    assert group.found[-1] - taken_s <= (rest_s * 1.5 + SLOWEST_ANSWER_S + LATE_S) * max(1, lost)
    if searched_s < master_search.SEARCH_S:
        assert "10.0.0.1:10911" in greeted[0]


PACE = ("FIRST_REST_S", "REST_GROWTH", "REST_S_MAX", "SEARCH_S")
SEARCH = "a new master within 41 s, 1 to 8 users who complain"


def test_a_new_master_is_asked_for_at_once_then_ever_more_rarely_and_found(player: Player, quietly: None) -> None:
    player.play("searches for a master", SEARCH, on_a_loop(search_schedule), seconds=SECONDS)


@pytest.mark.parametrize(("name", "value"), [("FIRST_REST_S", (0.0, 0.0)), ("REST_GROWTH", 20.0), ("REST_S_MAX", 30.0)])
def test_another_pace_is_found(monkeypatch: pytest.MonkeyPatch, quietly: None, name: str, value: Any) -> None:
    """The times that are demanded are those of before."""
    wanted = {each: getattr(master_search, each) for each in PACE}
    schedule = on_a_loop(search_schedule)

    class Demanded:
        """The module as it was, for the schedule that looks at it."""

        def __getattr__(self, each: str) -> Any:
            return wanted[each]

    monkeypatch.setitem(globals(), "master_search", Demanded())
    monkeypatch.setattr(f"mqcore.client.session.master_search.{name}", value)
    assert seeds_until_found(schedule, limit=FOUND_WITHIN)


# Whole clusters.

WHAT = "a cluster of 1 or 2 brokers whose masters change, up to 4 members, until all is consumed and divided"
EVENTS = ("send", "send", "take_over", "take_over", "join", "leave", "cut", "stall", "name_server")


@pytest.mark.parametrize("manner", [Manner.HANDLER, Manner.POLL], ids=["handlers", "polls"])
def test_what_was_acknowledged_is_consumed_whichever_broker_is_the_master(
    root: Path, player: Player, manner: Manner
) -> None:
    async def play(world: World) -> None:
        await world.start(brokers=world.random.choice((1, 2)), topics={"T": 2})
        settings = {"orderly": world.random.random() < 0.5} if manner == Manner.HANDLER else {}
        await Chaos(world, events=EVENTS, manners=(manner,), settings=settings, habits=Habits()).play()

    player.play(f"masters that change, {manner.value}", WHAT, in_world(root, play), seconds=0.75)


GONE_S = 1.5
SOON_S = 1.2
"""A rest between questions, at most 0.1 s and half of the time since the first, and some requests.

A pull may come before the first heart-beat, is refused by a broker that knows no group, and comes again after its rest.
"""


async def come_back(world: World, broker: SimBroker) -> float:
    await asyncio.sleep(world.random.uniform(0.05, GONE_S))
    await broker.start()
    return world.now_s


def take_over(root: Path, choose: Callable[[int], MessageQueue | None]) -> Callable[[int], object]:
    """The only master dies and another one is there within GONE_S: no send fails, and a member goes on at once."""

    async def play(world: World) -> None:
        await world.start(brokers=1, topics={"T": 2})
        producer = await world.producer()
        member = world.join()
        await member.joined()
        broker = world.brokers[0]
        assert await producer.send("T", queue=choose(0))
        begin_s = world.now_s
        sends: list[asyncio.Task[bytes | None]] = []
        while world.now_s < begin_s + 5:
            sends.append(asyncio.create_task(producer.send("T", queue=choose(len(sends)))))
            await asyncio.sleep(0.05)
            if len(sends) == 10:
                # What is on its way may be stored or not: to one queue it is not sent twice.
                await asyncio.gather(*sends)
                broker.kill()
                world.history.broker_ends(broker)
                broker.move("10.0.1.77")
                await asyncio.sleep(0.02)
                back = asyncio.create_task(come_back(world, broker))
        back_s = await back
        bodies = await asyncio.gather(*sends)
        assert None not in bodies, f"send {bodies.index(None)} of {len(bodies)} failed"
        await world.until(lambda: not world.history.missing("g"), SOON_S, "all is consumed")
        begins = (delivery.begin_s for each in world.history.deliveries["g"].values() for delivery in each)
        assert min(begin_s for begin_s in begins if begin_s > back_s) - back_s <= FAILED_DELAY_S + SOON_S
        world.history.check()

    return in_world(root, play)


def test_no_send_fails_and_no_member_stops_when_another_master_is_there_soon(root: Path, player: Player) -> None:
    what = "100 sends, a master that dies, another one within 1.5 s"
    player.play("a new master soon", what, take_over(root, lambda number: None), seconds=0.5)


def test_sends_to_a_chosen_queue_wait_for_its_new_master(root: Path, player: Player) -> None:
    what = "100 sends to chosen queues, a master that dies, another one within 1.5 s"
    queues = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(2)]
    player.play("queues with a new master", what, take_over(root, lambda number: queues[number % 2]), seconds=0.5)


def test_a_search_that_nobody_begins_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(masters: MasterSearch, broker_name: str, failed: str | None, timeout_s: float) -> bool:
        return False

    monkeypatch.setattr(MasterSearch, "wait", never)
    assert seeds_until_found(take_over(root, lambda number: None), limit=FOUND_WITHIN)


def test_a_pull_loop_that_rests_after_every_failure_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def rest(*_: object) -> float:
        return 5.0

    monkeypatch.setattr("mqcore.client.consume.pull_loop.pause_after", rest)
    assert seeds_until_found(take_over(root, lambda number: None), limit=FOUND_WITHIN)


# A master that stands still: it closes no connection, and answers nothing.

STILL_S = 8.0
ANSWERED_WITHIN_S = waiting_sends.LONG_S + 2 * waiting_sends.LOOK_S + 1.5 * master_search.REST_S_MAX


def stand_still(root: Path) -> Callable[[int], object]:
    """The only master falls silent, and another one is there within STILL_S: no send waits until its time is over."""

    async def play(world: World) -> None:
        await world.start(brokers=1, topics={"T": 2})
        producer = await world.producer(send_timeout_s=600.0)
        broker = world.brokers[0]
        assert await producer.send("T")
        broker.kill(silently=True)
        world.history.broker_ends(broker)
        broker.move("10.0.1.77")
        sends = [asyncio.create_task(producer.send("T")) for _ in range(5)]
        await asyncio.sleep(world.random.uniform(0.05, STILL_S))
        sends += [asyncio.create_task(producer.send("T")) for _ in range(5)]
        await broker.start()
        begin_s = world.now_s
        assert None not in await asyncio.gather(*sends)
        assert world.now_s - begin_s <= ANSWERED_WITHIN_S

    return in_world(root, play)


def test_no_send_waits_for_a_master_that_stands_still_when_there_is_another(root: Path, player: Player) -> None:
    player.play("a silent master", "10 sends, a silent master, another one within 8 s", stand_still(root), seconds=0.5)


def test_sends_that_wait_until_their_time_is_over_are_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqcore.client.session.waiting_sends.LONG_S", 500.0)
    assert seeds_until_found(stand_still(root), limit=FOUND_WITHIN)


async def slow_schedule(chance: random.Random) -> None:
    """Sends take any time; those that take long are told of while they do, and when they end."""
    now_s = asyncio.get_running_loop().time
    told: list[tuple[float, str]] = []
    trusted: list[str] = []
    waiting = waiting_sends.WaitingSends(lambda address: told.append((now_s(), address)), trusted.append)
    waiting.start()

    async def send(number: int) -> None:
        one = waiting_sends.PendingSend(f"10.0.0.{number}:10911")
        await asyncio.sleep(chance.uniform(0, 3))
        begin_s, is_answered = now_s(), chance.random() < 0.5
        waiting.begin(one)
        await asyncio.sleep(took_s := chance.choice((0.01, 1.0, 2.9, 5.0)))
        waiting.end(one, is_answered=is_answered)
        await asyncio.sleep(0)
        times = [at_s - begin_s for at_s, address in told if address == one.address]
        if took_s < waiting_sends.LONG_S:
            assert times == []
        else:
            assert waiting_sends.LONG_S <= times[0] <= waiting_sends.LONG_S + waiting_sends.LOOK_S + LATE_S
            assert len(times) <= 1 + (took_s - waiting_sends.LONG_S) / waiting_sends.LOOK_S
        assert (one.address in trusted) == (bool(times) and is_answered)

    await asyncio.gather(*(send(number) for number in range(chance.randint(1, 12))))
    await asyncio.sleep(1)
    count = len(told)
    await asyncio.sleep(10)
    assert len(told) == count, "nobody looks when nobody waits"


def test_a_broker_that_does_not_answer_is_told_of_while_it_does_not(player: Player, quietly: None) -> None:
    player.play("waiting sends", "up to 12 sends of up to 5 s", on_a_loop(slow_schedule), seconds=SECONDS)
