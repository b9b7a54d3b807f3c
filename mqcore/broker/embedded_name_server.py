"""A name server inside the broker process: the default for one machine, when no other is configured."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mqcore.broker.live_settings import LiveSettings
from mqcore.config import Program, Settings, load, rows_of
from mqcore.config.table import format_value
from mqcore.errors import ConfigError
from mqcore.namesrv.live_settings import NameServerLiveSettings
from mqcore.namesrv.server import NameServer

LOOPBACK = "127.0.0.1"
ANY = ("0.0.0.0", "::")


def settings_inside(settings: Settings) -> Settings:
    """Return what a name server inside a broker with *settings* goes by: what both know is the same for both."""
    values = settings.used_values()
    overrides = {
        row.key: format_value(values[row.key])
        for row in rows_of(Program.NAMESRV)
        if row.used and row.key in settings.sources
    }
    # These three have other defaults in a broker.
    overrides |= {
        "listenPort": str(settings.mqcore.namesrv_listen_port),
        "kvConfigPath": settings.namesrv.kv_config_path,
        "configStorePath": settings.namesrv.config_store_path,
    }
    return load(Program.NAMESRV, overrides=overrides, environment={})


class SettingsInside(NameServerLiveSettings):
    """The settings of a name server inside a broker: a change of what both know is one change, whoever is asked."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings_inside(settings))
        self._broker: LiveSettings | None = None

    def follow(self, broker: LiveSettings) -> None:
        """Go by *broker* from now on."""
        self._broker = broker
        broker.on_change(self._on_change)

    def _on_change(self, before: Settings, after: Settings) -> None:
        self.current = settings_inside(after)

    async def _accept(self, after: Settings, changes: Mapping[str, str]) -> None:
        if self._broker is None:
            self.current = after
        else:
            await self._broker.update(changes)


class EmbeddedNameServer:
    """Runs on the broker's event loop; its files lie where the broker's settings say, in the store if they do not."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._live = SettingsInside(settings)
        self._server = NameServer(self._live.current, live=self._live)

    @property
    def port(self) -> int:
        return self._server.port

    def follow(self, live: LiveSettings) -> None:
        """Let changes that are asked of the broker or of this name server hold for both."""
        self._live.follow(live)

    async def bind(self) -> Settings:
        """Take the address; returns the broker's settings with this name server as the one to register with.

        Nobody is let in before ``serve``: a client would be told that there is no broker. Raises ConfigError for an
        address that cannot be had.
        """
        host = self._settings.mqcore.bind_address
        try:
            await self._server.bind()
        except OSError as error:
            raise ConfigError(
                f"namesrvListenPort: cannot listen on {host}:{self._settings.mqcore.namesrv_listen_port}: "
                f"{os.strerror(error.errno or 0)}; take another port, or name the name server that is there (-n)"
            ) from error
        return self._settings.with_name_server(f"{LOOPBACK if host in ANY else host}:{self.port}")

    async def serve(self) -> None:
        """Let brokers and clients in."""
        await self._server.serve()

    async def stop(self) -> None:
        await self._server.stop()
