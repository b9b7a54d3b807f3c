"""Messages by place, time, key and id, as they lie in their queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mqcore.client.asynchronous import Client
from mqcore.client.consume.polled.pull_api import PullStatus
from mqcore.client.errors import NoRouteError
from mqcore.console.data.asking import each
from mqcore.errors import MQError
from mqcore.protocol.message import MessageExt, MessageQueue

SHOWN_MAX: Final = 32
"""Messages on one page."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Some messages, why not all (*note*), and the offset behind them if they are of one queue."""

    messages: Sequence[MessageExt]
    note: str = ""
    next_offset: int | None = None


async def newest(mq: Client, topic: str) -> MessagePage:
    """Return the last messages of a topic, the newest first: the same number of each queue is looked at."""
    queues = await _queues(mq, topic)
    share = max(1, -(-SHOWN_MAX // len(queues)))

    async def last(queue: MessageQueue) -> list[MessageExt]:
        end = await mq.max_offset(queue)
        return await _read(mq, queue, max(0, end - share), share) if end else []

    found, note = _merged(await each(queues, last))
    return MessagePage(found[::-1][:SHOWN_MAX], note)


async def from_time(mq: Client, topic: str, when: datetime) -> MessagePage:
    """Return the first messages that were stored at *when* or later, by store time."""
    queues = await _queues(mq, topic)

    async def first(queue: MessageQueue) -> list[MessageExt]:
        offset = await mq.search_offset(queue, when)
        return await _read(mq, queue, offset, SHOWN_MAX)

    found, note = _merged(await each(queues, first))
    wanted_ms = when.timestamp() * 1000
    return MessagePage([ext for ext in found if ext.store_timestamp >= wanted_ms][:SHOWN_MAX], note)


async def from_offset(mq: Client, queue: MessageQueue, offset: int) -> MessagePage:
    """Return the messages of one queue from *offset* on; from its first one, and a note, if that is not there."""
    result = await mq.pull(queue, offset, SHOWN_MAX)
    note = ""
    if result.status is PullStatus.OFFSET_ILLEGAL:
        note = f"The queue has offsets {result.min_offset} to {result.max_offset - 1}, not {offset}."
        if result.max_offset == result.min_offset:
            return MessagePage([], "The queue is empty.")
        if offset < result.min_offset:
            result = await mq.pull(queue, result.min_offset, SHOWN_MAX)
    found = [message.ext for message in result.messages]
    behind = found[-1].queue_offset + 1 if found else None
    return MessagePage(found, note, behind if behind is not None and behind < result.max_offset else None)


async def by_key(mq: Client, topic: str, key: str) -> MessagePage:
    """Return the messages with *key*, the newest first."""
    found = await mq.admin.query_by_key(topic, key)
    note = "Brokers answer at most 64 messages for a key: there may be more." if found.truncated else ""
    return MessagePage(found[::-1], note)


async def by_id(mq: Client, topic: str, msg_id: str) -> MessagePage:
    """Return the message with *msg_id*, its unique id or its offset id. Raises NotFoundError."""
    return MessagePage([await mq.admin.view_message(topic, msg_id)])


async def _queues(mq: Client, topic: str) -> list[MessageQueue]:
    queues = await mq.queues(topic)
    if not queues:
        raise NoRouteError(topic)
    return queues


async def _read(mq: Client, queue: MessageQueue, offset: int, count: int) -> list[MessageExt]:
    """Read *count* messages at most from *offset* on, or from the first one that is still there."""
    result = await mq.pull(queue, offset, count)
    if result.status is PullStatus.OFFSET_ILLEGAL and offset < result.min_offset < result.max_offset:
        result = await mq.pull(queue, result.min_offset, count)
    return [message.ext for message in result.messages]


def _merged(answers: dict[MessageQueue, list[MessageExt] | MQError]) -> tuple[list[MessageExt], str]:
    """Return what was found in all queues by store time, and which queues do not answer."""
    found = [ext for answer in answers.values() if not isinstance(answer, MQError) for ext in answer]
    failed = [f"{at.broker_name}/{at.queue_id} ({why})" for at, why in answers.items() if isinstance(why, MQError)]
    note = f"Not looked at: {', '.join(failed)}." if failed else ""
    return sorted(found, key=lambda ext: (ext.store_timestamp, ext.queue_offset)), note
