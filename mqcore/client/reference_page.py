"""``docs/client/reference.md``, written from the docstrings. ``python -m mqcore.client.reference_page`` writes it.

With ``--check`` nothing is written, and the exit status is 1 when the page is not what would be written.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path

from mqcore import client
from mqcore.client.settings.checked import Checked
from mqcore.written_page import write_or_check

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client" / "reference.md"

HEADER = """\
# Reference

Written by `python -m mqcore.client.reference_page` from the docstrings of `mqcore.client`; do not edit it by hand.
`mqcore.aio` has the same names, whose calls are awaited. Settings are in [settings.md](settings.md), errors in
[errors.md](errors.md), what tests need in [testing.md](testing.md).
"""


def page() -> str:
    """The whole text of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEADER.rstrip("\n")
    for name in sorted(client.__all__):
        value = getattr(client, name)
        if inspect.isclass(value) and not issubclass(value, Checked):
            yield from ("", f"## {name}", "", _sentences(value), "")
            if is_dataclass(value):
                yield from (f"`{name}{_signature(value)}`".replace(" -> None`", "`"), "")
            yield from _members(value)
        elif inspect.isfunction(value):
            yield from ("", f"## {name}{_signature(value)}", "", _sentences(value))


def _members(cls: type) -> Iterator[str]:
    if issubclass(cls, Enum):
        yield from (f"- `{member.name}` = `{member.value!r}`" for member in cls)
        return
    for name in sorted({name for base in cls.__mro__ if base.__module__.startswith("mqcore.") for name in vars(base)}):
        found = inspect.getattr_static(cls, name)
        if name.startswith("_") or not (callable(found) or isinstance(found, property | classmethod | staticmethod)):
            continue
        value = getattr(found, "__func__", found)
        if isinstance(value, property):
            yield f"- `{name}`{_colon(_sentences(value))}"
        else:
            yield f"- `{name}{_signature(value)}`{_colon(_sentences(value))}"


class _Unquoted(str):
    """An annotation, which is text, as it is to be read."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(function: Callable[..., object]) -> str:
    signature = inspect.signature(function)
    kept = [
        parameter
        if parameter.annotation is parameter.empty
        else parameter.replace(annotation=_Unquoted(parameter.annotation))
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    returned = signature.return_annotation
    answer = _Unquoted(returned) if isinstance(returned, str) else returned
    text = str(signature.replace(parameters=kept, return_annotation=answer))
    return re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)


def _sentences(value: object) -> str:
    """The first paragraph of a docstring, in one line; compiled functions have their signature in front."""
    text = re.sub(r"^[\w.]+\(.*\)( -> .*)?$", "", inspect.getdoc(value) or "", count=1, flags=re.MULTILINE)
    return " ".join(text.strip().split("\n\n")[0].split())


def _colon(text: str) -> str:
    return f": {text}" if text else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 if ``--check`` found the page missing or stale."""
    return write_or_check(PAGE, page, "python -m mqcore.client.reference_page", argv)


if __name__ == "__main__":
    sys.exit(main())
