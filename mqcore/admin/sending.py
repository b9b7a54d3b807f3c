"""Sending many messages: a bounded number under way, at a rate, with each failure named by its line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from mqcore.admin.send_source import Item
from mqcore.client.model.receipt import SendReceipt, SendStatus
from mqcore.client.produce.batching import SendFuture
from mqcore.client.produce.producer import Producer
from mqcore.client.session.tasks import cancel_and_wait
from mqcore.errors import ArgumentError, BaseMQError

T = TypeVar("T")

FAILURES_NAMED_MAX: Final = 20


@dataclass(slots=True)
class Tally:
    """What became of the messages so far. *unsafe* were stored less safely than the broker is told to."""

    acknowledged: int = 0
    unsafe: int = 0
    failed: dict[int, Exception] = field(default_factory=dict)
    stopped_at: int | None = None
    """The line at which sending was given up; what comes behind it was not sent."""

    def failures(self) -> str:
        """Return the failed lines, and why."""
        named = list(self.failed.items())[:FAILURES_NAMED_MAX]
        text = "; ".join(f"line {line} ({error})" for line, error in named)
        more = len(self.failed) - len(named)
        return text + (f"; and {more} more" if more else "")


@dataclass(slots=True)
class Pace:
    """When each message may go: *rate* messages a second; 0 is as fast as can be. Of many that wait one sleeps."""

    rate: float
    _begin_s: float | None = None
    _count: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def wait(self) -> None:
        if not self.rate:
            return
        async with self._turn:
            now_s = asyncio.get_running_loop().time()
            self._begin_s = now_s if self._begin_s is None else self._begin_s
            due_s = self._begin_s + self._count / self.rate
            self._count += 1
            if due_s > now_s:
                await asyncio.sleep(due_s - now_s)


class Sender:
    """Sends items in order, at most *in_flight* under way; receipts are given to *show* in order, too.

    Messages of one shard key, or to one queue that was named, go one after the other, so that they are stored in the
    order of their lines whatever the broker does: RocketMQ's handles what one connection sends in several threads.
    After *errors_max* failures (0: never), or when *stop* is set, it ends.
    """

    def __init__(
        self,
        producer: Producer,
        show: Callable[[SendReceipt], None],
        *,
        in_flight: int,
        errors_max: int,
        rate: float = 0,
        stop: asyncio.Event | None = None,
    ) -> None:
        self.tally = Tally()
        self._producer = producer
        self._show = show
        self._errors_max = errors_max
        self._pace = Pace(rate)
        self._stop = stop or asyncio.Event()
        self._room = asyncio.Semaphore(in_flight)
        self._last_of: dict[object, SendFuture] = {}
        """What is under way and must be stored before the next of its shard key or queue."""
        self._under_way: asyncio.Queue[tuple[int, Awaitable[SendReceipt]] | None] = asyncio.Queue()

    async def send_all(self, source: AsyncIterator[Sequence[tuple[int, Item | ArgumentError]]]) -> Tally:
        """Send what *source* gives, and return what became of it."""
        collecting = asyncio.create_task(self._collect())
        try:
            async for portion in until(self._stop, source):
                if not await self._send_portion(portion):
                    break
            self._under_way.put_nowait(None)
            await collecting
        finally:
            await cancel_and_wait(collecting)
        return self.tally

    async def _send_portion(self, portion: Sequence[tuple[int, Item | ArgumentError]]) -> bool:
        """Send some; return whether to go on."""
        for line, item in portion:
            await self._pace.wait()
            await self._room.acquire()
            await self._wait_for_turn(item)
            if self._stop.is_set() or self._is_too_bad:
                self.tally.stopped_at = line
                return False
            await self._give(line, item)
        return True

    @property
    def _is_too_bad(self) -> bool:
        return bool(self._errors_max) and len(self.tally.failed) >= self._errors_max

    async def _wait_for_turn(self, item: Item | ArgumentError) -> None:
        if not isinstance(item, ArgumentError) and (last := self._last_of.pop(order_of(item), None)) is not None:
            with contextlib.suppress(BaseMQError):  # which is told where it is collected
                await last

    async def _give(self, line: int, item: Item | ArgumentError) -> None:
        try:
            if isinstance(item, ArgumentError):
                raise item
            sent = await self._producer.send_soon(item.message, queue=item.queue, shard_key=item.shard_key)
        except BaseMQError as error:
            self._note_failure(line, error)
        else:
            self._under_way.put_nowait((line, sent))
            if not isinstance(item, ArgumentError) and order_of(item) is not None:
                self._last_of[order_of(item)] = sent
                sent.add_done_callback(partial(self._forget, order_of(item)))

    def _forget(self, order: object, sent: SendFuture) -> None:
        if self._last_of.get(order) is sent:
            del self._last_of[order]

    async def _collect(self) -> None:
        while (entry := await self._under_way.get()) is not None:
            line, sent = entry
            try:
                receipt = await sent
            except BaseMQError as error:
                self._note_failure(line, error)
                continue
            self._room.release()
            self.tally.acknowledged += 1
            self.tally.unsafe += receipt.status is not SendStatus.SEND_OK
            self._show(receipt)

    def _note_failure(self, line: int, error: Exception) -> None:
        self._room.release()
        self.tally.failed[line] = error


def order_of(item: Item) -> object:
    """Return what the message has its order with; None when with none."""
    return item.queue if item.queue is not None else item.shard_key


async def until(stop: asyncio.Event, source: AsyncIterator[T]) -> AsyncIterator[T]:
    """Give what *source* gives until *stop* is set, even while it waits for more."""
    stopped = asyncio.create_task(stop.wait())
    try:
        while True:
            following = asyncio.ensure_future(anext(source))
            await asyncio.wait({following, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                return
            try:
                found = following.result()
            except StopAsyncIteration:
                return
            yield found
    finally:
        stopped.cancel()
