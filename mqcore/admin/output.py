"""What the command line prints: data to standard output, talk to standard error.

On a terminal tables are drawn by rich, which heeds NO_COLOR; in a pipe they are plain columns, never wrapped or cut.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from mqcore.client.messages import ReceivedMessage, SendReceipt

OUTPUTS = ("table", "json")


def talk(text: str) -> None:
    """Tell the user something that is not data."""
    click.echo(text, err=True)


def print_json(value: Any) -> None:
    """Print one JSON value on one line."""
    write(orjson.dumps(value) + b"\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print *rows* under *columns*."""
    texts = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        table = Table(*columns, box=None, header_style="bold")
        for row in texts:
            table.add_row(*row)
        Console().print(table)
        return
    lines = [list(columns), *texts]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def write(data: bytes) -> None:
    """Write bytes to standard output, and on to whoever reads it."""
    stream = sys.stdout.buffer
    stream.write(data)
    stream.flush()


def receipt_json(receipt: SendReceipt) -> dict[str, Any]:
    """Return the members that ``send --json`` prints."""
    return {
        "status": receipt.status.name,
        "msgId": receipt.msg_id,
        "offsetMsgId": receipt.offset_msg_id,
        "topic": receipt.queue.topic,
        "broker": receipt.queue.broker_name,
        "queueId": receipt.queue.queue_id,
        "offset": receipt.offset,
    }


def message_json(message: ReceivedMessage) -> dict[str, Any]:
    """Return the members that ``consume --json`` prints; a body that is not UTF-8 stands in base64 as bodyBase64."""
    members: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "offset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
    }
    try:
        members["body"] = message.body.decode()
    except UnicodeDecodeError:
        members["bodyBase64"] = base64.b64encode(message.body).decode()
    return members


FORMAT_LETTERS: dict[str, Callable[[ReceivedMessage], bytes]] = {
    "t": lambda message: message.topic.encode(),
    "b": lambda message: message.queue.broker_name.encode(),
    "q": lambda message: str(message.queue.queue_id).encode(),
    "o": lambda message: str(message.queue_offset).encode(),
    "i": lambda message: message.msg_id.encode(),
    "g": lambda message: (message.tag or "").encode(),
    "k": lambda message: " ".join(message.keys).encode(),
    "d": lambda message: str(message.store_timestamp).encode(),
    "p": lambda message: orjson.dumps(dict(message.properties)),
    "v": lambda message: message.body,
    "%": lambda message: b"%",
}
FORMAT_HELP = (
    "%t topic, %b broker, %q queue id, %o offset, %i message id, %g tag, %k keys, %d store time in ms, "
    "%p properties as JSON, %v body, %% a percent sign; \\n \\t \\\\ as usual"
)
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def parse_format(text: str) -> Callable[[ReceivedMessage], bytes]:
    """Return a function that writes a message as *text* says; ValueError names the letter that is not known."""
    pieces: list[Callable[[ReceivedMessage], bytes]] = []
    at = 0
    while at < len(text):
        mark, letter = text[at], text[at + 1 : at + 2]
        if mark == "%":
            if letter not in FORMAT_LETTERS:
                raise ValueError(f"unknown %{letter} in the format: {FORMAT_HELP}")
            pieces.append(FORMAT_LETTERS[letter])
            at += 2
        elif mark == "\\":
            if letter not in ESCAPES:
                raise ValueError(f"unknown \\{letter} in the format: {FORMAT_HELP}")
            pieces.append(literal(ESCAPES[letter]))
            at += 2
        else:
            pieces.append(literal(mark.encode()))
            at += 1
    return lambda message: b"".join(piece(message) for piece in pieces)


def literal(data: bytes) -> Callable[[ReceivedMessage], bytes]:
    return lambda message: data
