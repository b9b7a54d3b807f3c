"""Orderly consumption by plain handlers: a thread takes a run of a queue's messages, and calls the handler for each.

So a handler that is fast costs a hand-over between threads for each run, and not for each message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mqcore import clock
from mqcore.client.consume.handling import BatchHandler, EachMessage, batch_size_of, run_plain_handler
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.push.in_threads import ThreadHandler
from mqcore.client.consume.push.orderly import OrderlyService
from mqcore.client.consume.queue_locks import QueueLocks
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.outcome import ALL_DONE, Outcome

RUN_MAX = 64
RUN_S = 0.005
"""So many messages a thread takes at once, as long as they take no longer than this together."""

DONE_ONE = ALL_DONE[1]


class ThreadedOrderlyService(OrderlyService):
    """Orderly consumption by a plain handler: a thread takes several messages of a queue, one after the other.

    They are fewer the longer the handler takes: others wait for the queue, and a failure stops it.
    """

    def __init__(self, membership: Membership, handler: BatchHandler, locks: QueueLocks, plain: ThreadHandler) -> None:
        super().__init__(membership, handler, locks)
        self._plain = plain
        self._is_each = isinstance(handler, EachMessage)

    def _count_max(self) -> int:
        return RUN_MAX if self._is_run else super()._count_max()

    @property
    def _is_run(self) -> bool:
        """Whether a thread may take several messages, for a call each: hooks around calls are the event loop's."""
        is_one = batch_size_of(self._handler, self._membership.settings) == 1
        return is_one and not self._membership.hooks.any_around

    async def _run(self, held: HeldQueue, messages: Sequence[ReceivedMessage]) -> tuple[int, Outcome | None, int]:
        if not self._is_run:
            return await super()._run(held, messages)
        loop = asyncio.get_running_loop()
        done, outcome, costs_ms = await loop.run_in_executor(self._plain.pool, self._run_here, held, messages)
        ok = done if outcome is None else done + outcome.done
        error = None if outcome is None else outcome.error
        if costs_ms:
            self._membership.consumed(messages[0].topic, ok, len(costs_ms) - ok, costs_ms, error)
        return done, outcome, 0 if outcome is None else 1

    def _run_here(
        self, held: HeldQueue, messages: Sequence[ReceivedMessage]
    ) -> tuple[int, Outcome | None, list[float]]:
        """Consume *messages* one by one in this thread, until one is not plainly done or others want the queue."""
        costs_ms: list[float] = []
        ends_s = clock.monotonic_s() + RUN_S
        for done, message in enumerate(messages):
            is_late = done > 0 and clock.monotonic_s() > ends_s
            if is_late or self._closing or held.dropped or not self._may_consume(held):
                return done, None, costs_ms
            outcome, cost_ms = run_plain_handler(
                self._membership, self._plain.function, [message], is_each=self._is_each
            )
            costs_ms.append(cost_ms)
            if outcome is not DONE_ONE:
                return done, outcome, costs_ms
        return len(messages), None, costs_ms
