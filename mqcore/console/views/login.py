"""Logging in and out."""

from __future__ import annotations

import logging
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mqcore.console.forms import Form
from mqcore.console.guard import set_cookie
from mqcore.console.pages import page, refusal
from mqcore.console.sessions import TooManyGuessesError
from mqcore.console.state import console_of, session_of

logger = logging.getLogger(__name__)


async def login(request: Request) -> Response:
    if request.state.is_inside:
        return RedirectResponse(inner_path(request.query_params.get("next", "")), HTTPStatus.SEE_OTHER)
    return page(request, "login.html", {"next": inner_path(request.query_params.get("next", "")), "is_wrong": False})


async def do_login(request: Request, form: Form) -> Response:
    console, target = console_of(request), inner_path(form.get("next"))
    if console.door is None:
        return RedirectResponse(target, HTTPStatus.SEE_OTHER)
    try:
        is_right = await console.door.opens_for(form.text("password"))
    except TooManyGuessesError:
        what = "Too many passwords are being tried just now."
        return refusal(request, HTTPStatus.TOO_MANY_REQUESTS, what, "Try again in a minute.")
    if not is_right:
        logger.warning("wrong password from=%s", request.client.host if request.client is not None else "unknown")
        return page(request, "login.html", {"next": target, "is_wrong": True}, HTTPStatus.UNAUTHORIZED)
    answer = RedirectResponse(target, HTTPStatus.SEE_OTHER)
    answer.headers.append("Set-Cookie", set_cookie(console.options, console.sessions.open()))
    return answer


async def do_logout(request: Request, _: Form) -> Response:
    console = console_of(request)
    console.sessions.close(session_of(request))
    return RedirectResponse("/login" if console.door is not None else "/", HTTPStatus.SEE_OTHER)


def inner_path(text: str) -> str:
    """Return *text* if it leads into this console, else the overview: a link to the login leads nowhere else."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"
