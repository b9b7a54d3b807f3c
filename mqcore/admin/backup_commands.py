"""``mqcore backup`` and ``mqcore restore``: copies of a store's files. They ask no broker."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mqcore.admin.options import output_option, when
from mqcore.admin.output import print_table, show, show_pairs, show_records, talk, time_text
from mqcore.admin.progress import progress
from mqcore.admin.running import PartialError, fail
from mqcore.delay_levels import DELAY_LEVELS, parse_delay_levels
from mqcore.errors import BackupError, MQError
from mqcore.store.backup.checking import check_backup
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.making import BackupResult, Options, make_backup
from mqcore.store.backup.restoring import DELAYS_LATE_MS, RestoreOptions, RestoreResult, restore
from mqcore.store.reader import SEPARATOR, to_ms

SIZE: Final = re.compile(r"(\d+)\s*([kKmMgGtT]?)(?:i?B)?")
SIZE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
SPAN: Final = re.compile(r"(\d+)(h|d|w)")
SPAN_UNITS_MS: Final = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
GROUPS_SHOWN: Final = 20

T = TypeVar("T")

PATH = click.Path(path_type=Path)


def parse_size(context: click.Context, option: click.Parameter, text: str | None) -> int:
    """Read bytes, such as ``50M``; 0 for none."""
    if text is None:
        return 0
    found = SIZE.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise click.BadParameter(f"got {text!r}, wanted bytes such as 50M or 1G")
    return int(found[1]) * SIZE_UNITS[found[2].lower()]


def parse_span(context: click.Context, option: click.Parameter, text: str | None) -> int:
    """Read a span of time in ms, such as ``14d``; 0 for none."""
    if text is None:
        return 0
    found = SPAN.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise click.BadParameter(f"got {text!r}, wanted hours, days or weeks such as 36h, 14d or 8w")
    return int(found[1]) * SPAN_UNITS_MS[found[2]]


def parse_until(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    time: datetime | None = None if text is None else when(text)
    return None if time is None else to_ms(time)


def parse_levels(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return parse_delay_levels(text)
    except ValueError as error:
        raise click.BadParameter(f"got {text!r}, wanted {error}") from error


rate_option = click.option(
    "--max-rate", callback=parse_size, metavar="SIZE", help="Read no more a second, such as 50M."
)
quiet_option = click.option("--quiet", is_flag=True, help="Show no progress.")


def run(work: Callable[[], T]) -> T:
    """Run a command's work; an error of ours, or of the disk, becomes one line and an exit code."""
    try:
        return work()
    except MQError as error:
        fail(error)
    except OSError as error:
        fail(BackupError(f"{error.filename or 'the disk'}: {error.strerror}"))
    except KeyboardInterrupt:
        fail(BackupError("broken off; what was there before counts on, and the same command goes on with it"))


@click.command()
@click.argument("backup", type=PATH)
@click.option("--store", type=PATH, metavar="DIR", help="The store to copy (storePathRootDir); its broker may run.")
@click.option(
    "--commit-log",
    "commit_logs",
    multiple=True,
    metavar="DIR",
    help="Where its commit log lies, if not in DIR/commitlog; for several directories given more than once.",
)
@click.option("--keep", callback=parse_span, metavar="SPAN", help="Drop older messages from the backup, such as 14d.")
@click.option("--verify", is_flag=True, help="Compare the backup with its checksums, behind the copy if there is one.")
@click.option("--list", "is_list", is_flag=True, help="Show what is in the backup.")
@rate_option
@quiet_option
@output_option
def backup(
    backup: Path,
    store: Path | None,
    commit_logs: tuple[str, ...],
    keep: int,
    verify: bool,
    is_list: bool,
    max_rate: int,
    quiet: bool,
    output: str,
) -> None:
    """Copy what is new in a store to the directory BACKUP, or check and show what is there.

    Each record is checked on its way. Exits with 4 if some in the store are damaged: all others are copied.
    """
    if store is None and not verify and not is_list:
        raise click.UsageError("give --store to copy a store, or --verify or --list")
    if store is None and (keep or commit_logs):
        raise click.UsageError("--keep and --commit-log go with --store")
    if is_list and (store is not None or verify):
        raise click.UsageError("--list goes alone")
    if is_list:
        show_runs(backup, output)
        return
    values: dict[str, Any] = {}
    problems: list[str] = []
    if store is not None:
        values |= copy(store, backup, commit_logs, Options(max_rate, keep), problems, quiet)
    if verify:
        values |= check(backup, max_rate, problems, quiet)
    show_pairs(values, output)
    finish(problems)


def copy(
    store: Path, backup: Path, commit_logs: Sequence[str], options: Options, problems: list[str], quiet: bool
) -> dict[str, Any]:
    """Make the backup; damage goes into *problems*."""
    directories = [Path(part) for entry in commit_logs for part in entry.split(SEPARATOR)]
    with progress("copying", is_quiet=quiet) as report:
        result = run(partial(make_backup, store, backup, directories, options, report))
    problems += [f"the store is damaged from offset {start} to {end}" for start, end in result.damaged]
    return copy_record(result)


