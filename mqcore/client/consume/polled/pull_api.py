"""Pulling without a group: read a queue at any offset, and ask where queues begin and end.

Nothing is remembered at the broker unless ``commit_offset`` is called.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from mqcore.cause_log import CauseLog
from mqcore.client.model.messages import DEAD_LETTER, ReceivedMessage
from mqcore.client.model.subscription import Expression, subscription_data
from mqcore.client.produce.inner_producer import inner_producer
from mqcore.client.session.broker_api import PullRequest
from mqcore.codes import ResponseCode
from mqcore.errors import ArgumentError, MQError
from mqcore.protocol.heartbeat import SUB_ALL, is_tag_type
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import TOOLS_CONSUMER_GROUP

if TYPE_CHECKING:
    from mqcore.client.session.session import Session

log = CauseLog(logging.getLogger(__name__))

PULL_TIMEOUT_S = 10.0
"""How long an answer may take, beyond the time for which the broker was asked to hold the pull."""

SEND_BACK_TIMEOUT_S = 3.0

RECONSUME_TIMES_MAX = 16
"""How often a message may fail before it becomes a dead letter, unless the application says another number."""

MESSAGES_MAX = 32
"""Brokers answer at most so many messages at once, whatever is asked for."""


class PullStatus(StrEnum):
    """What a pull found."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


STATUS_OF_CODE = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull found, and where the next one should begin: also after nothing, or an illegal offset."""

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class PullApi:
    """The calls of a client that need no group."""

    def __init__(self, hub: Session) -> None:
        self._hub = hub

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of *topic*, sorted; none when it has no route."""
        return sorted(await self._hub.routes.subscribe_queues(topic))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = MESSAGES_MAX,
        *,
        expression: Expression = SUB_ALL,
        wait_s: float = 0.0,
        group: str = TOOLS_CONSUMER_GROUP,
    ) -> PullResult:
        """Read up to *max_messages* of *queue* from *offset* on.

        When nothing is there the broker waits up to *wait_s*. Raises BrokerError when it refuses.
        """
        if offset < 0 or max_messages <= 0:
            raise ArgumentError(f"pull of {queue}: got offset {offset} and max_messages {max_messages}")
        address, _ = await self._hub.pull_address(queue, 0)
        subscription = subscription_data(queue.topic, expression, 0)
        version = self._hub.broker_versions.get(address)
        if version is not None and not is_tag_type(subscription.expression_type):
            # Only heart-beats tell it, and who has no consumer sends none: then the broker refuses what it cannot do.
            from mqcore.client.consume.pull_loop import check_sql_version  # as below

            check_sql_version(version, address)
        request = PullRequest(
            group=group,
            queue=queue,
            offset=offset,
            messages_max=max_messages,
            subscription=subscription.sub_string,
            expression_type=subscription.expression_type,
            hold_s=wait_s,
        )
        response = await self._hub.api.pull(address, request, wait_s + PULL_TIMEOUT_S)
        messages = []
        if response.code == ResponseCode.SUCCESS:
            from mqcore.client.consume.pull_loop import received  # not everybody pulls, and consumers come with it

            messages = received(response, response.body, queue, subscription, acyclic=True, names=self._hub.namespace)
        return PullResult(
            status=STATUS_OF_CODE[response.code],
            messages=messages,
            next_offset=response.next_offset,
            min_offset=response.min_offset,
            max_offset=response.max_offset,
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will have."""
        return await self._hub.api.max_offset(await self._hub.master_address(queue), queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's first message."""
        return await self._hub.api.min_offset(await self._hub.master_address(queue), queue)

    async def search_offset(self, queue: MessageQueue, when: datetime | float) -> int:
        """Return the offset of the message stored at *when* (a datetime, or seconds since 1970), or the nearest one."""
        seconds = when if isinstance(when, int | float) else when.timestamp()
        return await self._hub.api.search_offset(await self._hub.master_address(queue), queue, int(seconds * 1000))

    async def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return the offset that *group* has committed in *queue*, or None when the broker has none."""
        return await self._hub.api.query_consumer_offset(await self._hub.any_address(queue), group, queue)

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit *offset* for *group* and wait for the broker's answer."""
        address = await self._hub.any_address(queue)
        await self._hub.api.update_consumer_offset(address, group, queue, offset)

    async def send_back(
        self,
        group: str,
        message: ReceivedMessage,
        *,
        delay_level: int = 0,
        max_reconsume_times: int = RECONSUME_TIMES_MAX,
        broker_name: str | None = None,
    ) -> None:
        """Give a pulled *message* that failed back to its broker, for the retry topic of *group*.

        It is there again after the time of *delay_level* (0: longer with each failure), or becomes a dead letter of the
        group when it has failed *max_reconsume_times* times, or with -1. A consumer of the group gets it as any other;
        who only pulls must pull ``%RETRY%group``. *broker_name*: give it to another broker, that has a copy.
        When the broker cannot, the message is sent to the retry topic as a new one; MQError if that fails too.
        """
        queue = message.queue if broker_name is None else replace(message.queue, broker_name=broker_name)
        try:
            address = await self._hub.master_address(queue)
            await self._hub.api.send_back(
                address, group, message.ext, delay_level, max_reconsume_times, SEND_BACK_TIMEOUT_S
            )
        except MQError as error:
            log.warning("send back failed, sending anew", group=group, queue=queue, message=message, error=error)
            from mqcore.client.consume.retry import retry_copy  # as above

            times = max_reconsume_times if delay_level == DEAD_LETTER else message.reconsume_times + 1
            topic = self._hub.namespace.wrap(message.topic)
            copy = retry_copy(message, group, topic, times, max_reconsume_times, delay_level)
            await self._hub.shared(inner_producer).send(copy)
