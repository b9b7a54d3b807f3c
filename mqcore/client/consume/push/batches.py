"""Iterating over a consumer batch by batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Self, overload

from mqcore.client.consume.push.streams import Source
from mqcore.client.model.messages import DEAD_LETTER, ReceivedMessage


class _Batch(Sequence[ReceivedMessage]):
    """Messages received together, of any of the consumer's queues; those of one queue are in order.

    ``ack``, ``nack`` and ``reject`` settle every message that was not settled by itself.
    """

    def __init__(self, messages: Sequence[ReceivedMessage]) -> None:
        self._messages = tuple(messages)

    @overload
    def __getitem__(self, index: int) -> ReceivedMessage: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ReceivedMessage]: ...

    def __getitem__(self, index: int | slice) -> ReceivedMessage | Sequence[ReceivedMessage]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def ack(self) -> None:
        """All are done. Their offsets are committed with the next round."""
        for message in self._unsettled():
            message.ack()

    def nack(self, delay_level: int = 0, *, delay: timedelta | float | None = None) -> None:
        """All have failed: deliver them again, as ``ReceivedMessage.nack`` does one."""
        for message in self._unsettled():
            message.nack(delay_level, delay=delay)

    def reject(self) -> None:
        """None can ever succeed: to the dead letter queue with them."""
        self.nack(DEAD_LETTER)

    def _unsettled(self) -> list[ReceivedMessage]:
        return [message for message in self._messages if not message.settled]


class MessageBatch(_Batch):
    """A batch of mqcore.aio."""

    def __init__(self, messages: Sequence[ReceivedMessage], persist: Callable[[], Awaitable[None]]) -> None:
        super().__init__(messages)
        self._persist = persist

    async def commit(self) -> None:
        """All are done, and their offsets committed when this returns, as far as no earlier message is unfinished."""
        self.ack()
        await self._persist()


class PlainBatch(_Batch):
    """A batch of mqcore.client."""

    def __init__(self, messages: Sequence[ReceivedMessage], persist: Callable[[], None]) -> None:
        super().__init__(messages)
        self._persist = persist

    def commit(self) -> None:
        """All are done, and their offsets committed when this returns, as far as no earlier message is unfinished."""
        self.ack()
        self._persist()


class BatchStream:
    """One iteration, which goes on where *before* was left.

    Asking for the next batch says that what is unsettled of the one before is done.
    """

    def __init__(
        self,
        source: Source,
        count_max: int,
        fill_s: float,
        persist: Callable[[], Awaitable[None]],
        before: BatchStream | None = None,
    ) -> None:
        self._source = source
        self._count_max = count_max
        self._fill_s = fill_s
        self._persist = persist
        self._last: MessageBatch | None = None
        if before is not None:
            self._last, before._last = before._last, None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageBatch:
        self.done_with_last()
        messages = await self._source.receive(self._count_max, None, self._fill_s)
        if not messages:
            raise StopAsyncIteration
        self._last = MessageBatch(messages, self._persist)
        return self._last

    def done_with_last(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.ack()

    def abandon_last(self) -> None:
        last, self._last = self._last, None
        for message in last or ():
            if not message.settled:
                self._source.abandon(message)
