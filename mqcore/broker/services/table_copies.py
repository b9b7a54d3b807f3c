"""Copies of a master's tables, by the requests of RocketMQ and in its order.

They are on disk before they count. Source: RocketMQ broker/slave/SlaveSynchronize.java.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from mqcore.address import FAST_PORT_DISTANCE, beside, parse_address
from mqcore.broker.groups import SubscriptionGroupManager
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.offsets import ConsumerOffsetManager
from mqcore.broker.ports import Caller
from mqcore.broker.security.signature import signed
from mqcore.broker.services.delay_levels import ScheduleMessageService
from mqcore.broker.topics import TopicConfigManager
from mqcore.codes import RequestCode, ResponseCode
from mqcore.config.credentials import parse_credentials
from mqcore.errors import BrokerError, MQError
from mqcore.protocol import fastjson, headers
from mqcore.protocol.bodies import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from mqcore.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 3.0
COPIED_TABLES: Final = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
)

Put = Callable[[], Awaitable[None]]
"""Puts a copy in the place of what is there."""

Judge = Callable[[Mapping[str, str], Put], Awaitable[None]]
"""Is given the fields of the master's answer, and puts the copy or leaves it."""


async def put_always(fields: Mapping[str, str], put: Put) -> None:
    """Take every copy."""
    await put()


class TableCopies:
    """Asks a master for its tables."""

    def __init__(
        self,
        settings: LiveSettings,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        schedule: ScheduleMessageService,
        caller: Caller,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._schedule = schedule
        self._caller = caller
        self.judge: Judge = put_always
        self.credentials = parse_credentials(settings.broker.inner_client_authentication_credentials)

    async def ask(self, address: str, code: int, **fields: object) -> RemotingCommand:
        """Return the answer to a request. Raises BrokerError for another one than success, RemotingError, OSError."""
        request = RemotingCommand(code, ext_fields=headers.encode_request(code, **fields) if fields else {})
        if self.credentials is not None:
            request = signed(request, self.credentials.access_key, self.credentials.secret_key.encode())
        reply = await self._caller.invoke(address, request, CALL_TIMEOUT_S)
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address)
        return reply

    async def copy(self, address: str) -> None:
        """Copy the tables of the master at *address*; one that fails keeps nothing from the others."""
        fast = str(beside(parse_address(address), -FAST_PORT_DISTANCE))
        puts = (self._put_topics, self._put_offsets, self._put_delay_offsets, self._put_groups)
        for code, put in zip(COPIED_TABLES, puts, strict=True):
            try:
                # Topics are asked for where sends do not wait, as in RocketMQ.
                await self._copy(fast if code == RequestCode.GET_ALL_TOPIC_CONFIG else address, code, put)
            except (MQError, OSError) as error:
                logger.warning("table not copied what=%s master=%s error=%s", code.name, address, error)

    async def _copy(self, address: str, code: RequestCode, put: Callable[[bytes], Awaitable[None]]) -> None:
        reply = await self.ask(address, code)
        await self.judge(reply.ext_fields or {}, lambda: put(reply.body))

    async def _put_topics(self, body: bytes) -> None:
        await self._topics.replace(TopicConfigSerializeWrapper.decode(body))

    async def _put_offsets(self, body: bytes) -> None:
        self._offsets.merge(fastjson.loads(body))
        await self._offsets.persist()

    async def _put_delay_offsets(self, body: bytes) -> None:
        table = fastjson.loads(body).get("offsetTable") or {}
        self._schedule.offsets = {int(level): int(offset) for level, offset in table.items()}
        await self._schedule.persist()

    async def _put_groups(self, body: bytes) -> None:
        await self._groups.replace(SubscriptionGroupWrapper.decode(body))
