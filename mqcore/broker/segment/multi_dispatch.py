"""Which queues a message goes into beside its own: what INNER_MULTI_DISPATCH lists, and how many light queues may be.

Light queues are named %LMQ%...; their names are not configured anywhere, so their number is bounded.
Source: RocketMQ store/MultiDispatch.java, store/DefaultMessageStore.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.ports import InnerMessage
from mqcore.config import Settings
from mqcore.errors import StoreError
from mqcore.protocol.names import LMQ_PREFIX, is_lmq
from mqcore.protocol.properties import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    decode_properties,
    encode_properties,
)
from mqcore.store.paths import is_topic

LMQ_QUEUE_ID: Final = 0
_SEPARATOR: Final = ","
_PREFIX: Final = LMQ_PREFIX.encode()


class LightQueues:
    """The light queues of one store that have ever had a message."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = set(names)

    @classmethod
    def on_board(cls, segment: SharedSegment) -> LightQueues:
        """Return those that recovery has put on the board."""
        used = [row for row in range(segment.queue_count()) if segment.queue_word(row, "next_offset") > 0]
        names = [segment.queue_key(row)[0] for row in used]
        return cls(name.decode() for name in names if name.startswith(_PREFIX))

    @property
    def count(self) -> int:
        return len(self._names)

    def count_with(self, names: set[str]) -> int:
        """Return how many there are once each of *names* has a message too."""
        return len(self._names | names)

    def add(self, names: set[str]) -> None:
        self._names |= names

    def forget(self, name: str) -> None:
        """The queue was deleted."""
        self._names.discard(name)


class MultiDispatch:
    """The settings of one broker, applied to a message."""

    def __init__(self, settings: Settings, light_queues: LightQueues) -> None:
        self._enabled = settings.store.enable_multi_dispatch
        self._lmq_enabled = settings.store.enable_lmq
        self._count_max = settings.store.max_lmq_consume_queue_num
        self._light_queues = light_queues

    def queues_of(self, message: InnerMessage) -> list[tuple[str, int]]:
        """Return the queues that *message* goes into beside its own, as the dispatcher will read them.

        Raises StoreError for a name that cannot be that of a queue: a message that is acknowledged must come out.
        """
        listed = message.properties.get(PROPERTY_INNER_MULTI_DISPATCH, "")
        if not self._enabled or not listed.strip():
            return []
        listed = listed.rstrip(_SEPARATOR)
        names = listed.split(_SEPARATOR) if listed else []
        for name in names:
            if not is_topic(name):
                raise StoreError(f"{PROPERTY_INNER_MULTI_DISPATCH}: got {name!r}, wanted the name of a topic")
        return [(name, LMQ_QUEUE_ID if self._lmq_enabled and is_lmq(name) else message.queue_id) for name in names]

    def admits(self, queues: list[tuple[str, int]]) -> bool:
        """Whether maxLmqConsumeQueueNum leaves room for *queues*.

        RocketMQ means to refuse the message and looks at the wrong variable; the queue beyond the bound then makes it
        refuse to read any light queue.
        """
        new = {name for name, _ in queues if is_lmq(name)}
        return not self._lmq_enabled or self._light_queues.count_with(new) <= max(
            self._count_max, self._light_queues.count
        )

    def note(self, queues: list[tuple[str, int]]) -> None:
        """A message was put into *queues*."""
        if self._lmq_enabled:
            self._light_queues.add({name for name, _ in queues if is_lmq(name)})


def text_for_offsets(message: InnerMessage) -> str:
    """Return the properties text of *message* up to where the offsets of further queues follow."""
    properties = decode_properties(message.properties_text)
    properties.pop(PROPERTY_INNER_MULTI_QUEUE_OFFSET, None)
    return encode_properties({**properties, PROPERTY_INNER_MULTI_QUEUE_OFFSET: "0"})[:-1]
