"""Random schedules: what users, operators and the weather do to a cluster, drawn from a seed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqcore.client.consume.push.consumer import Consumer
from mqcore.client.model.messages import ReceivedMessage
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_retry_topic
from tests.sim.brokers import SimBroker
from tests.sim.world import BadDay, Manner, Member, World, simulate

SEED = "MQ_SIM_SEED"
"""Set to a seed to play that one alone, with the product's log."""

SEED_BITS = 40

SECONDS = "MQ_SIM_SECONDS"
"""Set to let each kind of schedules be played for so long."""


@dataclass
class Tally:
    """What was played, for the lines at the end of a run."""

    name: str
    what: str
    schedules: int = 0
    real_s: float = 0.0

    def __str__(self) -> str:
        rate = self.schedules / self.real_s if self.real_s else 0.0
        return f"{self.name}: {self.schedules:,} schedules, {rate:,.0f} a second (one is {self.what})"


class Player:
    """Plays schedules of one kind with one new seed after the other. The seeds follow from that of the run."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.tallies: list[Tally] = []

    def play(
        self, name: str, what: str, play_one: Callable[[int], object], *, seconds: float, at_least: int = 1
    ) -> Tally:
        """Call *play_one* for *seconds*, and at least so often; *what* says what one schedule is.

        What a seed raises has a note that says how to play it again.
        """
        given = os.environ.get(SEED)
        seconds = float(os.environ.get(SECONDS, seconds))
        first = int(given) if given else self._first
        tally = Tally(name, what)
        self.tallies.append(tally)
        begin_s = time.perf_counter()
        while True:
            seed = first + tally.schedules
            try:
                play_one(seed)
            except BaseException as error:
                error.add_note(f"to play it again: {SEED}={seed}")
                raise
            tally.schedules += 1
            tally.real_s = time.perf_counter() - begin_s
            if given or (tally.real_s >= seconds and tally.schedules >= at_least):
                return tally


def seeds_until_found(play_one: Callable[[int], object], *, limit: int) -> int:
    """Return how many seeds it took until one of them raised an AssertionError; fail when none of *limit* did."""
    for seed in range(limit):
        try:
            play_one(seed)
        except AssertionError:
            return seed + 1
    raise AssertionError(f"{limit} schedules found nothing wrong with a product that is")


def in_world(root: Path, play: Callable[[World], Coroutine[Any, Any, object]]) -> Callable[[int], object]:
    """Return what plays *play* in a new world for each seed."""
    return lambda seed: simulate(seed, root, play, is_quiet=SEED not in os.environ)


# Members.


@dataclass(frozen=True)
class Habits:
    """How the handlers of a schedule behave."""

    fails: float = 0.0
    fails_times: int = 2
    seconds: tuple[float, ...] = (0.0, 0.0, 0.01, 0.2)

    async def __call__(self, member: Member, message: ReceivedMessage) -> None:
        chance = member.world.random
        seconds = chance.choice(self.seconds)
        if seconds:
            await asyncio.sleep(seconds)
        if message.reconsume_times < self.fails_times and chance.random() < self.fails:
            raise BadDay


# What happens to a cluster.


@dataclass
class Chaos:
    """A schedule of random events in *world*, and the calm after it in which every promise has to be kept."""

    world: World
    steps: int = 14
    pause_s: float = 2.5
    members_max: int = 4
    groups: tuple[str, ...] = ("g",)
    settings: dict[str, Any] = field(default_factory=dict)
    manners: tuple[Manner, ...] = (Manner.HANDLER,)
    topics: tuple[str, ...] = ("T",)
    delay_levels: tuple[int, ...] = (0,)
    habits: Habits = field(default_factory=Habits)
    events: tuple[str, ...] = (
        "send", "send", "join", "leave", "crash", "vanish", "cut", "lose", "stall", "slow", "broker_crash",
        "broker_stop", "name_server",
    )  # fmt: skip
    trace: list[str] = field(default_factory=list)
    _background: list[asyncio.Task[Any]] = field(default_factory=list)

    async def play(self) -> None:
        """Play, heal, wait until all that was acknowledged has been consumed, and look whether the group is whole."""
        world = self.world
        self.producer = await world.producer(retries=2)
        for group in self.groups:
            self._join(group)
        await self.send()
        for _ in range(self.steps):
            await asyncio.sleep(world.random.expovariate(1 / self.pause_s))
            event = world.random.choice(self.events)
            self.trace.append(f"{world.now_s:.3f} {event}")
            await getattr(self, event)()
            world.history.check()
        await self.calm()

    async def calm(self) -> None:
        world = self.world
        await asyncio.gather(*self._background)
        world.network.heal_all()
        for server in world.name_servers:
            if not server.host.is_alive:
                await server.start()
        for group in self.groups:
            if not self.living(group):
                self._join(group)
        for member in self.living():
            await member.joined()
            if isinstance(member.consumer, Consumer):
                member.consumer.resume()
                subscribed = {topic for topic in member.consumer.topics() if not is_retry_topic(topic)}
                assert subscribed == set(member.topics), f"{member.name} was told {member.topics}, and has {subscribed}"
                for topic in self.topics:
                    await self._subscribe(member, topic)
        await self.send()
        for group in self.groups:
            # How long handlers take is the application's: one at a time, of 20 s each, may have more than that to do.
            await world.until(
                lambda group=group: world.history.broken or not world.history.missing(group, self.topics), 600,
                lambda group=group: f"{group} consumes all; missing {world.history.missing(group, self.topics)}",
                every_s=0.5, worked_s=lambda group=group: world.history.worked_s(group),
            )  # fmt: skip
            world.history.check()
        for group in self.groups:
            await world.until(
                lambda group=group: self.is_whole(group), 200, lambda group=group: self.division(group), every_s=1.0
            )
        world.history.check()

    def living(self, group: str | None = None) -> list[Member]:
        return [member for member in self.world.members if member.is_in and group in (None, member.group)]

    def is_whole(self, group: str) -> bool:
        """Whether each queue is held by exactly one living member."""
        held = [queue for member in self.living(group) for queue in member.queues]
        return sorted(held) == sorted(self.queues())

    def division(self, group: str) -> str:
        held = {member.name: member.queues for member in self.living(group)}
        return f"each queue of {group} has one owner: {held}"

    def queues(self) -> Iterable[MessageQueue]:
        for broker in self.world.brokers:
            for topic in self.topics:
                config = broker.core.broker.topics.find(topic)
                assert config is not None
                yield from (MessageQueue(topic, broker.name, queue_id) for queue_id in range(config.read_queue_nums))

    def _member(self) -> Member | None:
        living = self.living()
        return self.world.random.choice(living) if living else None

    def _broker(self) -> SimBroker:
        return self.world.random.choice(self.world.brokers)

    def _later(self, work: Coroutine[Any, Any, object]) -> None:
        self._background.append(asyncio.create_task(work))

    # Events.

    async def send(self) -> None:
        chance = self.world.random
        for _ in range(chance.randint(1, 6)):
            self._later(self.producer.send(chance.choice(self.topics), delay_level=chance.choice(self.delay_levels)))

    async def join(self) -> None:
        if len(self.living()) < self.members_max:
            self._join(self.world.random.choice(self.groups))

    def _join(self, group: str) -> None:
        manner = self.world.random.choice(self.manners)
        self.world.join(group, self.topics, self.habits, manner=manner, **self.settings)

    async def leave(self) -> None:
        member = self._member()
        if member is not None:
            self._later(member.leave())

    async def crash(self) -> None:
        member = self._member()
        if member is not None:
            member.crash()

    async def vanish(self) -> None:
        member = self._member()
        if member is not None:
            member.crash(silently=True)

    async def subscription(self) -> None:
        """Somebody changes his mind about the last topic; the others do not, as in a rolling update."""
        member = self._member()
        if member is None or not isinstance(member.consumer, Consumer):
            return
        topic = self.topics[-1]
        if topic in member.topics:
            member.topics = tuple(name for name in member.topics if name != topic)
            self._later(member.ask(member.consumer.unsubscribe, topic))
        else:
            self._later(self._subscribe(member, topic))

    async def _subscribe(self, member: Member, topic: str) -> None:
        if topic in member.topics or not isinstance(member.consumer, Consumer):
            return
        # What was asked for last holds, whenever the call returns: somebody may have changed his mind meanwhile.
        member.topics = (*member.topics, topic)
        while topic in member.topics and not await member.ask(member.consumer.subscribe, topic):
            await asyncio.sleep(1)

    async def pause(self) -> None:
        member = self._member()
        if member is not None and isinstance(member.consumer, Consumer):
            consumer = member.consumer
            consumer.pause()
            asyncio.get_running_loop().call_later(self.world.random.uniform(0.1, 20), consumer.resume)

    async def cut(self) -> None:
        member, broker = self._member(), self._broker()
        if member is not None:
            self.world.network.cut(member.host, broker.host)

    async def lose(self) -> None:
        member, broker = self._member(), self._broker()
        if member is not None:
            self.world.network.lose(member.host, broker.host)

    async def stall(self) -> None:
        member, broker = self._member(), self._broker()
        if member is not None:
            self.world.network.stall(member.host, broker.host)
            self._later(self._heal(member, broker, self.world.random.uniform(0.1, 40)))

    async def slow(self) -> None:
        member, broker = self._member(), self._broker()
        if member is not None:
            self.world.network.slow_down(member.host, broker.host, (0.1, 1.5))
            self._later(self._heal(member, broker, self.world.random.uniform(1, 40)))

    async def _heal(self, member: Member, broker: SimBroker, after_s: float) -> None:
        one, other = member.host, broker.host
        await asyncio.sleep(after_s)
        self.world.network.heal(one, other)

    async def broker_crash(self) -> None:
        broker = self._broker()
        if broker.is_up:
            broker.kill(silently=self.world.random.random() < 0.2)
            self.world.history.broker_ends(broker)
            self._later(self._restart(broker))

    async def take_over(self) -> None:
        """The master of a broker name dies, and another one takes its place, at another address."""
        broker = self._broker()
        if broker.is_up:
            broker.kill(silently=self.world.random.random() < 0.2)
            self.world.history.broker_ends(broker)
            number = int(broker.address.rpartition(".")[2])
            broker.move(f"10.0.1.{number + 20 if number < 200 else number % 20}")
            self._later(self._restart(broker))

    async def broker_stop(self) -> None:
        broker = self._broker()
        if broker.is_up:
            self._later(self._stop_and_restart(broker))

    async def _stop_and_restart(self, broker: SimBroker) -> None:
        await broker.stop()
        self.world.history.broker_ends(broker)
        await self._restart(broker)

    async def _restart(self, broker: SimBroker) -> None:
        await asyncio.sleep(self.world.random.uniform(0.1, 8))
        await broker.start()

    async def name_server(self) -> None:
        server = self.world.random.choice(self.world.name_servers)
        if server.host.is_alive:
            server.kill()
            self._later(self._start_again(server))

    async def _start_again(self, server: Any) -> None:
        await asyncio.sleep(self.world.random.uniform(0.1, 5))
        if not server.host.is_alive:
            await server.start()
