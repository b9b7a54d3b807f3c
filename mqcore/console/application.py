"""All pages of a console in one ASGI application, and what becomes of errors."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from mqcore.client.asynchronous import Client
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.codes import ResponseCode
from mqcore.console.forms import change
from mqcore.console.guard import HEADERS, PageGuard
from mqcore.console.options import ConsoleOptions
from mqcore.console.pages import refusal
from mqcore.console.state import Console
from mqcore.console.views import brokers, dead_letters, groups, login, messages, overview, topics, traces
from mqcore.errors import BaseMQError, BrokerError, MisuseError, PermissionDeniedError
from mqcore.refusals import refusal_of

logger = logging.getLogger(__name__)

STATIC: Final = Path(__file__).with_name("static")
CHANGE_METHODS: Final = ["POST"]

NOT_FOUND_CODES: Final = frozenset(
    {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND}
)
KEY_HINT: Final = (
    "The brokers have access control: start the console with MQCORE_CLIENT_ACCESS_KEY and MQCORE_CLIENT_SECRET_KEY "
    "of an account that may do this."
)
ACL_WORDS: Final = "acl.common.AclException"
GONE_HINT: Final = "It may have been deleted, or be spelt otherwise: the list that it would be in tells."

ROUTES: Final[tuple[BaseRoute, ...]] = (
    Route("/", overview.overview),
    Route("/healthz", overview.health),
    Route("/topics", topics.topics),
    Route("/topic", topics.topic),
    Route("/topic/send", change(topics.send), methods=CHANGE_METHODS),
    Route("/messages", messages.messages),
    Route("/message", messages.message),
    Route("/groups", groups.groups),
    Route("/group", groups.group),
    Route("/group/reset", groups.preview),
    Route("/group/reset", change(groups.do_reset), methods=CHANGE_METHODS),
    Route("/dead-letters", dead_letters.groups_with_some),
    Route("/dead-letters/group", dead_letters.dead_letters),
    Route("/dead-letters/resend", change(dead_letters.resend), methods=CHANGE_METHODS),
    Route("/trace", traces.trace),
    Route("/brokers", brokers.brokers),
    Route("/broker", brokers.broker),
    Route("/settings", brokers.settings),
    Route("/accounts", brokers.accounts),
    Route("/login", login.login),
    Route("/login", change(login.do_login, needs_write=False), methods=CHANGE_METHODS),
    Route("/logout", change(login.do_logout, needs_write=False), methods=CHANGE_METHODS),
    Mount("/static", StaticFiles(directory=STATIC)),
)


def application(client: Client, options: ConsoleOptions) -> Starlette:
    """Return the application; it opens *client* when it starts, and closes it at its end."""
    console = Console(client, options)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    app = Starlette(
        routes=list(ROUTES),
        middleware=[Middleware(PageGuard, console=console)],
        exception_handlers={HTTPException: http_failed, BaseMQError: asking_failed, Exception: failed},
        lifespan=lifespan,
    )
    app.state.console = console
    return app


async def asking_failed(request: Request, error: Exception) -> Response:
    """A broker, a name server or a parameter: say which, and what to do."""
    assert isinstance(error, BaseMQError)  # what it is registered for
    known = refusal_of(error.code, error.remark) if isinstance(error, BrokerError) else None
    mend = hint_of(error) if known is None or is_about_keys(error) else known.mend
    return refusal(request, status_of(error), sentence(str(error)), sentence(mend), known.place if known else "")


def hint_of(error: BaseException) -> str:
    """Return what to do about *error*, or rather about what has caused it."""
    hint = hint_of(error.__cause__) if error.__cause__ is not None else ""
    if isinstance(error, NotFoundError):
        return GONE_HINT
    if is_about_keys(error):
        return KEY_HINT
    return hint or (error.hint if isinstance(error, BaseMQError) else "")


def is_about_keys(error: BaseException) -> bool:
    """Tell whether access control has refused: by its code, or with the code of any failure in RocketMQ's words."""
    return isinstance(error, PermissionDeniedError) or (isinstance(error, BrokerError) and ACL_WORDS in error.remark)


def status_of(error: BaseMQError) -> HTTPStatus:
    if isinstance(error, NoRouteError | NotFoundError):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, BrokerError) and error.code in NOT_FOUND_CODES:
        return HTTPStatus.NOT_FOUND
    if isinstance(error, MisuseError):
        return HTTPStatus.BAD_REQUEST
    if is_about_keys(error):
        return HTTPStatus.FORBIDDEN
    return HTTPStatus.BAD_GATEWAY


def sentence(text: str) -> str:
    """Return *text* with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if not text or text[-1] in ".!?" else ".")


async def http_failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # what it is registered for
    status = HTTPStatus(error.status_code)
    what = "There is no such page." if status is HTTPStatus.NOT_FOUND else sentence(error.detail)
    return refusal(request, status, what, "The pages of this console are in its navigation.")


async def failed(request: Request, error: Exception) -> Response:
    """What nobody has foreseen: the traceback is in the log, by starlette, and not on the page."""
    what, mend = "The console has failed at this page.", "Its log says why; please report it."
    logger.error("page failed path=%s error=%r", request.url.path, error)
    answer = refusal(request, HTTPStatus.INTERNAL_SERVER_ERROR, what, mend)
    answer.headers.update(HEADERS)  # starlette answers this outside of the guard
    return answer
