"""Brokers and replicas, a broker's settings, and the accounts of all."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from mqcore.client.admin import BrokerPlace
from mqcore.client.errors import NotFoundError
from mqcore.console.data.accounts import broker_rules
from mqcore.console.data.clusters import members_of, replicas
from mqcore.console.data.settings import Origin, setting_lines
from mqcore.console.forms import wanted
from mqcore.console.pages import page
from mqcore.console.state import Console, console_of


async def brokers(request: Request) -> Response:
    console = console_of(request)
    states = await console.brokers()
    found = await console.lately("replicas", lambda: replicas(console.admin, states))
    places = {state.place.address: state.place for state in states}
    values = {"brokers": states, "survey": found, "places": places, "members_of": members_of}
    return page(request, "brokers.html", values)


async def broker(request: Request) -> Response:
    console = console_of(request)
    place = await place_of(console, wanted(request.query_params, "address"))
    table = await console.admin.broker_runtime(place.address)
    return page(request, "broker.html", {"place": place, "table": table})


async def settings(request: Request) -> Response:
    console = console_of(request)
    places = [state.place for state in await console.brokers()]
    given = request.query_params.get("broker")
    place = places[0] if given is None else await place_of(console, given)
    lines = await console.lately(("settings", place.address), lambda: setting_lines(console.admin, place.address))
    only_changed = request.query_params.get("all") != "1"
    shown = [line for line in lines if line.origin is not Origin.DEFAULT or not only_changed]
    values = {"places": places, "place": place, "lines": shown, "total": len(lines), "only_changed": only_changed}
    return page(request, "settings.html", values)


async def accounts(request: Request) -> Response:
    console = console_of(request)
    found = await console.lately("accounts", lambda: broker_rules(console.admin))
    return page(request, "accounts.html", {"brokers": found})


async def place_of(console: Console, address: str) -> BrokerPlace:
    """Return the broker at *address*. Only those that the name server knows are asked, not whatever a link names."""
    for state in await console.brokers():
        if address in (state.place.address, state.place.name):
            return state.place
    raise NotFoundError(f"the name server knows no broker {address}")
