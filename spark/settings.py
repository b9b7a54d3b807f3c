"""The options of a query as typed values, made once on the driver and sent to the executors with reader or writer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from mqcore.address import parse_name_servers
from mqcore.errors import ConfigError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.heartbeat import SUB_ALL
from mqcore.protocol.names import TOOLS_CONSUMER_GROUP
from mqcore.spark.conditions import narrowed
from mqcore.spark.options import TLS_OPTIONS, Use, read_options
from mqcore.store.message_columns import Selection
from mqcore.transport.client_tls import ClientTls
from mqcore.transport.signing import Signer

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_BROKERS_TAG: Final = re.compile(r"[^\s|*]+")
"""A tag that can be named in an expression for a broker; others are looked for on the executors alone."""
TAG_SEPARATOR: Final = "||"

S = TypeVar("S")

SOURCE_BATCH_BYTES: Final = 4 << 20
SINK_BATCH_BYTES: Final = 1 << 20
SINK_GROUP: Final = "SPARK_SINK"
"""The producer group of a sink that names none; brokers only count by it."""


@dataclass(frozen=True, slots=True)
class Calling:
    """How brokers are called: times in ms, *name_servers* each ``host:port``, or a page that names them.

    Keys are for brokers that ask for them.
    """

    name_servers: tuple[str, ...]
    timeout_ms: int
    retries: int
    retry_interval_ms: int
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: ClientTls | None = None

    def signer(self) -> Callable[[RemotingCommand], None] | None:
        """Return what adds key and signature to a request; None without keys."""
        if self.access_key is None or self.secret_key is None:
            return None
        signer = Signer(self.access_key, self.secret_key, self.security_token)
        return lambda command: signer("", command)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """A read. Fields are the options of the same names; texts that hold positions are read by ``offsets``."""

    calling: Calling
    group: str | None
    subscribe: str | None
    subscribe_pattern: str | None
    assign: str | None
    starting_offsets: str | None
    ending_offsets: str
    starting_timestamp: str | None
    ending_timestamp: str | None
    starting_offsets_by_timestamp: str | None
    ending_offsets_by_timestamp: str | None
    starting_offsets_by_timestamp_strategy: str
    fail_on_data_loss: bool
    sub_expression: str | None
    sql_expression: str | None
    columns: str | None
    include_properties: bool
    decode: str
    where: str | None
    dedup: bool
    dedup_lookback: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: int
    commit_offsets: bool
    batch_bytes: int
    pull_batch_size: int
    fetch_max_bytes: int
    pulls_in_flight: int

    @property
    def pull_group(self) -> str:
        """The group in whose name pulls are made; brokers have TOOLS_CONSUMER even where groups must be created."""
        return self.group or TOOLS_CONSUMER_GROUP

    @property
    def is_filtered(self) -> bool:
        """Whether the broker leaves messages out."""
        return self.sql_expression is not None or self.tags is not None

    @property
    def tags(self) -> frozenset[str] | None:
        """The tags of ``subExpression``, None for all. The broker filters by their hashes, which may be those of other
        tags too."""
        if self.sub_expression in (None, "", SUB_ALL):
            return None
        return frozenset(tag.strip() for tag in str(self.sub_expression).split(TAG_SEPARATOR) if tag.strip())

    @property
    def selection(self) -> Selection:
        """What the options choose among the messages of the queues to be read."""
        return narrowed(Selection(tags=self.tags), self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """A write. Fields are the options of the same names."""

    calling: Calling
    group: str
    topic: str | None
    batch_bytes: int
    sends_in_flight: int
    max_messages_per_second: int | None
    compression: str
    compress_over_bytes: int
    dedup: bool
    query_id: str | None


def source_settings(given: Mapping[str, str], use: Use) -> SourceSettings:
    """Return the settings of a read; ConfigError names the option that is wrong or missing."""
    values = read_options(given, use)
    if values["topic"] is not None:
        if values["subscribe"] is not None:
            raise ConfigError("option topic means the same as subscribe here: give one of them")
        values["subscribe"] = values["topic"]
    _one_of(values, ("subscribe", "subscribePattern", "assign"), needed=True)
    _one_of(values, ("subExpression", "sqlExpression"), needed=False)
    if values["commitOffsets"] and not values["group"]:
        raise ConfigError("option commitOffsets needs the option group: the consumer group to be written to")
    if values["dedupLookback"] is not None and not values["dedup"]:
        raise ConfigError("option dedupLookback means nothing without dedup=true")
    values["batchBytes"] = values["batchBytes"] or SOURCE_BATCH_BYTES
    tags = narrowed(Selection(), values["where"]).tags
    if tags and all(map(_BROKERS_TAG.fullmatch, tags)) and not (values["subExpression"] or values["sqlExpression"]):
        values["subExpression"] = TAG_SEPARATOR.join(sorted(tags))
    return _typed(SourceSettings, values | {"calling": _calling(values)})


def sink_settings(given: Mapping[str, str]) -> SinkSettings:
    """Return the settings of a write; ConfigError names the option that is wrong or missing."""
    values = read_options(given, Use.SINK)
    values["batchBytes"] = values["batchBytes"] or SINK_BATCH_BYTES
    return _typed(SinkSettings, values | {"calling": _calling(values), "group": values["group"] or SINK_GROUP})


def _one_of(values: Mapping[str, Any], names: tuple[str, ...], *, needed: bool) -> None:
    given = [name for name in names if values[name] is not None]
    if len(given) > 1:
        raise ConfigError(f"options {' and '.join(given)} exclude each other")
    if needed and not given:
        raise ConfigError(f"one of the options {', '.join(names)} is needed")


def _calling(values: Mapping[str, Any]) -> Calling:
    if values["nameServer"] is None:
        raise ConfigError("option nameServer is needed: host:port of the name server, several separated by ;")
    if (values["accessKey"] is None) != (values["secretKey"] is None):
        raise ConfigError("options accessKey and secretKey: got one of them, wanted both or none")
    return Calling(
        name_servers(values["nameServer"]),
        values["pollTimeoutMs"],
        values["numRetries"],
        values["retryIntervalMs"],
        values["accessKey"],
        values["secretKey"],
        values["securityToken"],
        _tls(values),
    )


def _tls(values: Mapping[str, Any]) -> ClientTls | None:
    if values["tls"]:
        return ClientTls(**{name: values[option] for name, option in TLS_OPTIONS.items()})
    given = [option for option in TLS_OPTIONS.values() if values[option] not in (None, True)]
    if given:
        raise ConfigError(f"option {given[0]} means nothing without tls=true")
    return None


def name_servers(text: str) -> tuple[str, ...]:
    """Return what ``parse_name_servers`` finds in *text*. Raises ConfigError when that is nothing, or no address."""
    try:
        found = parse_name_servers(text)
    except ValueError as error:
        raise ConfigError(f"option nameServer: got {text!r}, wanted {error}") from error
    if not found:
        raise ConfigError(f"option nameServer: got {text!r}, wanted host:port or host:port;host:port")
    return found


def _typed(kind: type[S], values: Mapping[str, Any]) -> S:
    by_field = {_HUMP.sub("_", name).lower(): value for name, value in values.items()}
    return kind(**{field.name: by_field[field.name] for field in fields(kind)})  # type: ignore[arg-type]
