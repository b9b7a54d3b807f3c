"""Delayed messages: where they wait, and how they come out.

A message with a delay level is put into SCHEDULE_TOPIC_XXXX, one queue a level, with its real place in its properties.
The dispatcher writes the delivery time where the tag's hash would be. One task a level puts what is due into the real
topic. Delivery is at least once: the progress of the levels is saved every few seconds, not with each message.
Source: RocketMQ store/schedule/ScheduleMessageService.java, store/CommitLog.java.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mqcore.broker.config_file import ConfigFile
from mqcore.broker.ports import Clock, InnerMessage, MessageSink, PutResult, PutStatus, QueueUnit, StoreView
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

FIRST_RUN_S: Final = 1.0
RETRY_S: Final = 0.1
ERROR_PAUSE_S: Final = 10.0
IDLE_POLL_S: Final = 5.0
"""A level whose queue is empty is told of a put; this is for what nobody told."""

CLOCK_POLL_S: Final = 1.0
"""A level that waits looks at the clock so often: it may be set."""

UNITS_PER_READ: Final = 64


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
        self.offsets: dict[int, int] = {}
        self._levels_ms = levels_ms
        self._file = file
        self._sink = sink
        self._store = store
        self._statistics = statistics
        self._store_host = store_host
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._filled = {level: asyncio.Event() for level in self.levels}
        self._skips: list[tuple[int, int]] = []
        self._skipped = {level: asyncio.Event() for level in self.levels}

    @property
    def levels(self) -> range:
        """The level numbers, from 1."""
        return range(1, len(self._levels_ms) + 1)

    def load(self) -> None:
        """Read how far each level has come."""
        loaded = self._file.load() or {}
        self.offsets = {int(level): int(offset) for level, offset in (loaded.get("offsetTable") or {}).items()}

    def correct_offsets(self) -> None:
        """Move offsets that lie outside their queue to its nearer end. To be called once the store has recovered."""
        for level in self.offsets:
            self._correct(level)

    def to_json(self) -> dict[str, Any]:
        """Return the progress as the file and GET_ALL_DELAY_OFFSET have it."""
        return {"offsetTable": dict(sorted(self.offsets.items()))}

    async def persist(self) -> None:
        """Write how far each level has come."""
        await self._file.write(self.to_json())

    def max_offset(self, level: int) -> int:
        """Return the end of the level's queue."""
        return self._store.max_offset(SCHEDULE_TOPIC, level - 1)

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
            self._statistics.count_topic_put(SCHEDULE_TOPIC, result.count, result.size)
            self._statistics.count_queue_put(SCHEDULE_TOPIC, message.queue_id, result.count, result.size)
            self._filled[message.queue_id + 1].set()
        return result

    def skip(self, at_ms: int, duration_ms: int) -> None:
        """Let every message that was stored up to *at_ms* be due *duration_ms* earlier: tests do not wait for hours.

        What is stored later waits its full time, as it would if all clocks had been put forward at *at_ms*.
        """
        self._skips.append((at_ms, duration_ms))
        for level in self.levels:
            self._skipped[level].set()
            self._filled[level].set()

    def start(self) -> None:
        """Start one task a level."""
        self._tasks = [asyncio.create_task(self._run(level), name=f"schedule-level-{level}") for level in self.levels]

    async def stop(self) -> None:
        """Stop the tasks and save the progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self.persist()

    async def _run(self, level: int) -> None:
        await asyncio.sleep(FIRST_RUN_S)
        while True:
            try:
                pause = await self.deliver_due(level)
            except Exception:  # the top loop of this task: one bad level must not stop the others
                logger.exception("delivery failed, trying again later level=%d", level)
                pause = ERROR_PAUSE_S
            if pause is None:
                await self._idle(level)
            else:
                await self._pause(level, pause)

    async def _idle(self, level: int) -> None:
        """Wait for a put into the level's queue, and then for the dispatcher to come to it; not for ever."""
        filled = self._filled[level]
        try:
            # Not wait_for: before Python 3.12 it drops a cancellation that meets the event, and stop() waits for ever.
            async with asyncio.timeout(IDLE_POLL_S):
                await filled.wait()
        except TimeoutError:
            return
        await asyncio.sleep(RETRY_S)
        filled.clear()

    async def _pause(self, level: int, pause_s: float) -> None:
        """Let *pause_s* pass, or less when time is skipped meanwhile."""
        skipped = self._skipped[level]
        try:
            async with asyncio.timeout(pause_s):
                await skipped.wait()
        except TimeoutError:
            return
        skipped.clear()

    async def deliver_due(self, level: int) -> float | None:
        """Deliver what is due and return after how many seconds to come again; None when nothing waits."""
        units = self._store.read_units(SCHEDULE_TOPIC, level - 1, self.offsets.get(level, 0), UNITS_PER_READ)
        if not units:
            return RETRY_S if self._correct(level) else None
        for unit in units:
            wait_ms = self._wait_ms(level, unit)
            if wait_ms > 0:
                return min(wait_ms / 1000, CLOCK_POLL_S)
            if not await self._deliver(level, unit):
                return RETRY_S
            self.offsets[level] = unit.queue_offset + 1
        return 0.0

    def _correct(self, level: int) -> bool:
        offset = self.offsets.get(level, 0)
        queue_id = level - 1
        if not self._store.has_queue(SCHEDULE_TOPIC, queue_id):
            return False
        lowest = max(self._store.min_offset(SCHEDULE_TOPIC, queue_id), 0)
        highest = self._store.max_offset(SCHEDULE_TOPIC, queue_id)
        corrected = min(max(offset, lowest), highest)
        if corrected == offset:
            return False
        logger.error("offset of a delay level is outside its queue level=%d from=%d to=%d", level, offset, corrected)
        self.offsets[level] = corrected
        return True

    def _wait_ms(self, level: int, unit: QueueUnit) -> int:
        """Return for how long the message is not due. A time beyond the level's delay is now: the clock moved."""
        now, delay_ms = self._clock(), self._levels_ms[level - 1]
        due_at = unit.real_tags_code
        if due_at is None:  # its ext unit is lost
            due_at = self._store.store_timestamp(SCHEDULE_TOPIC, level - 1, unit.queue_offset) + delay_ms
        if due_at > now + delay_ms:
            return 0
        stored_at = due_at - delay_ms
        return due_at - now - sum(skipped_ms for at_ms, skipped_ms in self._skips if at_ms >= stored_at)

    async def _deliver(self, level: int, unit: QueueUnit) -> bool:
        """Put one message into its real queue; True if the level may go on to the next."""
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
