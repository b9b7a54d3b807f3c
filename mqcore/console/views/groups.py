"""Consumer groups: the list, one group, and putting it elsewhere."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from mqcore.client.admin.offsets import ResetTo, Target
from mqcore.client.admin.times import parse_time
from mqcore.codes import LanguageCode, version_name
from mqcore.console.data.groups import group_detail, group_names, group_states, reset, target_of
from mqcore.console.forms import Form, wanted
from mqcore.console.pages import page
from mqcore.console.state import console_of
from mqcore.console.views.listing import listing
from mqcore.errors import ArgumentError
from mqcore.protocol.names import is_retry_topic


async def groups(request: Request) -> Response:
    console = console_of(request)
    everything = request.query_params.get("all") == "1"
    names = await console.lately(("groups", everything), lambda: group_names(console.admin, everything=everything))
    rows = listing(request, names, str)
    shown = tuple(rows.rows)
    states = await console.lately(("states", shown), lambda: group_states(console.admin, shown))
    return page(request, "groups.html", {"rows": rows, "states": states, "everything": everything})


async def group(request: Request) -> Response:
    name = wanted(request.query_params, "name")
    console = console_of(request)
    detail = await console.lately(("group", name), lambda: group_detail(console.admin, name))
    clients = {
        member.client.client_id: f"{language(member.client.language)} {version_name(member.client.version)}"
        for member in detail.members
    }
    topics = set() if detail.state.lag is None else detail.state.lag.by_topic()
    resettable = sorted(topics, key=lambda topic: (is_retry_topic(topic), topic))
    values = {"group": detail, "clients": clients, "places": list(ResetTo), "resettable": resettable}
    return page(request, "group.html", values)


def language(code: int) -> str:
    try:
        return LanguageCode(code).name.lower()
    except ValueError:
        return f"language {code}"


async def preview(request: Request) -> Response:
    """Show what a reset would do, and change nothing."""
    given = request.query_params
    name, topic, text = wanted(given, "name"), wanted(given, "topic"), wanted(given, "to")
    report = await reset(console_of(request).admin, name, topic, where(text), dry_run=True)
    return page(request, "reset.html", {"report": report, "to": text})


async def do_reset(request: Request, form: Form) -> Response:
    name, topic, text = (wanted({field: form.get(field)}, field) for field in ("name", "topic", "to"))
    report = await reset(console_of(request).admin, name, topic, where(text), dry_run=False)
    return page(request, "reset.html", {"report": report, "to": text})


def where(text: str) -> Target:
    """Read where to reset to. Raises ArgumentError."""
    found = target_of(text, parse_time(text))
    if found is None:
        raise ArgumentError(f"where to reset to: got {text!r}, wanted earliest, latest, an offset, or a time")
    return found
