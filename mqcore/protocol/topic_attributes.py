"""Attributes of a topic, of RocketMQ 5: which there are, and how a request changes them.

A change is a name behind ``+`` with a value, or behind ``-`` without one. Brokers keep the plain names.

Source: RocketMQ common/TopicAttributes.java, common/attribute/AttributeParser.java and AttributeUtil.java (5.3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqcore.errors import ProtocolError

Attributes = dict[str, str]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: the values that it takes here, and whether a topic that is there may get another one."""

    values: frozenset[str]
    is_changeable: bool
    refusal: str = ""


ATTRIBUTES: Final = {
    "message.type": Attribute(
        frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}), is_changeable=True
    ),
    "queue.type": Attribute(frozenset({"SimpleCQ"}), is_changeable=False, refusal="queues of batches are not there"),
    "cleanup.policy": Attribute(frozenset({"DELETE"}), is_changeable=False, refusal="compaction is not there"),
    "reserve.time": Attribute(frozenset({"-1"}), is_changeable=True, refusal="files are shared by all topics"),
}
"""By name. Of what RocketMQ 5 knows, values that would need what this broker has not are refused."""


def parse_changes(text: str | None) -> Attributes:
    """The changes that the text of a header asks for, ``+name=value,-name``, by signed name.

    Raises ProtocolError for what has no sign, and for a name that comes twice.
    """
    changes: Attributes = {}
    for part in (text or "").split(","):
        if not part:
            continue
        name, equals, value = part.partition("=")
        sign, kind = ("+", "add/alter") if equals else ("-", "delete")
        if not name.startswith(sign):
            raise ProtocolError(f"{kind} attribute format is wrong: {name}")
        if name in changes:
            raise ProtocolError(f"key duplication: {name}")
        changes[name] = value
    return changes


def changed(current: Mapping[str, str] | None, changes: Mapping[str, str]) -> Attributes | None:
    """*current* (None: of a topic that is not there yet) after *changes*; None where none are left.

    Raises ProtocolError for an attribute or a value that is not there, or that may not be changed any more.
    """
    after = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        name = _name(signed)
        if name in seen:
            raise ProtocolError(f"alter duplication key. key: {name}")
        seen.add(name)
        attribute = ATTRIBUTES.get(name)
        if attribute is None:
            raise ProtocolError(f"unsupported key: {name}")
        if current is not None and not attribute.is_changeable:
            raise ProtocolError(f"attempt to update an unchangeable attribute. key: {name}")
        if signed.startswith("+"):
            _check(name, attribute, value)
            after[name] = value
        elif current is None:
            raise ProtocolError(f"only add attribute is supported while creating topic. key: {name}")
        elif after.pop(name, None) is None:
            raise ProtocolError(f"attempt to delete a nonexistent key: {name}")
    return after or None


def _name(signed: str) -> str:
    if len(signed) < 2 or signed[0] not in "+-":
        raise ProtocolError(f"wrong format key: {signed}")
    return signed[1:]


def _check(name: str, attribute: Attribute, value: str) -> None:
    if value not in attribute.values:
        why = f" ({attribute.refusal})" if attribute.refusal else ""
        wanted = " or ".join(sorted(attribute.values))
        raise ProtocolError(f"value is not in set: {value}; {name} is {wanted} here{why}")
