"""The settings of clients, producers and consumers: one field per setting, with its range, checked when it is made.

Values are frozen. ``changed(settings, changes)`` makes a new one from keyword arguments and refuses unknown names with
the nearest known one. Defaults are RocketMQ's unless the field says otherwise; times are seconds.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from mqcore.errors import ConfigError

NAME_SERVER_VARIABLES = ("MQCORE_NAMESRV", "NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR")
"""Environment variables that name the name servers, the first that is set wins."""


class ConsumeFromWhere(StrEnum):
    """Where a group starts in a queue for which it has no offset. The values are the names on the wire."""

    LATEST = "CONSUME_FROM_LAST_OFFSET"
    EARLIEST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(StrEnum):
    """Whether the members of a group share the messages or each gets them all."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


def row(low: float | None = None, high: float | None = None, doc: str = "") -> dict[str, Any]:
    """Describe one setting, as its field's metadata. Numbers must lie in [*low*, *high*]."""
    return {"low": low, "high": high, "doc": doc}


class Checked:
    """Base of the settings classes: checks every range when a value is made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for found in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            low, high = found.metadata.get("low"), found.metadata.get("high")
            check_range(found.name, getattr(self, found.name), low, high)


def check_range(name: str, value: object, low: float | None, high: float | None) -> None:
    """Raise ConfigError unless *value* is a number in [*low*, *high*]; a setting without a range may be anything."""
    if low is None and high is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"setting {name}: got {value!r}, wanted a number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise ConfigError(f"setting {name}: got {value!r}, wanted a number from {low} to {high}")


SettingsT = TypeVar("SettingsT", bound=Checked)


def changed(settings: SettingsT, changes: Mapping[str, object]) -> SettingsT:
    """Return *settings* with *changes* applied. An unknown name raises TypeError with the nearest known one."""
    known = [found.name for found in fields(settings)]  # type: ignore[arg-type]
    for name in changes:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known settings: {', '.join(known)}"
            raise TypeError(f"unknown setting {name!r}{hint}")
    return replace(settings, **changes) if changes else settings  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(Checked):
    """What a client's producers and consumers share. Source: RocketMQ client/ClientConfig.java."""

    client_ip: str | None = field(
        default=None, metadata=row(doc="first part of the client id; found from the interfaces when absent")
    )
    instance_name: str | None = field(
        default=None, metadata=row(doc="second part of the client id; process id and start time when absent")
    )
    unit_name: str | None = field(default=None, metadata=row(doc="third part of the client id"))
    route_refresh_interval_s: float = field(default=30.0, metadata=row(0.05, 3600))
    heartbeat_interval_s: float = field(default=30.0, metadata=row(0.05, 60))
    offset_commit_interval_s: float = field(default=5.0, metadata=row(0.05, 3600))
    call_timeout_s: float = field(default=3.0, metadata=row(0.01, 600, "name server and client calls"))
    admin_timeout_s: float = field(default=6.0, metadata=row(0.01, 600, "offsets, topics and queries"))
    close_timeout_s: float = field(
        default=10.0, metadata=row(0, 3600, "how long a close waits for work that has begun")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(Checked):
    """Source: RocketMQ client/producer/DefaultMQProducer.java. The in-flight limits are ours: see inflight.py."""

    send_timeout_s: float = field(default=3.0, metadata=row(0.001, 600, "all attempts of one send together"))
    retries: int = field(default=2, metadata=row(0, 100, "further attempts after a failed one"))
    retry_another_broker_when_not_store_ok: bool = False
    retry_response_codes: frozenset[int] = frozenset({17, 14, 1, 16, 204, 205})
    create_topic_key: str = "TBW102"
    default_topic_queue_nums: int = field(default=4, metadata=row(1, 65535))
    compression: str = field(default="zlib", metadata=row(doc="zlib, lz4, zstd or none"))
    compress_over_bytes: int = field(
        default=4096, metadata=row(0, None, "compress when the body has at least this many bytes")
    )
    compress_level: int = field(default=5, metadata=row(0, 22))
    max_message_size_bytes: int = field(default=4 * 1024 * 1024, metadata=row(1, 16 * 1024 * 1024))
    max_inflight_messages: int = field(default=65_535, metadata=row(1, None))
    max_inflight_bytes: int = field(default=64 * 1024 * 1024, metadata=row(1, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(Checked):
    """Source: RocketMQ client/consumer/DefaultMQPushConsumer.java."""

    from_where: ConsumeFromWhere | str = field(
        default=ConsumeFromWhere.LATEST, metadata=row(doc="earliest, latest, timestamp or Java's name")
    )
    from_timestamp: datetime | float | None = field(
        default=None, metadata=row(doc="for TIMESTAMP; half an hour before the start when absent")
    )
    message_model: MessageModel | str = MessageModel.CLUSTERING
    orderly: bool = field(
        default=False, metadata=row(doc="one message of a queue at a time, under the broker's queue lock")
    )
    strategy: str = field(
        default="AVG", metadata=row(doc="AVG or AVG_BY_CIRCLE; all members of a group must use the same")
    )
    concurrency: int = field(default=20, metadata=row(1, 1000, "handlers that run at once"))
    batch_size: int = field(default=1, metadata=row(1, 1024, "messages that a batch handler gets at once"))
    pull_batch_size: int = field(default=32, metadata=row(1, 1024))
    pull_interval_s: float = field(default=0.0, metadata=row(0, 65.535))
    pull_threshold_for_queue: int = field(default=1000, metadata=row(1, 65535, "cached messages of one queue"))
    pull_threshold_size_for_queue_mib: int = field(default=100, metadata=row(1, 1024))
    pull_threshold_for_topic: int = field(
        default=-1, metadata=row(-1, 6_553_500, "divided over the queues held; -1 is no limit")
    )
    pull_threshold_size_for_topic_mib: int = field(default=-1, metadata=row(-1, 102_400))
    max_span: int = field(default=2000, metadata=row(1, 65535, "last minus first cached offset of a queue"))
    send_expression_with_pull: bool = False
    max_reconsume_times: int = field(
        default=-1, metadata=row(-1, 2_147_483_647, "-1 is 16, and without end when orderly")
    )
    suspend_queue_s: float = field(default=1.0, metadata=row(0.01, 30, "pause of an orderly queue after a failure"))
    consume_timeout_s: float = field(
        default=900.0, metadata=row(1, None, "after this a message counts as stuck and is sent back")
    )
    hold_timeout_s: float = field(
        default=15.0, metadata=row(0.1, 600, "how long the broker may hold a pull that finds nothing")
    )
    pull_timeout_s: float = field(default=30.0, metadata=row(0.2, 1200, "must be longer than the hold"))
    rebalance_interval_s: float = field(default=20.0, metadata=row(0.05, 3600))
    lock_interval_s: float = field(default=20.0, metadata=row(0.05, 30))
    offsets_dir: Path | str | None = field(
        default=None, metadata=row(doc="broadcasting: keep offsets in files below this directory")
    )

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        object.__setattr__(self, "from_where", parse_from_where(self.from_where))
        object.__setattr__(self, "message_model", parse_model(self.message_model))
        if self.pull_timeout_s <= self.hold_timeout_s:
            raise ConfigError(f"setting pull_timeout_s: got {self.pull_timeout_s}, wanted more than hold_timeout_s")
        if self.offsets_dir is not None and self.message_model != MessageModel.BROADCASTING:
            raise ConfigError("setting offsets_dir: only a broadcasting group keeps its offsets in files")

    @property
    def max_reconsume_times_effective(self) -> int:
        """The limit in force: -1 stands for 16, or for no limit when orderly."""
        if self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return 2_147_483_647 if self.orderly else 16


def parse_from_where(value: str) -> ConsumeFromWhere:
    """Accept ``earliest``, ``latest``, ``timestamp`` in any case, and Java's names."""
    try:
        member = ConsumeFromWhere.__members__.get(value.upper())
        return ConsumeFromWhere(value) if member is None else member
    except ValueError:
        raise ConfigError(f"setting from_where: got {value!r}, wanted earliest, latest or timestamp") from None


def parse_model(value: str) -> MessageModel:
    """Accept the names in any case."""
    try:
        return MessageModel(value.upper())
    except ValueError:
        raise ConfigError(f"setting message_model: got {value!r}, wanted clustering or broadcasting") from None


def name_servers_from_environment() -> str | None:
    """Return the text of the first variable that names the name servers, or None."""
    return next((os.environ[name] for name in NAME_SERVER_VARIABLES if os.environ.get(name)), None)
