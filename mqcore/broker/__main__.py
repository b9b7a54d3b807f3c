"""``python -m mqcore.broker``: one broker in the foreground, until SIGTERM or SIGINT; SIGHUP reads its settings again.

Exit statuses are RocketMQ's: 0 after an orderly stop, 253 for settings that cannot stand, 255 for a start that failed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the event loop takes it: an interrupt in the middle of an extension's import would crash the interpreter.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

if __name__ == "__main__":
    # What imports make stays for good: looking through it for garbage is a twentieth of a start, and a pause later on.
    gc.disable()

from mqcore.extensions import require

require("a broker")  # before anything asks for them by name

from mqcore.broker.nursery import Nursery
from mqcore.broker.options import parse_arguments, read_again
from mqcore.broker.server import BrokerServer
from mqcore.broker.start_failures import in_words
from mqcore.config import Program, Settings
from mqcore.config.command_line import EXIT_BAD_SETTINGS, EXIT_START_FAILED, tell
from mqcore.errors import ConfigError, MQError
from mqcore.leaving import leave
from mqcore.orphans import bury_when_init
from mqcore.process_log import log_to_stderr
from mqcore.service_manager import ServiceManager
from mqcore.signals import Signals
from mqcore.transport.descriptors import allow_many_connections
from mqcore.version import __version__

if TYPE_CHECKING:
    from mqcore.broker.group_server import GroupServer

logger = logging.getLogger("mqcore.broker")


async def serve(settings: Settings, config_path: Path | None, nursery: Nursery | None, began: float) -> int:
    """Run the broker until a signal asks it to stop; the exit status."""
    stop = asyncio.Event()
    manager = ServiceManager()
    server = server_of(settings, config_path, nursery)
    is_started = False

    async def reload() -> None:
        if not is_started:
            return  # a start has read the files a moment ago
        manager.reloading()
        try:
            await server.follow_settings(read_again())
        finally:
            manager.ready(status_of(server))

    Signals(stop, reload).install()
    bury_when_init()
    try:
        await server.start()
    except ConfigError as error:
        tell(Program.BROKER, error)
        return EXIT_BAD_SETTINGS
    except (MQError, OSError) as error:
        logger.error("start failed error=%s", in_words(error))
        print(f"mqcore broker: the start failed: {in_words(error)}", file=sys.stderr)
        return EXIT_START_FAILED
    is_started = True
    announce(server, began)
    manager.ready(status_of(server))
    if not isinstance(server, BrokerServer):
        return await serve_group(server, stop, manager)
    await stop.wait()
    logger.info("stopping")
    manager.stopping()
    await server.stop()
    logger.info("stopped")
    return 0


def server_of(settings: Settings, config_path: Path | None, nursery: Nursery | None) -> BrokerServer | GroupServer:
    """Return the server of a broker, which may be a member of a group that elects its master."""
    if not settings.failover.is_group:
        return BrokerServer(settings, config_path, nursery=nursery)
    # What a group needs besides is a sixth of a start's imports, and few brokers are in one.
    from mqcore.broker.group_server import GroupServer

    return GroupServer(settings, config_path, nursery)


async def serve_group(server: GroupServer, stop: asyncio.Event, manager: ServiceManager) -> int:
    """Let *server* live until it is to stop, or an operator has to look; the exit status."""
    waits = [asyncio.create_task(stop.wait()), asyncio.create_task(server.ended.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    logger.info("stopping")
    manager.stopping()
    await server.stop()
    logger.info("stopped")
    if server.failure is None:
        return 0
    print(f"mqcore broker: it cannot go on in its group: {server.failure}", file=sys.stderr)
    return EXIT_START_FAILED


def announce(server: BrokerServer | GroupServer, began: float) -> None:
    """Print the line that RocketMQ prints, and how to send and receive a first message, or why that must wait."""
    name_servers = ";".join(server.name_server_addresses)
    identity = f"{server.settings.broker.broker_name}, {server.address}"
    store = server.settings.store.root_dir.absolute()
    lines = [
        f"The broker[{identity}] boot success. serializeType=JSON and name server is {name_servers}",
        f"mqcore {__version__}, up in {time.monotonic() - began:.2f} s, store {store}",
        *(first_steps(name_servers) if server.is_registered else unregistered(server)),
    ]
    print("\n".join(lines), flush=True)


def status_of(server: BrokerServer | GroupServer) -> str:
    """One line for who looks at the state of this service."""
    name_servers = ";".join(server.name_server_addresses)
    return f"{server.settings.broker.broker_name} serves, name server {name_servers}"


def first_steps(name_servers: str) -> list[str]:
    beside = Path(sys.executable).with_name("mqcore")
    command = "mqcore" if shutil.which("mqcore") or not beside.exists() else str(beside)
    return [
        "Send a first message, and receive it:",
        f"  {command} -n {name_servers} send hello --body 'hello, world'",
        f"  {command} -n {name_servers} consume hello --group first -n 1",
    ]


def unregistered(server: BrokerServer | GroupServer) -> list[str]:
    period_s = server.settings.broker.register_name_server_period_ms / 1000
    trouble = f"No name server has answered, so no client finds this broker yet; it tries again every {period_s:g} s."
    if page := server.settings.namesrv_page:
        return [trouble, f"It is to find them at {page}; the log says what was found there."]
    first = server.settings.namesrv_addresses[0]
    return [
        trouble,
        f"Start one there (python -m mqcore.namesrv --port {first.port}), name one that runs (-n HOST:PORT), or leave",
        "-n and namesrvAddr out: then one runs inside this broker.",
    ]


def main() -> int:
    began = time.monotonic()
    gc.freeze()
    gc.enable()
    settings, config_path = parse_arguments()
    allow_many_connections()
    nursery = Nursery.fork()  # it is to have the limits, and not yet this process's log
    log_to_stderr("broker", settings.mqcore.log_format, settings.mqcore.log_levels)
    for warning in settings.warnings:
        logger.warning("%s", warning)
    try:
        return asyncio.run(serve(settings, config_path, nursery, began))
    finally:
        if nursery is not None:
            nursery.close()


if __name__ == "__main__":
    leave(main())
