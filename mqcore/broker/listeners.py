"""The broker's listening sockets: the listen port, the fast (VIP) port two below it, and the one for slaves above it.

They are held by the broker process, so that connections wait in the backlog while a worker is started anew.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from mqcore.address import FAST_PORT_DISTANCE, HA_PORT_DISTANCE
from mqcore.config import Settings
from mqcore.errors import ConfigError

FREE_PORT_TRIES = 50


@dataclass(frozen=True, slots=True)
class Listeners:
    """What a broker listens on: for clients (socket, is the fast port), for slaves, and the listen port's number."""

    clients: list[tuple[socket.socket, bool]]
    slaves: socket.socket
    port: int

    def close(self) -> None:
        for listener, _ in self.clients:
            listener.close()
        self.slaves.close()


def open_listeners(settings: Settings) -> Listeners:
    """Open all ports; with listenPort 0 free ones that hang together are looked for.

    Raises ConfigError that names the address that cannot be had.
    """
    host, wanted = settings.mqcore.bind_address, settings.server.listen_port
    backlog = settings.server.server_socket_backlog
    if wanted != 0:
        return _beside(listen_at(host, wanted, backlog), host, backlog)
    for _ in range(FREE_PORT_TRIES):
        with contextlib.suppress(ConfigError):
            return _beside(listen_at(host, 0, backlog), host, backlog)
    raise ConfigError(f"listenPort: no three free ports on {host} in {FREE_PORT_TRIES} tries")


def _beside(main: socket.socket, host: str, backlog: int) -> Listeners:
    """Open the ports that hang together with that of *main*, which is closed if they cannot be had."""
    port: int = main.getsockname()[1]
    opened = [main]
    try:
        for other in (port - FAST_PORT_DISTANCE, port + HA_PORT_DISTANCE):
            opened.append(listen_at(host, other, backlog))
    except ConfigError:
        for listener in opened:
            listener.close()
        raise
    return Listeners([(main, False), (opened[1], True)], opened[2], port)


def listen_at(
    host: str, port: int, backlog: int, host_setting: str = "bindAddress", port_setting: str = "listenPort"
) -> socket.socket:
    """Return a socket that listens there and does not block. Raises ConfigError that names the setting."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{host_setting}: {host} cannot be resolved: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{port_setting}: cannot listen on {host}:{port}: {error.strerror}") from error
    return listener
