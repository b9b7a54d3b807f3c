"""The keyword arguments of ``Client``, ``producer``, ``consumer`` and ``Message``, for type checkers and editors.

One class per settings class, with the same names and types; a test compares them. At run time the settings classes
decide, and know the nearest name of one that is wrong.
"""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path
from typing import TypedDict

from mqcore.client.model.backoff import Backoff
from mqcore.client.model.rebalance import Strategy
from mqcore.client.settings.classes import ConsumeFromWhere, MessageModel


class ClientOptions(TypedDict, total=False):
    """The fields of ClientSettings."""

    client_ip: str | None
    instance_name: str | None
    unit_name: str | None
    namespace: str
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    tls: bool | ssl.SSLContext
    tls_ca_file: str | None
    tls_verify: bool
    tls_check_hostname: bool
    tls_cert_file: str | None
    tls_key_file: str | None
    tls_key_password: str | None
    access_channel: str
    route_refresh_interval_s: float
    heartbeat_interval_s: float
    offset_commit_interval_s: float
    call_timeout_s: float
    admin_timeout_s: float
    close_timeout_s: float


class ProducerOptions(TypedDict, total=False):
    """The fields of ProducerSettings."""

    send_timeout_s: float
    retries: int
    retry_another_broker_when_not_store_ok: bool
    retry_response_codes: frozenset[int]
    create_topic_key: str
    default_topic_queue_nums: int
    compression: str
    compress_over_bytes: int
    compress_level: int
    max_message_size_bytes: int
    max_inflight_messages: int
    max_inflight_bytes: int
    when_full: str
    linger_s: float
    batch_bytes: int
    send_latency_fault_enable: bool
    latency_max_ms: tuple[int, ...]
    not_available_duration_ms: tuple[int, ...]
    vip_channel: bool
    trace: bool
    trace_topic: str | None
    check_concurrency: int
    check_queue_max: int


class ConsumerOptions(TypedDict, total=False):
    """The fields of ConsumerSettings."""

    from_where: ConsumeFromWhere | str
    from_timestamp: datetime | float | None
    message_model: MessageModel | str
    orderly: bool
    strategy: str | Strategy
    concurrency: int
    batch_size: int
    pull_batch_size: int
    pull_interval_s: float
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue_mib: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic_mib: int
    max_span: int
    send_expression_with_pull: bool
    max_reconsume_times: int
    retry: Backoff | None
    suspend_queue_s: float
    consume_timeout_s: float
    hold_timeout_s: float
    pull_timeout_s: float
    rebalance_interval_s: float
    lock_interval_s: float
    offsets_dir: Path | str | None
    trace: bool
    trace_topic: str | None


class PullConsumerOptions(TypedDict, total=False):
    """The fields of PullConsumerSettings."""

    auto_commit: bool
    auto_commit_interval_s: float
    poll_timeout_s: float
    pull_batch_size: int
    pull_threshold_for_all: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue_mib: int
    max_span: int
    from_where: ConsumeFromWhere | str
    from_timestamp: datetime | float | None
    message_model: MessageModel | str
    strategy: str | Strategy
    hold_timeout_s: float
    pull_timeout_s: float
    rebalance_interval_s: float
    topic_check_interval_s: float
    offsets_dir: Path | str | None
    trace: bool
    trace_topic: str | None
