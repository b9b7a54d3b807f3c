"""How far a run of the log fills its queues: the twin of _fast/log/queue_ends.pyx.

By the records alone, for a log whose consume queues are not built yet. Queues into which a message goes besides its own
(INNER_MULTI_DISPATCH) are not counted. Nothing here opens a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mqcore.codes import TRANSACTION_MASK, SysFlag
from mqcore.errors import CorruptRecordError
from mqcore.store.log.record import decode

if TYPE_CHECKING:
    from typing_extensions import Buffer

NEVER = (1 << 63) - 1
NOT_FOUND = -1


class QueueEnd(NamedTuple):
    """What the records of one queue say: the first queue offset, the one behind the last, how many they are.

    *since*: the queue offset of the first that was stored later than the time that was asked about; -1 without one.
    """

    first: int
    end: int
    record_count: int
    since: int


class QueueEnds:
    """Takes the log in order, and knows of each queue that it has met how far it goes."""

    def __init__(self) -> None:
        self._ends: dict[tuple[bytes, int], QueueEnd] = {}
        self._births: dict[tuple[bytes, int], int] = {}
        self._since: dict[tuple[bytes, int], int] = {}

    def bear(self, topic: bytes, queue_id: int, physical_offset: int) -> None:
        """Records of the queue that start before *physical_offset* are of one that was dropped, and do not count."""
        self._births[(topic, queue_id)] = physical_offset

    def ask_since(self, topic: bytes, queue_id: int, store_timestamp: int) -> None:
        """Look for the queue's first record that was stored later than *store_timestamp*, ms."""
        self._since[(topic, queue_id)] = store_timestamp

    def feed(self, buffer: Buffer, physical_offset: int) -> int:
        """Take the whole records at the start of *buffer*, the log from *physical_offset* on; how many bytes they are.

        CRCs are not looked at. It stops before what is no record.
        """
        data = memoryview(buffer)
        at = 0
        while at < len(data):
            try:
                record = decode(data[at:], physical_offset + at, check_crc=False)
            except CorruptRecordError:
                break
            if record.sys_flag & TRANSACTION_MASK in (0, SysFlag.TRANSACTION_COMMIT):
                key = (record.topic, record.queue_id)
                if physical_offset + at >= self._births.get(key, 0):
                    self._count(key, record.queue_offset, record.store_timestamp)
            at += record.total_size
        return at

    def _count(self, key: tuple[bytes, int], queue_offset: int, store_timestamp: int) -> None:
        before = self._ends.get(key) or QueueEnd(queue_offset, 0, 0, NOT_FOUND)
        since = before.since
        if since == NOT_FOUND and store_timestamp > self._since.get(key, NEVER):
            since = queue_offset
        self._ends[key] = QueueEnd(before.first, max(before.end, queue_offset + 1), before.record_count + 1, since)

    def ends(self) -> dict[tuple[bytes, int], QueueEnd]:
        """Return what was found, by topic and queue id; queues without a record are left out."""
        return dict(self._ends)
