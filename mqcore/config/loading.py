"""From files, command line and environment to ``Settings``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mqcore.config.index import SETTINGS, find, rows_of
from mqcore.config.problems import Problems
from mqcore.config.rules import advise, settle
from mqcore.config.settings import Settings, build, known_row, no_effect
from mqcore.config.table import Computed, Context, Group, Kind, Program, Setting, Value
from mqcore.errors import ConfigError
from mqcore.java_properties import decode_properties, read_entries

COMMAND_LINE = "command line"
ENVIRONMENT = "environment"
FILE_SIZE_MAX = 4 * 2**20  # bytes; a larger file is not a configuration


@dataclass(frozen=True, slots=True)
class Given:
    """One setting that was given as text; *where* is for messages and for ``Settings.source``."""

    row: Setting
    text: str
    where: str


def load(
    program: Program = Program.BROKER,
    *,
    files: Iterable[str | Path] = (),
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of *program*: defaults, *environment*, *files* in order, the file of TLS, then *overrides*.

    Raises ConfigError for a file that cannot be read, a key that neither RocketMQ nor mqcore knows, and a value of the
    wrong type, out of range or at odds with another: all of them at once, but what is at odds only among values that
    can stand by themselves. Keys that mqcore has no use for are taken with a warning.
    """
    problems = Problems()
    environment = os.environ if environment is None else environment
    warnings: list[str] = []
    values: dict[str, Value] = {}
    sources: dict[str, str] = {}
    for assignment in _assignments(program, files, overrides or {}, environment, warnings, problems):
        row, text, where = assignment.row, assignment.text, assignment.where
        if _leaves_default(row, text):
            values.pop(row.key, None)
            sources.pop(row.key, None)
            continue
        with problems.noted():
            values[row.key] = row.parse(text, where, warnings)
        sources[row.key] = where
        if not row.used and not where.startswith(ENVIRONMENT):
            warnings.append(no_effect(row, text, where))
    values = with_defaults(values, program, environment)
    warnings += settle(values, program, sources, problems)
    return build(program, values, sources, [*warnings, *advise(values, program, sources)])


def _assignments(
    program: Program,
    files: Iterable[str | Path],
    overrides: Mapping[str, str],
    environment: Mapping[str, str],
    warnings: list[str],
    problems: Problems,
) -> Iterator[Given]:
    given = []
    for row in rows_of(program):
        if environment.get(row.environment_variable):
            name = row.environment_variable
            given.append(Given(row, environment[name], f"{ENVIRONMENT} {name}"))
    for file in files:
        given += _file_assignments(program, file, warnings, problems)
    last = []
    for key, text in overrides.items():
        with problems.noted():
            last.append(Given(known_row(key, program, COMMAND_LINE), text, COMMAND_LINE))
    yield from given
    yield from _tls_assignments(program, [*given, *last], warnings, problems)
    yield from last


def _tls_assignments(
    program: Program, given: Iterable[Given], warnings: list[str], problems: Problems
) -> Iterator[Given]:
    """What the file of TLS says; it has nothing else to say. One that was asked for must be there."""
    row = find("tls.config.file")
    assert row is not None
    places = [assignment for assignment in given if assignment.row is row and assignment.text.strip()]
    named = places[-1].text.strip() if places else row.default_text
    path = Path(named).expanduser()
    if named == row.default_text and not path.exists():
        return
    for assignment in _file_assignments(program, path, warnings, problems):
        if assignment.row.group is Group.TLS:
            yield assignment
            continue
        with problems.noted():
            raise ConfigError(f"{assignment.row.key}: not a setting of TLS ({assignment.where})")


def _file_assignments(program: Program, file: str | Path, warnings: list[str], problems: Problems) -> list[Given]:
    seen: dict[str, str] = {}
    given: list[Given] = []
    with problems.noted():
        for entry in read_entries(_read_text(file), str(file)):
            where = f"{file}:{entry.first_line}"
            with problems.noted():
                row = known_row(entry.key, program, where)
                if row.key in seen:
                    warnings.append(f"{entry.key}: given twice, at {seen[row.key]} and {where}; the later one counts")
                seen[row.key] = where
                given.append(Given(row, entry.value, where))
    return given


def _read_text(file: str | Path) -> str:
    try:
        with Path(file).open("rb") as stream:
            data = stream.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file: {error.strerror} ({file})") from error
    if len(data) > FILE_SIZE_MAX:
        raise ConfigError(f"cannot read the configuration file: more than {FILE_SIZE_MAX} bytes ({file})")
    return decode_properties(data)


def _leaves_default(row: Setting, text: str) -> bool:
    """Whether the text is empty where the default is found on the machine, as in ``brokerIP1=`` of a template file."""
    return row.kind is Kind.STR and isinstance(row.default, Computed) and not text.strip()


def with_defaults(values: Mapping[str, Value], program: Program, environment: Mapping[str, str]) -> dict[str, Value]:
    """*values* and the default of each used setting that has none; computed ones last, since they look at others."""
    complete = dict(values)
    missing = [row for row in SETTINGS if row.used and row.key not in values]
    context = Context(complete, environment, program)
    for row in sorted(missing, key=lambda row: isinstance(row.default, Computed)):
        complete[row.key] = row.default_value(context)
    return complete
