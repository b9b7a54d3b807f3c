"""Delayed messages: where they wait, and how they come out.

A message with a delay level is put into SCHEDULE_TOPIC_XXXX, one queue a level, with its real place in its properties.
The dispatcher writes the delivery time where the tag's hash would be. What is due is put into the real topic, each
level for itself. Delivery is at least once: the progress of the levels is saved every few seconds, not with each
message.
Source: RocketMQ store/schedule/ScheduleMessageService.java, store/CommitLog.java.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from mqcore import clock as machine_clock
from mqcore.broker.config_file import ConfigFile
from mqcore.broker.ports import Clock, InnerMessage, MessageSink, PutResult, PutStatus, QueueUnit, StoreView
from mqcore.broker.services.system_queues import DONE, RETRY_S, SystemQueues
from mqcore.broker.statistics import BrokerStatsManager
from mqcore.codes import TRANSACTION_MASK, SysFlag
from mqcore.errors import HeaderError
from mqcore.protocol.message_decoder import decode_message
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from mqcore.protocol.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    encode_properties,
)

logger = logging.getLogger(__name__)

SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"
"""The group under whose name deliveries are counted."""

CLOCK_POLL_S: Final = 1.0
"""A level that waits looks at the clock so often: it may be set."""

_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,9}")


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the DELAY property as a number, 0 if there is none; raise HeaderError if it is not a number."""
    text = properties.get(PROPERTY_DELAY_TIME_LEVEL)
    if text is None:
        return 0
    if _LEVEL.fullmatch(text) is None:
        raise HeaderError(PROPERTY_DELAY_TIME_LEVEL, repr(text), "a delay level", "message properties")
    return int(text)


