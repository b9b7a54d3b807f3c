"""``docs/client/settings.md``, written from the settings classes. ``python -m mqcore.client.settings.page`` writes it.

With ``--check`` nothing is written, and the exit status is 1 when the page is not what would be written.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import Field, fields
from enum import Enum
from pathlib import Path

from mqcore.client.settings.checked import Checked
from mqcore.client.settings.configuration import SECTIONS
from mqcore.written_page import write_or_check

PAGE = Path(__file__).resolve().parents[3] / "docs" / "client" / "settings.md"

HEADER = """\
# Settings of the client

Written by `python -m mqcore.client.settings.page` from the classes in `mqcore/client`; do not edit it by hand.

Each is a keyword argument of the call named above its table, a field of the settings class, and can come from the
environment, a URL or a file: see [configuration.md](configuration.md). Names that end in `_s` are seconds, in `_ms`
milliseconds, in `_bytes` bytes, in `_mib` MiB.
"""

CALLS = {
    "client": "`Client(...)`",
    "producer": "`client.producer(...)` and `client.transaction_producer(...)`",
    "consumer": "`client.consumer(...)`",
    "pull_consumer": "`client.pull_consumer(...)`",
}


def page() -> str:
    """The whole text of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEADER.rstrip("\n")
    for section, cls in SECTIONS.items():
        yield from (
            "",
            f"## {cls.__name__}",
            "",
            f"{CALLS[section]}; environment `MQCORE_{section.upper()}_<NAME>`.",
            "",
        )
        yield "| Name | Type | Default | Range | Effect |"
        yield "| --- | --- | --- | --- | --- |"
        defaults, hints = cls(), typing.get_type_hints(cls)
        for row in fields(cls):  # type: ignore[arg-type]  # every settings class is a dataclass
            yield _row(row, hints[row.name], getattr(defaults, row.name), cls)


def _row(row: Field[object], hint: object, default: object, cls: type[Checked]) -> str:
    effect = row.metadata.get("doc") or row.name.replace("_", " ")
    cells = (f"`{row.name}`", _type(hint), _default(default), _range(row), effect)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(hint: object) -> str:
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    origins = {tuple: "numbers", frozenset: "numbers"}
    names = []
    for choice in choices:
        if choice is type(None):
            continue
        origin = typing.get_origin(choice)
        names.append(
            origins.get(origin, "function") if origin is not None else getattr(choice, "__name__", str(choice))
        )
    return " or ".join(dict.fromkeys(names))


def _default(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, tuple | frozenset):
        return "`" + ", ".join(str(item) for item in (value if isinstance(value, tuple) else sorted(value))) + "`"
    if value == "":
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _range(row: Field[object]) -> str:
    low, high = row.metadata.get("low"), row.metadata.get("high")
    if low is None and high is None:
        return ""
    return f"from {low}" if high is None else f"{low} to {high}"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 if ``--check`` found the page missing or stale."""
    return write_or_check(PAGE, page, "python -m mqcore.client.settings.page", argv)


if __name__ == "__main__":
    sys.exit(main())
