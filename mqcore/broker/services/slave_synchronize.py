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
from typing import Final

from mqcore import clock
from mqcore.address import HA_PORT_DISTANCE, beside, parse_address
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.ports import Replica
from mqcore.broker.services.table_copies import TableCopies
from mqcore.codes import RequestCode
from mqcore.errors import BrokerError, MQError
from mqcore.java_properties import parse_properties
from mqcore.protocol.bodies import KVTable

logger = logging.getLogger(__name__)

FIRST_SYNC_S: Final = 3.0
SYNC_INTERVAL_S: Final = 10.0
LEARN_INTERVAL_S: Final = 2.0
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
        tables: TableCopies,
        replica: Replica,
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._replica = replica
        self._learned = ""
        self._learned_ha = ""
        self._said_at = 0.0
        self.refusal = ""
        """Why the log is not copied from the master that is known; empty if nothing speaks against it."""

    # Who the master is ------------------------------------------------------------------------------------------

    def learn(self, address: str | None, ha_address: str | None) -> None:
        """A name server has said who the master is; None: it does not know one."""
        if address and address != self._learned:
            logger.info("master learned address=%s ha_address=%s", address, ha_address)
        self._learned = address or ""
        self._learned_ha = ha_address or self._learned_ha

    def forget(self) -> None:
        """There is no master to copy from."""
        self._learned = self._learned_ha = ""

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
        return (await self._tables.ask(address, code, **fields)).body

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
        if self._tables.credentials is None:
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
        if self.address:
            await self._tables.copy(self.address)