class ScheduleMessageService:
    """The delay levels of one broker."""

    def __init__(
        self,
        levels_ms: tuple[int, ...],
        file: ConfigFile,
        sink: MessageSink,
        store: StoreView,
        statistics: BrokerStatsManager,
        store_host: HostAddress,
        clock: Clock,
    ) -> None:
        self._levels_ms = levels_ms
        self._file = file
        self._sink = sink
        self._statistics = statistics
        self._store = store
        self._store_host = store_host
        self._clock = clock
        # The queue of a level is the one below it.
        self._queues = SystemQueues(SCHEDULE_TOPIC, range(len(levels_ms)), store, self._deliver_if_due, self._write)

    @property
    def levels(self) -> range:
        """The level numbers, from 1."""
        return range(1, len(self._levels_ms) + 1)

    @property
    def offsets(self) -> dict[int, int]:
        """How far each level has come; a level of which nothing was ever delivered is missing."""
        return {queue_id + 1: position for queue_id, position in self._queues.positions.items()}

    @offsets.setter
    def offsets(self, offsets: Mapping[int, int]) -> None:
        self._queues.positions = {level - 1: offset for level, offset in offsets.items()}

    def follow(self, offsets: Mapping[int, int]) -> None:
        """Take over how far the master of a group of brokers has come with some levels."""
        self._queues.positions.update((level - 1, offset) for level, offset in offsets.items())

    def load(self) -> None:
        """Read how far each level has come."""
        loaded = self._file.load() or {}
        self.offsets = {int(level): int(offset) for level, offset in (loaded.get("offsetTable") or {}).items()}

    def correct_offsets(self) -> None:
        """Move offsets that lie outside their queue to its nearer end. To be called once the store has recovered."""
        for level in self.offsets:
            self._queues.correct(level - 1)

    def lower_offsets(self, end_of: Callable[[str, int], int]) -> None:
        """No level is ahead of what *end_of*, called with topic and queue id, says of its queue: the log had more."""
        for level, offset in self.offsets.items():
            end = end_of(SCHEDULE_TOPIC, level - 1)
            if offset > end:
                logger.warning("a delay level goes back level=%d from=%d to=%d", level, offset, end)
                self._queues.positions[level - 1] = end

    def to_json(self) -> dict[str, Any]:
        """Return the progress as the file and GET_ALL_DELAY_OFFSET have it."""
        return _offset_table(self._queues.positions)

    async def persist(self) -> None:
        """Write how far each level has come."""
        await self._queues.save()

    async def _write(self, positions: Mapping[int, int]) -> None:
        await self._file.write(_offset_table(positions))

    def max_offset(self, level: int) -> int:
        """Return the end of the level's queue."""
        return self._queues.max_offset(level - 1)

    def rewrite(self, message: InnerMessage) -> InnerMessage:
        """Return *message* on its way into the schedule topic if it has a delay level, else *message* itself.

        A level above the highest becomes the highest. Half and rolled back messages are not delayed.
        Raises HeaderError if the DELAY property is not a number.
        """
        level = delay_level(message.properties)
        transaction = message.sys_flag & TRANSACTION_MASK
        if level <= 0 or transaction not in (0, SysFlag.TRANSACTION_COMMIT):
            return message
        level = min(level, len(self._levels_ms))
        properties = message.properties | {
            PROPERTY_DELAY_TIME_LEVEL: str(level),
            PROPERTY_REAL_TOPIC: message.topic,
            PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
        }
        # WAIT, which an undelayed message does not have in its stored text, comes back into it here, as upstream.
        return replace(
            message,
            topic=SCHEDULE_TOPIC,
            queue_id=level - 1,
            properties=properties,
            properties_text=encode_properties(properties),
        )

    async def put(self, message: InnerMessage) -> PutResult:
        """Store *message*, which has been through ``rewrite``; count it, and announce it, if it is delayed."""
        result = await self._sink.put(message)
        if message.topic == SCHEDULE_TOPIC and result.is_stored:
            self.note_put(message, result)
        return result

    def note_put(self, message: InnerMessage, result: PutResult) -> None:
        """Count *message*, which is delayed and was stored, and announce it."""
        self._statistics.count_topic_put(SCHEDULE_TOPIC, result.count, result.size)
        self._statistics.count_queue_put(SCHEDULE_TOPIC, message.queue_id, result.count, result.size)
        self._queues.tell(message.queue_id)

    def start(self) -> None:
        """Let every level deliver what is due."""
        self._queues.start()

    async def stop(self) -> None:
        """Deliver no more, and save the progress."""
        await self._queues.stop()

    async def deliver_due(self, level: int) -> float | None:
        """Deliver what is due and return after how many seconds to come again; None when nothing waits."""
        return await self._queues.turn(level - 1)

    async def _deliver_if_due(self, queue_id: int, unit: QueueUnit) -> float:
        wait_ms = self._wait_ms(queue_id + 1, unit)
        if wait_ms > 0:
            return min(wait_ms / 1000, CLOCK_POLL_S)
        return DONE if await self._deliver(queue_id + 1, unit) else RETRY_S

    def _wait_ms(self, level: int, unit: QueueUnit) -> int:
        """Return for how long the message is not due. A time beyond the level's delay is now: the clock moved."""
        now, delay_ms = self._clock(), self._levels_ms[level - 1]
        due_at = unit.real_tags_code
        if due_at is None:  # its ext unit is lost
            due_at = self._store.store_timestamp(SCHEDULE_TOPIC, level - 1, unit.queue_offset) + delay_ms
        if due_at > now + delay_ms:
            return 0
        return due_at - now - machine_clock.skipped_ms(due_at - delay_ms)

    async def _deliver(self, level: int, unit: QueueUnit) -> bool:
        """Put one message into its real queue; False if that is to be tried again."""
        record = self._store.look_message(unit.physical_offset, unit.record_size)
        if record is None:
            logger.warning("a delayed message is gone level=%d physical_offset=%d", level, unit.physical_offset)
            return True
        message = self._restored(record)
        if message is None:
            return True
        result = await self._sink.put(message)
        if result.status != PutStatus.PUT_OK:
            logger.warning("delivery refused level=%d topic=%s status=%s", level, message.topic, result.status)
            return False
        self._statistics.count_get(SCHEDULE_TOPIC, SCHEDULE_GROUP, level - 1, result.count, result.size)
        self._statistics.count_topic_put(message.topic, result.count, result.size)
        self._statistics.count_broker_put(result.count)
        return True

    def _restored(self, record: bytes) -> InnerMessage | None:
        """Return the message as it goes to its real queue; None if it has none, or may not go there.

        The stored text keeps DELAY, REAL_TOPIC and REAL_QID, as upstream; the broker itself no longer sees the delay.
        """
        stored = decode_message(record, decompress_body=False)
        properties = dict(stored.properties)
        text = encode_properties(properties)
        topic, queue_id = properties.get(PROPERTY_REAL_TOPIC), properties.get(PROPERTY_REAL_QUEUE_ID)
        if topic is None or queue_id is None or not queue_id.isdecimal() or topic == TRANS_HALF_TOPIC:
            logger.error(
                "a delayed message has no place to go physical_offset=%d topic=%s", stored.physical_offset, topic
            )
            return None
        properties.pop(PROPERTY_DELAY_TIME_LEVEL, None)
        return InnerMessage(
            topic=topic,
            queue_id=int(queue_id),
            body=stored.body,
            flag=stored.flag,
            sys_flag=stored.sys_flag,
            born_timestamp=stored.born_timestamp,
            born_host=stored.born_host,
            store_host=self._store_host,
            properties=properties,
            properties_text=text,
            reconsume_times=stored.reconsume_times,
            wait_store_ok=False,
        )


def _offset_table(positions: Mapping[int, int]) -> dict[str, Any]:
    return {"offsetTable": {queue_id + 1: position for queue_id, position in sorted(positions.items())}}
