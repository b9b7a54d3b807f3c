"""Cutting a long list of messages into batches that a broker takes.

The limit counts the encoded body of a batch, in which each message has its head and its properties; the list keeps its
order. A message whose body is allowed, but which is too large for a batch of its own, goes alone and not as a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mqcore.client.errors import InvalidMessageError
from mqcore.protocol.batch import FIXED_SIZE
from mqcore.protocol.properties import encode_properties


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A run of a list: the messages from *first* up to, not including, *end*; *is_batch* says how they go."""

    first: int
    end: int
    is_batch: bool


def member_size(body: bytes, properties: dict[str, str]) -> int:
    """Return the bytes that a message takes in the body of a batch."""
    return FIXED_SIZE + len(body) + len(encode_properties(properties).encode("utf-8", "replace"))


def split_batch(sizes: Sequence[int], size_max: int) -> Iterator[BatchPart]:
    """Cut a list of messages with member *sizes* into as few parts as its order allows, each of at most *size_max*."""
    first, size = 0, 0
    for at, of_member in enumerate(sizes):
        if size and size + of_member > size_max:
            yield BatchPart(first, at, is_batch=True)
            first, size = at, 0
        if of_member > size_max:
            yield BatchPart(at, at + 1, is_batch=False)
            first = at + 1
        else:
            size += of_member
    if size:
        yield BatchPart(first, len(sizes), is_batch=True)


def whole_batch(sizes: Sequence[int], size_max: int) -> BatchPart:
    """Return the whole list as one batch; raise InvalidMessageError when it is too large for that."""
    size = sum(sizes)
    if size > size_max:
        raise InvalidMessageError(f"the message body size over max value, MAX: {size_max}")
    return BatchPart(0, len(sizes), is_batch=True)
