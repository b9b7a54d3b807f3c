"""How a command runs: its client, and how an error becomes a sentence and an exit code.

Exit codes: 0 all well, 1 error, 2 wrong usage, 3 not found, 4 done in part.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from mqcore.admin.output import talk
from mqcore.client.asynchronous import Client
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.codes import ResponseCode
from mqcore.errors import BrokerError, ClientError, ConfigError, MQError

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_PARTIAL = 4


class PartialError(ClientError):
    """Some of what was asked for is done, and some is not."""


@dataclass(frozen=True, slots=True)
class Common:
    """The options before the command."""

    name_servers: str

    def client(self) -> Client:
        return Client(self.name_servers)


def exit_code(error: MQError) -> int:
    """Return the exit code that tells scripts what kind of failure *error* is."""
    if isinstance(error, PartialError):
        return EXIT_PARTIAL
    if isinstance(error, ConfigError):
        return EXIT_USAGE
    if isinstance(error, NoRouteError | NotFoundError):
        return EXIT_NOT_FOUND
    if isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
        return EXIT_NOT_FOUND
    return EXIT_ERROR


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a command's coroutine; an error of ours becomes one line and an exit code, without a traceback."""
    try:
        asyncio.run(work())
    except MQError as error:
        talk(f"mqcore: {error}")
        sys.exit(exit_code(error))
