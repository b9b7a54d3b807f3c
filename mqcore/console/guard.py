"""What stands before every page: whose site asks, who has logged in, and the headers that keep other sites out.

- *Host* has to be one of ours, or a page elsewhere could let its name resolve to this console and read it.
- A change has to come from a page of this console: Origin and Sec-Fetch-Site say so, and a token in the form
  (``forms``) that only a page of the same session has.
- Cookies are HttpOnly and SameSite=Strict, and Secure under TLS.
- No script and no style but ours runs (Content-Security-Policy), and nobody shows us in a frame.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqcore.console.options import ConsoleOptions
from mqcore.console.pages import refusal
from mqcore.console.state import Console

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
METHODS: Final = SAFE_METHODS | {"POST"}
OPEN_PATHS: Final = frozenset({"/login", "/healthz"})
"""What is answered to those who have not logged in, beside the static files."""

STATIC_PREFIX: Final = "/static/"

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with that, browsers say Origin: null of our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}


class PageGuard:
    """ASGI middleware around all pages of *console*."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console
        self._cookie = cookie_name(console.options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        session = request.cookies.get(self._cookie, "")
        is_new = not session
        request.state.session = session or self._console.sessions.new_id()

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if is_new and "set-cookie" not in headers and not request.url.path.startswith(STATIC_PREFIX):
                    headers.append("Set-Cookie", set_cookie(self._console.options, request.state.session))
            await send(message)

        answer = self._refusal(request) or self._to_login(request)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        """Return why *request* is not looked at; None if it is."""
        host = request.headers.get("host", "")
        if not self._console.options.knows_host(host):
            what = f"This console does not know itself by the name {host!r}."
            mend = "Open it by its address, or start it with --allow-host and that name."
            return refusal(request, HTTPStatus.MISDIRECTED_REQUEST, what, mend)
        if request.method not in METHODS:
            return refusal(request, HTTPStatus.METHOD_NOT_ALLOWED, f"Pages are not asked by {request.method}.", "")
        if request.method not in SAFE_METHODS and not is_from_here(request):
            what = "This request came from a page that is not this console's."
            return refusal(request, HTTPStatus.FORBIDDEN, what, "Open the console itself, and try it there.")
        return None

    def _to_login(self, request: Request) -> Response | None:
        path = request.url.path
        request.state.is_inside = self._console.door is None or self._console.sessions.is_open(request.state.session)
        if request.state.is_inside or path in OPEN_PATHS or path.startswith(STATIC_PREFIX):
            return None
        if request.method != "GET" or request.query_params.get("part"):
            return refusal(request, HTTPStatus.UNAUTHORIZED, "You are not logged in, or no longer.", "Log in again.")
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/login?next={quote(path + query, safe='')}", HTTPStatus.SEE_OTHER)


def cookie_name(options: ConsoleOptions) -> str:
    """The port is in it: browsers give cookies of an address to all of its ports."""
    return f"mqcore_console_{options.port}"


def set_cookie(options: ConsoleOptions, session: str) -> str:
    """Return the value of Set-Cookie for *session*."""
    secure = "; Secure" if options.has_tls else ""
    return f"{cookie_name(options)}={session}; Path=/; HttpOnly; SameSite=Strict{secure}"


def is_from_here(request: Request) -> bool:
    """Tell whether a browser says that a page of this console makes the request. Programs say nothing of it."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
