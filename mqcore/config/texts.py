"""Settings whose text has a form of its own: addresses, delay levels, hours, processors.

Each parser raises ValueError with what it wanted; ``rules`` turns that into a ConfigError naming the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DELAY_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
WORKER_KINDS = ("broker", "send", "pull", "reput", "flush", "ha", "schedule")
TOPIC_FORM = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
NAME_FORM = re.compile(r"[^\s/\\\x00-\x1f\x7f]{1,127}")
HOST_FORM = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.%a-z0-9]+\]|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*")


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A host name or address, and a port. *host* carries no brackets; ``str()`` puts them around IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address in "host:port" or "[IPv6]:port"."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) <= 65_535:
        raise ValueError("host:port with a port from 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("brackets around an IPv6 address, as in [::1]:9876")
    if not HOST_FORM.fullmatch(host):
        raise ValueError("host:port with a host name or address")
    return Address(host, int(port))


def parse_addresses(text: str) -> tuple[Address, ...]:
    """The addresses in "host:port;host:port"; empty text has none, and a trailing ; does not count."""
    text = text.strip().rstrip(";")
    return tuple(parse_address(part) for part in text.split(";")) if text else ()


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The delay of each level in milliseconds; entry 0 is level 1. Parts are separated by single spaces."""
    levels = []
    for part in text.split(" "):
        match = re.fullmatch(r"([0-9]{1,9})([smhd])", part)
        if match is None:
            raise ValueError("delays such as 1s 5m 2h 1d, separated by single spaces")
        levels.append(int(match[1]) * DELAY_UNITS_MS[match[2]])
    return tuple(levels)


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


def parse_topic(text: str) -> str:
    if not TOPIC_FORM.fullmatch(text):
        raise ValueError("a topic name: 1 to 127 of % | a-z A-Z 0-9 _ -")
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


def host_and_port(host: str, port: int) -> str:
    """ "host:port" with brackets around an IPv6 host that has none yet."""
    return str(Address(host.removeprefix("[").removesuffix("]"), port))
