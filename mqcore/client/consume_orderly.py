"""Orderly consumption: one batch of a queue at a time, and only while this member holds the queue's lock at its broker.

A failed batch stops its queue for a moment and comes again, until it succeeds or its messages are dead letters.
Source: RocketMQ ConsumeMessageOrderlyService.java, with automatic commits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from mqcore.client.consuming import BatchHandler, Outcome, TaskGroup, run_handler, send_to_retry_topic
from mqcore.client.errors import Reject
from mqcore.client.membership import HeldQueue, Membership
from mqcore.client.messages import ReceivedMessage, Settler
from mqcore.client.queue_locks import QueueLocks
from mqcore.client.streams import Handoff, no_handler
from mqcore.errors import MQError

logger = logging.getLogger(__name__)

LOCK_RETRY_DELAY_S = 0.1
LOCK_REFUSED_DELAY_S = 3.0


class OrderlyService:
    """Drains each queue in a task of its own; at most *concurrency* handlers run at once, over all queues."""

    def __init__(
        self, membership: Membership, handler: BatchHandler, locks: QueueLocks, handoff: Handoff | None = None
    ) -> None:
        self._membership = membership
        self._handler = handler
        self._locks = locks
        self._slots = asyncio.Semaphore(membership.settings.concurrency)
        self._drains = TaskGroup()
        self._closing = False
        self._handoff = handoff
        self.settler: Settler | None = handoff

    def start(self) -> None:
        """Nothing runs before there are messages."""

    def submit(self, held: HeldQueue, messages: Sequence[ReceivedMessage], dispatch: bool) -> None:
        if dispatch and not self._closing:
            self._drains.spawn(lambda: self._drain(held), f"consuming {held.queue}")

    async def consume_directly(self, message: ReceivedMessage) -> Outcome:
        if self._handoff is not None:
            return no_handler()
        return await run_handler(self._membership, self._handler, [message])

    async def close(self, timeout_s: float) -> None:
        self._closing = True
        if self._handoff is not None:
            self._handoff.close()
        await self._drains.close(timeout_s)

    async def _drain(self, held: HeldQueue) -> None:
        """Consume *held* until it is empty. ``take`` has then ended the consuming, and the next put begins anew."""
        while not held.dropped and not self._closing:
            if not self._may_consume(held):
                await self._lock_again(held)
                continue
            async with self._slots:
                messages = held.take(self._membership.settings.batch_size)
                if not messages:
                    return
                pause_s = await self._consume(held, messages)
            if pause_s:
                await asyncio.sleep(pause_s)

    def _may_consume(self, held: HeldQueue) -> bool:
        return not self._membership.needs_broker_locks or (held.locked and not held.lock_expired())

    async def _lock_again(self, held: HeldQueue) -> None:
        await asyncio.sleep(LOCK_RETRY_DELAY_S)
        if not held.dropped and not self._may_consume(held) and not await self._locks.lock(held):
            await asyncio.sleep(LOCK_REFUSED_DELAY_S)

    async def _consume(self, held: HeldQueue, messages: list[ReceivedMessage]) -> float:
        """Consume one batch and return how long the queue is to rest, seconds."""
        async with held.consume_lock:  # who gives the queue up waits for this
            if held.dropped:
                return 0.0
            held.hand_out(len(messages))
            try:
                outcome = await run_handler(self._membership, self._handler, messages)
            except asyncio.CancelledError:
                held.put_back(messages)
                raise
            finally:
                held.hand_back(len(messages))
        if outcome.ok or await self._all_are_dead_letters(messages, rejected=isinstance(outcome.error, Reject)):
            self._membership.commit(held, held.commit())
            return 0.0
        held.put_back(messages)
        return self._membership.settings.suspend_queue_s

    async def _all_are_dead_letters(self, messages: list[ReceivedMessage], *, rejected: bool) -> bool:
        """Send on what may not be tried again; return whether nothing is left to be tried."""
        times_max = self._membership.settings.max_reconsume_times_effective
        over = True
        for message in messages:
            times = message.reconsume_times
            if not (rejected or times >= times_max):
                message.ext.reconsume_times += 1
                over = False
                continue
            try:
                await send_to_retry_topic(self._membership, message, max(times, times_max) if rejected else times)
            except MQError as error:
                logger.warning("dead letter not sent group=%s %r: %s", self._membership.group, message, error)
                message.ext.reconsume_times += 1
                over = False
        return over
