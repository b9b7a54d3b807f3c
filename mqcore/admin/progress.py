"""How far a long copy is: a bar on a terminal, a line now and then elsewhere; to standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from mqcore import clock
from mqcore.admin.output import talk

LINE_PAUSE_S: Final = 5.0
MIB: Final = 1 << 20

Report = Callable[[int, int], None]
"""Is told how many bytes are done, and how many there are."""


@contextmanager
def progress(what: str, *, is_quiet: bool = False) -> Iterator[Report]:
    """Show how far *what* is, as the function is told that is given."""
    if is_quiet:
        yield lambda done, total: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield ProgressLines(what)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


@contextmanager
def count_progress(what: str, total: int | None, *, is_shown: bool) -> Iterator[Callable[[], None]]:
    """Show how many there are so far, on a terminal; the function that is given is called for each."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


class ProgressLines:
    """A line each LINE_PAUSE_S, none for what is over before."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = clock.monotonic_s()
        self._next = self._began + LINE_PAUSE_S

    def __call__(self, done: int, total: int) -> None:
        now = clock.monotonic_s()
        if now >= self._next:
            self._next = now + LINE_PAUSE_S
            rate = done / (now - self._began) / MIB
            talk(f"{self._what}: {done // MIB} of {total // MIB} MiB, {rate:.0f} MiB/s")
