"""How a command runs: its client, and how an error becomes a sentence and an exit code.

Exit codes: 0 all well, 1 error, 2 wrong usage, 3 not found, 4 done in part.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import click

from mqcore.address import parse_addresses
from mqcore.admin.output import talk
from mqcore.client.admin import Admin
from mqcore.client.admin.base import Outcomes
from mqcore.client.asynchronous import Client
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.codes import ResponseCode
from mqcore.errors import BaseMQError, BrokerError, ClientError, ConfigError, MisuseError, NotSupportedError
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

NO_NAME_SERVER = "what -n names is no name server, and probably a broker; name servers listen on port 9876 as a rule"

T = TypeVar("T")


class PartialError(ClientError):
    """Some of what was asked for is done, and some is not."""


@dataclass(frozen=True, slots=True)
class Common:
    """The options before the command."""

    name_servers: str

    def client(self) -> Client:
        # Whatever namespace the programs around have: an operator says names as brokers have them.
        return Client(self.name_servers, namespace="")


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
    try:
        return asyncio.run(work())
    except BaseMQError as error:
        fail(error)


def fail(error: BaseMQError) -> NoReturn:
    """Say what went wrong and what to do about it, and exit."""
    talk(f"mqcore: {error}")
    hint = hint_of(error)
    if hint and hint not in str(error):
        talk(f"hint: {hint}")
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


def name_servers_asked() -> tuple[str, ...]:
    """Return the addresses before the command that runs; none where no command runs."""
    context = click.get_current_context(silent=True)
    common = None if context is None else context.find_object(Common)
    return () if common is None else tuple(map(str, parse_addresses(common.name_servers)))


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
