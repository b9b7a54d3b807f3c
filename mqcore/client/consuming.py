"""Handing messages to the application, and sending those that failed back to the broker.

The two ways of consuming, concurrent and orderly, share what is here.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mqcore.client.errors import Reject, Retry
from mqcore.client.membership import HeldQueue, Membership
from mqcore.client.messages import DEAD_LETTER, ReceivedMessage, Settler
from mqcore.client.producer_core import Outgoing
from mqcore.client.tasks import cancel_and_wait
from mqcore.errors import MQError
from mqcore.protocol import properties as names

logger = logging.getLogger(__name__)

SEND_BACK_TIMEOUT_S = 5.0
FIRST_RETRY_LEVEL = 3
"""A message that failed n times waits at delay level 3 + n."""

Handler = Callable[[ReceivedMessage], Awaitable[None]]
BatchHandler = Callable[[Sequence[ReceivedMessage]], Awaitable[None]]


class ConsumeService(Protocol):
    """What becomes of messages after they were pulled. *settler* settles them; None when a handler's outcome does."""

    settler: Settler | None

    def start(self) -> None: ...

    def submit(self, held: HeldQueue, messages: Sequence[ReceivedMessage], dispatch: bool) -> None:
        """Take *messages*, which now lie in *held*; *dispatch* is what ``put`` returned."""

    async def consume_directly(self, message: ReceivedMessage) -> Outcome:
        """Let the application consume *message* now, whatever its offset."""

    async def close(self, timeout_s: float) -> None:
        """Hand out nothing more and wait at most *timeout_s* for what is in hand."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a handler made of its messages. *error* is None when all is well; *delay_level* is for those that failed."""

    error: BaseException | None = None
    delay_level: int = 0

    @property
    def ok(self) -> bool:
        return self.error is None


def as_batch_handler(handler: Handler) -> BatchHandler:
    """Call *handler* for each message of a batch."""

    async def handle_all(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            await handler(message)

    return handle_all


def check_async(handler: Callable[..., object]) -> None:
    """Raise TypeError unless calling *handler* gives something to await."""
    if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(getattr(handler, "__call__", None)):  # noqa: B004
        raise TypeError("a consumer of mqcore.aio needs an async handler; mqcore.client takes plain functions")


async def run_handler(membership: Membership, handler: BatchHandler, messages: Sequence[ReceivedMessage]) -> Outcome:
    """Call *handler*; every Exception is an outcome, because one bad message must not stop the consumer."""
    started_s = time.time()
    for message in messages:
        message.consume_started_s = started_s
    begin = time.perf_counter()
    try:
        await handler(messages)
        outcome = Outcome()
    except Reject as error:
        outcome = Outcome(error, DEAD_LETTER)
    except Retry as error:
        outcome = Outcome(error, error.delay_level)
    except Exception as error:
        logger.warning("handler failed group=%s message=%r", membership.group, messages[0], exc_info=True)
        outcome = Outcome(error)
    count = len(messages)
    ok, failed = (count, 0) if outcome.ok else (0, count)
    membership.statistics[messages[0].topic].add_consumed(ok, failed, (time.perf_counter() - begin) * 1000)
    return outcome


async def send_back(membership: Membership, message: ReceivedMessage, delay_level: int) -> bool:
    """Give a failed message back to its broker, which delivers it again later or moves it to the dead letter queue.

    When the broker cannot, the message is sent to the retry topic as a new one. Returns whether either worked.
    Source: RocketMQ DefaultMQPushConsumerImpl.java, sendMessageBack.
    """
    hub, group = membership.hub, membership.group
    times_max = membership.settings.max_reconsume_times_effective
    try:
        address = await hub.master_address(message.queue)
        await hub.api.send_back(address, group, message.ext, delay_level, times_max, SEND_BACK_TIMEOUT_S)
        return True
    except MQError as error:
        logger.warning("send back failed, sending anew group=%s message=%r: %s", group, message, error)
    times = times_max if delay_level == DEAD_LETTER else message.reconsume_times + 1
    try:
        await send_to_retry_topic(membership, message, times)
        return True
    except MQError as error:
        logger.warning("send to retry topic failed group=%s message=%r: %s", group, message, error)
        return False


async def send_to_retry_topic(membership: Membership, message: ReceivedMessage, times: int) -> None:
    """Send a copy of *message*, failed *times* times, to the retry topic; at the limit it becomes a dead letter."""
    ext = message.ext
    properties = dict(ext.properties)
    properties.pop(names.PROPERTY_TRANSACTION_PREPARED, None)
    properties.setdefault(names.PROPERTY_ORIGIN_MESSAGE_ID, message.msg_id)
    properties[names.PROPERTY_RETRY_TOPIC] = message.topic
    properties[names.PROPERTY_RECONSUME_TIME] = str(times)
    properties[names.PROPERTY_MAX_RECONSUME_TIMES] = str(membership.settings.max_reconsume_times_effective)
    properties[names.PROPERTY_DELAY_TIME_LEVEL] = str(FIRST_RETRY_LEVEL + ext.reconsume_times)
    await membership.hub.inner_producer.send(Outgoing(membership.retry_topic, ext.body, properties, ext.flag))


class TaskGroup:
    """The tasks of a service. Unlike asyncio's, one that fails does not end the others."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        task = asyncio.create_task(self._run(work, name), name=f"mqcore {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, timeout_s: float) -> None:
        """Wait at most *timeout_s* for all to end, then cancel the rest."""
        mine = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not mine]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        if late:
            logger.warning("cancelling %d handlers that did not end within %s s", len(late), timeout_s)
            await cancel_and_wait(*late)

    @staticmethod
    async def _run(work: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            await work()
        except Exception:
            logger.exception("%s failed", name)
