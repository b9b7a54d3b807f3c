"""Tables that one test walks. A case of pytest's costs a run two milliseconds, a row next to nothing.

``@walked`` stands where ``pytest.mark.parametrize`` would. All rows are walked, and those that fail are named, each
with its traceback. They share the test's fixtures, and need none of their own: who wants a directory or a broker for
himself is a case.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable

import pytest

SHOWN_MAX = 10
"""Rows whose tracebacks are shown; more are counted."""

NAME_MAX = 100
PARAMETERS = type(pytest.param())
"""What ``pytest.param`` gives, whose class has no public name."""


def walked(names: str, rows: Iterable[object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test for each of *rows*: values of its arguments *names*, which are separated by commas."""
    arguments = [name.strip() for name in names.split(",")]
    table = [(name_of(row), dict(zip(arguments, values_of(row, len(arguments)), strict=True))) for row in rows]
    assert table, f"a table of {names} without rows tests nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def walk(**fixtures: object) -> None:
            failures: list[BaseException] = []
            for name, row in table:
                try:
                    test(**fixtures, **row)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"row of {names}: {name}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows fail", failures[:SHOWN_MAX])

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        vars(walk)["__signature__"] = signature.replace(parameters=left)
        return walk

    return decorate


def name_of(row: object) -> str:
    """Return what a failure calls *row*: its id, if ``pytest.param`` gave it one."""
    if isinstance(row, PARAMETERS):
        return str(row.id or row.values)
    return f"{row!r:.{NAME_MAX}}"


def values_of(row: object, count: int) -> tuple[object, ...]:
    """Return the values of *row*, as ``pytest.mark.parametrize`` takes it for *count* arguments."""
    if isinstance(row, PARAMETERS):
        return row.values
    return (row,) if count == 1 else tuple(row)  # type: ignore[arg-type]
