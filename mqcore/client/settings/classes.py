"""The settings of clients, producers and consumers: one field per setting, with its range, checked when it is made.

Values are frozen; checked.py checks them and makes changed ones. Defaults are RocketMQ's unless the field says
otherwise; times are seconds.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from mqcore.client.model.backoff import Backoff
from mqcore.client.model.rebalance import Strategy, strategy_of
from mqcore.client.settings.checked import Checked, changed, row
from mqcore.errors import ConfigError
from mqcore.protocol.names import is_namespace

NAME_SERVER_VARIABLES = ("MQCORE_NAMESRV", "NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR")
"""Environment variables that name the name servers, the first that is set wins."""


# Which brokers are avoided, and for how long: see produce/fault_strategy.py.
LATENCY_MAX_MS: Final = (50, 100, 550, 1_000, 2_000, 3_000, 15_000)
NOT_AVAILABLE_DURATION_MS: Final = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
assert len(LATENCY_MAX_MS) == len(NOT_AVAILABLE_DURATION_MS)
assert list(LATENCY_MAX_MS) == sorted(LATENCY_MAX_MS)


class ConsumeFromWhere(StrEnum):
    """Where a group starts in a queue for which it has no offset. The values are the names on the wire."""

    LATEST = "CONSUME_FROM_LAST_OFFSET"
    EARLIEST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(StrEnum):
    """Whether the members of a group share the messages or each gets them all."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


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
    namespace: str = field(
        default="",
        metadata=row(doc="brokers know topics and groups as namespace%name, the program by their names alone"),
    )
    access_key: str | None = field(
        default=None, metadata=row(doc="who the client is, to brokers that check it; with secret_key")
    )
    secret_key: str | None = field(default=None, repr=False, metadata=row(doc="signs the requests; never sent"))
    security_token: str | None = field(default=None, repr=False, metadata=row(doc="sent with temporary keys"))
    tls: bool | ssl.SSLContext = field(
        default=False, metadata=row(doc="connections have TLS; in the program also an ssl.SSLContext that says how")
    )
    tls_ca_file: str | None = field(
        default=None, metadata=row(doc="PEM file with the authorities to trust; the system's when absent")
    )
    tls_verify: bool = field(
        default=True, metadata=row(doc="check servers' certificates; without it anybody may listen in")
    )
    tls_check_hostname: bool = field(
        default=True, metadata=row(doc="servers' certificates must have the host name or address that is connected to")
    )
    tls_cert_file: str | None = field(
        default=None, metadata=row(doc="PEM file with the certificate to show to servers that ask for one")
    )
    tls_key_file: str | None = field(default=None, metadata=row(doc="PEM file with its key; the same file when absent"))
    tls_key_password: str | None = field(default=None, repr=False, metadata=row(doc="password of that key"))
    access_channel: str = field(default="LOCAL", metadata=row(doc="LOCAL or CLOUD: where traces go, and their form"))
    route_refresh_interval_s: float = field(
        default=30.0, metadata=row(0.05, 3600, "how often the routes of all topics in use are asked for again")
    )
    heartbeat_interval_s: float = field(
        default=30.0, metadata=row(0.05, 60, "how often brokers are told that this client lives")
    )
    offset_commit_interval_s: float = field(
        default=5.0, metadata=row(0.05, 3600, "how often consumers send what they have consumed to the brokers")
    )
    call_timeout_s: float = field(default=3.0, metadata=row(0.01, 600, "name server and client calls"))
    admin_timeout_s: float = field(default=6.0, metadata=row(0.01, 600, "offsets, topics and queries"))
    close_timeout_s: float = field(
        default=10.0, metadata=row(0, 3600, "how long a close waits for work that has begun")
    )

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.namespace and not is_namespace(self.namespace):
            raise ConfigError(f"setting namespace: got {self.namespace!r}, wanted letters, digits, -, _ and |")
        object.__setattr__(self, "access_channel", self.access_channel.upper())
        if self.access_channel not in ("LOCAL", "CLOUD"):
            raise ConfigError(f"setting access_channel: got {self.access_channel!r}, wanted LOCAL or CLOUD")
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError("settings access_key and secret_key: got one of them, wanted both or none")
        if self.tls is not True and (self.tls_ca_file or self.tls_cert_file or not self.tls_verify):
            raise ConfigError("settings tls_ca_file, tls_cert_file, tls_verify: they say nothing unless tls is True")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(Checked):
    """Source: RocketMQ client/producer/DefaultMQProducer.java. In-flight limits are ours: see produce/inflight.py."""

    send_timeout_s: float = field(default=3.0, metadata=row(0.001, 600, "all attempts of one send together"))
    retries: int = field(default=2, metadata=row(0, 100, "further attempts after a failed one"))
    retry_another_broker_when_not_store_ok: bool = field(
        default=False, metadata=row(doc="count a flush or replica timeout as a failed attempt")
    )
    retry_response_codes: frozenset[int] = field(
        default=frozenset({17, 14, 1, 16, 204, 205}),
        metadata=row(doc="refusals after which the next attempt goes to another broker"),
    )
    create_topic_key: str = field(
        default="TBW102", metadata=row(doc="the topic whose queues are used for a topic that does not exist yet")
    )
    default_topic_queue_nums: int = field(
        default=4, metadata=row(1, 65535, "queues of a topic that the broker creates at the first send")
    )
    compression: str = field(default="zlib", metadata=row(doc="zlib, lz4, zstd or none"))
    compress_over_bytes: int = field(
        default=4096, metadata=row(0, None, "compress when the body has at least this many bytes")
    )
    compress_level: int = field(default=5, metadata=row(0, 22, "zlib 0 to 9, zstd 1 to 22; lz4 has none"))
    max_message_size_bytes: int = field(
        default=4 * 1024 * 1024, metadata=row(1, 16 * 1024 * 1024, "larger bodies are refused before they are sent")
    )
    max_inflight_messages: int = field(
        default=65_535, metadata=row(1, None, "messages under way at once; then when_full decides")
    )
    max_inflight_bytes: int = field(
        default=64 * 1024 * 1024, metadata=row(1, None, "bytes of bodies under way at once; then when_full decides")
    )
    when_full: str = field(
        default="wait", metadata=row(doc="what a send does at an in-flight limit: wait, or raise ProducerFullError")
    )
    linger_s: float = field(
        default=0.0, metadata=row(0, 60, "how long a message may wait for others to travel with; 0 sends what is there")
    )
    batch_bytes: int = field(
        default=256 * 1024, metadata=row(0, 1024 * 1024, "a batch of so many bytes leaves; 0 sends each message alone")
    )
    send_latency_fault_enable: bool = field(
        default=False, metadata=row(doc="avoid brokers that were slow or failed, for the times of the next two")
    )
    latency_max_ms: tuple[int, ...] = field(
        default=LATENCY_MAX_MS, metadata=row(doc="rising: a send that took so long, or longer, ...")
    )
    not_available_duration_ms: tuple[int, ...] = field(
        default=NOT_AVAILABLE_DURATION_MS, metadata=row(doc="... keeps its broker out of the choice for so long")
    )
    vip_channel: bool = field(default=False, metadata=row(doc="send to the broker's second port, two below its own"))
    trace: bool = field(default=False, metadata=row(doc="write a record of each send to the trace topic"))
    trace_topic: str | None = field(default=None, metadata=row(doc="RMQ_SYS_TRACE_TOPIC when absent"))
    check_concurrency: int = field(
        default=1, metadata=row(1, 1000, "questions about transactions that are answered at once")
    )
    check_queue_max: int = field(
        default=2000, metadata=row(1, None, "questions that wait; the broker repeats what is dropped beyond")
    )

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.when_full not in ("wait", "raise"):
            raise ConfigError(f"setting when_full: got {self.when_full!r}, wanted wait or raise")
        object.__setattr__(self, "latency_max_ms", tuple(self.latency_max_ms))
        object.__setattr__(self, "not_available_duration_ms", tuple(self.not_available_duration_ms))
        if len(self.latency_max_ms) != len(self.not_available_duration_ms):
            raise ConfigError(
                f"settings latency_max_ms and not_available_duration_ms: got {len(self.latency_max_ms)} and "
                f"{len(self.not_available_duration_ms)} values, wanted as many of both"
            )
        if list(self.latency_max_ms) != sorted(self.latency_max_ms):
            raise ConfigError(f"setting latency_max_ms: got {self.latency_max_ms}, wanted rising values")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(Checked):
    """Source: RocketMQ client/consumer/DefaultMQPushConsumer.java."""

    from_where: ConsumeFromWhere | str = field(
        default=ConsumeFromWhere.LATEST, metadata=row(doc="earliest, latest, timestamp or Java's name")
    )
    from_timestamp: datetime | float | None = field(
        default=None, metadata=row(doc="for TIMESTAMP; half an hour before the start when absent")
    )
    message_model: MessageModel | str = field(
        default=MessageModel.CLUSTERING,
        metadata=row(doc="clustering: the group shares the messages; broadcasting: each member gets all"),
    )
    orderly: bool = field(
        default=False, metadata=row(doc="one message of a queue at a time, under the broker's queue lock")
    )
    strategy: str | Strategy = field(
        default="AVG",
        metadata=row(doc="AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, one of rebalance.py's classes, or a function of yours; "
                     "all members of a group must use the same"),
    )  # fmt: skip
    concurrency: int = field(default=20, metadata=row(1, 1000, "handlers that run at once"))
    batch_size: int = field(default=1, metadata=row(1, 1024, "messages that a batch handler gets at once"))
    pull_batch_size: int = field(
        default=32,
        metadata=row(1, 1024, "messages that one pull asks for; brokers give at most 32 unless told otherwise"),
    )
    pull_interval_s: float = field(default=0.0, metadata=row(0, 65.535, "pause between two pulls of a queue"))
    pull_threshold_for_queue: int = field(default=1000, metadata=row(1, 65535, "cached messages of one queue"))
    pull_threshold_size_for_queue_mib: int = field(default=100, metadata=row(1, 1024, "cached bytes of one queue"))
    pull_threshold_for_topic: int = field(
        default=-1, metadata=row(-1, 6_553_500, "divided over the queues held; -1 is no limit")
    )
    pull_threshold_size_for_topic_mib: int = field(
        default=-1, metadata=row(-1, 102_400, "divided over the queues held; -1 is no limit")
    )
    max_span: int = field(default=2000, metadata=row(1, 65535, "last minus first cached offset of a queue"))
    send_expression_with_pull: bool = field(
        default=False, metadata=row(doc="send the expression with each pull, not only with heart-beats")
    )
    max_reconsume_times: int = field(
        default=-1, metadata=row(-1, 2_147_483_647, "-1 is 16, and without end when orderly")
    )
    retry: Backoff | None = field(
        default=None,
        metadata=row(doc="how often and after which waits a failed message comes again; the broker's way when absent"),
    )
    suspend_queue_s: float = field(default=1.0, metadata=row(0.01, 30, "pause of an orderly queue after a failure"))
    consume_timeout_s: float = field(
        default=900.0, metadata=row(1, None, "after this a message counts as stuck and is sent back")
    )
    hold_timeout_s: float = field(
        default=15.0, metadata=row(0.1, 600, "how long the broker may hold a pull that finds nothing")
    )
    pull_timeout_s: float = field(default=30.0, metadata=row(0.2, 1200, "must be longer than the hold"))
    rebalance_interval_s: float = field(
        default=20.0, metadata=row(0.05, 3600, "how often the group's queues are divided anew, besides each change")
    )
    lock_interval_s: float = field(
        default=20.0, metadata=row(0.05, 30, "orderly: how often the broker's queue locks are renewed; they last 60 s")
    )
    offsets_dir: Path | str | None = field(
        default=None, metadata=row(doc="broadcasting: keep offsets in files below this directory")
    )
    trace: bool = field(default=False, metadata=row(doc="write records of each delivery to the trace topic"))
    trace_topic: str | None = field(default=None, metadata=row(doc="RMQ_SYS_TRACE_TOPIC when absent"))

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        object.__setattr__(self, "from_where", parse_from_where(self.from_where))
        object.__setattr__(self, "message_model", parse_model(self.message_model))
        strategy_of(self.strategy)
        if self.pull_timeout_s <= self.hold_timeout_s:
            raise ConfigError(f"setting pull_timeout_s: got {self.pull_timeout_s}, wanted more than hold_timeout_s")
        if self.offsets_dir is not None and self.message_model != MessageModel.BROADCASTING:
            raise ConfigError("setting offsets_dir: only a broadcasting group keeps its offsets in files")

    @property
    def max_reconsume_times_effective(self) -> int:
        """The limit in force: -1 stands for what *retry* says, else for 16, or for no limit when orderly."""
        if self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        if self.retry is not None:
            return self.retry.max_attempts - 1
        return 2_147_483_647 if self.orderly else 16


CHANGEABLE = frozenset(
    {
        "batch_size",
        "concurrency",
        "hold_timeout_s",
        "max_reconsume_times",
        "max_span",
        "pull_batch_size",
        "pull_interval_s",
        "pull_threshold_for_queue",
        "pull_threshold_for_topic",
        "pull_threshold_size_for_queue_mib",
        "pull_threshold_size_for_topic_mib",
        "pull_timeout_s",
        "retry",
        "send_expression_with_pull",
        "suspend_queue_s",
    }
)
"""The settings of a consumer that may change while it runs."""


def changed_while_running(settings: ConsumerSettings, changes: Mapping[str, object]) -> ConsumerSettings:
    """As ``changed``; raises ConfigError for settings that a running consumer cannot change."""
    after = changed(settings, changes)
    fixed = sorted(set(changes) - CHANGEABLE)
    if fixed:
        raise ConfigError(f"setting {fixed[0]}: cannot be changed while the consumer runs")
    return after


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
