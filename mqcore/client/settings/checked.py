"""The base of the settings classes: values of the right kind and in their range, or an error that names the setting."""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from mqcore.errors import ConfigError


def row(low: float | None = None, high: float | None = None, doc: str = "") -> dict[str, Any]:
    """Describe one setting, as its field's metadata. Numbers must lie in [*low*, *high*]."""
    return {"low": low, "high": high, "doc": doc}


class Checked:
    """Base of the settings classes: checks the kind and the range of every field when a value is made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        kinds = _kinds(type(self))
        for found in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, found.name)
            check_kind(found.name, value, kinds[found.name])
            check_range(found.name, value, found.metadata.get("low"), found.metadata.get("high"))


Kind = tuple[type, ...] | None
"""The classes that a value may have; None when they cannot be told by its annotation."""


def _kinds(cls: type[Checked]) -> dict[str, Kind]:
    known = _known.get(cls)
    if known is None:
        known = _known[cls] = {name: _kind(hint) for name, hint in typing.get_type_hints(cls).items()}
    return known


_known: dict[type[Checked], dict[str, Kind]] = {}


def _kind(hint: object) -> Kind:
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return choices if all(isinstance(choice, type) for choice in choices) else None


def check_kind(name: str, value: object, kind: Kind) -> None:
    """Raise ConfigError unless *value* is of *kind*. A whole number is a number; true and false are none."""
    if kind is None or any(_is_a(value, choice) for choice in kind):
        return
    wanted = [_WORDS.get(choice, choice.__name__) for choice in kind if choice is not types.NoneType]
    raise ConfigError(f"setting {name}: got {value!r}, wanted {' or '.join(dict.fromkeys(wanted))}")


def _is_a(value: object, choice: type) -> bool:
    if choice in (int, float):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(value) and (choice is float or isinstance(value, int))  # type: ignore[arg-type]
    return isinstance(value, choice)


_WORDS: dict[type, str] = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}


def check_range(name: str, value: object, low: float | None, high: float | None) -> None:
    """Raise ConfigError unless *value*, a number, is in [*low*, *high*]."""
    if (low is not None and value < low) or (high is not None and value > high):  # type: ignore[operator]
        raise ConfigError(f"setting {name}: got {value!r}, wanted a number from {low} to {high}")


SettingsT = TypeVar("SettingsT", bound=Checked)


def changed(settings: SettingsT, changes: Mapping[str, object]) -> SettingsT:
    """Return *settings* with *changes* applied. An unknown name raises TypeError with the nearest known one."""
    known = [found.name for found in fields(settings)]  # type: ignore[arg-type]
    for name in changes:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known settings: {', '.join(known)}"
            raise TypeError(f"unknown setting {name!r}{hint}")
    return replace(settings, **changes) if changes else settings  # type: ignore[type-var]
