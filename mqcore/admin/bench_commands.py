"""``mqcore bench``: send and consume, to measure a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import uuid
from collections.abc import Awaitable, Callable

import click

from mqcore.admin.bench import Goal, bench_consume, bench_send
from mqcore.admin.bench_figures import Load
from mqcore.admin.options import confirm, output_option, yes_option
from mqcore.admin.output import show_pairs, talk
from mqcore.admin.running import Common, PartialError, fail, run
from mqcore.client.errors import NoRouteError
from mqcore.errors import BaseMQError, ClientError
from mqcore.protocol.heartbeat import SUB_ALL
from mqcore.protocol.names import retry_topic

DEFAULT_TOPIC = "mqcore_bench"
DEFAULT_SECONDS = 10.0
QUEUES = 8
PART = "; it was ended before anything was measured"


@click.group()
def bench() -> None:
    """Measure a cluster. Latency is in ms; of consuming it is from the message's birth, by two clocks."""


count_option = click.option("-c", "--count", type=click.IntRange(1), help="End after so many messages.")
duration_option = click.option(
    "--duration", type=click.FloatRange(0.1), help=f"End after so many seconds; {DEFAULT_SECONDS:g} without --count."
)
clients_option = click.option(
    "--clients", type=click.IntRange(1), default=1, show_default=True, help="Clients, each with connections of its own."
)


def measure(
    common: Common,
    topic: str,
    count: int | None,
    duration: float | None,
    load: Callable[[Goal], Awaitable[Load]],
    *,
    create: bool,
    remove: bool,
) -> Load:
    """Make the topic if it is not there, do *load*, and remove the topic if it was so wished."""
    seconds = DEFAULT_SECONDS if duration is None and count is None else duration

    async def work() -> Load:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        if create:
            await make_topic(common, topic)
        try:
            return await load(Goal(stop, count, seconds))
        finally:
            if remove:
                async with common.client() as mq:
                    await mq.admin.delete_topic(topic)
                talk(f"deleted the topic {topic}")

    return run(work)


async def make_topic(common: Common, topic: str) -> None:
    """Make the topic on all masters, unless a broker has it."""
    async with common.client() as mq:
        with contextlib.suppress(NoRouteError):
            await mq.admin.topic_route(topic)
            return
        outcomes = await mq.admin.create_topic(topic, read_queues=QUEUES)
        failures = [error for error in outcomes.values() if error is not None]
        if failures:
            raise failures[0]
        talk(f"made the topic {topic}; it stays, unless --remove-topic is given")


async def remove_group(common: Common, group: str) -> None:
    """Leave nothing of a group that was made up, at brokers that let us."""
    async with common.client() as mq:
        for remove in (mq.admin.delete_group(group, remove_offsets=True), mq.admin.delete_topic(retry_topic(group))):
            with contextlib.suppress(BaseMQError):
                await remove


def show_load(load: Load, output: str) -> None:
    """Print the figures; what failed makes the exit code."""
    show_pairs(load.record(), output)
    if load.failed and load.messages:
        fail(PartialError(f"{load.failed} of {load.messages + load.failed} messages failed"))
    if not load.messages:
        fail(ClientError(f"nothing was {'sent' if load.what == 'send' else 'consumed'}{PART}"))


@bench.command("send")
@click.argument("topic", default=DEFAULT_TOPIC)
@click.option("--size", type=click.IntRange(1), default=128, show_default=True, help="Bytes of each body.")
@clients_option
@click.option(
    "--in-flight", type=click.IntRange(1), default=64, show_default=True, help="Messages under way from each client."
)
@click.option("--rate", type=click.FloatRange(0), default=0, help="Messages a second, of all clients; 0: all they can.")
@click.option("--no-batching", is_flag=True, help="A request for each message, as RocketMQ's clients send.")
@click.option("--tag", help="The tag of each message.")
@count_option
@duration_option
@click.option("--remove-topic", is_flag=True, help="Delete the topic afterwards, with all its messages; needs --yes.")
@yes_option
@output_option
@click.pass_obj
def send_command(
    common: Common,
    topic: str,
    size: int,
    clients: int,
    in_flight: int,
    rate: float,
    no_batching: bool,
    tag: str | None,
    count: int | None,
    duration: float | None,
    remove_topic: bool,
    yes: bool,
    output: str,
) -> None:
    """Send messages to TOPIC, which is made if it is not there. An interrupt ends it in order."""
    if remove_topic:
        confirm(yes, f"delete the topic {topic} with all its messages")

    def load(goal: Goal) -> Awaitable[Load]:
        return bench_send(
            common.client,
            topic,
            goal,
            size=size,
            clients=clients,
            in_flight=in_flight,
            rate=rate,
            batching=not no_batching,
            tag=tag,
        )

    show_load(measure(common, topic, count, duration, load, create=True, remove=remove_topic), output)


@bench.command("consume")
@click.argument("topic", default=DEFAULT_TOPIC)
@click.option("--group", help="The consumer group, by default one of its own, which is deleted afterwards.")
@clients_option
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where a group begins that has no offsets.",
)
@click.option("--tag", "expression", default=SUB_ALL, help="Only these tags.")
@count_option
@duration_option
@output_option
@click.pass_obj
def consume_command(
    common: Common,
    topic: str,
    group: str | None,
    clients: int,
    start: str,
    expression: str,
    count: int | None,
    duration: float | None,
    output: str,
) -> None:
    """Consume TOPIC. An interrupt ends it in order. Time counts from the first message."""
    name = group or f"mqcore_bench_{uuid.uuid4().hex[:8]}"

    async def load(goal: Goal) -> Load:
        try:
            return await bench_consume(
                common.client, topic, goal, group=name, clients=clients, from_where=start, expression=expression
            )
        finally:
            if group is None:
                await remove_group(common, name)

    show_load(measure(common, topic, count, duration, load, create=False, remove=False), output)
