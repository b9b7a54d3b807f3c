"""A cluster with producers and members of groups, all in one event loop on virtual time, and what was seen of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from mqcore import clock
from mqcore.client.asynchronous import Client
from mqcore.client.consume.polled.consumer import PullConsumer
from mqcore.client.consume.push.consumer import Consumer
from mqcore.client.errors import ClientClosedError
from mqcore.client.model.messages import Message, ReceivedMessage
from mqcore.client.produce.fault_strategy import BrokerFault
from mqcore.client.settings.classes import ClientSettings, ConsumeFromWhere, ConsumerSettings, ProducerSettings
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.errors import MQError
from mqcore.protocol.message import MessageQueue
from tests.sim.brokers import SimBroker, SimNameServer
from tests.sim.history import History
from tests.sim.loop import HOST, VirtualLoop, run
from tests.sim.network import Network

EPOCH_S = 1_700_000_000.0
START_AGAIN_S = 1.0
TAKERS = 2
OFTEN = 0.7
T = TypeVar("T")


class BadDay(RuntimeError):
    """What handlers fail with."""


Handle = Callable[["Member", ReceivedMessage], Awaitable[object]]


async def at_once(member: Member, message: ReceivedMessage) -> None:
    """Consume without any time passing."""


class Manner(Enum):
    """How a member consumes. With a handler, or its program takes messages and settles them."""

    HANDLER = "handler"
    ITERATE = "iterate"
    RECEIVE = "receive"
    BATCHES = "batches"
    POLL = "poll"
    """A pull consumer: what was polled is done when the next poll begins."""


class Member:
    """A real client with one consumer, on a host of its own."""

    def __init__(
        self, world: World, name: str, group: str, topics: tuple[str, ...], handle: Handle, manner: Manner,
        settings: ConsumerSettings | PullConsumerSettings, client_settings: ClientSettings,
    ) -> None:  # fmt: skip
        number = len(world.members) + 1
        self.world = world
        self.name = name
        self.group = group
        self.host = world.network.host(name, f"10.0.{2 + number // 250}.{number % 250 + 1}")
        self.topics = topics
        self._handle = handle
        self._manner = manner
        self.settings = settings
        self._client_settings = client_settings
        self.client: Client
        self.consumer: Consumer | PullConsumer | None = None
        self.is_leaving = False
        self._life = self.host.spawn(self._live())

    @property
    def is_in(self) -> bool:
        """Whether it takes part: it lives, and has not begun to leave."""
        return self.host.is_alive and not self.is_leaving

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues held now, of the topics it was told to consume."""
        held: list[MessageQueue] = []
        if isinstance(self.consumer, Consumer):
            held = self.consumer.queues
        elif self.consumer is not None:
            held = self.consumer.assignment
        return [queue for queue in held if queue.topic in self.topics]

    async def _live(self) -> None:
        while not await self._try_to_start():
            await asyncio.sleep(START_AGAIN_S)
        if self._manner != Manner.HANDLER:
            # A program may take from one consumer in several tasks, but not poll.
            count = 1 if self._manner == Manner.POLL else TAKERS
            self._taking = [asyncio.create_task(self._take()) for _ in range(count)]

    async def _try_to_start(self) -> bool:
        """Start as a program does that is started again when it cannot: nobody may be there to ask."""
        self.client = Client(
            self.world.name_server_addresses,
            self._client_settings,
            instance_name=self.name,
            client_ip=self.host.address,
        )
        self.consumer = self._new_consumer()
        try:
            await self.client.start()
            await self.consumer.start()
        except MQError:
            await self.client.close()
            return False
        return True

    def _new_consumer(self) -> Consumer | PullConsumer:
        if isinstance(self.settings, PullConsumerSettings):
            return self.client.pull_consumer(self.group, self.topics, settings=self.settings)
        handler = self._on_message if self._manner == Manner.HANDLER else None
        return self.client.consumer(self.group, self.topics, handler=handler, settings=self.settings)

    async def _take(self) -> None:
        """What a program does with a consumer that has no handler."""
        consumer = self.consumer
        with contextlib.suppress(ClientClosedError):
            if isinstance(consumer, PullConsumer):
                while not self.is_leaving:
                    for message in await consumer.poll():
                        await self._on_message(message)
                return
            assert consumer is not None
            if self._manner == Manner.RECEIVE:
                while not consumer.is_closed:
                    for message in await consumer.receive(3):
                        await self._settle(message)
                        if not message.settled:
                            message.ack()
            elif self._manner == Manner.BATCHES:
                async for batch in consumer.batches(4):
                    for message in batch:
                        await self._settle(message)
            else:
                async for message in consumer:
                    await self._settle(message)

    async def _settle(self, message: ReceivedMessage) -> None:
        try:
            await self._on_message(message)
        except BadDay:
            if not message.settled:
                message.nack()
        else:
            if not message.settled and self.world.random.random() < OFTEN:  # else asking for the next one does it
                message.ack()

    async def joined(self) -> None:
        """Return when it has taken its first queues."""
        await asyncio.wait([self._life])
        if self.host.is_alive:
            self._life.result()

    async def _on_message(self, message: ReceivedMessage) -> object:
        history = self.world.history
        delivery = history.begins(self, message)
        try:
            outcome = await self._handle(self, message)
        except BaseException as error:
            if self.host.is_alive:
                history.ends(delivery, error)
            raise
        if self.host.is_alive:
            history.ends(delivery, None)
        return outcome

    async def ask(self, call: Callable[..., Coroutine[Any, Any, object]], *arguments: Any) -> bool:
        """Call something of the consumer on its host; True unless a broker or name server failed it."""
        if not self.is_in:
            return True
        asking = self.host.spawn(call(*arguments))
        await asyncio.wait([asking])
        return asking.cancelled() or not isinstance(asking.exception(), MQError)

    async def leave(self) -> None:
        """Close the consumer and the client."""
        self.is_leaving = True
        await asyncio.wait([self._life])
        if self.host.is_alive and self._manner == Manner.POLL:
            await asyncio.wait(self._taking)  # closing in order says that all that was polled is done
        if not self.host.is_alive:
            return
        closing = self.host.spawn(self._close())
        await asyncio.wait([closing])
        if self.host.is_alive:
            self.world.history.forget_member(self)
            self.world.network.kill(self.host)
            closing.result()

    async def _close(self) -> None:
        assert self.consumer is not None
        await self.consumer.close()
        await self.client.close()

    def crash(self, *, silently: bool = False) -> None:
        """Die in the middle of whatever it does."""
        self.world.history.forget_member(self)
        self.world.network.kill(self.host, silently=silently)


