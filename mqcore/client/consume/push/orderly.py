"""Orderly consumption: one batch of a queue at a time, and only while this member holds the queue's lock at its broker.

A failed batch stops its queue for a moment and comes again, until it succeeds or its messages are dead letters. What a
handler consumes without a commit stays taken, in front of the queue's offset, until it commits or rolls back.
Source: RocketMQ ConsumeMessageOrderlyService.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.consume.handling import BatchHandler, batch_size_of, run_handler
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.pull_loop import MIB
from mqcore.client.consume.push.streams import Handoff, no_handler
from mqcore.client.consume.queue_locks import QueueLocks
from mqcore.client.consume.retry import send_to_retry_topic, tell_hooks
from mqcore.client.consume.workers import TaskGroup, Workers
from mqcore.client.model.messages import DEAD_LETTER, ReceivedMessage, Settler
from mqcore.client.model.outcome import Abandoned, Outcome
from mqcore.delay_levels import DELAY_LEVELS_S
from mqcore.errors import MQError

logger = logging.getLogger(__name__)
log = CauseLog(logger)

LOCK_RETRY_DELAY_S = 0.1
LOCK_REFUSED_DELAY_S = 3.0
SUSPEND_MIN_S, SUSPEND_MAX_S = 0.01, 30.0
"""No queue rests longer: its broker lock counts for so long."""


class OrderlyService:
    """Consumes one batch of each queue in turn; at most *concurrency* handlers run at once, over all queues.

    A queue stands in the workers' line at most once: it is put there when messages come and nobody consumes it (what
    ``put`` returns), and again after each batch, until ``take`` finds nothing and so ends the consuming.
    """

    def __init__(
        self, membership: Membership, handler: BatchHandler, locks: QueueLocks, handoff: Handoff | None = None
    ) -> None:
        self._membership = membership
        self._handler = handler
        self._locks = locks
        self._workers: Workers[HeldQueue] = Workers(
            f"consuming {membership.group}", self._turn, membership.settings.concurrency
        )
        self._locking = TaskGroup()
        self._closing = False
        self._handoff = handoff
        self.settler: Settler | None = handoff

    def start(self) -> None:
        """Nothing runs before there are messages."""

    def submit(self, held: HeldQueue, messages: Sequence[ReceivedMessage], dispatch: bool) -> None:
        if dispatch:
            self._workers.put([held])

    def set_concurrency(self, concurrency: int) -> None:
        self._workers.set_limit(concurrency)

    async def consume_directly(self, message: ReceivedMessage) -> Outcome:
        if self._handoff is not None:
            return no_handler()
        return await run_handler(self._membership, self._handler, [message])

    def let_go(self, held: HeldQueue) -> None:
        if self._handoff is not None:
            self._handoff.let_go()

    def halt(self) -> None:
        self._closing = True
        self._workers.halt()
        if self._handoff is not None:
            self._handoff.close()

    async def close(self, timeout_s: float) -> None:
        self.halt()
        await self._workers.close(timeout_s)
        await self._locking.close(0)

    async def _turn(self, held: HeldQueue) -> None:
        """Consume one batch of *held* and see to it that the next one has its turn."""
        if held.dropped:
            return
        if not self._may_consume(held):
            self._locking.spawn(lambda: self._lock_again(held), f"locking {held.queue}")
            return
        try:
            pause_s = await self._consume_some(held)
        except Abandoned:
            pause_s = self._membership.settings.suspend_queue_s
        except Exception:
            # The queue must not be left without anybody who consumes it.
            logger.exception("consuming failed group=%s queue=%s", self._membership.group, held.queue)
            held.put_back_all()
            pause_s = self._membership.settings.suspend_queue_s
        if pause_s is not None:
            self._turn_later(held, pause_s)

    def _turn_later(self, held: HeldQueue, pause_s: float) -> None:
        if pause_s > 0:
            asyncio.get_running_loop().call_later(pause_s, self._turn_again, held)
        else:
            self._turn_again(held)

    def _turn_again(self, held: HeldQueue) -> None:
        if not held.dropped and not self._closing:
            self._workers.put([held])

    def _may_consume(self, held: HeldQueue) -> bool:
        return not self._membership.needs_broker_locks or (held.locked and not held.lock_expired())

    async def _lock_again(self, held: HeldQueue) -> None:
        await asyncio.sleep(LOCK_RETRY_DELAY_S)
        is_mine = held.dropped or self._may_consume(held) or await self._locks.lock(held)
        self._turn_later(held, 0.0 if is_mine else LOCK_REFUSED_DELAY_S)

    async def _consume_some(self, held: HeldQueue) -> float | None:
        """Consume one batch; return how long the queue is to rest, seconds, or None when there is nothing left."""
        async with held.consume_lock:  # who gives the queue up waits for this
            if held.dropped:
                return None
            messages = held.take(self._count_max())
            if not messages:
                self._warn_of_full_queue(held)
                return None
            held.hand_out(len(messages))
            try:
                done, outcome, count = await self._run(held, messages)
            except (asyncio.CancelledError, Abandoned):
                held.put_back(messages)
                raise
            finally:
                held.hand_back(len(messages))
            if count < len(messages):
                held.put_back(messages[done:])
                if done:
                    self._membership.commit(held, held.commit())
                messages = messages[done : done + count]
                if messages:
                    held.take(count)
        if outcome is None:
            return 0.0
        if outcome.rollback:
            held.put_back_all()
            return self._pause_s(outcome, messages[0])
        is_first = held.taken_count == len(messages)  # nothing waits for a commit from before
        again = await self._messages_to_try_again(messages[outcome.done :], outcome)
        held.put_back(again)
        if outcome.commit and (outcome.done or is_first):  # a failure commits nothing that was kept from before
            offset = held.commit()
            self._membership.commit(held, held.first_offset if again else offset)
        return self._pause_s(outcome, again[0]) if again else 0.0

    def _count_max(self) -> int:
        """Return how many messages are taken at once."""
        return batch_size_of(self._handler, self._membership.settings)

    async def _run(self, held: HeldQueue, messages: Sequence[ReceivedMessage]) -> tuple[int, Outcome | None, int]:
        """Let the application consume *messages*, with one call or one after the other.

        Return how many were plainly done first, the outcome of the call after those, and how many messages it was for;
        None and 0 if there was none.
        """
        return 0, await run_handler(self._membership, self._handler, messages), len(messages)

    def _warn_of_full_queue(self, held: HeldQueue) -> None:
        """Say so when everything has been consumed, nothing committed, and too much is kept to pull more."""
        count_max, mib_max = self._membership.queue_thresholds()
        if held.taken_count > count_max or held.size // MIB > mib_max:
            log.warning(
                "nothing more is pulled before a commit: what was consumed without one fills the queue",
                group=self._membership.group,
                queue=held.queue,
                messages=held.taken_count,
                size=held.size,
            )

    def _pause_s(self, outcome: Outcome, message: ReceivedMessage) -> float:
        settings = self._membership.settings
        pause_s = settings.suspend_queue_s
        if outcome.pause_s is not None:
            pause_s = max(SUSPEND_MIN_S, outcome.pause_s)
        elif outcome.delay_level > 0:
            pause_s = DELAY_LEVELS_S[min(outcome.delay_level, len(DELAY_LEVELS_S)) - 1]
        elif settings.retry is not None:
            pause_s = settings.retry.delay_s(max(1, message.reconsume_times))
        return min(pause_s, SUSPEND_MAX_S)

    async def _messages_to_try_again(
        self, messages: Sequence[ReceivedMessage], outcome: Outcome
    ) -> list[ReceivedMessage]:
        """Send on what may not be tried again, and return the others, which have one failure more."""
        times_max = self._membership.settings.max_reconsume_times_effective
        is_rejected = outcome.delay_level == DEAD_LETTER
        again: list[ReceivedMessage] = []
        for message in messages:
            times = message.reconsume_times
            is_over = is_rejected or times >= times_max
            if is_over and await self._make_dead_letter(message, max(times, times_max)):
                continue
            message.ext.reconsume_times += 1
            again.append(message)
        return again

    async def _make_dead_letter(self, message: ReceivedMessage, times: int) -> bool:
        begin_s, is_taken = clock.monotonic_s(), True
        try:
            await send_to_retry_topic(self._membership, message, times)
        except MQError as error:
            log.warning("dead letter not sent", group=self._membership.group, message=message, error=error)
            is_taken = False
        await tell_hooks(self._membership, message, DEAD_LETTER, begin_s, is_taken=is_taken)
        return is_taken
