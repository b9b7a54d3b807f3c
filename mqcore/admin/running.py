"""How a command runs: its client, and how an error becomes a sentence and an exit code.

Exit codes: 0 all well, 1 error, 2 wrong usage, 3 not found, 4 done in part.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any, NoReturn, TypeVar

import click

from mqcore.address import parse_name_servers
from mqcore.admin.connection import Connection, find_connection
from mqcore.admin.output import talk
from mqcore.client.admin import Admin
from mqcore.client.admin.base import Outcomes
from mqcore.client.asynchronous import Client
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.codes import ResponseCode
from mqcore.errors import (
    BaseMQError,
    BrokerError,
    ClientError,
    ConfigError,
    MisuseError,
    NotSupportedError,
    RemotingError,
)
from mqcore.refusals import refusal_of

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_PARTIAL = 4


NOT_FOUND_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.NO_MESSAGE,
        ResponseCode.CONSUMER_NOT_ONLINE,
    }
)

NO_NAME_SERVER = "what was given is no name server, and probably a broker; name servers listen on port 9876 as a rule"

T = TypeVar("T")


class PartialError(ClientError):
    """Some of what was asked for is done, and some is not."""


class Common:
    """The options before the command: *namesrv* and *context*, None where they are not given."""

    def __init__(self, namesrv: str | None = None, context: str | None = None) -> None:
        self._namesrv = namesrv
        self._context = context

    @cached_property
    def connection(self) -> Connection:
        """Which cluster is meant, and who said so; looked for when a command needs one, as many do not."""
        return find_connection(self._namesrv, self._context, os.environ)

    @property
    def name_servers(self) -> str:
        return self.connection.name_servers

    def client(self) -> Client:
        # Whatever namespace the programs around have: an operator says names as brokers have them.
        return Client(self.name_servers, **{**self.connection.settings, "namespace": ""})


def exit_code(error: BaseMQError) -> int:
    """Return the exit code that tells scripts what kind of failure *error* is."""
    if isinstance(error, PartialError):
        return EXIT_PARTIAL
    if isinstance(error, ConfigError | MisuseError):
        return EXIT_USAGE
    if isinstance(error, NoRouteError | NotFoundError):
        return EXIT_NOT_FOUND
    if isinstance(error, BrokerError) and error.code in NOT_FOUND_CODES:
        return EXIT_NOT_FOUND
    return EXIT_ERROR


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine; an error of ours becomes one line and an exit code, without a traceback."""
    return guarded(lambda: asyncio.run(work()))


def guarded(work: Callable[[], T]) -> T:
    """Do *work*; an error of ours becomes one line and an exit code, without a traceback."""
    try:
        return work()
    except BaseMQError as error:
        fail(error)


def fail(error: BaseMQError) -> NoReturn:
    """Say what went wrong and what to do about it, and exit."""
    talk(f"mqcore: {error}")
    hint = hint_of(error)
    if hint and hint not in str(error):
        talk(f"hint: {hint}")
    if (origin := origin_of(error)) is not None:
        talk(f"note: {origin}")
    if isinstance(error, BrokerError) and (refusal := refusal_of(error.code, error.remark)) is not None:
        talk(f"see: {refusal.place}")
    sys.exit(exit_code(error))


def hint_of(error: BaseException) -> str:
    """Return what to do about *error*, or rather about what has caused it; empty when nobody knows."""
    cause = error.__cause__
    hint = hint_of(cause) if cause is not None else ""
    if isinstance(error, NotSupportedError) and error.address in name_servers_asked():
        return NO_NAME_SERVER
    return hint or (error.hint if isinstance(error, BaseMQError) else "")


def asked() -> Connection | None:
    """Return which cluster the command that runs speaks to; None where none runs, or it has not asked yet."""
    context = click.get_current_context(silent=True)
    common = None if context is None else context.find_object(Common)
    return None if common is None else common.__dict__.get("connection")


def name_servers_asked() -> tuple[str, ...]:
    """Return the addresses of the cluster that the command that runs speaks to."""
    connection = asked()
    try:
        return () if connection is None else parse_name_servers(connection.name_servers)
    except ValueError:  # which is what the error at hand is about
        return ()


def origin_of(error: BaseException) -> str | None:
    """Return where the name servers' address came from, if *error* may be about it; None if it is not."""
    connection = asked()
    if connection is None:
        return None
    chain: BaseException | None = error
    while chain is not None:
        address = getattr(chain, "address", None)
        is_remote = isinstance(chain, RemotingError | NotSupportedError | NoRouteError)
        if (is_remote and address in (None, *name_servers_asked())) or "name server" in str(chain):
            return f"the name server address {connection.name_servers} comes from {connection.source}"
        chain = chain.__cause__
    return None


def run_admin(common: Common, work: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """Run *work* with an administrator's calls, over connections of their own, and return what it found."""

    async def with_client() -> T:
        async with common.client() as mq:
            return await work(mq.admin)

    return run(with_client)


def check_outcomes(outcomes: Outcomes, what: str) -> None:
    """Exit with an error if a change failed everywhere, and as partial if it failed in some places."""
    failed = {address: error for address, error in outcomes.items() if error is not None}
    if failed and len(failed) < len(outcomes):
        fail(
            PartialError(f"{what} only in part; not at {', '.join(f'{at} ({error})' for at, error in failed.items())}")
        )
    for error in failed.values():
        fail(error)
