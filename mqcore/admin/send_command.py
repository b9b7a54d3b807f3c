"""``mqcore send``: messages from an option, a file, or the lines of standard input."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import repeat
from typing import Any, BinaryIO

import click

from mqcore.admin.output import print_json, receipt_json, talk, write
from mqcore.admin.running import Common, PartialError, run
from mqcore.client.model.messages import Message
from mqcore.client.model.receipt import SendReceipt
from mqcore.client.produce.producer import Producer
from mqcore.delay_levels import DELAY_LEVEL_MAX
from mqcore.errors import ClientError, MQError

DEFAULT_GROUP = "mqcore_send"
UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_properties(pairs: tuple[str, ...]) -> dict[str, str]:
    """Read ``name=value`` options; a usage error names the one that is not."""
    properties = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"got {pair!r}, wanted name=value", param_hint="--property")
        properties[name] = value
    return properties


def parse_delay(text: str) -> dict[str, Any]:
    """Read ``--delay``: what Message takes for it. A time that is no level takes a timer."""
    number = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)?", text)
    if number is None:
        raise click.BadParameter(f"got {text!r}, wanted a level, or a time such as 90s", param_hint="--delay")
    if number[2] is not None:
        return {"delay": int(number[1]) * UNITS_S[number[2]]}
    if int(number[1]) > DELAY_LEVEL_MAX:
        raise click.BadParameter(f"got level {text}, wanted 0 to {DELAY_LEVEL_MAX}", param_hint="--delay")
    return {"delay_level": int(number[1])}


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Give the lines of *stream* without their ends; empty ones are no messages."""
    for line in stream:
        body = line.rstrip(b"\r\n")
        if body:
            yield body


def bodies(body: str | None, file: BinaryIO | None, count: int) -> Iterator[bytes]:
    """Give the bodies to send: *body* or the whole *file* so many times, or standard input line by line."""
    if body is not None:
        return repeat(body.encode(), count)
    if file is not None:
        return repeat(file.read(), count)
    stream = sys.stdin.buffer
    if stream.isatty():
        talk("each line is a message; end with Ctrl-D")
    return lines_of(stream)


def receipt_line(receipt: SendReceipt) -> bytes:
    queue = receipt.queue
    place = f"{queue.topic}/{queue.broker_name}/{queue.queue_id}/{receipt.offset}"
    handle = f"  {receipt.recall_handle}" if receipt.recall_handle else ""
    return f"{receipt.status.name}  {place}  {receipt.msg_id}{handle}\n".encode()


async def send_all(producer: Producer, template: Message, source: Iterator[bytes], *, as_json: bool) -> None:
    """Send one after the other, so that messages of one queue keep their order, and print each receipt."""
    sent = 0
    try:
        for body in source:
            message = Message(
                template.topic,
                body,
                tag=template.tag,
                keys=template.keys,
                properties=template.properties,
                delay_level=template.delay_level,
            )
            receipt = await producer.send(message)
            sent += 1
            if as_json:
                print_json(receipt_json(receipt))
            else:
                write(receipt_line(receipt))
    except MQError as error:
        if sent:
            raise PartialError(f"stopped after {sent} messages: {error}") from error
        raise
    if not sent:
        raise ClientError("there was nothing to send")
    talk(f"sent {sent} {'message' if sent == 1 else 'messages'}")


@click.command()
@click.argument("topic")
@click.option("--body", help="The body. Without --body and --file each line of standard input is a message.")
@click.option("--file", type=click.File("rb"), help="Send the content of this file as one message.")
@click.option("--tag", help="The tag of each message.")
@click.option("--key", "keys", multiple=True, help="A key of each message; may be given several times.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be given several times.")
@click.option("--delay", default="0", help="Delay level, 1 to 18, or a time with its unit: 1500ms, 90s, 5m, 2h, 1d.")
@click.option(
    "--count", type=click.IntRange(1), default=1, show_default=True, help="How often to send the body or file."
)
@click.option("--group", default=DEFAULT_GROUP, show_default=True, help="The producer group.")
@click.option("--recall", "handle", help="Take back a message of TOPIC that waits for its time; send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print receipts as JSON, one per line.")
@click.pass_obj
def send(
    common: Common,
    topic: str,
    body: str | None,
    file: BinaryIO | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    delay: str,
    count: int,
    group: str,
    handle: str | None,
    as_json: bool,
) -> None:
    """Send messages to TOPIC and print where they were stored."""
    if body is not None and file is not None:
        raise click.UsageError("give --body or --file, not both")
    if count > 1 and body is None and file is None:
        raise click.UsageError("--count needs --body or --file")
    given = parse_properties(properties)
    held_back = parse_delay(delay)

    async def recall() -> None:
        assert handle is not None
        async with common.client() as mq, mq.producer(group) as producer:
            talk(f"recalled {await producer.recall(topic, handle)}, unless it is due before")

    if handle is not None:
        run(recall)
        return

    async def work() -> None:
        template = Message(topic, b"", tag=tag, keys=keys, properties=given, **held_back)
        async with common.client() as mq, mq.producer(group) as producer:
            await send_all(producer, template, bodies(body, file, count), as_json=as_json)

    run(work)
