"""``mqcore store``: looking into a store's files, be its broker running or not. It asks nobody and changes nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mqcore.admin.backup_commands import PATH, parse_levels, quiet_option, rate_option
from mqcore.admin.options import output_option, when
from mqcore.admin.output import cell, print_table, show, show_pairs, talk, time_text
from mqcore.admin.progress import progress
from mqcore.admin.running import PartialError, fail
from mqcore.admin.store_export import COLUMNS, FORMATS, JsonLinesWriter, MessageWriter, ParquetWriter, target_stream
from mqcore.client.errors import NotFoundError
from mqcore.delay_levels import DELAY_LEVELS
from mqcore.errors import MQError, StoreError
from mqcore.store.checking.checker import CheckOptions, CheckReport, check_store
from mqcore.store.checking.contents import Amount, StoreContents, find_contents
from mqcore.store.columns import MessageBatch, Selection
from mqcore.store.exporting import read_messages
from mqcore.store.reader import SEPARATOR, StoreReader, make_selection

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


@store.command("show")
@click.argument("directory", type=PATH)
@commit_log_option
@click.option("--queues", "with_queues", is_flag=True, help="Show the queues of each topic, too.")
@click.option("--topic", "only", help="Only this topic and its queues.")
@quiet_option
@output_option
def show_store(
    directory: Path, commit_logs: tuple[str, ...], with_queues: bool, only: str | None, quiet: bool, output: str
) -> None:
    """Show what the store in DIRECTORY holds: segments of the log, topics by size, their queues, and their times."""

    def work() -> StoreContents:
        with open_store(directory, commit_logs) as reader, progress("looking", is_quiet=quiet) as report:
            return find_contents(reader, report)

    contents = run(work)
    if only is not None:
        contents.queues = [queue for queue in contents.queues if queue.topic == only]
        if not contents.queues:
            fail(NotFoundError(f"the store has no topic {only}"))
        with_queues = True
    values = contents_record(contents)
    show(values, output, partial(show_contents, values, with_queues))


def contents_record(contents: StoreContents) -> dict[str, Any]:
    """Return what is printed; these names do not change."""
    topics = contents.topics()
    total = sum(amount.byte_count for amount in topics.values())
    queue_counts = Counter(queue.topic for queue in contents.queues)
    return {
        "state": contents.state.use.value,
        "startOffset": contents.start,
        "endOffset": contents.end,
        "segments": [
            {"file": str(segment.path), "startOffset": segment.start} | amount_record(segment.amount)
            for segment in contents.segments
        ],
        "topics": [
            {"topic": topic, "queues": queue_counts[topic]}
            | amount_record(amount)
            | {"share": round(amount.byte_count / total, 4) if total else 0.0}
            for topic, amount in topics.items()
        ],
        "queues": [
            {
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "minOffset": queue.min_offset,
                "maxOffset": queue.max_offset,
            }
            | amount_record(queue.amount)
            for queue in contents.queues
        ],
    }


def amount_record(amount: Amount) -> dict[str, Any]:
    return {
        "messages": amount.message_count,
        "bytes": amount.byte_count,
        "firstStored": time_text(amount.first_timestamp),
        "lastStored": time_text(amount.last_timestamp),
    }


AMOUNT_COLUMNS = {"messages": "MESSAGES", "bytes": "BYTES", "firstStored": "FIRST STORED", "lastStored": "LAST STORED"}
SECTIONS: Final[dict[str, dict[str, str]]] = {
    "segments": {"file": "SEGMENT"} | AMOUNT_COLUMNS,
    "topics": {"topic": "TOPIC", "queues": "QUEUES", "share": "SHARE"} | AMOUNT_COLUMNS,
    "queues": {"topic": "TOPIC", "queueId": "QUEUE", "minOffset": "MIN", "maxOffset": "MAX"} | AMOUNT_COLUMNS,
}
"""What a table shows of each list: key -> heading."""


def show_contents(values: dict[str, Any], with_queues: bool) -> None:
    """Print a table of segments, one of topics, and perhaps one of queues."""
    show_pairs({name: value for name, value in values.items() if name not in SECTIONS}, "table")
    for section, columns in SECTIONS.items():
        if values[section] and (with_queues or section != "queues"):
            click.echo()
            print_table(list(columns.values()), [[cell(one[key]) for key in columns] for one in values[section]])


def parse_place(context: click.Context, option: click.Parameter, text: str | None) -> int | datetime | None:
    """Read a queue offset, or a time."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    return when(text)


