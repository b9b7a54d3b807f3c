"""The setting ``quotas``: what topics, groups and clients may send and pull in a second.

An entry is kind/name/direction=messages,bytes. A client is an address, without its port. ``*`` stands for each topic,
group or client that has no entry of its own: each of them has such a quota to itself.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from mqcore.layout import QUOTA_RULES_MAX

KINDS: Final = ("topic", "group", "client")
DIRECTIONS: Final = ("send", "pull")
OTHERS: Final = "*"
RATE_MAX: Final = 10**9
NAME_FORM: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
ENTRY_FORM: Final = re.compile(r"([a-z]+)/([^/=;]+)/([a-z]+)=([0-9]{1,10}),([0-9]{1,10})")
WANTED: Final = (
    f"kind/name/direction=messages,bytes separated by ; with kinds {', '.join(KINDS)}, directions send and pull, a "
    f"name, an address or *, and rates from 0 to {RATE_MAX}; each once, {QUOTA_RULES_MAX} at most"
)


class QuotaRule(NamedTuple):
    """One entry, as the workers' kernels take it: numbers of direction and kind, and the packed address of a client."""

    direction: int
    kind: int
    name: bytes
    messages: int
    bytes: int


def parse_quotas(text: str) -> tuple[QuotaRule, ...]:
    """Return the entries of *text*. Raises ValueError with what was wanted."""
    rules = [_parse_entry(part) for part in (part.strip() for part in text.split(";")) if part]
    if len({rule[:3] for rule in rules}) != len(rules) or len(rules) > QUOTA_RULES_MAX:
        raise ValueError(WANTED)
    return tuple(rules)


def _parse_entry(entry: str) -> QuotaRule:
    match = ENTRY_FORM.fullmatch(entry)
    if match is None or match[1] not in KINDS or match[3] not in DIRECTIONS:
        raise ValueError(WANTED)
    messages, size = int(match[4]), int(match[5])
    if max(messages, size) > RATE_MAX:
        raise ValueError(WANTED)
    name = _packed_name(match[1], match[2])
    return QuotaRule(DIRECTIONS.index(match[3]), KINDS.index(match[1]), name, messages, size)


def _packed_name(kind: str, name: str) -> bytes:
    if name == OTHERS:
        return name.encode()
    if kind == "client":
        try:
            return ipaddress.ip_address(name).packed
        except ValueError as error:
            raise ValueError(WANTED) from error
    if not NAME_FORM.fullmatch(name):
        raise ValueError(WANTED)
    return name.encode()
