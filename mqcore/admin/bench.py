"""The loads of ``mqcore bench``: one event loop, several clients, against whichever cluster there is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from mqcore.admin.bench_figures import Load
from mqcore.admin.sending import Pace
from mqcore.client.asynchronous import Client
from mqcore.client.consume.push.consumer import Consumer
from mqcore.client.model.messages import Message
from mqcore.client.produce.producer import Producer
from mqcore.errors import MQError

MakeClient = Callable[[], Client]
RECEIVE_S = 0.2
ERRORS_IN_A_ROW_MAX = 100
"""So many failures one after the other end a load: the cluster takes nothing."""


class Goal:
    """When a load is over: after *count* messages, after *seconds* from its first one, or when *stop* is set.

    If there is no first one within *seconds* it is over, too.
    """

    def __init__(self, stop: asyncio.Event, count: int | None, seconds: float | None) -> None:
        self._stop = stop
        self._left = count
        self._seconds = seconds
        self._end_s: float | None = None
        self._has_begun = False

    def await_first(self) -> None:
        """The load is ready; its first message may come."""
        self._end_s = None if self._seconds is None else time.monotonic() + self._seconds

    def begin(self) -> None:
        """The first message is there; further calls change nothing."""
        if not self._has_begun:
            self._has_begun = True
            self.await_first()

    @property
    def is_over(self) -> bool:
        """Whether the time is up, or somebody has had enough."""
        return self._stop.is_set() or (self._end_s is not None and time.monotonic() >= self._end_s)

    @property
    def is_reached(self) -> bool:
        return self._left == 0 or self.is_over

    def take(self) -> bool:
        """Take one message of the goal; False when there is none left."""
        if self.is_reached:
            return False
        if self._left is not None:
            self._left -= 1
        return True


async def bench_send(
    make: MakeClient,
    topic: str,
    goal: Goal,
    *,
    size: int,
    clients: int,
    in_flight: int,
    rate: float,
    batching: bool,
    tag: str | None = None,
) -> Load:
    """Send messages of *size* bytes from *clients* clients, *in_flight* under way from each, at *rate* altogether."""
    load = Load("send", topic, facts={"size": size, "clients": clients, "inFlight": in_flight, "rate": rate})
    pace = Pace(rate)
    message = Message(topic, (b"0123456789abcdef" * (size // 16 + 1))[:size], tag=tag)
    async with AsyncExitStack() as stack:
        producers = [await _producer(stack, make, number, batching=batching) for number in range(clients)]
        goal.begin()
        began = time.monotonic()
        lanes = [_send_lane(producer, message, goal, pace, load) for producer in producers for _ in range(in_flight)]
        await asyncio.gather(*lanes)
        load.seconds = time.monotonic() - began
    return load


async def _producer(stack: AsyncExitStack, make: MakeClient, number: int, *, batching: bool) -> Producer:
    mq = await stack.enter_async_context(make())
    more = {} if batching else {"batch_bytes": 0}
    return await stack.enter_async_context(mq.producer(f"mqcore_bench_{number}", **more))  # type: ignore[arg-type]


async def _send_lane(producer: Producer, message: Message, goal: Goal, pace: Pace, load: Load) -> None:
    """Send one message after the other."""
    failures = 0
    while goal.take():
        await pace.wait()
        if goal.is_over:
            return
        began = time.perf_counter()
        try:
            await producer.send(message)
        except MQError:
            load.failed += 1
            failures += 1
            if failures >= ERRORS_IN_A_ROW_MAX:
                raise
            continue
        failures = 0
        load.latencies.add(time.perf_counter() - began)
        load.messages += 1
        load.bytes += len(message.body)


async def bench_consume(
    make: MakeClient, topic: str, goal: Goal, *, group: str, clients: int, from_where: str, expression: str
) -> Load:
    """Consume as *clients* members of *group*. Time counts from the first message that comes."""
    load = Load("consume", topic, facts={"group": group, "clients": clients, "from": from_where})
    times: list[float] = []
    async with AsyncExitStack() as stack:
        consumers = []
        for _ in range(clients):
            mq = await stack.enter_async_context(make())
            made = mq.consumer(group, {topic: expression}, from_where=from_where)
            consumers.append(await stack.enter_async_context(made))
        goal.await_first()
        await asyncio.gather(*(_consume_lane(consumer, goal, load, times) for consumer in consumers))
    load.seconds = max(times, default=0.0) - min(times, default=0.0)
    return load


async def _consume_lane(consumer: Consumer, goal: Goal, load: Load, times: list[float]) -> None:
    first = True
    while not goal.is_reached:
        for message in await consumer.receive(timeout_s=RECEIVE_S):
            if first:
                goal.begin()
                times.append(time.monotonic())
                first = False
            if not goal.take():
                break
            message.ack()
            load.messages += 1
            load.bytes += message.body_size
            load.latencies.add(max(0.0, time.time() - message.born_timestamp / 1000))
    if not first:
        times.append(time.monotonic())
