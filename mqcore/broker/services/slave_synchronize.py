"""What a slave's broker process does about its master: with whom to copy, and the copies of the tables.

The ha worker copies the log from where it is told to, and stops when that connection ends; each time this process looks
again whether the two logs are one history. RocketMQ's slave connects to whatever listens there, and a master that was
emptied or restored goes on in the middle of another log. Tables come by the requests of RocketMQ, in its order, and are
on disk before they count. Source: RocketMQ broker/slave/SlaveSynchronize.java.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from mqcore import clock
from mqcore.address import FAST_PORT_DISTANCE, HA_PORT_DISTANCE, beside, parse_address
from mqcore.broker.groups import SubscriptionGroupManager
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.offsets import ConsumerOffsetManager
from mqcore.broker.ports import Caller, Replica
from mqcore.broker.security.signature import signed
from mqcore.broker.services.delay_levels import ScheduleMessageService
from mqcore.broker.topics import TopicConfigManager
from mqcore.codes import RequestCode, ResponseCode
from mqcore.config.credentials import parse_credentials
from mqcore.config.properties import parse_properties
from mqcore.errors import BrokerError, MQError
from mqcore.protocol import fastjson, headers
from mqcore.protocol.bodies import KVTable, SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from mqcore.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)

FIRST_SYNC_S: Final = 3.0
SYNC_INTERVAL_S: Final = 10.0
LEARN_INTERVAL_S: Final = 2.0
CALL_TIMEOUT_S: Final = 3.0
LOOK_S: Final = 0.2
"""How often it is looked whether the log is being copied."""

RETRY_S: Final = 2.0
LINE_PAUSE_S: Final = 60.0
EMPTY_MASTER: Final = -1
ACCESS_REFUSED: Final = "AclException"
"""Stands in the remark with which access control refuses, here and in RocketMQ."""

ALL: Final = 0


class UnfitMasterError(Exception):
    """The master's log and ours are not one history, or it cannot be gone on with. The text says why."""


