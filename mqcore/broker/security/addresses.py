"""Addresses as texts: which are valid, and how an IPv6 one is spelled out, by Java's rules.

What RocketMQ lets in by address hangs on these spellings, so they are kept to the letter.
Source: RocketMQ acl/common/AclUtils.java; commons-validator routines/InetAddressValidator.java.
"""

from __future__ import annotations

import re
from typing import Final

IPV4: Final = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
PREFIX_LENGTH: Final = re.compile(r"[0-9]{1,3}")
ZONE: Final = re.compile(r"[^\s/%]+")
JAVA_DECIMAL: Final = re.compile(r"[+-]?[0-9]+")
JAVA_HEX: Final = re.compile(r"[+-]?[0-9A-Fa-f]+")
GROUPS: Final = 8


def pieces(text: str, separator: str) -> list[str]:
    """Split *text*; empty pieces do not count."""
    return [piece for piece in text.split(separator) if piece]


def decimal(text: str) -> int | None:
    """The number that Java's parseInt reads, or None."""
    return int(text) if JAVA_DECIMAL.fullmatch(text) else None


def hexadecimal(text: str) -> int | None:
    """The number that Java's parseInt reads to the base of 16, or None."""
    return int(text, 16) if JAVA_HEX.fullmatch(text) else None


def is_ipv4(text: str) -> bool:
    return IPV4.fullmatch(text) is not None and all(int(part) <= 255 for part in text.split("."))


def is_ipv6(text: str) -> bool:
    """Whether *text* is an IPv6 address; a prefix length and a zone may stand behind it."""
    text, *lengths = text.split("/")
    if lengths and not (len(lengths) == 1 and PREFIX_LENGTH.fullmatch(lengths[0]) and int(lengths[0]) <= 128):
        return False
    text, *zones = text.split("%")
    if zones and not (len(zones) == 1 and ZONE.fullmatch(zones[0])):
        return False
    is_compressed = "::" in text
    if text.find("::") != text.rfind("::"):
        return False
    if (text.startswith(":") and not text.startswith("::")) or (text.endswith(":") and not text.endswith("::")):
        return False
    count = _count_groups(_groups(text, is_compressed))
    return count == GROUPS or (is_compressed and 0 <= count < GROUPS)


def _groups(text: str, is_compressed: bool) -> list[str]:
    groups = text.split(":")
    while len(groups) > 1 and not groups[-1]:
        groups.pop()
    if is_compressed and text.endswith("::"):
        groups.append("")
    elif is_compressed and text.startswith("::"):
        del groups[0]
    return groups


def _count_groups(groups: list[str]) -> int:
    """How many groups of 16 bits they stand for; -1 if one is none."""
    count = 0
    before = "-"
    for index, group in enumerate(groups):
        if index == len(groups) - 1 and "." in group:
            return count + 2 if is_ipv4(group) else -1
        number = hexadecimal(group) if group else 0
        if (not group and not before) or len(group) > 4 or number is None or number < 0:
            return -1
        before = group
        count += 1
    return count if len(groups) <= GROUPS else -1


def spelled_out(text: str, groups: int = GROUPS) -> str:
    """The first *groups* groups of an IPv6 address in capitals, four digits each; an IPv4 address stays as it is."""
    text = text.upper()
    missing = groups - text.count(":")
    if missing > 0:
        text = text.replace("::", ":" * (missing + 1))
    return ":".join(group.rjust(4, "0") for group in text.split(":"))
