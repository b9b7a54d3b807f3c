"""Finding messages: by either id, by key, and by place."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import datetime

from mqcore.client.admin.base import AdminCalls
from mqcore.client.consume.polled.offsets import timestamp_ms
from mqcore.client.consume.polled.pull_api import PULL_TIMEOUT_S
from mqcore.client.errors import NotFoundError
from mqcore.client.session.broker_api import PullRequest
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import BrokerError, ProtocolError
from mqcore.protocol.headers import INT64_MAX
from mqcore.protocol.heartbeat import SUB_ALL
from mqcore.protocol.message import MessageExt, MessageQueue, decode_offset_message_id
from mqcore.protocol.message_decoder import decode_message, decode_messages
from mqcore.protocol.message_id import unique_id_time_ms
from mqcore.protocol.names import TOOLS_CONSUMER_GROUP
from mqcore.protocol.properties import KEY_SEPARATOR

logger = logging.getLogger(__name__)

QUERY_MAX = 64
"""Brokers look at no more messages for one key, whatever is asked for (defaultQueryMaxNum)."""

UNIQUE_QUERY_MAX = 32
CLOCK_MARGIN_MS = 1000
"""A message may be stored by a clock that is a little behind the one that made its id."""


class FoundMessages(list[MessageExt]):
    """Messages in the order of storing. *truncated* says that there may be more than these."""

    def __init__(self, messages: Iterable[MessageExt] = (), *, truncated: bool = False) -> None:
        super().__init__(messages)
        self.truncated = truncated


class MessageCalls(AdminCalls):
    """How messages are found."""

    async def view_message(self, topic: str, msg_id: str) -> MessageExt:
        """Return the message with *msg_id*, an offset id or a unique id; NotFoundError when there is none."""
        try:
            found = await self._view_by_offset_id(msg_id)
        except (ProtocolError, BrokerError) as error:
            logger.debug("not an offset id, or not there: %s", error)
            found = None
        if found is not None and found.topic == topic:
            return found
        return await self._view_by_unique_id(topic, msg_id)

    async def message_at(self, queue: MessageQueue, offset: int) -> MessageExt:
        """Return the message of *queue* at *offset*; NotFoundError when there is none."""
        address = await self._hub.master_address(queue)
        request = PullRequest(
            group=TOOLS_CONSUMER_GROUP, queue=queue, offset=offset, messages_max=1, subscription=SUB_ALL
        )
        response = await self._hub.api.pull(address, request, PULL_TIMEOUT_S)
        for ext in decode_messages(response.body) if response.code == ResponseCode.SUCCESS else []:
            if ext.queue_offset == offset:
                ext.broker_name = queue.broker_name
                return ext
        raise NotFoundError(
            f"no message at offset {offset} of {queue.topic}/{queue.broker_name}/{queue.queue_id}: "
            f"it has {response.min_offset} to {response.max_offset}"
        )

    async def copies_of(self, topic: str, unique_id: str) -> list[MessageExt]:
        """Return what of *topic* has *unique_id*, in the order of storing: retries and resends keep their id."""
        now_ms = time.time_ns() // 1_000_000
        try:
            begin_ms = unique_id_time_ms(unique_id, now_ms) - CLOCK_MARGIN_MS
        except ProtocolError as error:
            raise NotFoundError(f"no message with id {unique_id} in topic {topic}: {error}") from error
        found = await self._query(topic, unique_id, UNIQUE_QUERY_MAX, begin_ms, INT64_MAX, unique=True)
        return [ext for ext in found if ext.msg_id == unique_id]

    async def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = QUERY_MAX,
        begin: datetime | float = 0,
        end: datetime | float | None = None,
    ) -> FoundMessages:
        """Return the messages of *topic* that have *key* among their keys, in the order of storing.

        Brokers find by hash and answer at most 64 each; what does not really have the key is left out, and
        ``truncated`` tells that a broker has answered as many as it may.
        """
        begin_ms, end_ms = timestamp_ms(begin), INT64_MAX if end is None else timestamp_ms(end)
        found = await self._query(topic, key, max_messages, begin_ms, end_ms, unique=False)
        matching = [ext for ext in found if key in (ext.keys or "").split(KEY_SEPARATOR)]
        return FoundMessages(matching[:max_messages], truncated=found.truncated or len(matching) > max_messages)

    async def _view_by_offset_id(self, msg_id: str) -> MessageExt | None:
        place = decode_offset_message_id(msg_id)
        address = str(place.store_host)
        if address not in set(self._hub.routes.addresses(with_slaves=True)):
            known = {broker.address for broker in await self.brokers()}
            if address not in known:  # a unique id looks alike, and names some client's address
                return None
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = await self._hub.api.call(address, code, {"offset": place.physical_offset})
        return decode_message(answer.body)

    async def _view_by_unique_id(self, topic: str, msg_id: str) -> MessageExt:
        exact = await self.copies_of(topic, msg_id)
        if not exact:
            raise NotFoundError(f"no message with id {msg_id} in topic {topic}")
        return exact[0]

    async def _query(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> FoundMessages:
        """Ask one broker of each name; a refusal is an error, only "not found" is an empty answer."""
        values = {
            "topic": topic,
            "key": key,
            "max_num": max_messages,
            "begin_timestamp": begin_ms,
            "end_timestamp": end_ms,
            "unique_key_query": "true" if unique else "false",
        }

        async def ask(name: str) -> list[MessageExt]:
            address = self._hub.routes.any_address(name)
            if address is None:
                return []
            accepted = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
            answer = await self._hub.api.call(address, RequestCode.QUERY_MESSAGE, values, accepted=accepted)
            found = decode_messages(answer.body) if answer.code == ResponseCode.SUCCESS else []
            for ext in found:
                ext.broker_name = name
            return found

        route = await self.topic_route(topic)
        answers = await asyncio.gather(*(ask(data.broker_name) for data in route.broker_datas))
        found = [ext for messages in answers for ext in messages if ext.topic == topic]
        limit = min(max_messages, QUERY_MAX)
        return FoundMessages(
            sorted(found, key=lambda ext: ext.store_timestamp),
            truncated=any(len(messages) >= limit for messages in answers),
        )