def copy_record(result: BackupResult) -> dict[str, Any]:
    """Return what is printed; these names do not change."""
    return {
        "number": result.number,
        "startOffset": result.start,
        "endOffset": result.end,
        "copiedBytes": result.copied_bytes,
        "copiedMessages": result.record_count,
        "removedFiles": result.removed_files,
        "damaged": [list(found) for found in result.damaged],
    }


def check(backup: Path, max_rate: int, problems: list[str], quiet: bool) -> dict[str, Any]:
    """Verify the backup; what is wrong goes into *problems*."""
    with progress("checking", is_quiet=quiet) as report:
        result = run(partial(check_backup, BackupDirectory(backup), max_rate, report))
    problems += result.problems
    return {"checkedBytes": result.byte_count, "problems": result.problems}


def finish(problems: Sequence[str]) -> None:
    """End with an exit code that tells of damage."""
    for problem in problems:
        talk(f"damaged: {problem}")
    if problems:
        fail(PartialError(f"{len(problems)} damaged; everything else is there"))


def show_runs(backup: Path, output: str) -> None:
    """Print the completed backups, and what they hold together."""
    manifest = run(BackupDirectory(backup).load)
    records = [
        {
            "number": one.number,
            "takenAt": time_text(one.taken_at),
            "startOffset": manifest.start,
            "endOffset": one.end,
            "newestMessage": time_text(one.last_timestamp),
        }
        for one in manifest.runs
    ]
    columns = {"number": "RUN", "takenAt": "TAKEN AT", "startOffset": "FROM", "endOffset": "TO"}
    show_records(records, output, columns | {"newestMessage": "NEWEST MESSAGE"})


@click.command("restore")
@click.argument("backup", type=PATH)
@click.argument("target", type=PATH)
@click.option(
    "--commit-log", type=PATH, metavar="DIR", help="Where to put the commit log, if not into TARGET/commitlog."
)
@click.option("--until", callback=parse_until, metavar="TIME", help="Only what was stored before.")
@click.option("--until-offset", type=click.IntRange(0), help="Only whole records before this place in the commit log.")
@click.option("--take-damaged", is_flag=True, help="Take parts that differ from their checksums as they are.")
@click.option(
    "--delay-levels",
    default=DELAY_LEVELS,
    callback=parse_levels,
    metavar="LEVELS",
    help="The broker's messageDelayLevel, if it has others; they matter before the first run alone.",
)
@click.option(
    "--delays-late",
    callback=parse_span,
    metavar="SPAN",
    help="How late delayed messages were, such as 2h, if more than ten minutes; it matters before the first run alone.",
)
@rate_option
@quiet_option
@output_option
def restore_command(
    backup: Path,
    target: Path,
    commit_log: Path | None,
    until: int | None,
    until_offset: int | None,
    take_damaged: bool,
    delay_levels: tuple[int, ...],
    delays_late: int,
    max_rate: int,
    quiet: bool,
    output: str,
) -> None:
    """Make a store in the empty directory TARGET from the directory BACKUP.

    The broker that is started on it builds consume queues and index; that takes it longer than its other starts.
    """
    options = RestoreOptions(
        until=until, until_offset=until_offset, take_damaged=take_damaged, max_rate=max_rate,
        delay_levels_ms=delay_levels, delays_late_ms=delays_late or DELAYS_LATE_MS,
    )  # fmt: skip
    with progress("restoring", is_quiet=quiet) as report:
        result = run(partial(restore, backup, target, commit_log, options, report))
    show(restore_record(result), output, lambda: show_restored(result))
    finish([f"from offset {start} to {end}" for start, end in result.damaged] + result.problems)


def restore_record(result: RestoreResult) -> dict[str, Any]:
    """Return what is printed; these names do not change."""
    return {
        "startOffset": result.start,
        "endOffset": result.end,
        "newestMessage": time_text(result.last_timestamp),
        "copiedBytes": result.copied_bytes,
        "messages": result.record_count,
        "queues": result.queue_count,
        "tablesAt": time_text(result.tables_at),
        "movedOffsets": result.moved,
        "droppedOffsets": result.dropped,
        "damaged": [list(found) for found in result.damaged],
        "problems": result.problems,
        "behind": result.behind,
    }


def show_restored(result: RestoreResult) -> None:
    """Print what was restored, and what that means for consumers."""
    record = restore_record(result)
    behind = record.pop("behind")
    show_pairs({name: value for name, value in record.items() if value != []}, "table")
    rows = [(group, topic, count) for group, topics in behind.items() for topic, count in topics.items()]
    rows.sort(key=lambda row: -row[2])
    if rows:
        talk(f"Groups stand where they stood at {time_text(result.tables_at)}; what waits for them:")
        print_table(["GROUP", "TOPIC", "MESSAGES"], rows[:GROUPS_SHOWN])
    if len(rows) > GROUPS_SHOWN:
        talk(f"and {len(rows) - GROUPS_SHOWN} more; --output json has all")
    if result.is_earlier:
        talk(
            "The log ends before the first backup was taken: offsets behind its end were put back to it, and delayed "
            "messages that were due in its last ten minutes (--delays-late) are delivered again."
        )