class SimProducer:
    """A real producer on a host of its own. ``send`` tells the history what was acknowledged."""

    def __init__(self, world: World, name: str, settings: ProducerSettings) -> None:
        self.world = world
        self.name = name
        self.host = world.network.host(name, f"10.0.9.{len(world.producers) + 1}")
        self._settings = settings
        self._count = 0
        self.client: Client
        self._producer: Any

    async def start(self) -> None:
        await self.host.spawn(self._start())

    async def _start(self) -> None:
        self.client = Client(self.world.name_server_addresses, instance_name=self.name, client_ip=self.host.address)
        self._producer = self.client.producer(f"group-of-{self.name}", self._settings)
        await self.client.start()
        await self._producer.start()

    def faults(self) -> list[BrokerFault]:
        """What it knows of the brokers."""
        return list(self._producer.faults)

    async def send(self, topic: str, *, queue: MessageQueue | None = None, **fields: Any) -> bytes | None:
        """Send one message, to *queue* if given; its body if it was acknowledged."""
        self._count += 1
        body = f"{self.name}-{self._count}".encode()
        try:
            receipt = await self.host.spawn(self._producer.send(Message(topic, body, **fields), queue=queue))
        except MQError:
            return None
        self.world.history.acknowledged(topic, body, receipt)
        return body


