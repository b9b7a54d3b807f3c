"""``mqcore consume``: read a topic, as a member of a group or without leaving a trace."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from mqcore.admin.formats import FORMAT_HELP, Format, parse_format
from mqcore.admin.offset_commands import parse_queue
from mqcore.admin.options import json_alias, output_option
from mqcore.admin.output import MESSAGE_KEYS, RecordStream, message_json, talk
from mqcore.admin.running import Common, hint_of, run
from mqcore.client.admin.times import parse_time
from mqcore.client.asynchronous import Client
from mqcore.client.consume.polled.pull_api import PullStatus
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.subscription import Expression, Sql
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


EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: the first or the next message of a queue (*word*), an offset, the last so many, or a time."""

    word: str | None = None
    offset: int | None = None
    last: int | None = None
    time: datetime | None = None

    async def of(self, mq: Client, queue: MessageQueue) -> int:
        """Return the offset in *queue*."""
        if self.offset is not None:
            return self.offset
        if self.time is not None:
            return await mq.search_offset(queue, self.time)
        if self.word == LATEST:
            return await mq.max_offset(queue)
        first = await mq.min_offset(queue)
        return first if self.last is None else max(first, await mq.max_offset(queue) - self.last)

    def of_group(self) -> dict[str, Any]:
        """Return the settings of a consumer that begins there; a usage error where groups cannot."""
        if self.time is not None:
            return {"from_where": "timestamp", "from_timestamp": self.time}
        if self.word is None:
            raise click.UsageError("a group begins at earliest, latest or a time; for offsets see mqcore offset reset")
        return {"from_where": self.word}


def parse_start(text: str) -> Start:
    """Read --from and --until: earliest, latest, an offset, -N for the last N, ISO 8601, or a time ago such as -1h."""
    if text in (EARLIEST, LATEST):
        return Start(word=text)
    if re.fullmatch(r"[0-9]+", text):
        return Start(offset=int(text))
    if re.fullmatch(r"-[0-9]+", text):
        return Start(last=int(text[1:]))
    found = parse_time(text)
    if found is None:
        wanted = "earliest, latest, an offset, -N (the last N), a time such as 2026-01-31T12:00, or -1h"
        raise click.BadParameter(f"got {text!r}, wanted {wanted}")
    return Start(time=found)


async def follow_group(
    mq: Client, topic: str, expression: Expression, printer: Printer, *, group: str, settings: dict[str, Any]
) -> None:
    """Print the messages that this member of *group* gets; what has been printed is done."""
    async with mq.consumer(group, {topic: expression}, **settings) as consumer, watching(mq, topic, printer):
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
    """Reads all queues of a topic, or some, by pulling, with nobody the wiser."""

    def __init__(
        self,
        mq: Client,
        expression: Expression,
        *,
        start: Start,
        until: Start | None = None,
        queues: Sequence[MessageQueue] = (),
        exit_at_end: bool = False,
    ) -> None:
        self._mq = mq
        self._expression = expression
        self._start = start
        self._until = until
        self._queues = queues
        self._exit_at_end = exit_at_end
        self._found: asyncio.Queue[ReceivedMessage | Exception] = asyncio.Queue(BUFFERED_MAX)

    async def read(self, topic: str, printer: Printer) -> None:
        """Print what is in *topic*. Messages of one queue come in order. NotFoundError names a queue that is none."""
        queues = await self._mq.queues(topic)
        if not queues:
            raise NoRouteError(topic)
        missing = [queue for queue in self._queues if queue not in queues]
        if missing:
            names = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in missing)
            raise NotFoundError(f"topic {topic} has no queue {names} to read: see mqcore topic route {topic}")
        readers = [asyncio.create_task(self._read_queue(queue)) for queue in self._queues or queues]
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

    async def _end_of(self, queue: MessageQueue) -> int | None:
        """Return the offset before which reading ends; None where it goes on for ever."""
        ends = [] if self._until is None else [await self._until.of(self._mq, queue)]
        if self._exit_at_end:
            ends.append(await self._mq.max_offset(queue))
        return min(ends, default=None)

    async def _read_queue(self, queue: MessageQueue) -> None:
        """Put the messages of one queue into the common buffer, or the error that ends it."""
        try:
            end = await self._end_of(queue)
            offset = await self._start.of(self._mq, queue)
            wait_s = 0.0 if self._exit_at_end else HOLD_S
            while end is None or offset < end:
                result = await self._mq.pull(queue, offset, expression=self._expression, wait_s=wait_s)
                for message in result.messages:
                    if end is not None and message.queue_offset >= end:
                        return
                    await self._found.put(message)
                if self._exit_at_end and result.status is PullStatus.NO_NEW_MSG:
                    return
                offset = result.next_offset
        except Exception as error:
            await self._found.put(error)