class SlaveSynchronize:
    """One slave's side."""

    def __init__(
        self,
        settings: LiveSettings,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        schedule: ScheduleMessageService,
        replica: Replica,
        caller: Caller,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._schedule = schedule
        self._replica = replica
        self._caller = caller
        self._learned = ""
        self._learned_ha = ""
        self._said_at = 0.0
        self._credentials = parse_credentials(settings.broker.inner_client_authentication_credentials)
        self.refusal = ""
        """Why the log is not copied from the master that is known; empty if nothing speaks against it."""

    # Who the master is ------------------------------------------------------------------------------------------

    def learn(self, address: str | None, ha_address: str | None) -> None:
        """A name server has said who the master is; None: it does not know one."""
        if address and address != self._learned:
            logger.info("master learned address=%s ha_address=%s", address, ha_address)
        self._learned = address or ""
        self._learned_ha = ha_address or self._learned_ha

    @property
    def is_known(self) -> bool:
        return bool(self.ha_address)

    @property
    def ha_address(self) -> str:
        """Where the master listens for slaves."""
        return self._settings.store.ha_master_address or self._learned_ha

    @property
    def address(self) -> str:
        """Where it answers requests: what the name server said, else the port before that for slaves."""
        if self._learned or not self.ha_address:
            return self._learned
        ha = parse_address(self.ha_address)
        return str(beside(ha, -HA_PORT_DISTANCE))

    async def _ask(self, address: str, code: int, **fields: object) -> bytes:
        request = RemotingCommand(code, ext_fields=headers.encode_request(code, **fields) if fields else {})
        if self._credentials is not None:
            request = signed(request, self._credentials.access_key, self._credentials.secret_key.encode())
        reply = await self._caller.invoke(address, request, CALL_TIMEOUT_S)
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address)
        return reply.body

    # The log ----------------------------------------------------------------------------------------------------

    async def keep_copying(self) -> None:
        """Have the log copied, again whenever it is not, until cancelled."""
        try_at = 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            if self._replica.is_copying or clock.monotonic_s() < try_at or not self.is_known:
                continue
            if not self._replica.is_dispatched:
                continue  # the newest record could not be found, and it is what tells the master's log from others
            try:
                await self._begin()
                self.refusal = ""
            except UnfitMasterError as error:
                self.refusal = str(error)
                self._say_refusal()
            except BrokerError as error:
                self.refusal = self._answered_no(error)
                self._say_refusal()
            except (MQError, OSError) as error:
                logger.warning("master cannot be asked address=%s error=%s", self.address, error)
            except Exception:  # the top loop of this task: without it nothing would be copied ever again
                logger.exception("copying cannot begin, trying again")
            try_at = clock.monotonic_s() + RETRY_S

    def _answered_no(self, error: BrokerError) -> str:
        """Why the log is not copied from a master that answers with *error*, and what to do about it."""
        if ACCESS_REFUSED not in error.remark:
            return f"the master answers with code {error.code}: {error.remark}"
        if self._credentials is None:
            return (
                f"the master serves whom it knows ({error.remark}): put this slave's address into its"
                " globalWhiteRemoteAddresses, or give this slave innerClientAuthenticationCredentials"
            )
        return f"the master does not take innerClientAuthenticationCredentials ({error.remark})"

    def _say_refusal(self) -> None:
        now = clock.monotonic_s()
        if now >= self._said_at:
            self._said_at = now + LINE_PAUSE_S
            logger.error("the log is not copied master=%s why=%s", self.address, self.refusal)

    async def _begin(self) -> None:
        """Compare the two logs, and let the ha worker connect. Raises UnfitMasterError."""
        start = await self._start()
        ha = parse_address(self.ha_address)
        found = await asyncio.get_running_loop().getaddrinfo(ha.host, ha.port, type=socket.SOCK_STREAM)
        self._replica.follow(str(found[0][4][0]), ha.port, start)

    async def _start(self) -> int:
        settings = parse_properties((await self._ask(self.address, RequestCode.GET_BROKER_CONFIG)).decode())
        size, own_size = settings.get("mappedFileSizeCommitLog", ""), self._settings.store.mapped_file_size_commit_log
        if size != str(own_size):
            raise UnfitMasterError(f"mappedFileSizeCommitLog: the master has {size}, this slave {own_size}")
        info = KVTable.decode(await self._ask(self.address, RequestCode.GET_BROKER_RUNTIME_INFO)).table
        first, end = max(0, int(info["commitLogMinOffset"])), int(info["commitLogMaxOffset"])
        own_end = self._replica.end
        if own_end == 0:
            return EMPTY_MASTER if end == 0 else first
        if own_end < first:
            raise UnfitMasterError(
                f"this log ends at {own_end}, before the master's first file at {first}; empty this store"
            )
        await self._compare(first, end)
        return own_end

    async def _compare(self, first: int, end: int) -> None:
        """The newest record of our own must lie in the master's log at the same place."""
        newest = self._replica.newest_record()
        if newest is None or newest[0] < first:
            return
        offset, record = newest
        if offset + len(record) > end:
            raise UnfitMasterError(
                f"this log has a record up to {offset + len(record)}, the master's ends at {end}: another history"
            )
        try:
            masters = await self._ask(self.address, RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
        except BrokerError as error:
            raise UnfitMasterError(f"the master has no record at {offset}, where this log has one: {error}") from error
        if masters != record:
            raise UnfitMasterError(f"the records at {offset} differ: another history; empty this store")

    # The tables -------------------------------------------------------------------------------------------------

    async def copy_tables(self) -> None:
        """Copy topics, consumer offsets, delay offsets and groups; one that fails keeps nothing from the others."""
        if not self.address:
            return
        for copy in (self._copy_topics, self._copy_offsets, self._copy_delay_offsets, self._copy_groups):
            await self._tried(copy)

    async def _tried(self, copy: Callable[[], Awaitable[None]]) -> None:
        try:
            await copy()
        except (MQError, OSError) as error:
            logger.warning("table not copied what=%s master=%s error=%s", copy.__name__, self.address, error)

    async def _copy_topics(self) -> None:
        fast = str(beside(parse_address(self.address), -FAST_PORT_DISTANCE))
        body = await self._ask(fast, RequestCode.GET_ALL_TOPIC_CONFIG)
        await self._topics.replace(TopicConfigSerializeWrapper.decode(body))

    async def _copy_offsets(self) -> None:
        body = await self._ask(self.address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        self._offsets.merge(fastjson.loads(body))
        await self._offsets.persist()

    async def _copy_delay_offsets(self) -> None:
        body = await self._ask(self.address, RequestCode.GET_ALL_DELAY_OFFSET)
        table = fastjson.loads(body).get("offsetTable") or {}
        self._schedule.offsets = {int(level): int(offset) for level, offset in table.items()}
        await self._schedule.persist()

    async def _copy_groups(self) -> None:
        body = await self._ask(self.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        await self._groups.replace(SubscriptionGroupWrapper.decode(body))
