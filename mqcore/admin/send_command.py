"""``mqcore send``: messages from an option, a file, or the lines of standard input."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from mqcore.admin.options import json_alias, output_option
from mqcore.admin.output import RECEIPT_KEYS, RecordStream, receipt_json, talk
from mqcore.admin.progress import count_progress
from mqcore.admin.running import Common, PartialError, guarded, run
from mqcore.admin.send_source import (
    Lines,
    Make,
    Template,
    items,
    json_maker,
    numbered_lines,
    parse_delay,
    parse_deliver_at,
    parse_queue_place,
    plain_maker,
    repeated,
)
from mqcore.admin.sending import Sender, Tally
from mqcore.client.model.receipt import SendReceipt
from mqcore.client.model.selectors import ShardKey
from mqcore.errors import ArgumentError, BaseMQError, ClientError

DEFAULT_GROUP = "mqcore_send"
IN_FLIGHT = 256


def parse_properties(pairs: tuple[str, ...]) -> dict[str, str]:
    """Read ``name=value`` options; a usage error names the one that is not."""
    properties = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"got {pair!r}, wanted name=value", param_hint="--property")
        properties[name] = value
    return properties


def receipt_line(receipt: SendReceipt) -> bytes:
    queue = receipt.queue
    place = f"{queue.topic}/{queue.broker_name}/{queue.queue_id}/{receipt.offset}"
    handle = f"  {receipt.recall_handle}" if receipt.recall_handle else ""
    return f"{receipt.status.name}  {place}  {receipt.msg_id}{handle}\n".encode()


def template_of(
    topic: str,
    *,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    delay: str | None,
    deliver_at: str | None,
    shard_key: str | None,
    queue: str | None,
) -> Template:
    """Return what all messages have; ArgumentError and usage errors name the option that is wrong."""
    if delay is not None and deliver_at is not None:
        raise click.UsageError("give --delay or --deliver-at, not both")
    if shard_key is not None and queue is not None:
        raise click.UsageError("give --shard-key or --queue, not both")
    timing = parse_delay(delay) if delay is not None else {}
    timing |= parse_deliver_at(deliver_at) if deliver_at is not None else {}
    place = None if queue is None else parse_queue_place(topic, queue)
    template = Template(topic, tag, keys, parse_properties(properties), timing, shard_key, place)
    template.item(0, b"")  # which looks at properties and times, before anything is sent
    return template


def source_lines(body: str | None, file: BinaryIO | None, count: int, stream: BinaryIO) -> AsyncIterator[Lines]:
    """Give what to make messages of: *body* or the whole *file* so many times, or *stream* line by line."""
    if body is not None:
        return repeated(body.encode(), count)
    if file is not None:
        return repeated(file.read(), count)
    if stream.isatty():
        talk("each line is a message; end with Ctrl-D")
    return numbered_lines(stream)


def check_end(tally: Tally) -> None:
    """Say what was acknowledged; raise what tells a script that not everything was."""
    count = f"{tally.acknowledged} {'message' if tally.acknowledged == 1 else 'messages'}"
    if tally.unsafe:
        talk(f"{tally.unsafe} of them are stored, but not yet as safely as the broker is told to (see STATUS)")
    if not tally.failed:
        if not tally.acknowledged and tally.stopped_at is None:
            raise ClientError("there was nothing to send")
        talk(f"sent {count}" + ("" if tally.stopped_at is None else f"; stopped before line {tally.stopped_at}"))
        return
    stop = "" if tally.stopped_at is None else f"; stopped before line {tally.stopped_at}, see --errors-max"
    said = f"{count} acknowledged, {len(tally.failed)} failed: {tally.failures()}{stop}"
    first = next(iter(tally.failed.values()))
    if tally.acknowledged:
        raise PartialError(said) from first
    if isinstance(first, BaseMQError) and len(tally.failed) == 1 and tally.stopped_at is None:
        raise first
    raise (ArgumentError if isinstance(first, ArgumentError) else ClientError)(said) from first


@contextmanager
def progress_of(
    show: Callable[[SendReceipt], None], total: int | None, *, quiet: bool
) -> Iterator[Callable[[SendReceipt], None]]:
    """Give what shows receipts, and moves a bar on where that is no nuisance."""
    with count_progress("sending", total, is_shown=quiet or not sys.stdout.isatty()) as count:

        def shown(receipt: SendReceipt) -> None:
            count()
            if not quiet:
                show(receipt)

        yield shown


@click.command()
@click.argument("topic")
@click.option("--body", help="The body. Without --body and --file each line of standard input is a message.")
@click.option("--file", type=click.File("rb"), help="Send the content of this file as one message.")
@click.option("-i", "--input", "stream", type=click.File("rb"), help="Send the lines of this file.")
@click.option("--json-lines", is_flag=True, help="Lines are JSON objects: body, tag, keys, shardKey, queue, ...")
@click.option("-K", "--key-separator", metavar="TEXT", help="Lines are a key, this, and the body.")
@click.option("--tag", help="The tag of each message.")
@click.option("--key", "keys", multiple=True, help="A key of each message; may be given several times.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be given several times.")
@click.option("--shard-key", help="Messages with equal ones go to the same queue, and keep their order.")
@click.option("--queue", metavar="BROKER:ID", help="To this queue.")
@click.option("--delay", help="Delay level, 1 to 18, or a time with its unit: 1500ms, 90s, 5m, 2h, 1d.")
@click.option("--deliver-at", metavar="TIME", help="Not before: ISO 8601, or ms since 1970. For brokers with timers.")
@click.option(
    "-c", "--count", type=click.IntRange(1), default=1, show_default=True, help="How often to send the body or file."
)
@click.option("--rate", type=click.FloatRange(0), default=0, help="Messages a second at most; 0 is no limit.")
@click.option(
    "--in-flight", type=click.IntRange(1), default=IN_FLIGHT, show_default=True, help="Messages under way at most."
)
@click.option(
    "--errors-max",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="End after so many failed messages; 0: never. All that failed are named.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no receipts.")
@click.option("--group", default=DEFAULT_GROUP, show_default=True, help="The producer group.")
@click.option("--recall", "handle", help="Take back a message of TOPIC that waits for its time; send nothing.")
@output_option
@json_alias
@click.pass_obj
def send(
    common: Common,
    topic: str,
    body: str | None,
    file: BinaryIO | None,
    stream: BinaryIO | None,
    json_lines: bool,
    key_separator: str | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    shard_key: ShardKey | None,
    queue: str | None,
    delay: str | None,
    deliver_at: str | None,
    count: int,
    rate: float,
    in_flight: int,
    errors_max: int,
    quiet: bool,
    group: str,
    handle: str | None,
    output: str,
) -> None:
    """Send messages to TOPIC and print where they were stored. An interrupt ends it in order."""
    if sum(given is not None for given in (body, file, stream)) > 1:
        raise click.UsageError("give one of --body, --file and --input")
    is_one = body is not None or file is not None
    if count > 1 and not is_one:
        raise click.UsageError("--count needs --body or --file")
    if key_separator is not None and (json_lines or is_one):
        raise click.UsageError("--key-separator is for lines that are no JSON")
    if handle is not None:
        run(lambda: recall(common, topic, group, handle))
        return
    template = guarded(
        lambda: template_of(
            topic,
            tag=tag,
            keys=keys,
            properties=properties,
            delay=delay,
            deliver_at=deliver_at,
            shard_key=shard_key if isinstance(shard_key, str) else None,
            queue=queue,
        )
    )
    separator = None if key_separator is None else key_separator.encode()
    make: Make = json_maker(template) if json_lines else plain_maker(template, separator)
    source = items(source_lines(body, file, count, stream or sys.stdin.buffer), make)
    printer = RecordStream(output, RECEIPT_KEYS, receipt_json, receipt_line)

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        with progress_of(printer.put, count if is_one else None, quiet=quiet) as show:
            async with common.client() as mq, mq.producer(group) as producer:
                sender = Sender(producer, show, in_flight=in_flight, errors_max=errors_max, rate=rate, stop=stop)
                tally = await sender.send_all(source)
        check_end(tally)

    run(work)


async def recall(common: Common, topic: str, group: str, handle: str) -> None:
    """Take back a message that waits for its time."""
    async with common.client() as mq, mq.producer(group) as producer:
        talk(f"recalled {await producer.recall(topic, handle)}, unless it is due before")
