"""Concurrent consumption: handlers run side by side, a failed message goes back to the broker and comes again later.

The offset of a queue moves to its first unfinished message. Source: RocketMQ ConsumeMessageConcurrentlyService.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.consume.handling import BatchHandler, batch_size_of, run_handler
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.retry import send_back
from mqcore.client.consume.workers import Workers
from mqcore.client.model.messages import ReceivedMessage, Settler
from mqcore.client.model.outcome import Outcome
from mqcore.client.session.tasks import Periodic

log = CauseLog(logging.getLogger(__name__))

RESUBMIT_DELAY_S = 5.0
EXPIRED_CHECKS_MAX = 16
EXPIRED_DELAY_LEVEL = 3

QueueMessages = tuple[HeldQueue, Sequence[ReceivedMessage]]


class Finisher:
    """What happens to messages when they are done or have failed; shared by handlers and iteration."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._expired = Periodic(
            f"expiry of {membership.group}",
            self._send_back_expired,
            first_s=membership.settings.consume_timeout_s,
            every_s=membership.settings.consume_timeout_s,
        )

    def start(self) -> None:
        self._expired.start()

    async def stop(self) -> None:
        await self._expired.stop()

    def done(self, held: HeldQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Take *messages* out of the queue and move its offset."""
        self._membership.commit(held, held.remove(messages))

    async def failed(
        self, held: HeldQueue, messages: Sequence[ReceivedMessage], delay_level: int
    ) -> list[ReceivedMessage]:
        """Send *messages* back and take them out of the queue; return those that could not be sent back.

        A broadcasting group has no retry: its failures are logged and dropped.
        """
        kept: list[ReceivedMessage] = []
        for message in messages:
            if self._membership.is_broadcasting:
                log.warning(
                    "failed message dropped, broadcasting has no retry",
                    group=self._membership.group,
                    queue=held.queue,
                    message=message,
                )
            elif not await send_back(self._membership, message, delay_level):
                message.ext.reconsume_times += 1
                kept.append(message)
        self.done(held, [message for message in messages if message not in kept])
        return kept

    async def _send_back_expired(self) -> None:
        """Send back what a handler has had for longer than the consume timeout, a few of each queue per round."""
        oldest_s = clock.now_s() - self._membership.settings.consume_timeout_s
        for held in list(self._membership.held.values()):
            for _ in range(EXPIRED_CHECKS_MAX):
                message = held.first_message
                if message is None or not 0 < message.consume_started_s < oldest_s:
                    break
                log.warning("message is stuck, sending it back", group=self._membership.group, message=message)
                if not await send_back(self._membership, message, EXPIRED_DELAY_LEVEL):
                    break
                if held.first_message is message:
                    self.done(held, [message])


class ConcurrentService:
    """Runs a handler on at most *concurrency* batches at once, in the order in which they were pulled."""

    def __init__(self, membership: Membership, handler: BatchHandler) -> None:
        self._membership = membership
        self._handler = handler
        self._finisher = Finisher(membership)
        self._workers: Workers[QueueMessages] = Workers(
            f"consuming {membership.group}", self._consume, membership.settings.concurrency
        )
        self._closing = False
        self.settler: Settler | None = None

    def start(self) -> None:
        self._finisher.start()

    def submit(self, held: HeldQueue, messages: Sequence[ReceivedMessage], dispatch: bool) -> None:
        size = batch_size_of(self._handler, self._membership.settings)
        self._workers.put((held, messages[at : at + size]) for at in range(0, len(messages), size))

    def set_concurrency(self, concurrency: int) -> None:
        self._workers.set_limit(concurrency)

    async def consume_directly(self, message: ReceivedMessage) -> Outcome:
        return await run_handler(self._membership, self._handler, [message])

    def let_go(self, held: HeldQueue) -> None:
        """What waits is passed over when its turn comes."""

    def halt(self) -> None:
        self._closing = True
        self._workers.halt()

    async def close(self, timeout_s: float) -> None:
        self.halt()
        await self._workers.close(timeout_s)
        await self._finisher.stop()

    async def _consume(self, batch: QueueMessages) -> None:
        held, messages = batch
        if held.dropped:
            return
        held.hand_out(len(messages))
        try:
            outcome = await run_handler(self._membership, self._handler, messages)
            if held.dropped:
                return  # another member consumes them again, whatever became of them here
            if outcome.done:
                self._finisher.done(held, messages[: outcome.done])
            if outcome.done < len(messages):
                await self._fail(held, messages[outcome.done :], outcome.delay_level)
        finally:
            held.hand_back(len(messages))

    async def _fail(self, held: HeldQueue, messages: Sequence[ReceivedMessage], delay_level: int) -> None:
        """Send *messages* back; those for which that fails are consumed again in a while."""
        kept = await self._finisher.failed(held, messages, delay_level)
        if kept:
            asyncio.get_running_loop().call_later(RESUBMIT_DELAY_S, self._resubmit, held, kept)

    def _resubmit(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        if not held.dropped and not self._closing:
            self.submit(held, messages, True)
