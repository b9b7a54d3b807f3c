"""Dead letters: the messages that a group has given up, and sending them again.

A group's dead letters lie in the topic ``%DLQ%<group>``. They keep the properties and the unique id of the message
that failed; a property tells its topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from mqcore.client.admin.messages import FoundMessages, MessageCalls
from mqcore.client.consume.polled.offsets import timestamp_ms
from mqcore.client.consume.polled.pull_api import MESSAGES_MAX, PULL_TIMEOUT_S
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.client.model.outgoing import Outgoing
from mqcore.client.produce.inner_producer import inner_producer
from mqcore.client.session.broker_api import PullRequest
from mqcore.codes import ResponseCode
from mqcore.errors import ClientError, MQError
from mqcore.protocol import properties as names
from mqcore.protocol.heartbeat import SUB_ALL
from mqcore.protocol.message import MessageExt, MessageQueue
from mqcore.protocol.message_decoder import decode_messages
from mqcore.protocol.names import TOOLS_CONSUMER_GROUP, dlq_topic, retry_topic

LIST_MAX = 1000
"""How many dead letters are read unless the caller says otherwise."""

DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
"""Written by brokers of version 5 only."""

LEFT_BEHIND = (
    names.PROPERTY_MIN_OFFSET,
    names.PROPERTY_MAX_OFFSET,
    names.PROPERTY_DELAY_TIME_LEVEL,
    names.PROPERTY_REAL_TOPIC,
    names.PROPERTY_REAL_QUEUE_ID,
    names.PROPERTY_RECONSUME_TIME,
    names.PROPERTY_MAX_RECONSUME_TIMES,
    names.PROPERTY_CONSUME_START_TIMESTAMP,
    names.PROPERTY_TRANSACTION_PREPARED,
)
"""Properties of the failed delivery that a new one begins without."""


@dataclass(slots=True)
class ResendReport:
    """What became of dead letters that were sent again: their ids, and why the others were not."""

    sent: list[str] = field(default_factory=list)
    failed: dict[str, MQError] = field(default_factory=dict)


class DeadLetterCalls(MessageCalls):
    """What can be asked of, and done with, dead letters."""

    async def dead_letters(
        self,
        group: str,
        *,
        max_messages: int = LIST_MAX,
        begin: datetime | float | None = None,
        end: datetime | float | None = None,
    ) -> FoundMessages:
        """Return the dead letters of *group* that became so between *begin* and *end*, in the order of storing.

        ``truncated`` tells that there are more than *max_messages*. None when the group has none.
        """
        try:
            queues = await self._all_queues(dlq_topic(group))
        except NoRouteError:
            return FoundMessages()
        found: list[MessageExt] = []
        truncated = False
        for queue in queues:
            read, more = await self._read(queue, max_messages - len(found), begin, end)
            found += read
            truncated = truncated or more
        return FoundMessages(sorted(found, key=lambda ext: ext.store_timestamp), truncated=truncated)

    async def dead_letter(self, group: str, msg_id: str) -> MessageExt:
        """Return the dead letter of *group* with *msg_id*, its unique id or its offset id."""
        return await self.view_message(dlq_topic(group), msg_id)

    async def resend_dead_letters(
        self, group: str, messages: Iterable[MessageExt], *, topic: str | None = None
    ) -> ResendReport:
        """Send copies of dead letters, to *group* alone or to *topic*, for all its groups, and say what became of each.

        A copy keeps the unique id, tag, keys and the application's properties, and begins with no failures. The dead
        letters stay where they are until the broker drops them by age.
        """
        report = ResendReport()
        for ext in messages:
            try:
                await self._hub.shared(inner_producer).send(self._copy(group, ext, topic))
                report.sent.append(ext.msg_id)
            except MQError as error:
                report.failed[ext.msg_id] = error
        return report

    async def _read(
        self, queue: MessageQueue, count_max: int, begin: datetime | float | None, end: datetime | float | None
    ) -> tuple[list[MessageExt], bool]:
        """Read what lies in *queue* now, at most *count_max* messages; tell whether there was more."""
        address = await self._hub.master_address(queue)
        stop = await self._hub.api.max_offset(address, queue)
        offset = await self._hub.api.min_offset(address, queue)
        if begin is not None:
            offset = max(offset, await self._hub.api.search_offset(address, queue, timestamp_ms(begin)))
        begin_ms = 0 if begin is None else timestamp_ms(begin)
        end_ms = None if end is None else timestamp_ms(end)
        found: list[MessageExt] = []
        while offset < stop:
            request = PullRequest(
                group=TOOLS_CONSUMER_GROUP,
                queue=queue,
                offset=offset,
                messages_max=MESSAGES_MAX,
                subscription=SUB_ALL,
            )
            response = await self._hub.api.pull(address, request, PULL_TIMEOUT_S)
            if response.code == ResponseCode.PULL_NOT_FOUND:
                break
            for ext in decode_messages(response.body) if response.code == ResponseCode.SUCCESS else []:
                if ext.queue_offset >= stop or (end_ms is not None and ext.store_timestamp > end_ms):
                    return found, False
                if ext.store_timestamp < begin_ms:
                    continue
                if len(found) >= count_max:
                    return found, True
                ext.broker_name = queue.broker_name
                found.append(ext)
            if response.next_offset <= offset:
                raise ClientError(f"{queue} does not go on behind offset {offset}")
            offset = response.next_offset
        return found, False

    def _copy(self, group: str, ext: MessageExt, topic: str | None) -> Outgoing:
        properties = {name: value for name, value in ext.properties.items() if name not in LEFT_BEHIND}
        origin = origin_topic(ext)
        if topic is None:
            if origin is None:
                raise NotFoundError(f"the dead letter {ext.msg_id} does not tell its topic: name one")
            properties[names.PROPERTY_RETRY_TOPIC] = origin
            return Outgoing(retry_topic(group), ext.body, properties, ext.flag)
        properties.pop(names.PROPERTY_RETRY_TOPIC, None)
        return Outgoing(topic, ext.body, properties, ext.flag)


def origin_topic(ext: MessageExt) -> str | None:
    """Return the topic to which a dead letter was first sent, if it tells."""
    return ext.properties.get(names.PROPERTY_RETRY_TOPIC) or ext.properties.get(DLQ_ORIGIN_TOPIC)
