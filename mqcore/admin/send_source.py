"""What ``mqcore send`` sends: one message several times, lines, or lines of JSON, each with what is wrong with it.

A line of JSON is an object with the members of JSON_MEMBERS. What ``consume -o json`` prints is such a line, too: what
says where the message lay is passed over, and so are properties of the system.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final

import orjson

from mqcore.client.model.messages import Message
from mqcore.client.model.selectors import ShardKey
from mqcore.client.settings.configuration import nearest
from mqcore.delay_levels import DELAY_LEVEL_MAX
from mqcore.errors import ArgumentError, ClientError, MisuseError
from mqcore.protocol import properties as names
from mqcore.protocol.message import MessageQueue

READ_SIZE: Final = 1 << 16
PORTION: Final = 1000
PORTIONS_AHEAD: Final = 4
UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
JSON_MEMBERS: Final = {
    "body": "text, or any other JSON value, which is sent as JSON",
    "bodyBase64": "bytes, instead of body",
    "tag": "the tag",
    "keys": "a list of keys, or one key",
    "properties": "an object of texts",
    "shardKey": "messages with equal ones go to the same queue",
    "queue": "broker:id",
    "delay": "a delay level, or a time such as 90s",
    "deliverAt": "ISO 8601, or ms since 1970",
}
PASSED_OVER: Final = frozenset(
    {
        *("topic", "broker", "queueId", "offset", "msgId", "offsetMsgId", "bornTimestamp", "storeTimestamp"),
        *("reconsumeTimes", "bornHost", "sysFlag", "flag", "originTopic"),
    }
)
"""What our own commands print of a message, and a new one does not have."""


@dataclass(frozen=True, slots=True)
class Template:
    """What all messages of a command have, unless a line says otherwise."""

    topic: str
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    timing: Mapping[str, Any] = field(default_factory=dict)
    """``delay_level``, ``delay`` or ``deliver_at`` of Message."""
    shard_key: ShardKey | None = None
    queue: MessageQueue | None = None

    def item(self, line: int, body: bytes) -> Item:
        message = Message(
            self.topic, body, tag=self.tag, keys=self.keys, properties=self.properties, **dict(self.timing)
        )
        return Item(line, message, self.queue, self.shard_key)


@dataclass(frozen=True, slots=True)
class Item:
    """One message to send. *line* is its number, from 1."""

    line: int
    message: Message
    queue: MessageQueue | None = None
    shard_key: ShardKey | None = None


Make = Callable[[int, bytes], Item]
"""Makes a message of a line; ArgumentError says what is wrong with it."""


def parse_delay(text: str) -> dict[str, Any]:
    """Read a delay: what Message takes for it. A time that is no level takes a timer. ArgumentError for none."""
    number = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)?", text)
    if number is None:
        raise ArgumentError(f"delay: got {text!r}, wanted a level, or a time such as 90s")
    if number[2] is not None:
        return {"delay": int(number[1]) * UNITS_S[number[2]]}
    if int(number[1]) > DELAY_LEVEL_MAX:
        raise ArgumentError(f"delay: got level {text}, wanted 0 to {DELAY_LEVEL_MAX}")
    return {"delay_level": int(number[1])}


def parse_deliver_at(value: object) -> dict[str, Any]:
    """Read when to deliver: ISO 8601 (UTC when it names no zone), or ms since 1970. ArgumentError for none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"deliver_at": value}
    if isinstance(value, str) and value.isdecimal():
        return {"deliver_at": int(value)}
    try:
        found = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise ArgumentError(f"deliverAt: got {value!r}, wanted ISO 8601, or ms since 1970") from None
    return {"deliver_at": found if found.tzinfo is not None else found.replace(tzinfo=UTC)}


def parse_queue_place(topic: str, text: object) -> MessageQueue:
    """Read ``broker:id``, or ``broker/id``. ArgumentError for what is neither."""
    broker, _, queue_id = str(text).replace("/", ":").rpartition(":")
    if not broker or not queue_id.isdecimal():
        raise ArgumentError(f"queue: got {text!r}, wanted broker:id, such as broker-a:0")
    return MessageQueue(topic, broker, int(queue_id))


Lines = list[tuple[int, bytes]]
"""Lines with their numbers, without their ends."""


async def repeated(body: bytes, count: int) -> AsyncIterator[Lines]:
    """Give one body so many times."""
    for first in range(1, count + 1, PORTION):
        yield [(number, body) for number in range(first, min(first + PORTION, count + 1))]


