"""``mqcore store``: looking into a store's files, be its broker running or not. It asks nobody and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mqcore.admin.backup_commands import PATH, parse_levels, quiet_option, rate_option
from mqcore.admin.options import output_option
from mqcore.admin.output import cell, print_table, show, show_pairs, talk
from mqcore.admin.progress import progress
from mqcore.admin.running import PartialError, fail
from mqcore.delay_levels import DELAY_LEVELS
from mqcore.errors import MQError, StoreError
from mqcore.store.checking.checker import CheckOptions, CheckReport, check_store
from mqcore.store.reader import SEPARATOR, StoreReader

DAMAGE_SHOWN: Final = 20

T = TypeVar("T")

commit_log_option = click.option(
    "--commit-log",
    "commit_logs",
    multiple=True,
    metavar="DIR",
    help="Where its commit log lies, if not in DIR/commitlog; for several directories given more than once.",
)


@click.group()
def store() -> None:
    """Check, show and export the files of a store; its broker may run, and need not."""


def run(work: Callable[[], T]) -> T:
    """Run a command's work; an error of ours, or of the disk, becomes one line and an exit code."""
    try:
        return work()
    except MQError as error:
        fail(error)
    except BrokenPipeError:
        raise  # click ends without a word when nobody reads any more
    except OSError as error:
        fail(StoreError(f"{error.filename or 'the disk'}: {error.strerror}"))
    except KeyboardInterrupt:
        fail(StoreError("broken off"))


def open_store(directory: Path, commit_logs: tuple[str, ...]) -> StoreReader:
    """Return a reader of the store in *directory*."""
    return StoreReader(directory, [part for entry in commit_logs for part in entry.split(SEPARATOR)] or None)


@store.command()
@click.argument("directory", type=PATH)
@commit_log_option
@click.option("--jobs", type=click.IntRange(1), help="Read with so many threads; by default one for each core.")
@click.option("--all", "everything", is_flag=True, help=f"Name all damage, and not the first {DAMAGE_SHOWN} places.")
@click.option(
    "--delay-levels",
    default=DELAY_LEVELS,
    callback=parse_levels,
    metavar="LEVELS",
    help="The broker's messageDelayLevel, if it has others: units of delayed messages have the time they are due.",
)
@rate_option
@quiet_option
@output_option
def check(
    directory: Path,
    commit_logs: tuple[str, ...],
    jobs: int | None,
    everything: bool,
    delay_levels: tuple[int, ...],
    max_rate: int,
    quiet: bool,
    output: str,
) -> None:
    """Look at every byte of the store in DIRECTORY that says something, and name what is damaged.

    Records with their CRC, consume queues, ext units, index, checkpoint. Exits with 4 if something is damaged.
    """
    options = CheckOptions(jobs=jobs or 0, max_rate=max_rate, delay_levels_ms=delay_levels)

    def work() -> CheckReport:
        with open_store(directory, commit_logs) as reader, progress("checking", is_quiet=quiet) as report:
            return check_store(reader, options, report)

    result = run(work)
    values = result.record()
    if not everything:
        values["damage"] = values["damage"][:DAMAGE_SHOWN]
    values["omitted"] = result.damage.count - len(values["damage"])
    show(values, output, partial(show_check, values))
    if result.damage.count:
        fail(PartialError(f"{result.damage.count} damaged; everything else is as it should be"))


def show_check(values: dict[str, Any]) -> None:
    """Print what was looked at, then what is damaged."""
    rest = {name: value for name, value in values.items() if name not in ("damage", "notes", "omitted")}
    show_pairs(rest, "table")
    for note in values["notes"]:
        talk(f"note: {note}")
    if values["damage"]:
        click.echo()
        rows = [[cell(one[name]) for name in DAMAGE_COLUMNS] for one in values["damage"]]
        print_table(list(DAMAGE_COLUMNS.values()), rows)
    if values["omitted"]:
        talk(f"and {values['omitted']} more; --all names them")


DAMAGE_COLUMNS = {"kind": "KIND", "file": "FILE", "position": "AT", "found": "FOUND", "wanted": "WANTED"}
