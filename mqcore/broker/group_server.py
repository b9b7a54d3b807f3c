"""A broker of a failover group: lives that follow one another in one process, over one store.

A life is a ``BrokerServer`` with its workers. It begins as a slave, may be promoted once, and ends where something
would have to be taken back: a mastership that is over, a log that is to be cut. In between nobody has the store open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import ssl
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqcore import clock
from mqcore.broker.console_process import ConsoleProcess, wanted_console
from mqcore.broker.failover.driver import FailoverDriver
from mqcore.broker.failover.etcd import EtcdEngine
from mqcore.broker.failover.group_keys import MEMBERS, GroupView, KnownMember, encode
from mqcore.broker.failover.identity import IdentityKeeper
from mqcore.broker.failover.life import CopyAgain, CutLog, EmptyStore, LifeEnd, LiveAgain, StopForGood
from mqcore.broker.metrics.broker_facts import Observed
from mqcore.broker.metrics.wanted import start_endpoint
from mqcore.broker.server import BrokerServer
from mqcore.config import Settings
from mqcore.config.groups import FailoverSettings
from mqcore.config.reading_again import read_again
from mqcore.errors import ConfigError, EngineError, GroupIdentityError
from mqcore.files import mount_of
from mqcore.layout import GROUP_MEMBERS_MAX
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.geometry import StoreGeometry
from mqcore.store.lock_file import LockFile
from mqcore.store.log_cut import cut_log, empty_store, finish_cut
from mqcore.store.paths import StorePaths

if TYPE_CHECKING:
    from mqcore.broker.metrics.endpoint import MetricsEndpoint
    from mqcore.broker.nursery import Nursery

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
LINE_PAUSE_S: Final = 30.0
GIVE_AWAY_S: Final = 5.0
"""How long a master that stops waits for another to take its place."""

LEAVE_S: Final = 2.0
"""How long a slave that stops waits until acknowledgements need it no more."""

CHECK_S: Final = 0.02
FAILED_SYNCS_MAX: Final = 1
"""After so many what may be lost is copied again, without a word of an operator."""


class GroupServer:
    """Make it, ``start`` it, ``stop`` it, from one event loop. ``ended`` says that it goes on no more, and why."""

    def __init__(self, settings: Settings, config_path: Path | None = None, nursery: Nursery | None = None) -> None:
        self.settings = settings
        self._config_path = config_path
        self._nursery = nursery
        self._paths = StorePaths.of(settings.store)
        self._geometry = StoreGeometry.of(settings.store)
        self._lock = LockFile(self._paths.lock)
        self._identity: IdentityKeeper | None = None
        self._engine = make_engine(settings)
        self._names = make_engine(settings)
        self._server: BrokerServer | None = None
        self._driver: FailoverDriver | None = None
        self._lives: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._failed_syncs = 0
        self._metrics: MetricsEndpoint | None = None
        self._console: ConsoleProcess | None = None
        self.ended = asyncio.Event()
        self.failure: Exception | None = None
        """Why it ended, unless it was stopped."""

    @property
    def address(self) -> str:
        """Where this broker answers requests."""
        assert self._server is not None
        return self._server.address

    @property
    def name_server_addresses(self) -> list[str]:
        """Those of its page are known while it runs."""
        if self._server is None:
            return [str(address) for address in self.settings.namesrv_addresses]
        return self._server.name_server_addresses

    @property
    def is_registered(self) -> bool:
        """Whether a name server has taken what this broker has."""
        return self._server is not None and self._server.is_registered

    def observe(self) -> Observed | None:
        """As ``BrokerServer.observe``; None between two lives, too."""
        return None if self._server is None else self._server.observe()

    async def follow_settings(self, fresh: Settings) -> None:
        """As ``BrokerServer.follow_settings``, for this life and for later ones."""
        if self._server is None:
            self.settings = read_again(self.settings, fresh)
        else:
            await self._server.follow_settings(fresh)

    # Starting ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the store, find out who it is in its group, and begin the first life. Raises as ``BrokerServer.start``.

        Raises GroupIdentityError where an operator has to look first. A store that has an id needs no engine for this.
        """
        try:
            self._metrics = await start_endpoint(self.settings, self.observe)
            self._console = wanted_console(self.settings)
            self._paths.make_directories()
            self._lock.acquire()
            # Before the identity is read: the mark of a cut is in it.
            await asyncio.to_thread(finish_cut, self._paths, self._geometry)
            broker = self.settings.broker
            self._identity = IdentityKeeper(FailoverFiles(self._paths), broker.broker_cluster_name, broker.broker_name)
            if self._identity.now.member is None:
                await self._join()
            mounts = sorted({mount_of(path) for path in self._paths.log.directories if path.is_dir()})
            self._identity.begin(mount=" ".join(mounts), acks_flushed=self.settings.failover.ha_ack_flushed)
            await self._begin_life()
            if self._console is not None:
                self._console.start(self.name_server_addresses)
        except BaseException:
            await self._release()
            raise
        self._lives = asyncio.create_task(self._live_on())

    async def _join(self) -> None:
        """Take the next free id of the group; asked for until the engine answers."""
        assert self._identity is not None
        self._identity.change()  # the uuid first: if the answer is lost, the id is found again by it
        said_at_s = 0.0
        while True:
            try:
                member = await self._take_id()
                break
            except EngineError as error:
                if clock.monotonic_s() >= said_at_s:
                    said_at_s = clock.monotonic_s() + LINE_PAUSE_S
                    logger.warning("the group cannot be joined yet error=%s", error)
                await asyncio.sleep(RETRY_S)
        self._identity.change(member=member)
        logger.info("joined group=%s member=%d", self.settings.broker.broker_name, member)

    async def _take_id(self) -> int:
        assert self._identity is not None
        own = KnownMember(self._identity.now.uuid, clock.now_ms())
        while True:
            view = GroupView.of(await self._engine.read_all())
            known = view.id_of(own.uuid)
            if known is not None:
                return known
            if view.next_id >= GROUP_MEMBERS_MAX:
                raise GroupIdentityError(f"the group has given all its ids, 1 to {GROUP_MEMBERS_MAX - 1}")
            if await self._engine.create(f"{MEMBERS}{view.next_id}", encode(own)):
                return view.next_id

    # Lives ------------------------------------------------------------------------------------------------------

    async def _begin_life(self) -> None:
        assert self._identity is not None
        self._identity.raise_floor()
        nonce = secrets.randbits(62) + 1
        self._driver = FailoverDriver(self.settings, self._identity, self._engine, self._names, nonce)
        server = BrokerServer(self.settings, self._config_path, self._driver, self._lock, self._nursery)
        await server.start()
        self._server = server
        if self.settings.server.listen_port == 0:
            # What was found once is kept: the group knows this broker by it.
            port = int(server.addresses[0].rpartition(":")[2])
            self.settings = replace(self.settings, server=self.settings.server._replace(listen_port=port))

    async def _live_on(self) -> None:
        """Live, one life after the other, until stopped."""
        try:
            while True:
                assert self._driver is not None
                assert self._server is not None
                end = await self._driver.run(self._server)
                if self._is_stopping:
                    return
                logger.info("this life in the group is over: %s", end)
                server, self._server = self._server, None
                self.settings = server.settings  # with what was changed while it lived
                await server.stop(leaves=isinstance(end, StopForGood))
                await asyncio.to_thread(self._put_right, end)
                await self._begin_life()
        except GroupIdentityError as error:
            self.failure = error
        except Exception as error:  # the top loop of this process's work in the group
            logger.exception("the broker cannot go on in its group")
            self.failure = error
        finally:
            self.ended.set()

    def _put_right(self, end: LifeEnd) -> None:
        """Let the store be as the next life is to find it."""
        assert self._identity is not None
        match end:
            case StopForGood(reason):
                raise GroupIdentityError(reason)
            case CutLog(point):
                self._identity.change(floor=min(self._identity.now.floor, point))
                cut_log(self._paths, self._geometry, point)
            case CopyAgain(point):
                self._identity.change(is_trusted=False)
                self._failed_syncs += 1
                if self._failed_syncs > FAILED_SYNCS_MAX:
                    raise GroupIdentityError("syncs of this store fail again and again: its disk has to be replaced")
                cut_log(self._paths, self._geometry, point)
            case EmptyStore():
                self._identity.change(floor=0)
                empty_store(self._paths, self._geometry)
            case LiveAgain():
                pass

    # Stopping ---------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Give a mastership away, leave the group, and stop as ``BrokerServer.stop``."""
        self._is_stopping = True
        driver, lives = self._driver, self._lives
        if driver is not None and lives is not None and not lives.done():
            await self._leave(driver, lives)
            driver.end("stopping")
            await asyncio.wait([lives])
        if self._server is not None:
            await self._server.stop()
            self._server = None
            if self._identity is not None and driver is not None:
                # Where something was broken or left behind, the file that says so is there still.
                self._identity.change(stopped_cleanly=not self._paths.abort.exists())
        with contextlib.suppress(EngineError):
            await self._names.leave()
        await self._release()

    async def _leave(self, driver: FailoverDriver, lives: asyncio.Task[None]) -> None:
        was_master = driver.is_master
        if was_master and self._server is not None:
            self._server.refuse_new_sends(True)
        driver.leave()
        until = clock.monotonic_s() + (GIVE_AWAY_S if was_master else LEAVE_S)
        while not lives.done() and clock.monotonic_s() < until:
            if driver.has_successor if was_master else driver.is_in_sync:
                await asyncio.sleep(CHECK_S)
            else:
                return

    async def _release(self) -> None:
        if self._metrics is not None:
            await self._metrics.stop()
            self._metrics = None
        if self._console is not None:
            await self._console.stop()
            self._console = None
        self._engine.close()
        self._names.close()
        self._lock.release()


def make_engine(settings: Settings) -> EtcdEngine:
    """Return a connection to the engine of the group. Raises ConfigError for certificates that cannot be read."""
    options, broker = settings.failover, settings.broker
    return EtcdEngine(
        options.etcd_addresses,
        broker.broker_cluster_name,
        broker.broker_name,
        context=engine_context(options) if options.etcd_tls else None,
        user=options.etcd_user,
        password=options.etcd_password,
    )


def engine_context(options: FailoverSettings) -> ssl.SSLContext:
    """Return what calls to the engine have of TLS. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cafile=options.etcd_ca_file or None)
        if options.etcd_cert_file:
            context.load_cert_chain(options.etcd_cert_file, options.etcd_key_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"failoverEtcdTls: the certificates cannot be used: {error}") from error
    return context
