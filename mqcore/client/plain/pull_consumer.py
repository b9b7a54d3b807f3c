"""The pull consumer of mqcore.client: an asyncio one, driven from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from mqcore.client.consume.polled.assignment import QueuesCallback
from mqcore.client.consume.polled.codec import Batch, Iteration
from mqcore.client.consume.polled.consumer import PullConsumer as AsyncPullConsumer
from mqcore.client.consume.polled.consumer import check_poll
from mqcore.client.consume.polled.watch import TopicCallback
from mqcore.client.errors import ClientClosedError
from mqcore.client.model.counters import ConsumerCounts
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.plain.calls import PlainFace, face_of, in_loop, plain, until_closed
from mqcore.client.session.handler_threads import HandlerThreads
from mqcore.client.session.loop_thread import LoopThread
from mqcore.client.session.postbox import Postbox
from mqcore.client.telemetry.consumer_hooks import ConsumerHook
from mqcore.protocol.message import MessageQueue

PlainQueuesCallback = Callable[[Sequence[MessageQueue]], None]
PlainTopicCallback = Callable[[str, Sequence[MessageQueue]], None]


class Callbacks:
    """Runs the application's callbacks in a thread of their own, so that they may call the consumer."""

    def __init__(self) -> None:
        self._pool = HandlerThreads(1, "mqcore callback")

    def of_queues(self, callback: PlainQueuesCallback | None) -> QueuesCallback | None:
        if callback is None:
            return None

        async def call(queues: Sequence[MessageQueue]) -> None:
            await asyncio.get_running_loop().run_in_executor(self._pool, callback, queues)

        return call

    def of_topic(self, callback: PlainTopicCallback) -> TopicCallback:
        async def call(topic: str, queues: Sequence[MessageQueue]) -> None:
            await asyncio.get_running_loop().run_in_executor(self._pool, callback, topic, queues)

        return call

    def close(self) -> None:
        self._pool.shutdown(wait=False)


@face_of(AsyncPullConsumer)
class PullConsumer(PlainFace[AsyncPullConsumer]):
    """Reads queues at the application's pace; see ``mqcore.aio.PullConsumer``. Any thread may poll, seek and commit.

    Callbacks are plain functions, called one at a time in a thread of their own.
    """

    def __init__(self, thread: LoopThread, inner: AsyncPullConsumer, callbacks: Callbacks) -> None:
        super().__init__(thread, inner)
        self._callbacks = callbacks
        self._iteration = Iteration(self._claim, self._note)
        self._touched: Postbox[Batch] = Postbox(thread, inner.note)
        self._claiming = threading.Lock()
        self.group = inner.group

    start = plain(AsyncPullConsumer.start)
    wait_closed = until_closed(AsyncPullConsumer.wait_closed)
    subscribe = plain(AsyncPullConsumer.subscribe)
    unsubscribe = plain(AsyncPullConsumer.unsubscribe)
    assign = plain(AsyncPullConsumer.assign)
    queues = plain(AsyncPullConsumer.queues)
    seek = plain(AsyncPullConsumer.seek)
    seek_to_begin = plain(AsyncPullConsumer.seek_to_begin)
    seek_to_end = plain(AsyncPullConsumer.seek_to_end)
    seek_to_time = plain(AsyncPullConsumer.seek_to_time)
    offset_for_time = plain(AsyncPullConsumer.offset_for_time)
    committed = plain(AsyncPullConsumer.committed)
    commit = plain(AsyncPullConsumer.commit)
    position = in_loop(AsyncPullConsumer.position)
    pause = in_loop(AsyncPullConsumer.pause)
    resume = in_loop(AsyncPullConsumer.resume)

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        if self._thread.is_open:
            self._thread.call(self._inner.close(drain=drain, timeout_s=timeout_s))
            self._callbacks.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    def add_hook(self, hook: ConsumerHook) -> None:
        """Let *hook* look at what each pull brings; it runs in the client's own thread and must not block."""
        self._inner.add_hook(hook)

    # Getting messages.

    def poll(self, timeout_s: float | None = None, max_messages: int | None = None) -> list[ReceivedMessage]:
        """Return the next messages, all of one queue, in order; none when *timeout_s* passes or the consumer closes.

        What earlier polls returned is done: with ``auto_commit`` it will be committed.
        """
        # What has been pulled is taken right here; to ask the event loop would cost two hand-overs between threads. Not
        # while another thread waits for something to iterate over: that lasts, and this call may not.
        check_poll(timeout_s, max_messages)
        if self._claiming.acquire(blocking=False):
            try:
                batch = self._claim_now()
                if batch is not None and (messages := batch.take(max_messages)):
                    self._note(batch)
                    return messages
            finally:
                self._claiming.release()
        return self._thread.call(self._inner.poll(timeout_s, max_messages))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Iterate, in any number of threads. Messages are fetched a batch at a time, and count as got one by one."""
        return self._iteration

    def __next__(self) -> ReceivedMessage:
        """Return the next message, waiting for it."""
        return next(self._iteration)

    def _claim(self) -> bool:
        """Claim a batch if there is nothing left to iterate over, waiting for it; False when closed."""
        with self._claiming:
            if self._claim_now() is None:
                try:
                    self._iteration.claimed = self._thread.call(self._inner.claim(None))
                except ClientClosedError:
                    self._iteration.claimed = None
            return self._iteration.claimed is not None

    def _claim_now(self) -> Batch | None:
        """Return the claimed batch if there is something left in it, else one that is ready; None if there is none."""
        batch = self._iteration.claimed
        if not (batch and batch.is_current):
            batch = self._iteration.claimed = self._inner.claim_now()
        return batch

    def _note(self, batch: Batch) -> None:
        """Let the event loop know, soon, what has been taken from *batch*."""
        if not batch.is_noted:
            batch.is_noted = True  # before the loop can take it back
            self._touched.put(batch)

    # What is known without asking anybody.

    @property
    def counts(self) -> ConsumerCounts:
        return self._inner.counts

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues read now, sorted."""
        return self._inner.assignment

    @property
    def paused(self) -> list[MessageQueue]:
        """The paused queues, sorted."""
        return self._inner.paused

    def topics(self) -> Iterable[str]:
        """The topics subscribed to, or of the assigned queues."""
        return self._inner.topics()

    def watch_queues(self, topic: str, callback: PlainTopicCallback) -> None:
        """Call *callback* with *topic* and all its queues when these have changed since the last look."""
        self._thread.post(self._inner.watch_queues, topic, self._callbacks.of_topic(callback))
