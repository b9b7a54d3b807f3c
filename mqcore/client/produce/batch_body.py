"""What a producer does for each message that joins a batch: the readable twin of ``mqcore._fast.client.batch``.

Which of the twins runs is chosen in ``codec``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from mqcore.client.model.messages import Message
from mqcore.client.model.receipt import SendReceipt, SendStatus
from mqcore.errors import FrameError, HeaderError, ProtocolError
from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.protocol import message as wire
from mqcore.protocol import properties as names
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.message_id import UniqueIdGenerator

__all__ = [
    "ALONE",
    "MEMBERS_MAX",
    "BatchBody",
    "FutureFields",
    "Joiner",
    "Maker",
    "Receipts",
    "Room",
    "UniqueIdGenerator",
]

MEMBERS_MAX: Final = 4096
"""Messages of one batch: a broker answers with an id of 32 bytes for each, in one header field."""

ALONE: Final = frozenset(
    {
        names.PROPERTY_DELAY_TIME_LEVEL,
        names.PROPERTY_TRANSACTION_PREPARED,
        names.PROPERTY_MESSAGE_TYPE,
        names.PROPERTY_INNER_MULTI_DISPATCH,
        names.PROPERTY_START_DELIVER_TIME,
        *names.TIMER_REQUESTS,
    }
)
"""Properties of messages that a broker treats by themselves; the last three are those of RocketMQ 5."""


class Room:
    """Counts what is under way. ``has_waiters`` is the owner's: while it is set ``try_take`` refuses."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages = self.bytes = 0
        self.has_waiters = False
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()

    def try_take(self, size: int) -> bool:
        """Take room for one message of *size* bytes if there is some and nobody waits for it."""
        return not self.has_waiters and self.take(size)

    def take(self, size: int) -> bool:
        """Take room for one message of *size* bytes if there is some. One larger than all of it may pass alone."""
        with self._lock:
            if self.messages and (self.messages >= self._messages_max or self.bytes + size > self._bytes_max):
                return False
            self.messages += 1
            self.bytes += size
            return True

    def give_back(self, size: int, count: int) -> bool:
        """Give back the room of *count* messages of *size* bytes together; return whether somebody is to be told."""
        with self._lock:
            self.messages -= count
            self.bytes -= size
            return self.has_waiters


class BatchBody:
    """The body of a batch while it is filled, and the ids of its members.

    It is full at *batch_bytes* or MEMBERS_MAX members; messages whose body has *body_size_max* bytes or more may not
    join.
    """

    def __init__(self, batch_bytes: int, body_size_max: int, wait_store_ok: bool) -> None:
        self.ids: list[str] = []
        self.size = 0
        self.bodies_size = 0
        self.is_full = False
        self.wait_store_ok = wait_store_ok
        self._batch_bytes = batch_bytes
        self._body_size_max = body_size_max
        self._members: list[bytes] = []
        self._pid = os.getpid()

    @property
    def count(self) -> int:
        return len(self.ids)

    def append(self, flag: int, properties: dict[str, str], body: bytes, unique_id: str) -> int:
        """Write one member, whose properties hold its id, and return its place.

        On HeaderError or ProtocolError nothing has been written.
        """
        if len(body) > FRAME_LENGTH_MAX:
            raise FrameError(f"body too large: got {len(body)} bytes, wanted at most {FRAME_LENGTH_MAX}")
        member = encode_batch([wire.Message("", body, flag=flag, properties=properties)])
        self._members.append(member)
        self.ids.append(unique_id)
        self.size += len(member)
        self.bodies_size += len(body)
        if self.size >= self._batch_bytes or len(self.ids) >= MEMBERS_MAX:
            self.is_full = True
        return len(self.ids) - 1

    def try_join(self, message: Message, kind: type[Message], unique_ids: UniqueIdGenerator, room: Room) -> int:
        """Take room for *message*, give it an id, write it, and return its place; -1, and nothing done, if it may not.

        Only a message of exactly the type *kind* may, none that a broker treats by itself, and none in a forked child,
        where nobody would send it.
        """
        body = message.body
        if (
            self.is_full
            or self._pid != os.getpid()
            or type(message) is not kind
            or message.delay_level
            or type(body) is not bytes
        ):
            return -1
        if not 0 < len(body) < self._body_size_max or message.wait_store_ok != self.wait_store_ok:
            return -1
        if not ALONE.isdisjoint(message.properties) or not room.try_take(len(body)):
            return -1
        unique_id = unique_ids.next_id()
        try:
            return self.append(message.flag, message.wire_properties() | {ID: unique_id}, body, unique_id)
        except (HeaderError, ProtocolError):
            # The long way finds the words for it.
            room.give_back(len(body), 1)
            return -1

    def take(self) -> bytes:
        """Return the body, and let go of it."""
        body = b"".join(self._members)
        self._members.clear()
        return body


