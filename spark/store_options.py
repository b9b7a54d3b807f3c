"""Every option of the format "rocketmq-store", in one table, and the typed settings that come of them.

Names are those of the format "rocketmq" wherever they mean the same.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from mqcore.errors import ConfigError
from mqcore.spark.conditions import narrowed
from mqcore.spark.options import Kind, Option, Use
from mqcore.store.message_columns import BATCH_BYTES_DEFAULT, UNBOUNDED_MAX, UNBOUNDED_MIN, Selection

EARLIEST: Final = -2
LATEST: Final = -1
PARTITION_BYTES_DEFAULT: Final = 128 << 20
TAG_SEPARATOR: Final = "||"

T, N, B, C = Kind.TEXT, Kind.NUMBER, Kind.BOOLEAN, Kind.CHOICE
_READ: Final = Use.BATCH

STORE_OPTIONS: Final[tuple[Option, ...]] = (
    Option("path", _READ, T, None, "the store's directory (storePathRootDir), as executors see it; `load(path)` sets "
           "it, and `load([path, ...])` several stores"),
    Option("paths", _READ, T, None, "several stores, a JSON list or separated by commas"),
    Option("commitLogPath", _READ, T, None, "where the commit log lies if not in `commitlog`; several directories "
           "separated by commas; for one store only", ("storePathCommitLog",)),
    Option("brokerName", _READ, T, None, "what the column `brokerName` says; for several stores a name for each, "
           "separated by commas"),
    Option("subscribe", _READ, T, None, "topics, separated by commas; without it and its like all topics, those of the "
           "system too", ("topics", "topic")),
    Option("subscribePattern", _READ, T, None, "a regular expression that whole topic names must match"),
    Option("assign", _READ, T, None, 'queues, `{"T":[0,1]}` or `{"T":{"broker-a":[0,1]}}`'),
    Option("startingOffsets", _READ, T, "earliest", '`earliest` or `{"T":{"0":42}}`, with a level for the broker or '
           "without; -2 earliest; what is not named is read from the beginning"),
    Option("endingOffsets", _READ, T, "latest", "as `startingOffsets`; -1 latest; a range ends before it"),
    Option("startingTimestamp", _READ, T, None, "ms since 1970 or ISO 8601: messages stored then or later"),
    Option("endingTimestamp", _READ, T, None, "messages stored before"),
    Option("subExpression", _READ, T, None, "tags, `TagA || TagB`, by exact text"),
    Option("columns", _READ, T, None, "the columns to build, separated by commas; others cost nothing"),
    Option("includeProperties", _READ, B, False, "add the column `properties` (a map)", ("includeHeaders",)),
    Option("decode", _READ, C, "raw", "type of the column `body`: binary, or string", choices=("raw", "utf8")),
    Option("decompress", _READ, B, True, "give bodies as the application wrote them; else as stored"),
    Option("checkCrc", _READ, B, True, "compare each body with its CRC"),
    Option("failOnDataLoss", _READ, B, True, "fail at damaged records and missing files; else warn and go on"),
    Option("where", _READ, T, None, "conditions on `topic`, `queueId`, `offset`, `tags` and `storeTimestamp`, joined "
           "by AND, that leave files and messages out before rows are made of them"),
    Option("pruneByQueues", _READ, B, True, "with topics named, read only where consume queues know their messages; "
           "messages that a deleted and recreated topic left behind may then be missed"),
    Option("maxPartitionBytes", _READ, N, PARTITION_BYTES_DEFAULT, "how much of the commit log a partition reads",
           minimum=1 << 16),
    Option("minPartitions", _READ, N, None, "make partitions smaller until there are about so many", minimum=1,
           maximum=1_000_000),
    Option("batchBytes", _READ, N, BATCH_BYTES_DEFAULT, "size of an Arrow record batch", minimum=4 << 10,
           maximum=256 << 20),
)  # fmt: skip

# What Spark puts among the options for its own use.
SPARKS_OWN: Final = frozenset({"mode", "queryname", "checkpointlocation"})
_BY_NAME: Final = {name.lower(): option for option in STORE_OPTIONS for name in (option.name, *option.aliases)}


@dataclass(frozen=True, slots=True)
class StorePlace:
    """One store: its directory, where its commit log lies if elsewhere, and the name of its broker, if known."""

    path: str
    commit_log: tuple[str, ...]
    broker_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """A read of stores. *selection* says which messages; sizes are in bytes."""

    places: tuple[StorePlace, ...]
    selection: Selection
    columns: tuple[str, ...] | None
    include_properties: bool
    body_as_text: bool
    decompress: bool
    check_crc: bool
    fail_on_data_loss: bool
    prune_by_queues: bool
    partition_bytes: int
    min_partitions: int | None
    batch_bytes: int


def store_settings(given: Mapping[str, str]) -> StoreSettings:
    """Return the settings of a read; ConfigError names the option that is wrong or missing."""
    values = _read_options(given)
    names = _list(values["columns"])
    if values["columns"] is not None and not names:
        raise ConfigError("option columns: got no name")
    return StoreSettings(
        places=_places(values),
        selection=narrowed(_selection(values), values["where"]),
        columns=tuple(names) or None,
        include_properties=values["includeProperties"],
        body_as_text=values["decode"] == "utf8",
        decompress=values["decompress"],
        check_crc=values["checkCrc"],
        fail_on_data_loss=values["failOnDataLoss"],
        prune_by_queues=values["pruneByQueues"],
        partition_bytes=values["maxPartitionBytes"],
        min_partitions=values["minPartitions"],
        batch_bytes=values["batchBytes"],
    )


def _read_options(given: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {option.name: option.default for option in STORE_OPTIONS}
    for name, text in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        option = _BY_NAME.get(name.lower())
        if option is None:
            close = difflib.get_close_matches(name.lower(), _BY_NAME, n=1)
            hint = f"; did you mean {_BY_NAME[close[0]].name}?" if close else ""
            raise ConfigError(f"unknown option {name!r}{hint}")
        values[option.name] = option.read(str(text))
    return values


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _places(values: Mapping[str, Any]) -> tuple[StorePlace, ...]:
    paths: list[str] = [values["path"]] if values["path"] else []
    if values["paths"]:
        paths += _json("paths", values["paths"], list) if values["paths"].startswith("[") else _list(values["paths"])
    if not paths:
        raise ConfigError("option path is needed: the directory of a store")
    logs, names = _list(values["commitLogPath"]), _list(values["brokerName"])
    if logs and len(paths) > 1:
        raise ConfigError(f"option commitLogPath: got it for {len(paths)} stores, wanted one store")
    if names and len(names) != len(paths):
        raise ConfigError(f"option brokerName: got {len(names)} names, wanted one for each of {len(paths)} stores")
    return tuple(
        StorePlace(_local(str(path)), tuple(map(_local, logs)), names[number] if names else None)
        for number, path in enumerate(paths)
    )


def _local(path: str) -> str:
    """Return *path* without the scheme ``file:`` that Spark users write."""
    return path.removeprefix("file://").removeprefix("file:") if path.startswith("file:") else path


def _json(option: str, text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"option {option}: got {text!r}, wanted JSON: {error}") from error
    if not isinstance(value, kind):
        raise ConfigError(f"option {option}: got {text!r}, wanted a JSON {'list' if kind is list else 'object'}")
    return value


def _selection(values: Mapping[str, Any]) -> Selection:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if values[name] is not None]
    if len(given) > 1:
        raise ConfigError(f"options {' and '.join(given)} exclude each other")
    tags = None
    if values["subExpression"] not in (None, "", "*"):
        tags = frozenset(part.strip() for part in values["subExpression"].split(TAG_SEPARATOR) if part.strip())
    topics = None if values["subscribe"] is None else frozenset(_list(values["subscribe"]))
    assigned = None if values["assign"] is None else _assigned(values["assign"])
    if assigned is not None:
        topics = frozenset(assigned)
    if topics is not None and not topics:
        raise ConfigError(f"option {given[0]}: got no topic")
    return Selection(
        topics=topics,
        topic_pattern=values["subscribePattern"],
        tags=tags,
        ranges=_ranges(values, assigned),
        only_ranges=assigned is not None,
        store_timestamp_min=_time("startingTimestamp", values["startingTimestamp"], UNBOUNDED_MIN),
        store_timestamp_max=_time("endingTimestamp", values["endingTimestamp"], UNBOUNDED_MAX),
    )


def _time(option: str, text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    try:
        if text.isdecimal():
            return int(text)
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"option {option}: got {text!r}, wanted ms since 1970 or ISO 8601") from None
    # Without a zone it is UTC: executors and driver may be in different ones.
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return -(-since // timedelta(milliseconds=1))


def _assigned(text: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, queues in _json("assign", text, dict).items():
        lists = queues.values() if isinstance(queues, dict) else [queues]
        numbers = [number for entry in lists for number in (entry if isinstance(entry, list) else [entry])]
        if not numbers or not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ConfigError(f"option assign: got {queues!r} for {topic}, wanted a list of queue ids")
        found[topic] = sorted(set(numbers))
    return found


def _ranges(values: Mapping[str, Any], assigned: dict[str, list[int]] | None) -> dict[str, dict[int, tuple[int, int]]]:
    starts = _offsets("startingOffsets", values["startingOffsets"], "earliest")
    ends = _offsets("endingOffsets", values["endingOffsets"], "latest")
    if assigned is None:
        queues = {topic: {*starts.get(topic, {}), *ends.get(topic, {})} for topic in {*starts, *ends}}
    else:
        queues = {topic: set(numbers) for topic, numbers in assigned.items()}
    return {
        topic: {
            number: (
                _bound(starts.get(topic, {}).get(number, EARLIEST)),
                _bound(ends.get(topic, {}).get(number, LATEST)),
            )
            for number in numbers
        }
        for topic, numbers in queues.items()
    }


def _bound(offset: int) -> int:
    return {EARLIEST: 0, LATEST: UNBOUNDED_MAX}.get(offset, offset)


def _offsets(option: str, text: str, all_of_it: str) -> dict[str, dict[int, int]]:
    if text.lower() == all_of_it:
        return {}
    wanted = f'{all_of_it} or {{"T":{{"0":42}}}}'
    if not text.startswith("{"):
        raise ConfigError(f"option {option}: got {text!r}, wanted {wanted}")
    found: dict[str, dict[int, int]] = {}
    for topic, queues in _json(option, text, dict).items():
        maps = [queues]
        if isinstance(queues, dict) and any(isinstance(value, dict) for value in queues.values()):
            maps = list(queues.values())
        for entries in maps:
            if not isinstance(entries, dict) or not all(
                str(number).isdecimal() and isinstance(offset, int) for number, offset in entries.items()
            ):
                raise ConfigError(f"option {option}: got {queues!r} for {topic}, wanted {wanted}")
            found.setdefault(topic, {}).update({int(number): offset for number, offset in entries.items()})
    return found
