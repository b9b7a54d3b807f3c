"""Patterns of addresses that need no signature: ``*``, ``10.0.0.{1,2}``, ``10.0.1-9.*``, lists, and so with IPv6.

Source: RocketMQ acl/plain/RemoteAddressStrategyFactory.java. A pattern over which RocketMQ stumbles only when a client
comes, and then refuses every client, is refused here when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from mqcore.broker.security.addresses import decimal, hexadecimal, is_ipv4, is_ipv6, pieces, spelled_out

EVERYBODY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
GROUP_WIDTH: Final = 5  # of a group spelled out, its colon included
WANTED: Final = (
    "an address, a list of them between commas, * for everybody, or a pattern like 10.0.0.{1,2}, 10.0.1-9.*, "
    "2001:db8::{1,2} or 2001:db8:1-f:*"
)


class AddressPattern(Protocol):
    """Some addresses."""

    def matches(self, address: str) -> bool:
        """Whether *address*, numbers without a port, is among them."""
        ...


@dataclass(frozen=True, slots=True)
class Nobody:
    def matches(self, address: str) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Everybody:
    def matches(self, address: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Listed:
    """These, and no others; spelled out."""

    addresses: frozenset[str]

    def matches(self, address: str) -> bool:
        return (spelled_out(address) if is_ipv6(address) else address) in self.addresses


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Those that begin with *head*, and have a number from *first* to *last* behind it; what follows is free."""

    head: str
    index: int
    first: int
    last: int

    def matches(self, address: str) -> bool:
        number: int | None = None
        if is_ipv4(address):
            if address.startswith(self.head):
                number = decimal(address.split(".")[self.index])
        elif is_ipv6(address):
            spelled = spelled_out(address)
            if spelled.startswith(self.head):
                at = GROUP_WIDTH * self.index
                number = hexadecimal(spelled[at : at + GROUP_WIDTH - 1])
        return number is not None and self.first <= number <= self.last


def parse_pattern(text: str | None) -> AddressPattern:
    """The addresses that *text* stands for; none for a blank one. Raises ValueError with what was got and wanted."""
    if text is None or not text.strip():
        return Nobody()
    if text in EVERYBODY:
        return Everybody()
    if text.endswith("}"):
        return _listed(text, _spread(text))
    if "," in text:
        return _listed(text, pieces(text, ","))
    if "*" in text or "-" in text:
        return _ipv6_range(text) if ":" in text else _ipv4_range(text)
    return _listed(text, [text])


def _bad(text: str) -> ValueError:
    return ValueError(f"got {text!r}, wanted {WANTED}")


def _spread(text: str) -> list[str]:
    """The addresses of a pattern with a choice in braces at its end."""
    parts = pieces(text, ":" if ":" in text else ".")
    if not parts[-1].startswith("{") or (":" not in text and len(parts) < 4):
        raise _bad(text)
    head = text[: text.index("{")]
    return [head + choice for choice in pieces(parts[-1][1:-1], ",")]


def _listed(text: str, addresses: list[str]) -> Listed:
    if not all(is_ipv4(address) or is_ipv6(address) for address in addresses):
        raise _bad(text)
    return Listed(frozenset(address if is_ipv4(address) else spelled_out(address) for address in addresses))


def _ipv4_range(text: str) -> NumberRange:
    parts = [part.strip() for part in pieces(text, ".")]
    if len(parts) != 4:
        raise _bad(text)
    first = last = 0
    for index in (1, 2, 3):
        first, last = _bounds(text, parts[index], 10, (first, last))
        if last > 0:
            before = [decimal(part) for part in parts[: index - 1]]
            if any(number is None or not 0 <= number <= 255 for number in before):
                raise _bad(text)
            return NumberRange("".join(f"{part}." for part in parts[:index]), index, first, last)
    raise _bad(text)


def _ipv6_range(text: str) -> NumberRange:
    _check_ipv6_range(text)
    parts = pieces(text, ":")
    first = last = 0
    for index, part in enumerate(parts[1:], 1):
        first, last = _bounds(text, part.strip(), 16, (first, last))
        if last > 0:
            before = [hexadecimal(group) for group in pieces(spelled_out(text), ":")[: index - 1]]
            if any(number is None or not 0 <= number <= 0xFFFF for number in before):
                raise _bad(text)
            head = _ipv6_head(text)
            return NumberRange(head, len(pieces(head, ":")), first, last)
    raise _bad(text)


def _check_ipv6_range(text: str) -> None:
    """The star stands at the end, and the range in the last group, or in the one before the star."""
    star, minus = text.find("*"), text.find("-")
    last_colon = text.rfind(":")
    if star >= 0 and star != len(text) - 1:
        raise _bad(text)
    if minus >= 0 and minus <= (last_colon if star < 0 else text.rfind(":", 0, last_colon)):
        raise _bad(text)


def _ipv6_head(text: str) -> str:
    """What stands before the range and the star, spelled out."""
    head = text[: text.rfind(":")]
    if "*" in text and "-" in text:
        return spelled_out(head[: head.rfind(":")], 6)
    return spelled_out(head, 7)


def _bounds(text: str, part: str, base: int, so_far: tuple[int, int]) -> tuple[int, int]:
    """The first and the last number that *part* lets through; *so_far* if it is a number."""
    most = 255 if base == 10 else 0xFFFF
    if part == "*":
        return 0, most
    if "-" not in part:
        return so_far
    ends = [decimal(end) if base == 10 else hexadecimal(end) for end in pieces(part, "-")]
    if part.startswith("-") or len(ends) < 2 or ends[0] is None or ends[1] is None:
        raise _bad(text)
    if not 0 <= ends[0] <= ends[1] <= most:
        raise _bad(text)
    return ends[0], ends[1]