ID: Final = names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX


class Joiner:
    """Lets messages join the open batches of a producer's lanes.

    *lanes* are those of ``batching``, by topic or queue; *when_full* is called with the lane whose batch became full;
    *lock* is that under which batches are filled otherwise.
    """

    def __init__(
        self,
        lanes: Mapping[Any, Any],
        message_kind: type[Message],
        future_kind: type[Any],
        unique_ids: UniqueIdGenerator,
        room: Room,
        when_full: Callable[[Any], object],
        lock: threading.Lock,
    ) -> None:
        self._lanes = lanes
        self._message_kind = message_kind
        self._future_kind = future_kind
        self._unique_ids = unique_ids
        self._room = room
        self._when_full = when_full
        self._lock = lock

    def join(self, message: Message, queue: wire.MessageQueue | None = None) -> Any:
        """Return the future of *message* in the open batch of its lane; None, and nothing done, if it may not join."""
        lane = self._lanes.get(message.topic if queue is None else queue)
        if lane is None:
            return None
        with self._lock:
            batch = lane.open
            body = None if batch is None else batch.body
            if body is None:
                return None
            index = body.try_join(message, self._message_kind, self._unique_ids, self._room)
        if index < 0:
            return None
        if body.is_full:
            self._when_full(lane)
        return self._future_kind(batch, index)


class FutureFields:
    """One place in a batch, and the receipt that will lie there."""

    __slots__ = ("batch", "index")

    def __init__(self, batch: Any, index: int) -> None:
        self.batch = batch
        self.index = index

    def result(self, timeout_s: float | None = None) -> SendReceipt:
        """Wait for the receipt, at most *timeout_s* (then TimeoutError; the message is still sent), and return it."""
        receipts: Receipts | None = self.batch.receipts
        if receipts is not None:
            return receipts.get(self.index)
        receipt: SendReceipt = self.batch.wait_receipt(self.index, timeout_s)
        return receipt


class Receipts:
    """The receipts of a batch that was stored: each is made when it is asked for."""

    def __init__(
        self,
        kind: type[SendReceipt],
        ids: list[str],
        offset_ids: list[str],
        status: SendStatus,
        queue: wire.MessageQueue,
        offset: int,
        transaction_id: str | None,
        region_id: str,
        trace_on: bool,
        recall_handle: str | None = None,
    ) -> None:
        self._kind = kind
        self._ids = ids
        self._offset_ids = offset_ids
        self._status = status
        self._queue = queue
        self._offset = offset
        self._rest = (transaction_id, region_id, trace_on, recall_handle)

    def get(self, index: int) -> SendReceipt:
        """Return the receipt of the message at *index*."""
        offset_id = self._offset_ids[index] if index < len(self._offset_ids) else ""
        return self._kind(self._status, self._ids[index], offset_id, self._queue, self._offset + index, *self._rest)


class Maker:
    """Makes objects of a frozen dataclass with slots from all their values."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind

    def make(self, *values: object) -> Any:
        """Return an object with *values*, in the order of the fields."""
        return self._kind(*values)