@dataclass
class World:
    """What a schedule plays in. Made by ``simulate``."""

    seed: int | str
    root: Path
    loop: VirtualLoop
    network: Network
    random: random.Random
    history: History
    name_servers: list[SimNameServer] = field(default_factory=list)
    brokers: list[SimBroker] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    producers: list[SimProducer] = field(default_factory=list)

    @property
    def now_s(self) -> float:
        return self.loop.time()

    @property
    def name_server_addresses(self) -> str:
        return ";".join(server.endpoint for server in self.name_servers)

    async def start(
        self, *, brokers: int = 1, name_servers: int = 1, topics: dict[str, int] | None = None, **properties: str
    ) -> None:
        """Start a cluster whose brokers have *topics* with so many queues each."""
        for number in range(name_servers):
            server = SimNameServer(self.network, f"namesrv-{number}", f"10.0.0.{number + 1}", self.root)
            self.name_servers.append(server)
            await server.start()
        for _ in range(brokers):
            await self.add_broker(topics=topics or {"T": 2}, **properties)

    async def add_broker(self, *, topics: dict[str, int], **properties: str) -> SimBroker:
        number = len(self.brokers)
        broker = SimBroker(
            self.network, f"broker-{chr(ord('a') + number)}", f"10.0.1.{number + 1}", self.name_server_addresses,
            self.root, topics, **properties,
        )  # fmt: skip
        self.history.watch(broker)
        self.brokers.append(broker)
        await broker.start()
        return broker

    def join(
        self,
        group: str = "g",
        topics: tuple[str, ...] = ("T",),
        handle: Handle = at_once,
        *,
        manner: Manner = Manner.HANDLER,
        client: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Member:
        """Begin the life of a new member, which takes the group's queues from their beginning."""
        kind = PullConsumerSettings if manner == Manner.POLL else ConsumerSettings
        wanted = kind(**{"from_where": ConsumeFromWhere.EARLIEST} | settings)
        name = f"m{len(self.members) + 1}"
        member = Member(self, name, group, topics, handle, manner, wanted, ClientSettings(**client or {}))
        self.members.append(member)
        return member

    async def producer(self, **settings: Any) -> SimProducer:
        producer = SimProducer(self, f"p{len(self.producers) + 1}", ProducerSettings(**settings))
        self.producers.append(producer)
        await producer.start()
        return producer

    async def until_noted(self, producer: SimProducer, broker_name: str) -> float:
        """Let *producer* send until it avoids the broker; return when it began to."""
        while broker_name not in [fault.broker_name for fault in producer.faults() if not fault.is_available]:
            await producer.send("T")
        return self.now_s

    async def until(
        self,
        condition: Callable[[], object],
        limit_s: float,
        what: str | Callable[[], str],
        every_s: float = 0.05,
        worked_s: Callable[[], float] = lambda: 0.0,
    ) -> float:
        """Wait until *condition* holds; return when that was. Fail after *limit_s* and what *worked_s* has grown by."""
        begin_s = self.now_s - worked_s()
        while not condition():
            if self.now_s - worked_s() - begin_s > limit_s:
                raise AssertionError(f"not within {limit_s} s: {what if isinstance(what, str) else what()}")
            await asyncio.sleep(every_s)
        return self.now_s


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Simulated faults are logged as real ones are; thousands of them tell nobody anything."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate(
    seed: int | str, root: Path, play: Callable[[World], Coroutine[Any, Any, T]], *, is_quiet: bool = True
) -> T:
    """Play one schedule in a world of its own, below *root*, and return what it returns.

    Raises what went wrong, with the seed. The same seed gives the same run.
    """
    directory = root / "world"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    loop = VirtualLoop(f"loop {seed}")
    network = Network(loop, seed)
    state = random.getstate()
    random.seed(f"product {seed}")
    try:
        with clock.stand_in(loop.time, EPOCH_S), quiet() if is_quiet else contextlib.nullcontext():
            world = World(seed, directory, loop, network, random.Random(f"world {seed}"), History(loop.time))
            return run(loop, play(world))
    except BaseException as error:
        for failure in loop.failures:
            error.add_note(f"an exception that nobody took: {failure}")
        error.add_note(f"seed {seed}, virtual time {loop.time():.3f} s")
        raise
    finally:
        random.setstate(state)


__all__ = ["HOST", "Member", "SimProducer", "World", "at_once", "simulate"]
