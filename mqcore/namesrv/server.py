"""The name server as a whole: its tables, its listening socket, and the scan for brokers that have fallen silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqcore.clock import monotonic_ms
from mqcore.config import Program, Settings, load
from mqcore.namesrv.kv_config import KVConfig
from mqcore.namesrv.live_settings import NameServerLiveSettings
from mqcore.namesrv.processor import Processor
from mqcore.namesrv.route_table import BROKER_EXPIRY_MS, RouteTable
from mqcore.transport.door import TlsDoor
from mqcore.transport.server import RemotingServer
from mqcore.transport.tls import ServerMaterial, is_served
from mqcore.transport.tls_watch import CertificateWatch

logger = logging.getLogger(__name__)

FIRST_SCAN_S: Final = 5.0
SCAN_INTERVAL_S: Final = 10.0


class NameServer:
    """A name server on the running event loop: ``await start()``, ``address``, ``await stop()``."""

    def __init__(
        self,
        settings: Settings,
        *,
        live: NameServerLiveSettings | None = None,
        broker_expiry_ms: int = BROKER_EXPIRY_MS,
        first_scan_s: float = FIRST_SCAN_S,
        scan_interval_s: float = SCAN_INTERVAL_S,
        clock: Callable[[], int] = monotonic_ms,
    ) -> None:
        """*settings* are those of ``load(Program.NAMESRV)``; the times are RocketMQ's unless a test is in a hurry.

        *live* is given where somebody else changes the settings too. Raises TlsError for certificates of no use.
        """
        self._first_scan_s = first_scan_s
        self._scan_interval_s = scan_interval_s
        self._scan_timer: asyncio.TimerHandle | None = None
        self.settings = live or NameServerLiveSettings(settings)
        self.routes = RouteTable(broker_expiry_ms, clock)
        self.kv_config = KVConfig(Path(settings.namesrv.kv_config_path))
        self._material = ServerMaterial.read(settings.tls) if is_served(settings.tls) else ServerMaterial()
        self.door = TlsDoor(settings.tls.server_mode, self._material, settings.tls.handshake_timeout_ms / 1000)
        self._certificate_watch: asyncio.Task[None] | None = None
        self._server = RemotingServer(
            settings.mqcore.bind_address,
            settings.server.listen_port,
            Processor(self.routes, self.kv_config, self.settings).handle,
            settings.server.server_channel_max_idle_time_seconds,
            on_close=self.routes.connection_closed,
            frame_size_max=settings.mqcore.frame_max_length,
            write_buffer_size_max=settings.mqcore.connection_write_buffer_bytes,
            door=self.door,
        )

    @classmethod
    def at(cls, host: str, port: int, directory: str | Path) -> NameServer:
        """Return a name server with default settings that listens on *host* and *port* (0: any free port).

        Its files lie in *directory*.
        """
        overrides = {
            "bindAddress": host,
            "listenPort": str(port),
            "kvConfigPath": str(Path(directory) / "kvConfig.json"),
            "configStorePath": str(Path(directory) / "namesrv.properties"),
        }
        return cls(load(Program.NAMESRV, overrides=overrides, environment={}))

    async def start(self) -> None:
        """Load the key-value table and listen.

        Raises CorruptFileError if the table cannot be read, OSError if the address cannot be had.
        """
        await self.bind()
        await self.serve()

    async def bind(self) -> None:
        """Do what may fail of ``start``: nobody is let in before ``serve``."""
        self.kv_config.load()
        await self._server.bind()

    async def serve(self) -> None:
        """Listen."""
        await self._server.serve()
        self._scan_timer = asyncio.get_running_loop().call_later(self._first_scan_s, self._scan)
        if not self._material.is_self_signed:
            watch = CertificateWatch(self.settings.current.tls, self._material, self._show_anew)
            self._certificate_watch = asyncio.create_task(watch.run())

    async def _show_anew(self, material: ServerMaterial) -> None:
        self.door.use(material)

    async def stop(self) -> None:
        """Stop listening, finish the requests in work, close every connection."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None
        if self._certificate_watch is not None:
            self._certificate_watch.cancel()
        await self._server.stop()

    @property
    def address(self) -> str:
        """``host:port``; known after start()."""
        return self._server.address

    @property
    def port(self) -> int:
        """The port that is listened on; known after start()."""
        return self._server.port

    def _scan(self) -> None:
        self._scan_timer = asyncio.get_running_loop().call_later(self._scan_interval_s, self._scan)
        for connection in self.routes.drop_silent_brokers():
            connection.abort()
