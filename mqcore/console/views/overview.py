"""The overview: rates, how far behind groups are, disks; and what a probe asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mqcore.client.admin import Admin
from mqcore.console.data.groups import GroupStanding, group_names, groups_behind
from mqcore.console.pages import page
from mqcore.console.state import console_of

GROUPS_MAX: Final = 100
"""Groups of which the overview asks how far behind they are."""

GROUPS_AGE_S: Final = 10.0
"""So often at most: with many groups it is the most that the console ever asks at once."""

BEHIND_SHOWN: Final = 8


async def overview(request: Request) -> Response:
    console = console_of(request)
    brokers = await console.brokers()
    groups = await console.lately("groups in sum", lambda: groups_in_sum(console.admin), GROUPS_AGE_S)
    history = list(console.history)
    values = {
        "brokers": brokers,
        "rates": history[-1],
        "taken": [rates.in_per_s for rates in history],
        "given": [rates.out_per_s for rates in history],
        "groups": groups,
        "fullest": max((broker.disk_ratio for broker in brokers if broker.disk_ratio is not None), default=None),
        "silent": [broker for broker in brokers if broker.error is not None],
        "conflicts": sorted({group for broker in brokers for group in broker.conflicts}),
    }
    return page(request, "overview.html", values)


@dataclass(frozen=True, slots=True)
class GroupsInSum:
    """The groups that are most behind, how many there are and of how many the lag is, and that lag in sum."""

    behind: Sequence[GroupStanding]
    count: int
    asked: int
    total_lag: int


async def groups_in_sum(admin: Admin) -> GroupsInSum:
    names = await group_names(admin)
    asked = names[:GROUPS_MAX]
    behind, total = await groups_behind(admin, asked, BEHIND_SHOWN)
    return GroupsInSum(behind, len(names), len(asked), total)


async def health(_: Request) -> Response:
    """Say that this process serves: no broker is asked."""
    return PlainTextResponse("ok\n")
