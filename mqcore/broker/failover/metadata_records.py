"""What the records of the metadata topic say: JSON, of one kind each.

A kind that is not known is of a later mqcore, and passed over: a group is updated one broker after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

import orjson

from mqcore.errors import ProtocolError

VERSION: Final = 1


class MetadataKind(StrEnum):
    """What a record tells of, and which members it has beside ``kind`` and ``v``."""

    TOPICS = "topics"
    """``put``: topics by name, as in topics.json; ``gone``: names; ``version``: of the table, null if more follows."""
    GROUPS = "groups"
    """The same of consumer groups."""
    CONSUMER_OFFSETS = "consumerOffsets"
    """``offsets``: [topic, group, queue id, offset], -1 = taken away; only what has changed."""
    DELAY_OFFSETS = "delayOffsets"
    """``offsets``: [level, offset]; only what has changed."""
    DROPPED_QUEUES = "droppedQueues"
    """``queues``: [topic, queue id]; ``born``: what of theirs starts before is dead, bytes."""


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """One record. *kind* is the text that stands in it, whether or not it is a MetadataKind."""

    kind: str
    content: dict[str, Any]

    def encode(self) -> bytes:
        return orjson.dumps({"v": VERSION, "kind": self.kind, **self.content})

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a record's body. Raises ProtocolError for what no mqcore has written."""
        try:
            content: dict[str, Any] = orjson.loads(body)
            kind = content.pop("kind")
            content.pop("v")
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise ProtocolError(f"metadata record: got {body[:200]!r}, wanted an object with kind and v") from error
        return cls(str(kind), content)
