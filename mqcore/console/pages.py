"""Templates and what they know: every value is escaped where it stands, and bytes that are no text become some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from mqcore import clock
from mqcore.console.data.bodies import glimpse
from mqcore.console.state import console_of, session_of
from mqcore.version import __version__

TEMPLATES: Final = Path(__file__).with_name("templates")

NAVIGATION: Final = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/dead-letters", "Dead letters"),
    ("/trace", "Trace"),
    ("/brokers", "Brokers"),
    ("/settings", "Settings"),
    ("/accounts", "Accounts"),
)

LINE_WIDTH: Final = 240
LINE_HEIGHT: Final = 36


def count_text(value: int | None) -> str:
    """A whole number with its thousands apart."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def rate_text(value: float | None) -> str:
    """A rate: whole from ten on."""
    if value is None:
        return "–"
    return count_text(round(value)) if value >= 10 else f"{value:.1f}"


def bytes_text(value: int | None) -> str:
    if value is None:
        return "–"
    size, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{value} B" if unit == "B" else f"{size:.1f} {unit}"


def duration_text(value_ms: float | None) -> str:
    """How long, in one or two units."""
    if value_ms is None:
        return "–"
    if value_ms < 1000:
        return f"{value_ms:.0f} ms"
    seconds = value_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def time_text(value_ms: int | None) -> str:
    """ms since 1970 as a time in UTC; a dash for none, and for what is no time."""
    if not value_ms or value_ms < 0:
        return "–"
    try:
        return datetime.fromtimestamp(value_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{value_ms} ms"


def line_points(values: Iterable[float]) -> str:
    """The points of a polyline of LINE_WIDTH by LINE_HEIGHT through *values*, the newest at the right."""
    heights = list(values)
    top = max([*heights, 1.0])
    step = LINE_WIDTH / max(len(heights) - 1, 1)
    return " ".join(
        f"{at * step:.1f},{LINE_HEIGHT - 2 - height / top * (LINE_HEIGHT - 4):.1f}" for at, height in enumerate(heights)
    )


def address(path: str, /, **parameters: object) -> str:
    """A link into the console; parameters that are None are left out."""
    query = urlencode({name: str(value) for name, value in parameters.items() if value is not None}, errors="replace")
    return f"{path}?{query}" if query else path


def ago_text(value_ms: int | None) -> str:
    return "–" if not value_ms or value_ms < 0 else duration_text(max(0, clock.now_ms() - value_ms))


_environment = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_environment.filters.update(
    count=count_text, rate=rate_text, bytes=bytes_text, duration=duration_text, time=time_text, ago=ago_text,
    points=line_points, glimpse=glimpse,
)  # fmt: skip
_environment.globals.update(
    link=address, version=__version__, navigation=NAVIGATION, line_width=LINE_WIDTH, line_height=LINE_HEIGHT
)


def page(
    request: Request, template: str, values: Mapping[str, Any] | None = None, status: HTTPStatus = HTTPStatus.OK
) -> Response:
    """Return the page that *template* makes of *values*."""
    console, session = console_of(request), session_of(request)
    text = _environment.get_template(template).render(
        path=request.url.path,
        may_write=console.options.may_write,
        has_login=console.door is not None,
        is_inside=getattr(request.state, "is_inside", False),
        csrf=console.sessions.token(session),
        **(values or {}),
    )
    # What a peer has sent may have characters that UTF-8 has not, halves of pairs for one.
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def refusal(request: Request, status: HTTPStatus, what: str, mend: str, see: str = "") -> Response:
    """Return a page that says what is wrong, and what to do."""
    values = {"status": status, "what": what, "mend": mend, "see": see}
    return page(request, "refusal.html", values, status)
