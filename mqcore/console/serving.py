"""The console as a server of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Final

import uvicorn

from mqcore.client.asynchronous import Client
from mqcore.console.application import application
from mqcore.console.options import ConsoleOptions
from mqcore.console.patience import CONNECTIONS_MAX, KEEP_ALIVE_S, PatientProtocol
from mqcore.errors import ConfigError

REQUEST_HEAD_BYTES_MAX: Final = 32 << 10
STOP_S: Final = 5
BACKLOG: Final = 64


def listen(options: ConsoleOptions) -> socket.socket:
    """Take the port. Raises ConfigError that says what is in the way."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host: got {options.host!r}, wanted an address of this machine ({error})") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {options.host}:{options.port}: {error}; give another --port") from error
    return listener


def check_certificate(options: ConsoleOptions) -> None:
    """Raise ConfigError if certificate and key cannot be used."""
    if options.certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.certificate, options.key)
    except (OSError, ssl.SSLError) as error:
        place = options.certificate if options.key is None else f"{options.certificate} and {options.key}"
        raise ConfigError(f"--certificate: got {place}, wanted a certificate and its key in PEM ({error})") from error


def serve(
    make_client: Callable[[], Client], options: ConsoleOptions, on_ready: Callable[[ConsoleOptions], None]
) -> None:
    """Serve until SIGINT or SIGTERM. *on_ready* is told the options, with the port that was found for 0."""
    check_certificate(options)
    with closing(listen(options)) as listener:
        settled = replace(options, port=listener.getsockname()[1])
        listener.listen(BACKLOG)
        on_ready(settled)
        asyncio.run(_serve(make_client, settled, listener))


async def _serve(make_client: Callable[[], Client], options: ConsoleOptions, listener: socket.socket) -> None:
    await make_server(make_client(), options).serve(sockets=[listener])


def make_server(client: Client, options: ConsoleOptions) -> uvicorn.Server:
    """Return a server of the pages, which opens *client* when it starts, and closes it at its end."""
    config = uvicorn.Config(
        application(client, options),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=PatientProtocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        limit_concurrency=CONNECTIONS_MAX + 1,  # of CONNECTIONS_MAX each is served
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
        h11_max_incomplete_event_size=REQUEST_HEAD_BYTES_MAX,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    return uvicorn.Server(config)
