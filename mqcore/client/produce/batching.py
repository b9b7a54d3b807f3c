"""Automatic batching: messages that are sent at the same time travel in one request, each with a receipt of its own.

A message joins the open batch of its *lane*: that of its topic, or of its queue when it must go to a certain one. A
batch leaves when a request of the lane may leave and the linger time is over, or when it is full; while all requests of
a lane are under way the next batch grows, so batches are as large as the load asks for. The lane of a queue has one
request under way, so that its messages keep their order, also at brokers that serve a connection by several threads.

What RocketMQ forbids in a batch goes alone, in its place in the lane. Batches are sent by the event loop; messages may
be given by any thread.
Source of the rules: RocketMQ common/message/MessageBatch.java.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import TYPE_CHECKING, Final

from mqcore import clock
from mqcore.cause_log import CauseLog, name_of
from mqcore.client.errors import ClientClosedError
from mqcore.client.model.counters import SendTally
from mqcore.client.model.messages import Message
from mqcore.client.model.outgoing import Outgoing
from mqcore.client.model.receipt import SendReceipt
from mqcore.client.model.unique_ids import UniqueIdGenerator
from mqcore.client.produce.batch_body import ALONE
from mqcore.client.produce.codec import BatchBody, FutureFields, Joiner, Receipts
from mqcore.client.produce.core import ProducerCore, Sent
from mqcore.client.produce.inflight import InflightLimit
from mqcore.client.produce.receipts import receipts_of
from mqcore.errors import BaseMQError
from mqcore.protocol import properties as names
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_retry_topic

if TYPE_CHECKING:
    from mqcore.client.settings.classes import ProducerSettings

log = CauseLog(logging.getLogger(__name__))

REQUESTS_MAX: Final = 4
"""Requests of one topic under way at once, when the order of its messages does not matter."""

ID: Final = names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX


CLOSED: Final = "the producer was closed before the message was sent"


class SendBatch:
    """Messages that are sent together, or one that goes alone, and what became of them.

    Filled under the batcher's lock, until it is taken to be sent; finished once, by the event loop.
    """

    __slots__ = (
        "_callbacks",
        "_error",
        "_event",
        "_lock",
        "_loop",
        "_waiters",
        "body",
        "first",
        "ids",
        "is_done",
        "opened_s",
        "queue",
        "receipts",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lock: threading.Lock,
        first: Outgoing,
        queue: MessageQueue | None,
        body: BatchBody | None,
    ) -> None:
        self.first: Outgoing | None = first
        self.body = body
        self.ids = [first.properties[ID]] if body is None else body.ids
        self.queue = queue
        self.opened_s = clock.monotonic_s()
        self.is_done = False
        self._loop = loop
        self._lock = lock
        self.receipts: Receipts | None = None
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._event: threading.Event | None = None
        self._callbacks: list[tuple[Callable[[SendFuture], object], SendFuture]] = []

    @property
    def is_full(self) -> bool:
        return self.body is None or self.body.is_full

    @property
    def bodies_size(self) -> int:
        """Bytes of the messages' bodies: the room that they hold."""
        if self.body is not None:
            return self.body.bodies_size
        return 0 if self.first is None else len(self.first.body)

    def outgoing(self) -> Outgoing:
        """Return what travels: the only message as it is, or the batch. Called once."""
        assert self.first is not None  # it is let go only when the batch is done
        if self.body is None or len(self.ids) == 1:
            return self.first
        outer = {names.PROPERTY_WAIT_STORE_MSG_OK: "true" if self.body.wait_store_ok else "false"}
        return Outgoing(self.first.topic, self.body.take(), outer, is_batch=True, ids=tuple(self.ids))

    # The end.

    def finish(self, sent: Sent | None, error: BaseException | None) -> None:
        """Note the outcome and tell everybody who waits. Called in the event loop."""
        with self._lock:
            self.receipts, self._error = None if sent is None else receipts_of(sent, self.ids), error
            self.first = self.body = None  # the bodies are not needed any more
            self.is_done = True
            callbacks, self._callbacks = self._callbacks, []
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
        if self._event is not None:
            self._event.set()
        for callback, future in callbacks:
            call(callback, future)

    def error(self) -> BaseException | None:
        """Return why the messages were not sent, a new object each time: who raises it adds a traceback to it."""
        error = self._error
        if not isinstance(error, BaseMQError):
            return error
        copied = copy.copy(error)
        copied.__cause__ = error.__cause__
        return copied

    def wait_receipt(self, index: int, timeout_s: float | None) -> SendReceipt:
        """Return what the broker said about one message, waiting for it; raises what the send of the batch raised."""
        if not self.wait(timeout_s):
            raise TimeoutError(f"no receipt for {self.ids[index]} within {timeout_s} s")
        if self.receipts is not None:
            return self.receipts.get(index)
        error = self.error()
        assert error is not None  # a batch is done with receipts or with an error
        raise error

    # Waiting.

    def wait(self, timeout_s: float | None) -> bool:
        """Block the calling thread until the batch is done; False when *timeout_s* passed first."""
        with self._lock:
            if self.is_done:
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(timeout_s)

    async def wait_done(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            await asyncio.to_thread(self.wait, None)
            return
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def call_when_done(self, callback: Callable[[SendFuture], object], future: SendFuture) -> None:
        with self._lock:
            if not self.is_done:
                self._callbacks.append((callback, future))
                return
        call(callback, future)


class SendFuture(FutureFields):
    """The outcome of one send that is under way: await it, or call ``result`` from a thread without an event loop."""

    __slots__ = ()

    batch: SendBatch

    @property
    def msg_id(self) -> str:
        """The unique id of the message, known before it is sent."""
        return self.batch.ids[self.index]

    def done(self) -> bool:
        return self.batch.is_done

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait as ``result`` does, and return what it would raise, or None."""
        if not self.batch.wait(timeout_s):
            raise TimeoutError(f"no receipt for {self.msg_id} within {timeout_s} s")
        return self.batch.error()

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call *callback* with this future in the event loop, or at once when it is done; it must not block."""
        self.batch.call_when_done(callback, self)

    def __await__(self) -> Generator[object, None, SendReceipt]:
        if not self.batch.is_done:
            yield from self.batch.wait_done().__await__()
        return self.result(0)


class Lane:
    """The batches of one topic, or of one queue, in the order in which they leave. The last one may still be open."""

    __slots__ = ("batches", "is_woken", "key", "open", "requests_max", "running", "timer")

    def __init__(self, key: Hashable, requests_max: int) -> None:
        self.key = key
        self.requests_max = requests_max
        self.batches: deque[SendBatch] = deque()
        self.open: SendBatch | None = None  # the last of them, while messages may join it
        self.running = 0
        self.is_woken = False
        self.timer: asyncio.TimerHandle | None = None


class Batcher:
    """The lanes of one producer. *inflight* is the room that the messages hold until they are done."""

    def __init__(
        self,
        core: ProducerCore,
        settings: ProducerSettings,
        inflight: InflightLimit,
        unique_ids: UniqueIdGenerator,
        tally: SendTally,
    ) -> None:
        self._core = core
        self._settings = settings
        self._inflight = inflight
        self._unique_ids = unique_ids
        self._tally = tally
        self._body_size_max = min(settings.batch_bytes, settings.max_message_size_bytes + 1)
        if settings.compression != "none":
            self._body_size_max = min(self._body_size_max, settings.compress_over_bytes)
        self._lock = threading.Lock()
        self._lanes: dict[Hashable, Lane] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing = 0
        self._is_closed = False
        joiner = Joiner(self._lanes, Message, SendFuture, unique_ids, inflight.room, self._wake_if_due, self._lock)
        self.join: Callable[..., SendFuture | None] = joiner.join
        """``join(message, queue=None)`` is ``submit`` for what is usual, in one step: the message joins an open batch,
        if there is one that it may join and room for it; else None, and nothing is done."""

    def start(self) -> None:
        """Take the running event loop as the one that sends."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._lanes

    def submit(self, outgoing: Outgoing, queue: MessageQueue | None = None) -> SendFuture:
        """Let *outgoing*, for which room has been taken, leave soon; to *queue* if given, in order behind others to it.

        Raises HeaderError or ProtocolError when it cannot travel, ClientClosedError after ``close``.
        """
        joins = self._may_join(outgoing)
        key: Hashable = outgoing.topic if queue is None else queue
        with self._lock:
            if self._is_closed:
                raise ClientClosedError(CLOSED)
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = Lane(key, REQUESTS_MAX if queue is None else 1)
            future = self._add(lane, outgoing) if joins else None
            if future is None:
                future = SendFuture(self._open(lane, outgoing, queue, joins), 0)
            wakes = not lane.is_woken and lane.running < lane.requests_max
            lane.is_woken |= wakes
        if wakes:
            self._wake(lane)
        return future

    async def flush(self) -> None:
        """Send what lingers, and return when nothing is under way any more."""
        self._flushing += 1
        try:
            for lane in list(self._lanes.values()):
                self._pump(lane)
            await self._inflight.wait_idle()
        finally:
            self._flushing -= 1

    async def close(self) -> None:
        """Give up what is not done, and take nothing more: the senders get ClientClosedError."""
        with self._lock:
            self._is_closed = True
            for lane in self._lanes.values():
                lane.open = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with self._lock:
            left = [batch for lane in self._lanes.values() for batch in lane.batches]
            self._lanes.clear()
        for batch in left:
            self._finish(batch, None, ClientClosedError(CLOSED))

    # Filling, under the lock.

    def _may_join(self, outgoing: Outgoing) -> bool:
        return (
            len(outgoing.body) < self._body_size_max
            and not outgoing.sys_flag
            and ALONE.isdisjoint(outgoing.properties)
            and not is_retry_topic(outgoing.topic)
        )

    def _add(self, lane: Lane, outgoing: Outgoing) -> SendFuture | None:
        batch = lane.open
        if batch is None or batch.body is None or batch.is_full:
            return None
        if batch.body.wait_store_ok != waits_for_store(outgoing):
            return None
        index = batch.body.append(outgoing.flag, outgoing.properties, outgoing.body, outgoing.properties[ID])
        return SendFuture(batch, index)

    def _open(self, lane: Lane, outgoing: Outgoing, queue: MessageQueue | None, joins: bool) -> SendBatch:
        assert self._loop is not None  # a producer takes messages only after its start
        body: BatchBody | None = None
        if joins:
            body = BatchBody(self._settings.batch_bytes, self._body_size_max, waits_for_store(outgoing))
            body.append(outgoing.flag, outgoing.properties, outgoing.body, outgoing.properties[ID])
        if lane.open is not None and lane.open.body is not None:
            lane.open.body.is_full = True  # it leaves before the new one, so nobody joins it any more
        batch = SendBatch(self._loop, self._lock, outgoing, queue, body)
        lane.batches.append(batch)
        lane.open = batch if joins else None
        return batch

    # Sending, in the event loop.

    def _wake_if_due(self, lane: Lane) -> None:
        if not lane.is_woken and lane.running < lane.requests_max:
            lane.is_woken = True
            self._wake(lane)

    def _wake(self, lane: Lane) -> None:
        assert self._loop is not None
        if threading.get_ident() == self._loop_thread:
            self._loop.call_soon(self._pump, lane)
            return
        with contextlib.suppress(RuntimeError):  # a closed loop: ``close`` has ended all batches
            self._loop.call_soon_threadsafe(self._pump, lane)

    def _pump(self, lane: Lane) -> None:
        """Send the batches of *lane* that may leave now."""
        lane.is_woken = False
        while not self._is_closed and lane.running < lane.requests_max:
            with self._lock:
                batch = lane.batches[0] if lane.batches else None
                wait_s = 0.0 if batch is None else self._linger_left_s(batch)
                if batch is not None and wait_s <= 0:
                    lane.batches.popleft()
                    if batch is lane.open:
                        lane.open = None
                elif batch is None and not lane.running:
                    self._lanes.pop(lane.key, None)
            if batch is None:
                return
            if wait_s > 0:
                self._pump_later(lane, wait_s)
                return
            lane.running += 1
            task = asyncio.get_running_loop().create_task(self._send(lane, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _linger_left_s(self, batch: SendBatch) -> float:
        linger_s = self._settings.linger_s
        if batch.is_full or self._flushing or not linger_s:
            return 0.0
        return batch.opened_s + linger_s - clock.monotonic_s()

    def _pump_later(self, lane: Lane, wait_s: float) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
        lane.timer = asyncio.get_running_loop().call_later(wait_s, self._pump, lane)

    async def _send(self, lane: Lane, batch: SendBatch) -> None:
        sent: Sent | None = None
        error: BaseException | None = None
        try:
            outgoing, queue = batch.outgoing(), batch.queue
            if queue is None:
                sent = await self._core.send(outgoing)
            else:
                sent = Sent(queue, await self._core.send_to(outgoing, queue))
        except asyncio.CancelledError:
            error = ClientClosedError("the producer was closed before the answer came")
            raise
        except Exception as failure:
            error = failure
        finally:
            self._finish(batch, sent, error)
            lane.running -= 1
            self._pump(lane)

    def _finish(self, batch: SendBatch, sent: Sent | None, error: BaseException | None) -> None:
        # Room first: who is told that a send is done may begin the next one.
        self._inflight.release(batch.bodies_size, len(batch.ids))
        assert batch.first is not None  # it is let go only when the batch is done
        self._tally.add(batch.first.topic, len(batch.ids), clock.monotonic_s() - batch.opened_s, error)
        batch.finish(sent, error)


def waits_for_store(outgoing: Outgoing) -> bool:
    """Return whether the sender of a message waits for flush and replication."""
    return outgoing.properties.get(names.PROPERTY_WAIT_STORE_MSG_OK, "true") == "true"


def call(callback: Callable[[SendFuture], object], future: SendFuture) -> None:
    """Run an application's callback, whose failure is its own."""
    try:
        callback(future)
    except Exception as error:
        log.error("callback of a send failed", exc_info=error, name=name_of(callback), msg_id=future.msg_id)
