"""``python -m mqcore.namesrv``: run a name server until SIGTERM or SIGINT; SIGHUP reads its settings again."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the event loop takes it: an interrupt in the middle of an extension's import would crash the interpreter.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from mqcore.config import Program, Settings
from mqcore.config.command_line import EXIT_START_FAILED
from mqcore.errors import MQError
from mqcore.namesrv.options import parse_arguments, read_again
from mqcore.namesrv.server import NameServer
from mqcore.orphans import bury_when_init
from mqcore.process_log import log_to_stderr
from mqcore.service_manager import ServiceManager
from mqcore.signals import Signals
from mqcore.transport.descriptors import allow_many_connections
from mqcore.transport.exposure import warn_if_exposed

logger = logging.getLogger("mqcore.namesrv")


async def run(settings: Settings) -> None:
    """Serve until a stop signal comes. Raises OSError or MQError if the start fails."""
    stop = asyncio.Event()
    manager = ServiceManager()
    server = NameServer(settings)

    async def reload() -> None:
        manager.reloading()
        try:
            await server.settings.follow_files(read_again())
        finally:
            manager.ready(f"serves at {server.address}")

    Signals(stop, reload).install()
    bury_when_init()
    await server.start()
    warn_if_exposed(settings, Program.NAMESRV, server.address)
    print(f"The Name Server boot success. serializeType=JSON, address {server.address}", flush=True)
    manager.ready(f"serves at {server.address}")
    await stop.wait()
    logger.info("stopping")
    manager.stopping()
    await server.stop()


def main() -> int:
    """Run the command line; return the exit status."""
    settings = parse_arguments()
    allow_many_connections()
    log_to_stderr(log_format=settings.mqcore.log_format, levels=settings.mqcore.log_levels)
    for warning in settings.warnings:
        logger.warning("%s", warning)
    try:
        asyncio.run(run(settings))
    except (OSError, MQError) as error:
        logger.error("cannot start: %s", error)
        return EXIT_START_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