def expression_of(tags: str | None, sql: str | None) -> Expression:
    if tags is not None and sql is not None:
        raise click.UsageError("give --tag or --sql, not both")
    return Sql(sql) if sql is not None else tags or SUB_ALL


def check_goes_with_group(group: str | None, **others: object) -> None:
    """A member of a group reads what it is given, from where the group is."""
    for name, value in others.items():
        if group is not None and value:
            raise click.UsageError(f"--{name.replace('_', '-')} does not go with --group")


@click.command()
@click.argument("topic")
@click.option("--group", help="Consume as a member of this group and commit. Without it the topic is only read.")
@click.option("-c", "-n", "--count", type=click.IntRange(1), help="End after so many messages. Else go on for ever.")
@click.option(
    "-e", "--exit", "--exit-at-end", "exit_at_end", is_flag=True, help="End at what was there at the start; no --group."
)
@click.option(
    "--from",
    "start",
    type=parse_start,
    metavar="PLACE",
    default=EARLIEST,
    show_default=True,
    help="Where to begin: earliest, latest, an offset, -N (the last N of each queue), ISO 8601, or how long ago "
    "(-1h). A group begins where it has committed, if it has.",
)
@click.option("--until", type=parse_start, metavar="PLACE", help="End before this offset or time, in each queue.")
@click.option(
    "--queue", "only", multiple=True, metavar="BROKER:ID", help="Only this queue; may be given several times."
)
@click.option("--tag", "tags", help="Only these tags, such as 'new || paid'.")
@click.option("--sql", help='Only what matches this SQL92 expression over properties, such as "price > 3".')
@click.option("-f", "--format", "text", help=f"How to print a message, {DEFAULT_FORMAT} by default: {FORMAT_HELP}.")
@output_option
@json_alias
@click.pass_obj
def consume(
    common: Common,
    topic: str,
    group: str | None,
    count: int | None,
    exit_at_end: bool,
    start: Start,
    until: Start | None,
    only: tuple[str, ...],
    tags: str | None,
    sql: str | None,
    text: str | None,
    output: str,
) -> None:
    """Print the messages of TOPIC. An interrupt ends it in order.

    With -o json, yaml or tsv each message is a record; otherwise it is printed as -f says.
    """
    check_goes_with_group(group, exit_at_end=exit_at_end, until=until, queue=only)
    expression = expression_of(tags, sql)
    queues = [parse_queue(topic, place.replace(":", "/")) for place in only]
    stream = message_stream(text, output)
    settings = {} if group is None else start.of_group()

    async def work() -> None:
        printer = Printer(stream.put, count)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, printer.stop.set)
        async with common.client() as mq:
            if group is None:
                reader = TopicReader(mq, expression, start=start, until=until, queues=queues, exit_at_end=exit_at_end)
                await reader.read(topic, printer)
            else:
                await follow_group(mq, topic, expression, printer, group=group, settings=settings)
        talk(f"got {printer.shown} {'message' if printer.shown == 1 else 'messages'}")

    run(work)


def message_stream(text: str | None, output: str) -> RecordStream[ReceivedMessage]:
    """Return what prints messages; a usage error tells what is wrong with the format *text*."""
    if text is not None and output != "table":
        raise click.UsageError(f"--format does not go with --output {output}")
    try:
        to_bytes: Format = parse_format(DEFAULT_FORMAT if text is None else text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from error
    return RecordStream(output, MESSAGE_KEYS, message_json, to_bytes)