@store.command()
@click.argument("directory", type=PATH)
@commit_log_option
@click.option("--topic", "topics", multiple=True, help="This topic; may be given more than once. Without it all.")
@click.option(
    "--queue", "queue_ids", type=click.IntRange(0), multiple=True, help="This queue; more than once for more."
)
@click.option(
    "--from",
    "start",
    callback=parse_place,
    metavar="OFFSET|TIME",
    help="From this queue offset on, or stored at this time or later.",
)
@click.option(
    "--until",
    "end",
    callback=parse_place,
    metavar="OFFSET|TIME",
    help="Before this queue offset, or stored before this time.",
)
@click.option("--tag", "tags", multiple=True, help="With this tag; may be given more than once.")
@click.option(
    "--to", "target", type=click.Path(path_type=Path, dir_okay=False), help="A new file; else standard output."
)
@click.option(
    "--format", "format_name", type=click.Choice(list(FORMATS)), help="By default as the file is named; jsonl."
)
@click.option("--skip-damaged", is_flag=True, help="Pass over what is damaged, say so, and exit with 4.")
@rate_option
@quiet_option
@output_option
def export(
    directory: Path,
    commit_logs: tuple[str, ...],
    topics: tuple[str, ...],
    queue_ids: tuple[int, ...],
    start: int | datetime | None,
    end: int | datetime | None,
    tags: tuple[str, ...],
    target: Path | None,
    format_name: str | None,
    skip_damaged: bool,
    max_rate: int,
    quiet: bool,
    output: str,
) -> None:
    """Write messages of the store in DIRECTORY as JSON lines or Parquet.

    A time is ISO 8601 (UTC when it names no zone) or how long ago, such as 90m. A file is there when all is in it,
    and --output is for what is said about it.
    """
    kind = FORMATS[format_name or ("parquet" if target is not None and target.suffix == ".parquet" else "jsonl")]
    if kind is ParquetWriter and target is None and sys.stdout.isatty():
        raise click.UsageError("Parquet is nothing for a terminal: give --to FILE, or a pipe")
    selection = make_selection(
        Selection(),
        topics=topics or None,
        topic_pattern=None,
        queue_ids=queue_ids or None,
        offset_min=start if isinstance(start, int) else None,
        offset_max=end if isinstance(end, int) else None,
        start_time=start if isinstance(start, datetime) else None,
        end_time=end if isinstance(end, datetime) else None,
        tags=tags or None,
    )
    skipped: list[str] = []

    def work() -> int:
        with open_store(directory, commit_logs) as reader, progress("exporting", is_quiet=quiet) as report:
            check_topics(reader, topics)
            return write_messages(
                kind,
                target,
                read_messages(
                    reader, selection, COLUMNS, max_rate=max_rate, on_progress=report,
                    on_skip=partial(note_skipped, skipped) if skip_damaged else None,
                ),
            )  # fmt: skip

    count = run(work)
    if target is None:
        talk(f"{count} messages")
    else:
        show_pairs({"file": str(target), "messages": count, "damaged": skipped}, output)
    for text in skipped:
        talk(f"damaged: {text}")
    if skipped:
        fail(PartialError(f"{len(skipped)} damaged; everything else is there"))


def note_skipped(skipped: list[str], start: int, end: int, reason: str) -> None:
    skipped.append(f"from offset {start} to {end}: {reason}")


def check_topics(reader: StoreReader, topics: tuple[str, ...]) -> None:
    """Raise NotFoundError for a topic that the store's consume queues do not know."""
    known = reader.queues
    for topic in topics if known else ():
        if topic not in known:
            raise NotFoundError(f"the store has no topic {topic}")


def write_messages(
    kind: type[JsonLinesWriter] | type[ParquetWriter], target: Path | None, batches: Iterator[MessageBatch]
) -> int:
    """Write all messages; how many they were."""
    count = 0
    with target_stream(target) as stream:
        writer: MessageWriter = kind(stream)
        for batch in batches:
            writer.write(batch)
            count += batch.row_count
        writer.close()
    return count
