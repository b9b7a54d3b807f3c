"""``mqcore consume``: read a topic, as a member of a group or without leaving a trace."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import click

from mqcore.admin.output import FORMAT_HELP, message_json, parse_format, print_json, talk, write
from mqcore.admin.running import Common, run
from mqcore.client.asynchronous import Client
from mqcore.client.errors import NoRouteError
from mqcore.client.messages import ReceivedMessage
from mqcore.client.pull_api import PullStatus
from mqcore.client.tasks import cancel_and_wait
from mqcore.protocol.heartbeat import SUB_ALL
from mqcore.protocol.message import MessageQueue

DEFAULT_FORMAT = "%v\\n"
HOLD_S = 10.0
BUFFERED_MAX = 256

Print = Callable[[ReceivedMessage], None]


async def follow_group(
    mq: Client, topic: str, group: str, expression: str, start: str, stop: asyncio.Event
) -> AsyncIterator[ReceivedMessage]:
    """Give the messages that this member of *group* gets; each is done when the next is asked for."""
    async with mq.consumer(group, {topic: expression}, from_where=start) as consumer:
        ended = asyncio.create_task(stop.wait())
        ended.add_done_callback(lambda _: asyncio.ensure_future(consumer.close()))
        try:
            async for message in consumer:
                yield message
        finally:
            ended.cancel()


class Reader:
    """Reads all queues of a topic by pulling, with nobody the wiser."""

    def __init__(self, mq: Client, expression: str, *, exit_at_end: bool) -> None:
        self._mq = mq
        self._expression = expression
        self._exit_at_end = exit_at_end
        self._found: asyncio.Queue[ReceivedMessage | BaseException | None] = asyncio.Queue(BUFFERED_MAX)

    async def read(self, topic: str, start: str, stop: asyncio.Event) -> AsyncIterator[ReceivedMessage]:
        queues = await self._mq.queues(topic)
        if not queues:
            raise NoRouteError(topic)
        tasks = [asyncio.create_task(self._read_queue(queue, start)) for queue in queues]
        tasks.append(asyncio.create_task(self._end(tasks.copy(), stop)))
        try:
            while (found := await self._found.get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            await cancel_and_wait(*tasks)

    async def _read_queue(self, queue: MessageQueue, start: str) -> None:
        """Put the messages of one queue into the common buffer, or the error that ends it."""
        try:
            end = await self._mq.max_offset(queue)
            offset = end if start == "latest" else await self._mq.min_offset(queue)
            while not self._exit_at_end or offset < end:
                wait_s = 0.0 if self._exit_at_end else HOLD_S
                result = await self._mq.pull(queue, offset, expression=self._expression, wait_s=wait_s)
                for message in result.messages:
                    if self._exit_at_end and message.queue_offset >= end:
                        return
                    await self._found.put(message)
                if result.status == PullStatus.NO_NEW_MSG and self._exit_at_end:
                    return
                offset = result.next_offset
        except Exception as error:
            await self._found.put(error)

    async def _end(self, readers: list[asyncio.Task[None]], stop: asyncio.Event) -> None:
        """Mark the end when all readers have come to theirs, or the user has had enough."""
        stopped = asyncio.create_task(stop.wait())
        try:
            everything = asyncio.create_task(all_of(readers))
            await asyncio.wait({everything, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        await self._found.put(None)


async def all_of(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all *tasks* have ended."""
    await asyncio.gather(*tasks, return_exceptions=True)


async def print_messages(messages: AsyncIterator[ReceivedMessage], show: Print, count: int | None) -> None:
    shown = 0
    async for message in messages:
        show(message)
        shown += 1
        if shown == count:
            break
    talk(f"got {shown} {'message' if shown == 1 else 'messages'}")


@click.command()
@click.argument("topic")
@click.option("--group", help="Consume as a member of this group and commit. Without it the topic is only read.")
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many messages. Without it go on for ever.")
@click.option("-e", "--exit-at-end", is_flag=True, help="End at what was there at the start; not with --group.")
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where to begin; a group begins where it has committed, if it has.",
)
@click.option("--tag", "expression", default=SUB_ALL, help="Only these tags, such as 'new || paid'.")
@click.option("-f", "--format", "text", default=DEFAULT_FORMAT, help=f"How to print a message: {FORMAT_HELP}.")
@click.option("--json", "as_json", is_flag=True, help="Print messages as JSON, one per line.")
@click.pass_obj
def consume(
    common: Common,
    topic: str,
    group: str | None,
    count: int | None,
    exit_at_end: bool,
    start: str,
    expression: str,
    text: str,
    as_json: bool,
) -> None:
    """Print the messages of TOPIC."""
    if group is not None and exit_at_end:
        raise click.UsageError("--exit-at-end does not go with --group")
    show = make_printer(text, as_json=as_json)

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with common.client() as mq:
            if group is None:
                source = Reader(mq, expression, exit_at_end=exit_at_end).read(topic, start, stop)
            else:
                source = follow_group(mq, topic, group, expression, start, stop)
            async with aclosing(source):  # type: ignore[type-var]  # both are generators
                await print_messages(source, show, count)

    run(work)
    sys.stdout.flush()


def make_printer(text: str, *, as_json: bool) -> Print:
    if as_json:
        return lambda message: print_json(message_json(message))
    try:
        to_bytes = parse_format(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from error
    return lambda message: write(to_bytes(message))