async def numbered_lines(stream: BinaryIO) -> AsyncIterator[Lines]:
    """Give the lines of *stream* as they come; empty ones are no messages.

    A thread reads, so that what is under way goes on meanwhile. It is a daemon: nobody waits for a line that does not
    come, when the program ends.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[Lines | BaseException | None] = asyncio.Queue()
    # A place for each portion that is ahead. (A coroutine for each put would be left over where the loop ends first.)
    room = threading.Semaphore(PORTIONS_AHEAD)
    is_over = threading.Event()

    def put(found: Lines | BaseException | None) -> None:
        room.acquire()
        if is_over.is_set():
            raise _NobodyReadsError
        loop.call_soon_threadsafe(ready.put_nowait, found)

    def read() -> None:
        with contextlib.suppress(RuntimeError, _NobodyReadsError):  # the loop has ended
            try:
                for portion in portions(stream):
                    put(portion)
                put(None)
            except OSError as error:
                put(error)

    threading.Thread(target=read, name="mqcore lines", daemon=True).start()
    try:
        while (found := await ready.get()) is not None:
            room.release()
            if isinstance(found, BaseException):
                raise ClientError(f"reading lines: {found}") from found
            yield found
    finally:
        is_over.set()
        room.release()


class _NobodyReadsError(Exception):
    """Who wanted the lines has gone."""


def reader_of(stream: BinaryIO) -> Callable[[int], bytes]:
    """Return what reads some of *stream*: of a file by its descriptor.

    A thread that waits in the stream itself holds its lock, with which the interpreter cannot end.
    """
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError):  # no file: io.UnsupportedOperation is an OSError
        return getattr(stream, "read1", stream.read)
    return lambda size: os.read(descriptor, size)


def portions(stream: BinaryIO) -> Iterator[Lines]:
    """Give what there is of *stream*, as it comes, in whole lines."""
    read = reader_of(stream)
    number, rest = 0, b""
    while data := read(READ_SIZE):
        *whole, rest = (rest + data).split(b"\n")
        lines = list(enumerate(whole, number + 1))
        number += len(whole)
        yield [(at, line.rstrip(b"\r")) for at, line in lines if line.rstrip(b"\r")]
    if rest.rstrip(b"\r"):
        yield [(number + 1, rest.rstrip(b"\r"))]


def plain_maker(template: Template, separator: bytes | None) -> Make:
    """Return what makes messages of lines: bodies, or keys and bodies with *separator* between them."""

    def make(number: int, line: bytes) -> Item:
        if separator is None:
            return template.item(number, line)
        key, found, body = line.partition(separator)
        if not found:
            raise ArgumentError(f"no {separator.decode()!r} between key and body")
        return replace(template, keys=(*template.keys, key.decode("utf-8", "replace"))).item(number, body)

    return make


def json_maker(template: Template) -> Make:
    """Return what makes messages of lines of JSON."""

    def make(number: int, line: bytes) -> Item:
        try:
            members = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ArgumentError(f"no JSON: {error}") from None
        if not isinstance(members, dict):
            raise ArgumentError(f"got {line[:40].decode('utf-8', 'replace')}, wanted a JSON object")
        unknown = next((name for name in members if name not in JSON_MEMBERS and name not in PASSED_OVER), None)
        if unknown is not None:
            raise ArgumentError(f"unknown member {unknown!r}{nearest(unknown, JSON_MEMBERS)}")
        return filled(template, members).item(number, body_of(members))

    return make


def filled(template: Template, members: Mapping[str, Any]) -> Template:
    """Return *template* with what a line says."""
    changes: dict[str, Any] = {}
    if members.get("tag") is not None:
        changes["tag"] = text_of("tag", members["tag"])
    if members.get("keys"):
        keys = members["keys"] if isinstance(members["keys"], list) else [members["keys"]]
        changes["keys"] = tuple(text_of("keys", key) for key in keys)
    if members.get("properties"):
        changes["properties"] = {**template.properties, **properties_of(members["properties"])}
    if members.get("shardKey") is not None:
        changes["shard_key"] = shard_key_of(members["shardKey"])
    if members.get("queue") is not None:
        changes["queue"] = parse_queue_place(template.topic, members["queue"])
    if members.get("delay") is not None and members.get("deliverAt") is not None:
        raise ArgumentError("give delay or deliverAt, not both")
    if members.get("delay") is not None:
        changes["timing"] = parse_delay(str(members["delay"]))
    if members.get("deliverAt") is not None:
        changes["timing"] = parse_deliver_at(members["deliverAt"])
    return replace(template, **changes)


def shard_key_of(value: object) -> ShardKey:
    if not isinstance(value, str | int | float | bool):
        raise ArgumentError(f"shardKey: got {value!r}, wanted text, a number or a boolean")
    return value


def text_of(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"{name}: got {value!r}, wanted text")
    return value


def properties_of(value: object) -> dict[str, str]:
    """Return the properties that a new message may have."""
    if not isinstance(value, dict):
        raise ArgumentError(f"properties: got {value!r}, wanted an object")
    return {name: text_of(name, found) for name, found in value.items() if name not in names.RESERVED_NAMES}


def body_of(members: Mapping[str, Any]) -> bytes:
    """Return the body of a line's message."""
    if ("body" in members) is ("bodyBase64" in members):
        raise ArgumentError("give body or bodyBase64")
    if "body" in members:
        body = members["body"]
        return body.encode() if isinstance(body, str) else orjson.dumps(body)
    try:
        return base64.b64decode(text_of("bodyBase64", members["bodyBase64"]), validate=True)
    except binascii.Error as error:
        raise ArgumentError(f"bodyBase64: {error}") from None


async def items(lines: AsyncIterator[Lines], make: Make) -> AsyncIterator[list[tuple[int, Item | ArgumentError]]]:
    """Give a message, or what is wrong, for each line."""
    async for portion in lines:
        yield [(number, made(make, number, line)) for number, line in portion]


def made(make: Make, number: int, line: bytes) -> Item | ArgumentError:
    try:
        return make(number, line)
    except MisuseError as error:
        return error if isinstance(error, ArgumentError) else ArgumentError(str(error))
