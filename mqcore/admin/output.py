"""What the command line prints: data to standard output, talk to standard error. The one place that renders.

On a terminal tables are drawn by rich, which heeds NO_COLOR; in a pipe they are plain columns, never wrapped or cut.
TSV has a heading of keys and a line for each record, with tabs, line ends and backslashes inside of values escaped;
what is no text, number or boolean stands there as JSON, and what is not there as nothing.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import click
import orjson
from rich.console import Console
from rich.table import Table

from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.receipt import SendReceipt

T = TypeVar("T")

OUTPUTS = ("table", "json", "yaml", "tsv")

Record = Mapping[str, Any]
"""One row of data. Its keys are those of the JSON and YAML output; they do not change."""


def talk(text: str) -> None:
    """Tell the user something that is not data."""
    click.echo(text, err=True)


def print_json(value: Any) -> None:
    """Print one JSON value on one line."""
    write(orjson.dumps(value) + b"\n")


def show(value: Any, output: str, table: Callable[[], None], rows: Sequence[Record] | None = None) -> None:
    """Print *value* as JSON or YAML, or let *table* print it for people; TSV is of *rows*, where they say more."""
    if output == "json":
        print_json(value)
    elif output == "yaml":
        write(yaml_text(value).encode())
    elif output == "tsv":
        write(tsv_text(value if rows is None else rows).encode())
    else:
        table()


def tsv_text(value: Any) -> str:
    """Return a list of records, a list of values, or names with values, as TSV."""
    if isinstance(value, Mapping):
        return tsv_text([{"name": name, "value": found} for name, found in value.items()])
    records = [row if isinstance(row, Mapping) else {"value": row} for row in value]
    names = list(dict.fromkeys(name for row in records for name in row))
    lines = [names, *([tsv_cell(row.get(name)) for name in names] for row in records)] if names else []
    return "".join("\t".join(line) + "\n" for line in lines)


TSV_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def tsv_cell(value: Any) -> str:
    """Return one value as it stands between two tabs."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text.translate(TSV_ESCAPES)


class RecordStream(Generic[T]):
    """Prints records one by one, as they come: JSON and TSV a line each, YAML a document each.

    A table is what *table* makes of each item. *columns* are the keys of TSV.
    """

    def __init__(
        self, output: str, columns: Sequence[str], record: Callable[[T], Record], table: Callable[[T], bytes]
    ) -> None:
        self._output = output
        self._columns = columns
        self._record = record
        self._table = table
        self._has_heading = output != "tsv"

    def put(self, item: T) -> None:
        if not self._has_heading:
            write(("\t".join(self._columns) + "\n").encode())
            self._has_heading = True
        write(self._bytes_of(item))

    def _bytes_of(self, item: T) -> bytes:
        if self._output == "table":
            return self._table(item)
        record = self._record(item)
        if self._output == "json":
            return orjson.dumps(record) + b"\n"
        if self._output == "yaml":
            return b"---\n" + yaml_text(record).encode()
        return ("\t".join(tsv_cell(record.get(name)) for name in self._columns) + "\n").encode()


def show_records(records: Sequence[Record], output: str, columns: Mapping[str, str]) -> None:
    """Print *records*; as a table only *columns* of them: key -> heading."""

    def table() -> None:
        print_table(list(columns.values()), [[cell(record[key]) for key in columns] for record in records])

    show([dict(record) for record in records], output, table)


def show_pairs(values: Mapping[str, Any], output: str, headings: tuple[str, str] = ("NAME", "VALUE")) -> None:
    """Print names and values."""
    show(dict(values), output, lambda: print_table(headings, [(name, cell(value)) for name, value in values.items()]))


def cell(value: Any) -> str:
    """Return how a value looks in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(cell, value)) or "-"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={cell(found)}" for name, found in value.items()) or "-"
    return str(value)


def time_text(time_ms: int) -> str | None:
    """Return ms since 1970 as ISO 8601 in UTC; None for 0, which stands for unknown."""
    if time_ms <= 0:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def yaml_text(value: Any, indent: str = "") -> str:
    """Return *value* (dicts, lists, texts, numbers, booleans, None) as YAML; a text is written as in JSON."""
    if isinstance(value, Mapping) and value:
        return "".join(
            f"{indent}{yaml_scalar(str(name))}:{_yaml_below(found, indent)}" for name, found in value.items()
        )
    if isinstance(value, list | tuple) and value:
        return "".join(f"{indent}-{_yaml_item(found, indent)}" for found in value)
    return f"{indent}{yaml_scalar(value)}\n"


def _yaml_below(value: Any, indent: str) -> str:
    if isinstance(value, Mapping | list | tuple) and value:
        return "\n" + yaml_text(value, indent + "  ")
    return f" {yaml_scalar(value)}\n"


def _yaml_item(value: Any, indent: str) -> str:
    if isinstance(value, Mapping | list | tuple) and value:
        return " " + yaml_text(value, indent + "  ").lstrip(" ")
    return f" {yaml_scalar(value)}\n"


YAML_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./%-]*")
YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def yaml_scalar(value: Any) -> str:
    """Return one value as YAML and JSON both read it; texts that nobody could take for something else stand plain."""
    if isinstance(value, str) and YAML_PLAIN.fullmatch(value) and value.lower() not in YAML_WORDS:
        return value
    return orjson.dumps(value).decode()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print *rows* under *columns*."""
    texts = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        table = Table(*columns, box=None, header_style="bold")
        for row in texts:
            table.add_row(*row)
        Console().print(table)
        return
    lines = [list(columns), *texts]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def write(data: bytes) -> None:
    """Write bytes to standard output, and on to whoever reads it."""
    stream = sys.stdout.buffer
    stream.write(data)
    stream.flush()


RECEIPT_KEYS = ("status", "msgId", "offsetMsgId", "topic", "broker", "queueId", "offset", "recallHandle")


def receipt_json(receipt: SendReceipt) -> dict[str, Any]:
    """Return the members that ``send -o json`` prints."""
    return {
        "status": receipt.status.name,
        "msgId": receipt.msg_id,
        "offsetMsgId": receipt.offset_msg_id,
        "topic": receipt.queue.topic,
        "broker": receipt.queue.broker_name,
        "queueId": receipt.queue.queue_id,
        "offset": receipt.offset,
    } | ({} if receipt.recall_handle is None else {"recallHandle": receipt.recall_handle})


MESSAGE_KEYS = (
    "topic", "broker", "queueId", "offset", "msgId", "offsetMsgId", "tag", "keys", "properties", "bornTimestamp",
    "storeTimestamp", "reconsumeTimes", "body", "bodyBase64",
)  # fmt: skip


def message_json(message: ReceivedMessage) -> dict[str, Any]:
    """Return the members that ``consume -o json`` prints; a body that is not UTF-8 stands in base64 as bodyBase64."""
    members: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "offset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
    }
    try:
        members["body"] = message.body.decode()
    except UnicodeDecodeError:
        members["bodyBase64"] = base64.b64encode(message.body).decode()
    return members
