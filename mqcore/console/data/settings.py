"""A broker's settings, with what differs from the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mqcore.client.admin import Admin
from mqcore.config import Setting, find
from mqcore.config.table import Computed, Mark, format_value
from mqcore.errors import ConfigError


class Origin(StrEnum):
    """How a value stands to its default."""

    DEFAULT = "default"
    CHANGED = "changed"
    COMPUTED = "computed"
    """The default follows from the machine or from other settings: from afar nobody can tell."""
    UNKNOWN = "unknown"
    """This console knows no such setting: that of another release."""


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting of a broker; *default* is its default in words."""

    name: str
    value: str
    default: str
    origin: Origin
    group: str
    effect: str
    is_live: bool


async def setting_lines(admin: Admin, broker: str) -> list[SettingLine]:
    """Return the settings of *broker* (name or address); those that are secret are not among them."""
    return lines_of(await admin.broker_config(broker))


def lines_of(values: Mapping[str, str]) -> list[SettingLine]:
    """Return the settings that differ from their defaults, then the others, each by name."""
    lines = [line for name in sorted(values, key=str.lower) if (line := _line(name, values[name])) is not None]
    return sorted(lines, key=lambda line: line.origin is not Origin.CHANGED)


def _line(name: str, value: str) -> SettingLine | None:
    row = find(name)
    if row is None:
        return SettingLine(name, value, "", Origin.UNKNOWN, "", "", False)
    if Mark.SECRET in row.marks:
        return None
    return SettingLine(name, value, row.default_text, _origin(row, value), row.group, row.effect, row.changeable)


def _origin(row: Setting, value: str) -> Origin:
    if isinstance(row.default, Computed):
        return Origin.COMPUTED
    try:
        is_default = row.parse(value, row.key, []) == row.default
    except ConfigError:  # of another release, whose range is another one
        is_default = value == format_value(row.default)
    return Origin.DEFAULT if is_default else Origin.CHANGED
