"""``Settings``: all values of one program, where they came from, and what may become of them while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mqcore.config.agreement import GROUPS, USED_ROWS
from mqcore.config.index import find, nearest_spelling, preferred_spelling, rows_of
from mqcore.config.rules import advise, settle
from mqcore.config.table import Context, Mark, Program, Setting, Value, format_value
from mqcore.config.values import SettingValues
from mqcore.errors import ConfigError
from mqcore.java_properties import format_properties

EMBEDDED = "the embedded name server"
"""Where namesrvAddr comes from in a broker that has its own."""


@dataclass(frozen=True, slots=True)
class Settings(SettingValues):
    """Everything that a broker or a name server was told, and where it was told so.

    *unused* has the keys that were given though mqcore has no use for them; *sources* has where each value that is not
    a default came from. Both are by property name. Groups that *program* does not know hold their defaults.
    """

    program: Program
    unused: Mapping[str, Value]
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def with_name_server(self, address: str) -> Settings:
        """The same settings with *address* as the one name server: that of the broker itself."""
        return replace(
            self,
            broker=self.broker._replace(namesrv_addr=address),
            sources={**self.sources, "namesrvAddr": EMBEDDED},
        )

    # By property name.

    def source(self, name: str) -> str:
        """Where the value of the property *name* came from: "broker.conf:12", "command line", "default" and so on."""
        return self.sources.get(preferred_spelling(name), "default")

    def used_values(self) -> dict[str, Value]:
        """The value of each used setting, by property name."""
        return {
            row.key: getattr(getattr(self, attribute), row.name)
            for group, (attribute, _) in GROUPS.items()
            for row in USED_ROWS[group]
        }

    def values(self) -> Iterator[tuple[Setting, Value]]:
        """The rows that *program* knows with their values, defaults included; 5.x keys only if they were given.

        A number that follows from others is shown as it follows, whatever was given.
        """
        known = self.used_values()
        context = Context(known, {}, self.program)
        for row in rows_of(self.program):
            if row.used:
                yield row, known[row.key]
            elif row.key in self.unused and Mark.FOLLOWS not in row.marks:
                yield row, self.unused[row.key]
            elif row.since == "4.9":
                yield row, row.default_value(context)

    def as_properties(self, important_only: bool = False) -> str:
        """``key=value`` lines, loadable again. A setting without a value is left out, as RocketMQ leaves out null.

        So are secrets.
        """
        return format_properties(
            {
                row.key: format_value(value)
                for row, value in self.values()
                if (value != "" or Mark.EMPTY in row.marks) and _is_listed(row, important_only)
            }
        )

    # Changes while the program runs.

    def unchangeable_among(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Those of *keys* that a remote update must refuse: known, but not changeable or on the black list.

        Unknown keys are not among them; ``update`` refuses those with an error of its own.
        """
        return tuple(
            key for key in keys if (row := find(key)) is not None and (not row.changeable or row.key in self.black_list)
        )

    @property
    def black_list(self) -> frozenset[str]:
        """The keys that a remote update refuses whatever they are."""
        return frozenset(preferred_spelling(key.strip()) for key in self.broker.config_black_list.split(";"))

    def update(self, changes: Mapping[str, str], where: str = "update") -> Settings:
        """Settings with all of *changes* (property or alias to text) made; ``warnings`` has those of this update only.

        Only settings marked changeable may change, and paths, addresses and identities never are. Numbers and
        switches that mqcore has no use for are taken with a warning. Raises ConfigError if any change is wrong.
        """
        for key in self.unchangeable_among(changes):
            raise ConfigError(f"{key}: cannot be changed while the {self.program} runs ({where})")
        values = self.used_values() | dict(self.unused)
        sources = dict(self.sources)
        warnings: list[str] = []
        for key, text in changes.items():
            row = known_row(key, self.program, where)
            values[row.key] = row.parse(text, where, warnings)
            sources[row.key] = where
            if not row.used:
                warnings.append(no_effect(row, text, where))
        warnings += settle(values, self.program, sources)
        before = advise(self.used_values(), self.program, self.sources)
        warnings += [advice for advice in advise(values, self.program, sources) if advice not in before]
        return build(self.program, values, sources, warnings)


def build(
    program: Program, values: Mapping[str, Value], sources: Mapping[str, str], warnings: Iterable[str] = ()
) -> Settings:
    """Settings from settled *values* by property: all used ones, and those unused ones that were given."""
    groups: dict[str, Any] = {
        attribute: kind(**{row.name: values[row.key] for row in USED_ROWS[group]})
        for group, (attribute, kind) in GROUPS.items()
    }
    unused = {name: value for name, value in values.items() if (row := find(name)) is not None and not row.used}
    return Settings(program=program, unused=unused, sources=dict(sources), warnings=tuple(warnings), **groups)


def known_row(key: str, program: Program, where: str, *, any_program: bool = False) -> Setting:
    """The row for *key*, or ConfigError with the nearest known spelling."""
    row = find(key)
    if row is not None and (any_program or program in row.programs):
        return row
    if row is not None:
        raise ConfigError(f"{key}: not a setting of the {program} but of the {row.programs[0]} ({where})")
    nearest = nearest_spelling(key, program)
    hint = f", did you mean {nearest}?" if nearest else ""
    raise ConfigError(f"{key}: unknown setting of the {program}{hint} ({where})")


def no_effect(row: Setting, text: str, where: str) -> str:
    """The warning for a key that is taken without being used."""
    return f"{row.key}={text.strip()} has no effect: {row.effect} ({where})"


def _is_listed(row: Setting, important_only: bool) -> bool:
    return Mark.SECRET not in row.marks and (not important_only or Mark.SHOWN in row.marks)
