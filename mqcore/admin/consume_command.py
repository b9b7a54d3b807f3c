"""``mqcore consume``: read a topic, as a member of a group or without leaving a trace."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import click

from mqcore.admin.output import FORMAT_HELP, message_json, parse_format, print_json, talk, write
from mqcore.admin.running import Common, hint_of, run
from mqcore.client.asynchronous import Client
from mqcore.client.consume.polled.pull_api import PullStatus
from mqcore.client.errors import NoRouteError
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.session.tasks import cancel_and_wait
from mqcore.errors import MQError
from mqcore.protocol.heartbeat import SUB_ALL
from mqcore.protocol.message import MessageQueue

DEFAULT_FORMAT = "%v\\n"
HOLD_S = 10.0
LOOK_S = 5.0
POLL_S = 0.2
BUFFERED_MAX = 256

Print = Callable[[ReceivedMessage], None]


class Printer:
    """Prints messages until the user has had enough."""

    def __init__(self, show: Print, count: int | None) -> None:
        self._show = show
        self._count = count
        self.shown = 0
        self.stop = asyncio.Event()

    def show(self, message: ReceivedMessage) -> None:
        self._show(message)
        self.shown += 1
        if self.shown == self._count:
            self.stop.set()


async def follow_group(mq: Client, topic: str, expression: str, printer: Printer, *, group: str, start: str) -> None:
    """Print the messages that this member of *group* gets; what has been printed is done."""
    async with mq.consumer(group, {topic: expression}, from_where=start) as consumer, watching(mq, topic, printer):
        while not printer.stop.is_set():
            for message in await consumer.receive(timeout_s=POLL_S):
                printer.show(message)
                message.ack()
                if printer.stop.is_set():
                    break


@asynccontextmanager
async def watching(mq: Client, topic: str, printer: Printer) -> AsyncIterator[None]:
    """Say within the block what a consumer waits for that has got nothing yet."""
    watch = asyncio.create_task(watch_topic(mq, topic, printer))
    try:
        yield
    finally:
        await cancel_and_wait(watch)


async def watch_topic(mq: Client, topic: str, printer: Printer) -> None:
    said = ""
    while not printer.shown:
        missing = await what_is_missing(mq, topic)
        if missing != said:
            talk(f"waiting: {missing}" if missing else f"the topic {topic} can be read now")
        said = missing
        await asyncio.sleep(LOOK_S)


async def what_is_missing(mq: Client, topic: str) -> str:
    """Return why nothing of *topic* can be read just now; empty if it can be, whether there is something or not."""
    try:
        queues = await mq.queues(topic)
        if not queues:
            return f"no broker has the topic {topic}; its first message may make it, or: mqcore topic create {topic}"
        for queue in {queue.broker_name: queue for queue in queues}.values():
            await mq.max_offset(queue)
    except MQError as error:
        hint = hint_of(error)
        return f"{error}" + (f"; {hint}" if hint else "")
    return ""


class TopicReader:
    """Reads all queues of a topic by pulling, with nobody the wiser."""

    def __init__(self, mq: Client, expression: str, *, start: str, exit_at_end: bool) -> None:
        self._mq = mq
        self._expression = expression
        self._start = start
        self._exit_at_end = exit_at_end
        self._found: asyncio.Queue[ReceivedMessage | Exception] = asyncio.Queue(BUFFERED_MAX)

    async def read(self, topic: str, printer: Printer) -> None:
        """Print what is in *topic*. Messages of one queue come in order."""
        queues = await self._mq.queues(topic)
        if not queues:
            raise NoRouteError(topic)
        readers = [asyncio.create_task(self._read_queue(queue)) for queue in queues]
        try:
            while not printer.stop.is_set():
                ended = all(reader.done() for reader in readers)
                if ended and self._found.empty():
                    return
                await self._show_next(printer)
        finally:
            await cancel_and_wait(*readers)

    async def _show_next(self, printer: Printer) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                found = await self._found.get()
        except TimeoutError:
            return
        if isinstance(found, Exception):
            raise found
        printer.show(found)

    async def _read_queue(self, queue: MessageQueue) -> None:
        """Put the messages of one queue into the common buffer, or the error that ends it."""
        try:
            end = await self._mq.max_offset(queue)
            offset = end if self._start == "latest" else await self._mq.min_offset(queue)
            while not self._exit_at_end or offset < end:
                wait_s = 0.0 if self._exit_at_end else HOLD_S
                result = await self._mq.pull(queue, offset, expression=self._expression, wait_s=wait_s)
                for message in result.messages:
                    if self._exit_at_end and message.queue_offset >= end:
                        return
                    await self._found.put(message)
                if self._exit_at_end and result.status == PullStatus.NO_NEW_MSG:
                    return
                offset = result.next_offset
        except Exception as error:
            await self._found.put(error)


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
    """Print the messages of TOPIC. An interrupt ends it in order."""
    if group is not None and exit_at_end:
        raise click.UsageError("--exit-at-end does not go with --group")
    show = make_show(text, as_json=as_json)

    async def work() -> None:
        printer = Printer(show, count)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, printer.stop.set)
        async with common.client() as mq:
            if group is None:
                await TopicReader(mq, expression, start=start, exit_at_end=exit_at_end).read(topic, printer)
            else:
                await follow_group(mq, topic, expression, printer, group=group, start=start)
        talk(f"got {printer.shown} {'message' if printer.shown == 1 else 'messages'}")

    run(work)


def make_show(text: str, *, as_json: bool) -> Print:
    """Return what prints one message; a usage error tells what is wrong with the format *text*."""
    if as_json:
        return lambda message: print_json(message_json(message))
    try:
        to_bytes = parse_format(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from error
    return lambda message: write(to_bytes(message))
