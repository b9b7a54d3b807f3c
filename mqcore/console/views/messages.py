"""Messages of a topic, found in five ways, and one message."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mqcore import clock
from mqcore.client.asynchronous import Client
from mqcore.client.errors import NotFoundError
from mqcore.console.data import messages as data
from mqcore.console.data.bodies import BodyForm, shown_body
from mqcore.console.data.messages import MessagePage
from mqcore.console.forms import queue_of, time_of, wanted, whole
from mqcore.console.pages import page
from mqcore.console.state import console_of
from mqcore.errors import ArgumentError
from mqcore.protocol.message import MessageExt, MessageQueue

DISPATCHED_S: Final = 3.0
"""What was just stored is in its queue within this time."""

LOOK_S: Final = 0.05

WAYS: Final = ("newest", "time", "offset", "key", "id")


async def messages(request: Request) -> Response:
    name, given = wanted(request.query_params, "name"), request.query_params
    way = given.get("by") or "newest"
    if way not in WAYS:
        raise ArgumentError(f"the parameter by: got {way!r}, wanted one of {', '.join(WAYS)}")
    mq = console_of(request).client
    queues = await mq.queues(name)
    # A way without its value is asked for it, by the page.
    text = given.get("value", "").strip()
    found = await look(mq, name, way, text, given.get("queue", "")) if text or way == "newest" else None
    values = {"name": name, "way": way, "ways": WAYS, "value": text, "queue": given.get("queue", ""), "queues": queues}
    return page(request, "messages.html", {**values, "found": found})


async def look(mq: Client, topic: str, way: str, text: str, queue: str) -> MessagePage:
    """Find messages in one of WAYS."""
    match way:
        case "time":
            return await data.from_time(mq, topic, time_of(text))
        case "offset":
            return await data.from_offset(mq, queue_of(topic, queue), whole(text, "the offset"))
        case "key":
            return await data.by_key(mq, topic, text)
        case "id":
            return await data.by_id(mq, topic, text)
    return await data.newest(mq, topic)


async def message(request: Request) -> Response:
    given = request.query_params
    topic = wanted(given, "topic")
    ext = await _one(console_of(request).client, topic, request)
    form = given.get("as")
    if form is not None and form not in tuple(BodyForm):
        raise ArgumentError(f"the parameter as: got {form!r}, wanted one of {', '.join(BodyForm)}")
    body = shown_body(ext.body, None if form is None else BodyForm(form))
    values = {"topic": topic, "message": ext, "body": body, "forms": list(BodyForm), "sent": given.get("sent") == "1"}
    return page(request, "message.html", values)


async def _one(mq: Client, topic: str, request: Request) -> MessageExt:
    given = request.query_params
    if "id" in given:
        return await mq.admin.view_message(topic, given["id"])
    queue = MessageQueue(topic, wanted(given, "broker"), whole(wanted(given, "queue"), "the queue's number"))
    offset = whole(wanted(given, "offset"), "the offset")
    until_s = clock.monotonic_s() + (DISPATCHED_S if given.get("sent") == "1" else 0.0)
    while True:
        try:
            return await mq.admin.message_at(queue, offset)
        except NotFoundError:
            if clock.monotonic_s() >= until_s:
                raise
        await asyncio.sleep(LOOK_S)
