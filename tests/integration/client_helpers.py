"""What the client's integration tests share: the broker under test, topics of their own, and waiting inside a loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mqcore import aio
from tests.rigs import SHORT_DELAYS as SHORT_DELAYS
from tests.rigs import RunningBroker, start_broker_under_test
from tests.rigs import make_topic as make_topic

POLL_S = 0.01
PULL_MAX = 32
DEADLINE_S = 60.0


def running_broker(directory: Path, properties: Mapping[str, str] | None = None) -> Iterator[RunningBroker]:
    """The body of a fixture: the broker under test, for as long as the fixture lives."""
    with start_broker_under_test(directory / "store", properties) as broker:
        yield broker


async def eventually(condition: Callable[[], object], describe: str, deadline_s: float = DEADLINE_S) -> None:
    """Return once *condition()* is true, letting the event loop run; raise AssertionError after *deadline_s*."""
    deadline = time.monotonic() + deadline_s
    while True:
        is_late = time.monotonic() >= deadline  # before the look: there is always one after the deadline
        if condition():
            return
        if is_late:
            raise AssertionError(f"waited {deadline_s:g} s in vain: {describe}")
        await asyncio.sleep(POLL_S)


async def send_numbers(mq: aio.Client, topic: str, numbers: range, *, each_queue: bool = False) -> None:
    """Send numbers as bodies, one after the other; with *each_queue* all of them to every queue."""
    async with mq.producer("sender_of_" + topic) as producer:
        queues = await producer.queues(topic)
        for number in numbers:
            if each_queue:
                for queue in queues:
                    await producer.send(aio.Message(topic, str(number).encode()), queue=queue, timeout_s=DEADLINE_S)
            else:
                await producer.send(aio.Message(topic, str(number).encode()), timeout_s=DEADLINE_S)


async def committed(mq: aio.Client, group: str, topic: str) -> int:
    """How many messages *group* has committed in all queues of *topic*."""
    offsets = [await mq.committed_offset(group, queue) for queue in await mq.queues(topic)]
    return sum(offset or 0 for offset in offsets)


async def read_queue(mq: aio.Client, queue: aio.MessageQueue, count: int, first: int = 0) -> list[aio.ReceivedMessage]:
    """Read *count* messages of a queue and no more; pulls wait at the broker for those that are still on their way."""
    messages: list[aio.ReceivedMessage] = []
    while len(messages) < count:
        result = await mq.pull(queue, first + len(messages), min(PULL_MAX, count - len(messages)), wait_s=15)
        assert result.messages, f"only {len(messages)} of {count} arrived in {queue}"
        messages += result.messages
    return messages
