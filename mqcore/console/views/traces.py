"""What became of a message."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from mqcore.client.admin.traces import trace_of
from mqcore.console.pages import page
from mqcore.console.state import console_of
from mqcore.protocol.names import TRACE_TOPIC


async def trace(request: Request) -> Response:
    given = request.query_params
    msg_id, topic = given.get("id", "").strip(), given.get("topic", "").strip() or TRACE_TOPIC
    found = await trace_of(console_of(request).admin, msg_id, topic) if msg_id else None
    return page(request, "trace.html", {"msg_id": msg_id, "topic": topic, "trace": found, "usual": TRACE_TOPIC})
