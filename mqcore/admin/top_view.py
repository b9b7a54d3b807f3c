"""What the screen of ``mqcore top`` looks like: tables of columns, and the lines that a screen of some size has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from mqcore.admin.top_data import WatchedChange

HEAD_LINES: Final = 4
FOOT_LINES: Final = 1
GAP: Final = 2
NAME_MIN: Final = 12
"""A column of names has so much at least: others are left out for it."""

HELP_LINE: Final = "1-5 table  s sort  r reverse  / filter  arrows scroll  p pause  + - pace  q quit"


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """A column. Of those of ``width`` 0, which are names, the texts stand left and share what room is left."""

    key: str
    heading: str
    text: Callable[[Any], str]
    width: int = 8
    style: Callable[[Any], str] | None = None

    @property
    def is_name(self) -> bool:
        return self.width == 0


def short(value: float | None) -> str:
    """Return a number, such as ``999``, ``0.5``, ``12.3k``, ``123M``; ``-`` for None."""
    if value is None:
        return "-"
    return f"{value:.1f}" if 0.05 <= value < 9.95 and value != int(value) else _scaled(value, 1000, " kMGTPE")


def size(value: float | None) -> str:
    """Return bytes, such as ``1.5G``, in powers of 1,024."""
    return "-" if value is None else _scaled(value, 1024, " KMGTPE")


def _scaled(value: float, step: int, units: str) -> str:
    """Return three or four figures and a unit."""
    number = 0
    while value >= 999.5 and number < len(units) - 1:
        value /= step
        number += 1
    return f"{value:.0f}" if number == 0 else f"{value:.{0 if value >= 99.95 else 1}f}{units[number]}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f}%"


def millis(value: float | None) -> str:
    """Return a time in ms, or in s if it is long."""
    if value is None:
        return "-"
    return f"{value / 1000:.1f}s" if value >= 1000 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def seconds(value: float) -> str:
    """Return a time, such as ``12s``, ``3m05s``, ``2h07m``, ``5d03h``."""
    whole = int(value)
    for span, unit, part, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= span:
            return f"{whole // span}{unit}{whole % span // part:02d}{small}"
    return f"{value:.1f}s" if 0 < value < 10 else f"{whole}s"


def plain(value: object) -> str:
    return "-" if value is None else str(value)


def when_high(amber: float, red: float) -> Callable[[Any], str]:
    """Return what colours a value that is *amber* or *red* at least."""

    def style(value: float | None) -> str:
        return "" if value is None or value < amber else "yellow" if value < red else "bold red"

    return style


def _rates() -> tuple[ScreenColumn, ...]:
    return ScreenColumn("in_rate", "IN/s", short, 6), ScreenColumn("out_rate", "OUT/s", short, 6)


TABLES: Final[dict[str, tuple[ScreenColumn, ...]]] = {
    "brokers": (
        ScreenColumn("broker", "BROKER", plain, 0),
        ScreenColumn("broker_id", "ID", plain, 2),
        *_rates(),
        ScreenColumn("send_p99_ms", "SEND99", millis, 6, when_high(100, 1000)),
        ScreenColumn("pull_p99_ms", "PULL99", millis, 6, when_high(100, 1000)),
        ScreenColumn("disk_ratio", "DISK", percent, 5, when_high(0.75, 0.88)),
        ScreenColumn("flush_behind", "UNSYNC", size, 6),
        ScreenColumn("disk_free", "FREE", size, 6),
        ScreenColumn("in_bytes_rate", "BYTES/s", size, 7),
        ScreenColumn("dispatch_behind", "UNDISP", size, 6),
        ScreenColumn("version", "VERSION", plain, 10),
        ScreenColumn("address", "ADDRESS", plain, 21),
        ScreenColumn("cluster", "CLUSTER", plain, 14),
    ),
    "workers": (
        ScreenColumn("process", "WORKER", plain, 0),
        ScreenColumn("broker", "BROKER", plain, 0),
        ScreenColumn("cpu", "CPU", percent, 5, when_high(0.75, 0.95)),
        ScreenColumn("wait", "WAIT", percent, 5, when_high(0.2, 0.5)),
        ScreenColumn("blocked", "I/O", percent, 5, when_high(0.2, 0.5)),
        ScreenColumn("memory", "MEM", size, 6),
        ScreenColumn("unit_rate", "UNITS/s", short, 7),
        ScreenColumn("backlog", "BACKLOG", short, 7, when_high(10_000, 100_000)),
        ScreenColumn("parked", "PARKED", short, 6),
        ScreenColumn("connections", "CONNS", short, 6),
        ScreenColumn("deaths", "DEATHS", short, 6, when_high(1, 3)),
        ScreenColumn("pid", "PID", plain, 7),
        ScreenColumn("state", "STATE", plain, 9),
        ScreenColumn("broker_id", "ID", plain, 3),
    ),
    "topics": (ScreenColumn("topic", "TOPIC", plain, 0), *_rates(), ScreenColumn("messages", "STORED", short, 8)),
    "groups": (
        ScreenColumn("group", "GROUP", plain, 0),
        *_rates(),
        ScreenColumn("lag", "LAG", short, 8, when_high(10_000, 1_000_000)),
        ScreenColumn("delay_s", "DELAY", seconds, 7, when_high(60, 600)),
    ),
    "replicas": (
        ScreenColumn("broker", "BROKER", plain, 0),
        ScreenColumn("broker_id", "ID", plain, 2),
        ScreenColumn("role", "ROLE", plain, 6),
        ScreenColumn("behind", "BEHIND", size, 7, when_high(1 << 20, 1 << 28)),
        ScreenColumn("slaves", "SLAVES", plain, 6),
        ScreenColumn("epoch", "EPOCH", plain, 6),
        ScreenColumn("state", "STATE", plain, 14),
        ScreenColumn("end", "END", size, 7),
        ScreenColumn("address", "ADDRESS", plain, 21),
    ),
}
"""Columns by the name of their table. Of a narrow screen those that stand last are left out."""

NAMES: Final = tuple(TABLES)
SORTED_BY: Final = {"brokers": "broker", "workers": "cpu", "topics": "in_rate", "groups": "lag", "replicas": "broker"}
"""By which column each table is sorted at first: names upwards, numbers downwards."""


def rows_of(change: WatchedChange, table: str) -> Sequence[Any]:
    """Return the rows of a table."""
    rows: Sequence[Any] = change.processes if table == "workers" else getattr(change, table)
    return rows


@dataclass(slots=True)
class ViewState:
    """What is looked at, and how. *first* is the row at the top; *typed* what is being typed as a filter, or None."""

    table: str = NAMES[0]
    sorted_by: dict[str, str] = field(default_factory=lambda: dict(SORTED_BY))
    reversed_tables: set[str] = field(default_factory=set)
    filter: str = ""
    typed: str | None = None
    first: int = 0
    is_paused: bool = False
    every_s: float = 2.0
    is_over: bool = False

    def column(self) -> ScreenColumn:
        """Return the column that the table is sorted by."""
        return next(column for column in TABLES[self.table] if column.key == self.sorted_by[self.table])

    def shown(self, change: WatchedChange) -> list[Any]:
        """Return the rows that pass the filter, sorted."""
        wanted = (self.filter if self.typed is None else self.typed).lower()
        names = [column.key for column in TABLES[self.table] if column.is_name or column.key == "address"]
        rows = [
            row
            for row in rows_of(change, self.table)
            if not wanted or any(wanted in str(getattr(row, name)).lower() for name in names)
        ]
        column = self.column()
        rows.sort(key=lambda row: [str(getattr(row, name)) for name in names])
        downwards = (not column.is_name) != (self.table in self.reversed_tables)
        rows.sort(key=lambda row: order_of(getattr(row, column.key)), reverse=downwards)
        return rows


def order_of(value: Any) -> tuple[int, Any]:
    """Return what values of a column are sorted by: what is not known is less than all that is."""
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, int | float) else (2, str(value).lower())


# Lines.


def fitting(columns: Sequence[ScreenColumn], width: int) -> list[tuple[ScreenColumn, int]]:
    """Return the columns that a line of *width* has room for, and how wide each is."""
    taken = sum((NAME_MIN if column.is_name else column.width) + GAP for column in columns) - GAP
    kept = list(columns)
    while taken > width and len(kept) > 1:
        taken -= kept.pop().width + GAP
    names = sum(column.is_name for column in kept)
    spare = max(0, width - taken)
    return [(column, NAME_MIN + spare // names if column.is_name else column.width) for column in kept]


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def placed(column: ScreenColumn, width: int, text: str) -> str:
    short_text = cut(text, width)
    left = column.is_name or column.text is plain
    return short_text.ljust(width) if left else short_text.rjust(width)


def row_line(columns: Sequence[tuple[ScreenColumn, int]], row: Any) -> Text:
    line = Text()
    for number, (column, width) in enumerate(columns):
        value = getattr(row, column.key)
        line.append(" " * GAP if number else "")
        style = column.style(value) if column.style is not None else ""
        line.append(placed(column, width, column.text(value)), "bold red" if getattr(row, "error", None) else style)
    return line


def heading_line(columns: Sequence[tuple[ScreenColumn, int]], state: ViewState, width: int) -> Text:
    line = Text(style="reverse")
    by = state.column()
    for number, (column, room) in enumerate(columns):
        line.append(" " * GAP if number else "")
        line.append(placed(column, room, column.heading), "bold underline" if column is by else "")
    line.append(" " * max(0, width - len(line)))
    return line


def summary_line(change: WatchedChange) -> Text:
    """Return the cluster in one line."""
    masters = [row for row in change.brokers if row.broker_id == 0]
    silent = sum(row.error is not None for row in change.brokers)
    fullest = max((row.disk_ratio for row in change.brokers if row.disk_ratio is not None), default=None)
    line = Text(f"{len(change.brokers)} brokers")
    if silent:
        line.append(f", {silent} silent", "bold red")
    line.append(
        f"  in {short(total(row.in_rate for row in masters))}/s  out {short(total(row.out_rate for row in masters))}/s"
    )
    line.append(f"  lag {short(sum(max(0, row.lag) for row in change.groups))}")
    line.append(f", {seconds(max((row.delay_s for row in change.groups), default=0))}")
    line.append("  disk ")
    line.append(percent(fullest), when_high(0.75, 0.88)(fullest))
    return line


def total(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def tabs_line(state: ViewState, change: WatchedChange | None) -> Text:
    line = Text()
    for number, name in enumerate(NAMES, 1):
        count = "" if change is None else f" {len(rows_of(change, name))}"
        line.append(f" {number} {name}{count} ", "reverse" if name == state.table else "dim")
        line.append(" ")
    return line


def title_line(state: ViewState, change: WatchedChange | None, place: str, width: int) -> Text:
    when = "" if change is None else datetime.fromtimestamp(change.time_ms / 1000).astimezone().strftime("%H:%M:%S")
    mark = "PAUSED" if state.is_paused else f"every {state.every_s:g} s"
    right = f"{mark}  {when}"
    left = cut(f"mqcore top  {place}", max(10, width - len(right) - 2))
    line = Text(left, "bold")
    line.append(" " * max(1, width - len(left) - len(right)), "not bold")
    line.append(right, "bold yellow" if state.is_paused else "not bold")
    return line


def foot_line(state: ViewState, shown: int, room: int) -> Text:
    if state.typed is not None:
        return Text(f"filter: {state.typed}_   Enter keeps it, Esc drops it", "bold")
    below = max(0, shown - state.first - room)
    marks = [f"filter {state.filter!r}"] if state.filter else []
    marks += [f"{state.first}↑ {below}↓"] if state.first or below else []
    line = Text()
    line.append("  ".join([*marks, ""]), "bold yellow")
    line.append(HELP_LINE, "dim")
    return line


def screen_lines(
    state: ViewState, change: WatchedChange | None, place: str, width: int, height: int, error: str | None = None
) -> list[Text]:
    """Return the lines of a screen, *height* of them, none wider than *width*.

    *error* is what keeps the next look from being taken. Keeps ``state.first`` within the rows.
    """
    problem = error or next(iter(change.errors if change is not None else ()), None)
    room = max(1, height - HEAD_LINES - FOOT_LINES - (problem is not None))
    rows = [] if change is None else state.shown(change)
    state.first = max(0, min(state.first, len(rows) - room))
    columns = fitting(TABLES[state.table], width)
    lines = [title_line(state, change, place, width), tabs_line(state, change)]
    if change is not None:
        lines.append(summary_line(change))
    if problem is not None:
        lines.append(Text(cut(problem, width), "bold red"))
    lines.append(heading_line(columns, state, width))
    lines += [row_line(columns, row) for row in rows[state.first : state.first + room]]
    if change is not None and not rows:
        lines.append(Text(nothing(state, change), "dim"))
    lines = lines[: height - FOOT_LINES]
    lines += [Text()] * (height - FOOT_LINES - len(lines))
    lines.append(foot_line(state, len(rows), room))
    for line in lines:
        line.truncate(width)
        line.no_wrap = True
    return lines[:height]


def nothing(state: ViewState, change: WatchedChange) -> str:
    if rows_of(change, state.table):
        return "no row has that in its name"
    return "these brokers do not tell" if state.table == "workers" else "there are none"
