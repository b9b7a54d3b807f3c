"""What can be compared of an answer: code, remark, header fields, and the shape of the body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqcore.errors import ProtocolError
from mqcore.protocol import fastjson
from mqcore.protocol.command import RemotingCommand

# An exception of Java's, with its class and often the line that threw it, which nobody else can have.
JAVA: Final = re.compile(r"^(?:java|javax|com\.alibaba|org\.apache|io\.netty)\.[\w.$]+|RuntimeException|Exception")
# What was refused by one of two brokers is not in its log: places there are not compared.
_ID: Final = re.compile(r"\b7F000001(?:[0-9A-F]{24}|[0-9A-F]{48})\b")
_ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")
_TIME: Final = re.compile(r"\b1[6-9]\d{11}\b")
_HELP: Final = re.compile(r"See (?:http://rocketmq\.apache\.org/docs/faq/|docs/errors\.md#[a-z-]+) for further details")
_CLOCK: Final = re.compile(r"\b20\d\d-\d\d-\d\d#\d\d:\d\d:\d\d:\d{3}")
_PATH: Final = re.compile(r"/tmp/[\w./-]+")
_PROPERTY: Final = re.compile(rb"^[\w.]+=", re.MULTILINE)
# Numbers that two brokers in the same state may well differ in.
_MEASURED: Final = re.compile(
    r"(?i)time|phy\w*offset|queueoffset|counter|version|tps|size$|sum|avgpt|timestamp|lock|latency"
)
EXCEPTION: Final = "<an exception>"
ACL_EXCEPTION: Final = "AclException"
# What access control refuses, and behind it the line of Java code that threw it.
REFUSED: Final = re.compile(
    rf"org\.apache\.rocketmq\.acl\.common\.{ACL_EXCEPTION}: (.*?)(?:, org\.apache\.[\w.$]+\([\w.]+:\d+\))?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer as far as it can be compared; ``code`` -1 is a connection that the server has closed instead."""

    code: int
    remark: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    body: str = ""

    def __str__(self) -> str:
        return f"code {self.code}, remark {self.remark!r}, fields {dict(self.fields)}, body {self.body[:600]}"


CLOSED: Final = Seen(-1)


def seen(answer: RemotingCommand | None) -> Seen:
    """What can be compared of *answer*."""
    if answer is None:
        return CLOSED
    fields = answer.ext_fields or {}
    shown = tuple(sorted((name, _value(name, text)) for name, text in fields.items()))
    return Seen(answer.code, _remark(answer.remark or ""), shown, _body(answer.body))


def _remark(text: str) -> str:
    if refused := REFUSED.fullmatch(text):
        return f"{ACL_EXCEPTION}: {plain(refused[1])}"
    return EXCEPTION if JAVA.search(text) else plain(text)


def plain(text: str) -> str:
    """*text* without addresses, ids, times and paths; and RocketMQ's link, which is dead, is as good as ours."""
    for pattern, substitute in (
        (_ID, "<id>"),
        (_CLOCK, "<time>"),
        (_ADDRESS, "<address>"),
        (_TIME, "<ms>"),
        (_PATH, "<path>"),
        (_HELP, "<help>"),
    ):
        text = pattern.sub(substitute, text)
    return text


def _value(name: str, text: str) -> str:
    if text.startswith(("{", "[")):
        return _json(text) or plain(text)
    return "<n>" if _MEASURED.search(name) and text != "0" else plain(text)


def _body(body: bytes) -> str:
    if not body:
        return ""
    text = body.decode("utf-8", "replace")
    if text.startswith(("{", "[")) and (shown := _json(text)):
        return shown
    names = _PROPERTY.findall(body)
    if names and b"\n" in body:
        return "settings " + " ".join(sorted({name.decode().rstrip("=") for name in names}))
    return f"{len(body)} bytes"


def _json(text: str) -> str:
    try:
        return repr(_shape(fastjson.loads(text.encode()), ""))
    except (ProtocolError, ValueError):
        return ""


def _shape(value: Any, name: str) -> Any:
    """*value* with its names and kinds, and those values that do not depend on the hour."""
    if isinstance(value, Mapping):
        if name == "table":  # of the runtime: all are measured, as texts
            return sorted({plain(str(key)) for key in value})
        members = ((_name(key), _shape(member, str(key))) for key, member in value.items())
        return dict(sorted(members, key=lambda pair: pair[0]))
    if isinstance(value, list):
        return _unordered(_shape(member, name) for member in value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return "<n>" if _MEASURED.search(name) or value > 10**12 else value
    return plain(str(value))


def _name(key: Any) -> str:
    return repr(_shape(key, "")) if isinstance(key, Mapping) else plain(str(key))


def _unordered(members: Iterable[Any]) -> list[Any]:
    return sorted(members, key=repr)
