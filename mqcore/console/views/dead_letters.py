"""Dead letters: groups that have some, those of one group, and sending them again."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from mqcore.client.admin import ResendReport
from mqcore.client.admin.dead_letters import origin_topic
from mqcore.console.data import dead_letters as data
from mqcore.console.forms import Form, wanted
from mqcore.console.pages import page
from mqcore.console.state import console_of
from mqcore.errors import ArgumentError
from mqcore.protocol.names import dlq_topic


async def groups_with_some(request: Request) -> Response:
    console = console_of(request)
    counts = await console.lately("dead letters", lambda: data.dead_counts(console.admin))
    return page(request, "dead_groups.html", {"counts": counts, "groups_max": data.GROUPS_MAX})


async def dead_letters(request: Request) -> Response:
    group = wanted(request.query_params, "group")
    found = await data.dead_letters(console_of(request).admin, group)
    values = {"group": group, "found": found, "topic": dlq_topic(group), "origin_of": origin_topic}
    return page(request, "dead_letters.html", values)


async def resend(request: Request, form: Form) -> Response:
    """Show what would be sent where; sent again with ``confirmed``, send it."""
    group, topic = wanted({"group": form.get("group")}, "group"), form.get("topic") or None
    ids = list(dict.fromkeys(form.all("id")))
    if not ids:
        raise ArgumentError("dead letters to send again: got none, wanted at least one that is ticked")
    admin = console_of(request).admin
    found, missing = await data.chosen(admin, group, ids)
    is_confirmed = form.get("confirmed") == "1"
    report = await data.resend(admin, group, found, topic) if is_confirmed else ResendReport()
    values = {
        "group": group, "topic": topic, "found": found, "failed": {**missing, **report.failed}, "sent": report.sent,
        "is_confirmed": is_confirmed, "origin_of": origin_topic,
    }  # fmt: skip
    return page(request, "resend.html", values)
