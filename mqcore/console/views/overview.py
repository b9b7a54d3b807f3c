"""The overview: rates, how far behind groups are, disks; and what a probe asks."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mqcore.client.admin import Admin
from mqcore.console.data.groups import GroupState, group_names, group_states
from mqcore.console.pages import page
from mqcore.console.state import console_of

GROUPS_MAX: Final = 100
"""Groups of which the overview asks how far behind they are."""

BEHIND_SHOWN: Final = 8


async def overview(request: Request) -> Response:
    console = console_of(request)
    brokers = await console.brokers()
    groups, left_out = await console.lately("overview groups", lambda: groups_behind(console.admin))
    history = list(console.history)
    values = {
        "brokers": brokers,
        "rates": history[-1],
        "taken": [rates.in_per_s for rates in history],
        "given": [rates.out_per_s for rates in history],
        "groups": groups[:BEHIND_SHOWN],
        "total_lag": sum(group.lag.total for group in groups if group.lag is not None),
        "group_count": len(groups),
        "left_out": left_out,
        "fullest": max((broker.disk_ratio for broker in brokers if broker.disk_ratio is not None), default=None),
        "silent": [broker for broker in brokers if broker.error is not None],
        "conflicts": [group for group in groups if group.has_conflict],
    }
    return page(request, "overview.html", values)


async def groups_behind(admin: Admin) -> tuple[list[GroupState], int]:
    """Return the first GROUPS_MAX groups, those that are most behind first, and how many more there are."""
    names = await group_names(admin)
    states = await group_states(admin, names[:GROUPS_MAX])
    return sorted(states, key=lambda state: -lag_of(state)), max(0, len(names) - GROUPS_MAX)


def lag_of(state: GroupState) -> int:
    return -1 if state.lag is None else state.lag.total


async def health(_: Request) -> Response:
    """Say that this process serves: no broker is asked."""
    return PlainTextResponse("ok\n")
