"""The console of a broker: ``python -m mqcore.console.hosted``; only a broker calls this.

It is told what to serve on standard input, and stops when that ends, which it does with the broker, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

if __name__ == "__main__":
    # A Ctrl-C reaches the whole process group, but the broker decides who stops when.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

from mqcore._fast.base.process import die_with_parent, name_process
from mqcore.broker.console_handover import ConsoleHandover
from mqcore.client.asynchronous import Client
from mqcore.client.settings.configuration import from_environment
from mqcore.config import SettingValues
from mqcore.console.options import ConsoleOptions
from mqcore.console.serving import make_server
from mqcore.process_log import log_to_stderr
from mqcore.transport.tls import client_context

STDIN: Final = 0
NICE: Final = 5
"""Messages go before pages where both want a processor."""


def main() -> int:
    """Serve until standard input ends; the exit status."""
    handover = ConsoleHandover.of_line(sys.stdin.buffer.readline())
    die_with_parent(handover.parent_pid)
    name_process("mq-console")
    os.nice(NICE)
    settings = handover.loaded_settings()
    log_to_stderr("console", settings.mqcore.log_format, settings.mqcore.log_levels)
    asyncio.run(_serve(handover, settings))
    return 0


async def _serve(handover: ConsoleHandover, settings: SettingValues) -> None:
    options = ConsoleOptions(handover.host, handover.port, handover.may_write, handover.password)
    names = ";".join(handover.name_servers)
    client = Client(names, namespace="", **tls_settings(settings, os.environ))
    server = make_server(client, options)

    def stop() -> None:
        if not os.read(STDIN, 1):
            loop.remove_reader(STDIN)
            server.should_exit = True

    loop = asyncio.get_running_loop()
    loop.add_reader(STDIN, stop)
    # It is the broker that signals are for, and that tells of them.
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    await server.serve(sockets=[socket.socket(fileno=handover.listener)])


def tls_settings(settings: SettingValues, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return how the console calls name servers and brokers: as the environment says, or else as the broker does."""
    said = from_environment(environment).values["client"]
    context = None if any(name.startswith("tls") for name in said) else client_context(settings.tls)
    return {} if context is None else {"tls": context}


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


if __name__ == "__main__":
    sys.exit(main())
