"""A name server inside the broker process: the default for one machine, when no other is configured."""

from __future__ import annotations

from mqcore.config import Program, Settings, load
from mqcore.namesrv.server import NameServer

LOOPBACK = "127.0.0.1"
ANY = ("0.0.0.0", "::")


class EmbeddedNameServer:
    """Runs on the broker's event loop; its tables lie in the broker's store, under ``config/namesrv``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        directory = settings.store.config_dir / "namesrv"
        directory.mkdir(parents=True, exist_ok=True)
        overrides = {
            "bindAddress": settings.mqcore.bind_address,
            "listenPort": str(settings.mqcore.namesrv_listen_port),
            "kvConfigPath": str(directory / "kvConfig.json"),
            "configStorePath": str(directory / "namesrv.properties"),
        }
        self._server = NameServer(load(Program.NAMESRV, overrides=overrides, environment={}))

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> Settings:
        """Listen; returns the broker's settings with this name server as the one to register with."""
        await self._server.start()
        host = self._settings.mqcore.bind_address
        return self._settings.with_name_server(f"{LOOPBACK if host in ANY else host}:{self.port}")

    async def stop(self) -> None:
        await self._server.stop()
