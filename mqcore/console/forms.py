"""What a browser sends: parameters of a page, and forms, which change something and prove where they are from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from mqcore.client.admin.times import parse_time
from mqcore.console.pages import refusal
from mqcore.console.state import console_of, session_of
from mqcore.errors import ArgumentError
from mqcore.protocol.message import MessageQueue

logger = logging.getLogger(__name__)

TOKEN_FIELD: Final = "csrf"
FORM_BYTES_MAX: Final = 2 << 20
TOLD_FIELDS: Final = ("name", "group", "topic", "to", "queue", "confirmed")
"""What the log has of a form: whose it is and where it goes, and never what a message says."""

FORM_FIELDS_MAX: Final = 2000
FORM_S_MAX: Final = 30.0
OFFSET_DIGITS_MAX: Final = 18
FORM_TYPE: Final = "application/x-www-form-urlencoded"


class Form:
    """The fields of a form that was sent."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def get(self, name: str) -> str:
        """Return the first value of *name*, without blanks around it; empty if it has none."""
        return next((value.strip() for found, value in self._fields if found == name), "")

    def text(self, name: str) -> str:
        """Return the first value of *name* as it was typed, with line feeds alone."""
        found = next((value for found, value in self._fields if found == name), "")
        return found.replace("\r\n", "\n")

    def all(self, name: str) -> list[str]:
        return [value for found, value in self._fields if found == name and value]


Change = Callable[[Request, Form], Awaitable[Response]]


def change(view: Change, *, needs_write: bool = True) -> Callable[[Request], Awaitable[Response]]:
    """Make a page of *view*, which changes something: it runs only for a form of this session, and with --write."""

    async def guarded(request: Request) -> Response:
        console = console_of(request)
        if needs_write and not console.options.may_write:
            what = "This console is read-only."
            return refusal(request, HTTPStatus.FORBIDDEN, what, "Start it with --write to change anything by it.")
        form = await _read(request)
        if isinstance(form, Response):
            return form
        if not console.sessions.is_token(session_of(request), form.get(TOKEN_FIELD)):
            what = "This form is not, or no longer, of your session."
            return refusal(request, HTTPStatus.FORBIDDEN, what, "Load the page before it again, and send it once more.")
        if needs_write:
            _tell(request, form)
        answer = await view(request, form)
        console.recent.forget()
        return answer

    return guarded


def _tell(request: Request, form: Form) -> None:
    client = request.client.host if request.client is not None else "unknown"
    what = {**request.query_params, **{name: form.get(name) for name in TOLD_FIELDS if form.get(name)}}
    logger.info("change path=%s what=%r by=%s", request.url.path, what, client)


async def _read(request: Request) -> Form | Response:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        return refusal(request, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"A form is sent as {FORM_TYPE}.", "")
    data = bytearray()
    try:
        async with asyncio.timeout(FORM_S_MAX):
            async for chunk in request.stream():
                data += chunk
                if len(data) > FORM_BYTES_MAX:
                    break
    except TimeoutError:
        return refusal(request, HTTPStatus.REQUEST_TIMEOUT, f"The form has not come within {FORM_S_MAX:.0f} s.", "")
    if len(data) > FORM_BYTES_MAX:
        what = f"The form has more than {FORM_BYTES_MAX >> 20} MiB."
        return refusal(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, what, "Send large messages by mqcore send --file.")
    try:
        fields = parse_qsl(
            data.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, encoding="utf-8", errors="strict"
        )
    except ValueError as error:
        return refusal(request, HTTPStatus.BAD_REQUEST, f"The form cannot be read: {error}.", "")
    return Form(fields)


def wanted(parameters: Mapping[str, str], name: str) -> str:
    """Return a parameter that a page needs. Raises ArgumentError."""
    found = parameters.get(name, "").strip()
    if not found:
        raise ArgumentError(f"the parameter {name}: got nothing, wanted a value")
    return found


def whole(text: str, what: str) -> int:
    """Read a number that is not negative. Raises ArgumentError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= OFFSET_DIGITS_MAX):
        raise ArgumentError(f"{what}: got {text!r}, wanted a whole number")
    return int(text)


def queue_of(topic: str, text: str) -> MessageQueue:
    """Read ``broker/queue``. Raises ArgumentError."""
    broker, _, queue_id = text.rpartition("/")
    if not broker:
        raise ArgumentError(f"the queue: got {text!r}, wanted broker/number, such as broker-a/0")
    return MessageQueue(topic, broker, whole(queue_id, "the queue's number"))


def time_of(text: str) -> datetime:
    """Read a time, UTC unless it names a zone, or how long ago. Raises ArgumentError."""
    found = parse_time(text)
    if found is None:
        raise ArgumentError(f"the time: got {text!r}, wanted one such as 2026-01-31T12:00 or 90m (ago)")
    return found
