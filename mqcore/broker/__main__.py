"""``python -m mqcore.broker``: one broker in the foreground, until SIGTERM, SIGINT or SIGHUP.

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

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the event loop takes it: an interrupt in the middle of an extension's import would crash the interpreter.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

if __name__ == "__main__":
    # What imports make stays for good: looking through it for garbage is a twentieth of a start, and a pause later on.
    gc.disable()

from mqcore.broker.group_server import GroupServer
from mqcore.broker.options import parse_arguments
from mqcore.broker.server import BrokerServer
from mqcore.config import Settings
from mqcore.config.command_line import EXIT_BAD_SETTINGS, EXIT_START_FAILED
from mqcore.errors import ConfigError, MQError
from mqcore.process_log import log_to_stderr
from mqcore.remoting.descriptors import allow_many_connections
from mqcore.version import __version__

logger = logging.getLogger("mqcore.broker")


async def serve(settings: Settings, config_path: Path | None, began: float) -> int:
    """Run the broker until a signal asks it to stop; the exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    server = GroupServer(settings, config_path) if settings.failover.is_group else BrokerServer(settings, config_path)
    try:
        await server.start()
    except ConfigError as error:
        print(f"mqcore broker: {error}", file=sys.stderr)
        return EXIT_BAD_SETTINGS
    except (MQError, OSError) as error:
        logger.error("start failed error=%s", error)
        print(f"mqcore broker: the start failed: {error}", file=sys.stderr)
        return EXIT_START_FAILED
    announce(server, began)
    if isinstance(server, GroupServer):
        return await serve_group(server, stop)
    await stop.wait()
    logger.info("stopping")
    await server.stop()
    logger.info("stopped")
    return 0


async def serve_group(server: GroupServer, stop: asyncio.Event) -> int:
    """Let *server* live until it is to stop, or an operator has to look; the exit status."""
    waits = [asyncio.create_task(stop.wait()), asyncio.create_task(server.ended.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    logger.info("stopping")
    await server.stop()
    logger.info("stopped")
    if server.failure is None:
        return 0
    print(f"mqcore broker: it cannot go on in its group: {server.failure}", file=sys.stderr)
    return EXIT_START_FAILED


def announce(server: BrokerServer | GroupServer, began: float) -> None:
    """Print the line that RocketMQ prints, and how to send and receive a first message."""
    name_servers = ";".join(server.name_server_addresses)
    beside = Path(sys.executable).with_name("mqcore")
    command = "mqcore" if shutil.which("mqcore") or not beside.exists() else str(beside)
    identity = f"{server.settings.broker.broker_name}, {server.address}"
    store = server.settings.store.root_dir.absolute()
    lines = [
        f"The broker[{identity}] boot success. serializeType=JSON and name server is {name_servers}",
        f"mqcore {__version__}, up in {time.monotonic() - began:.2f} s, store {store}",
        "Send a first message, and receive it:",
        f"  {command} -n {name_servers} send hello --body 'hello, world'",
        f"  {command} -n {name_servers} consume hello --group first -n 1",
    ]
    print("\n".join(lines), flush=True)


def main() -> int:
    began = time.monotonic()
    gc.freeze()
    gc.enable()
    settings, config_path = parse_arguments()
    allow_many_connections()
    log_to_stderr("broker")
    for warning in settings.warnings:
        logger.warning("%s", warning)
    return asyncio.run(serve(settings, config_path, began))


if __name__ == "__main__":
    sys.exit(main())
