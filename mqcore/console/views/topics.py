"""Topics: the list, one topic, and a test message."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mqcore.client.model.messages import Message
from mqcore.codes import PermName
from mqcore.console.data.topics import send_test, topic_detail, topic_names
from mqcore.console.forms import Form, queue_of, wanted
from mqcore.console.pages import address, page
from mqcore.console.state import console_of
from mqcore.console.views.listing import listing
from mqcore.errors import ArgumentError


async def topics(request: Request) -> Response:
    console = console_of(request)
    found = await console.lately("topics", lambda: topic_names(console.admin))
    everything = request.query_params.get("all") == "1"
    shown = [topic for topic in found if everything or not topic.kind]
    rows = listing(request, shown, lambda topic: topic.name)
    return page(request, "topics.html", {"rows": rows, "everything": everything, "hidden": len(found) - len(shown)})


async def topic(request: Request) -> Response:
    name = wanted(request.query_params, "name")
    console = console_of(request)
    detail = await console.lately(("topic", name), lambda: topic_detail(console.admin, name))
    perms = {place: PermName.to_text(config.perm) for place, config in detail.configs.items()}
    return page(request, "topic.html", {"topic": detail, "perms": perms})


async def send(request: Request, form: Form) -> Response:
    name = wanted(request.query_params, "name")
    queue = queue_of(name, form.get("queue")) if form.get("queue") else None
    message = Message(
        name,
        form.text("body").encode(),
        tag=form.get("tag") or None,
        keys=form.get("keys").split(),
        properties=properties_of(form.text("properties")),
    )
    receipt = await send_test(console_of(request).client, message, queue)
    place = receipt.queue
    where = address(
        "/message", topic=name, broker=place.broker_name, queue=place.queue_id, offset=receipt.offset, sent=1
    )
    return RedirectResponse(where, HTTPStatus.SEE_OTHER)


def properties_of(text: str) -> dict[str, str]:
    """Read lines of ``name=value``. Raises ArgumentError that names the one that is none."""
    found = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise ArgumentError(f"the properties: got {line!r}, wanted name=value in each line")
        found[name.strip()] = value.strip()
    return found
