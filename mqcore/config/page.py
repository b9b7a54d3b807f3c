"""``docs/settings.md``, written from the table. ``python -m mqcore.config`` writes it and ``--check`` compares it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mqcore.config.index import SETTINGS
from mqcore.config.table import ANY_TEXT, INT_MAX, LONG_MAX, Group, Kind, Mark, Setting

HEADER = """\
# Settings

Written by `python -m mqcore.config` from the rows in `mqcore/config`; do not edit it by hand.

Settings stand in a Java properties file (`-c FILE`), on the command line (`--set key=value`) or, where named below, in
the environment. The command line wins over the file, and the file over the environment. A key that RocketMQ has and
mqcore has no use for is accepted with a warning. A key that nobody knows, and a value of the wrong type or out of
range, stop the start with a message that names the key and the line.

In code, a setting is an attribute of its group: the property in snake_case, spelled right, with the unit at the end
(bytes and pages are not repeated there).
"""

LIVE = """\
*Live*: a remote update may change it while the program runs, and who goes by it then: the broker process, a kind of
worker, the name server. The update is answered when all of them do. Any other is refused by name; paths, addresses and
identities are always among these. A broker that was started with `-c` writes changes into that file (the last one, if
there are several), where comments and everything else stay as they are; what stood on the command line wins again at
the next start."""

TITLES = {
    Group.BROKER: "Broker (`settings.broker`)",
    Group.STORE: "Store (`settings.store`)",
    Group.NETTY_SERVER: "Server (`settings.server`)",
    Group.NETTY_CLIENT: "Client of the broker",
    Group.NAMESRV: "Name server (`settings.namesrv`)",
    Group.TLS: "TLS (`settings.tls`)",
    Group.FAILOVER: "Groups that elect their master (`settings.failover`)",
    Group.MQCORE: "Not in RocketMQ (`settings.mqcore`)",
}

USED_HEAD = ("Property", "Attribute", "Type", "Default", "Range", "Live", "Effect")
UNUSED_HEAD = ("Property", "Type", "RocketMQ's default", "Why it has no effect")


def page() -> str:
    """The whole text of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEADER
    yield "## Used settings"
    yield ""
    yield LIVE
    for group, title in TITLES.items():
        rows = [row for row in SETTINGS if row.used and row.group is group]
        if rows:
            yield from ("", f"### {title}", "")
            yield from _table(USED_HEAD, (_used_cells(row) for row in rows))
    yield from ("", "## Refused values", "")
    yield "These would promise something that mqcore does not keep, so the start stops and says so."
    yield ""
    yield from _table(
        ("Property", "Refused", "Because"), (_refused_cells(row) for row in SETTINGS if row.refused_values)
    )
    yield from ("", "## Accepted without effect", "")
    yield "A start with one of them logs a warning; a value of the wrong type is an error all the same."
    for since, title in (("4.9", "Keys of RocketMQ 4.9.8"), ("5.x", "Keys of RocketMQ 5.x")):
        yield from ("", f"### {title}", "")
        rows = [row for row in SETTINGS if not row.used and row.since == since]
        yield from _table(UNUSED_HEAD, (_unused_cells(row) for row in rows))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _row(head)
    yield _row(("---",) * len(head))
    yield from map(_row, rows)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _spellings(row: Setting) -> str:
    return ", ".join(f"`{spelling}`" for spelling in row.properties)


def _default(row: Setting) -> str:
    text = f"`{row.default_text}`" if row.default_text else ""
    variable = f"environment `{row.environment_variable}`" if row.environment_variable else ""
    return ", else ".join(filter(None, (variable, text))) or "none"


def _used_cells(row: Setting) -> tuple[str, ...]:
    kind = f"{row.kind}, {row.unit}" if row.unit else str(row.kind)
    live = ", ".join(row.readers)
    return (_spellings(row), f"`{row.name}`", kind, _default(row), _range(row), live, row.effect)


def _range(row: Setting) -> str:
    if row.enum is not None:
        return ", ".join(row.enum)
    if row.kind is not Kind.INT:
        return ""
    bounds = f"{row.minimum} to {row.maximum}" if row.maximum not in (INT_MAX, LONG_MAX) else f"from {row.minimum}"
    return bounds + (", clamped" if Mark.CLAMPED in row.marks else "")


def _refused_cells(row: Setting) -> tuple[str, ...]:
    values = "any" if ANY_TEXT in row.refused_values else ", ".join(row.refused_values)
    return (_spellings(row), values, row.refused_because)


def _unused_cells(row: Setting) -> tuple[str, ...]:
    return (_spellings(row), str(row.kind), _default(row), row.effect)
