"""That the table of settings and the classes of their values say the same, and which field is which row's."""

from __future__ import annotations

from typing import Any

from mqcore.config.index import SETTINGS
from mqcore.config.table import Group, Setting
from mqcore.config.values import CLASSES

GROUPS: dict[Group, tuple[str, type[Any]]] = {
    group: (attribute, CLASSES[attribute])
    for group, attribute in {
        Group.BROKER: "broker",
        Group.STORE: "store",
        Group.NETTY_SERVER: "server",
        Group.MQCORE: "mqcore",
        Group.NAMESRV: "namesrv",
        Group.TLS: "tls",
        Group.FAILOVER: "failover",
    }.items()
}
"""Group to the attribute of Settings that holds it, and its class. NETTY_CLIENT has no used settings and no class."""

USED_ROWS: dict[Group, tuple[Setting, ...]] = {
    group: tuple(row for row in SETTINGS if row.used and row.group is group) for group in Group
}


def disagreements() -> list[str]:
    """What the table and the classes say differently about names, order and types; empty when they agree."""
    found: list[str] = []
    for group, rows in USED_ROWS.items():
        wanted = [f"{row.name}: {row.annotation}" for row in rows]
        annotations = GROUPS[group][1].__annotations__ if group in GROUPS else {}
        written = [f"{name}: {kind.__name__}" for name, kind in annotations.items()]
        if wanted != written:
            found.extend(f"{group}: only in the table: {line}" for line in wanted if line not in written)
            found.extend(f"{group}: only in the class: {line}" for line in written if line not in wanted)
            if set(wanted) == set(written):
                found.append(f"{group}: the order of the fields is not that of the rows")
    return found


assert not disagreements(), disagreements()
