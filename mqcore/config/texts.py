"""Settings whose text has a form of its own: hours, processors, names, directories.

Each parser raises ValueError with what it wanted; ``rules`` turns that into a ConfigError naming the key.
"""

from __future__ import annotations

import re

from mqcore.address import HOST_FORM, Address, parse_address
from mqcore.layout import TOPIC_FORM, TOPIC_SIZE_MAX, constants

WORKER_KINDS = tuple(kind.lower() for kind in constants("WorkerKind"))
NAME_FORM = re.compile(r"[^\s/\\\x00-\x1f\x7f]{1,127}")


def parse_hours(text: str) -> frozenset[int]:
    """The hours of the day in "04;16"."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts or not all(re.fullmatch(r"[0-9]{1,2}", part) and int(part) < 24 for part in parts):
        raise ValueError("hours from 00 to 23, separated by ;")
    return frozenset(int(part) for part in parts)


def parse_affinity(text: str) -> dict[str, frozenset[int]]:
    """Worker kind to processor numbers, from "send=0;pull=1,3-5". Empty text binds nobody."""
    wanted = "kind=processors separated by ;, as in send=0;pull=1,3-5, with kinds " + ", ".join(WORKER_KINDS)
    bound: dict[str, frozenset[int]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        kind, _, processors = part.partition("=")
        kind = kind.strip()
        if kind not in WORKER_KINDS or kind in bound:
            raise ValueError(wanted)
        numbers: set[int] = set()
        for item in processors.split(","):
            match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", item.strip())
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise ValueError(wanted)
            numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
        bound[kind] = frozenset(numbers)
    return bound


def parse_host(text: str) -> str:
    """A host name or address, as it may stand before ":port"."""
    if not HOST_FORM.fullmatch(text):
        raise ValueError("a host name or address without a port")
    return text


def parse_name(text: str) -> str:
    """A broker or cluster name. It is a topic name too, and so a directory name: nothing that could leave the store."""
    if not NAME_FORM.fullmatch(text) or text in (".", ".."):
        raise ValueError("a name of 1 to 127 characters without blanks and slashes")
    return text


def parse_endpoints(text: str) -> tuple[Address, ...]:
    """The addresses in "host:port,host:port", each once; empty text has none."""
    if not text:
        return ()
    try:
        return tuple(dict.fromkeys(parse_address(part) for part in text.split(",")))
    except ValueError as error:
        raise ValueError(f"{error}, several separated by commas") from None


def parse_topic(text: str) -> str:
    if not TOPIC_FORM.fullmatch(text):
        raise ValueError(f"a topic name: 1 to {TOPIC_SIZE_MAX} of % | a-z A-Z 0-9 _ -")
    return text


def parse_directory(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("a directory")
    return text


def parse_directories(text: str, splitter: str) -> tuple[str, ...]:
    """The directories in "/a,/b", each once and without blanks around it; empty ones do not count."""
    if not splitter or "/" in splitter or "\0" in text:
        raise ValueError("directories with what separates them, which is not empty and has no slash")
    return tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(splitter)))))
