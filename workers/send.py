"""The send worker: owns client sockets, appends messages, writes every answer. Its loop is _fast/send/loop.pyx."""

from __future__ import annotations

from typing import Any

from mqcore._fast.base.process import ask_for_short_slices
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.send.loop import SendLoop
from mqcore.config import BrokerRole, FlushDiskType, SettingValues, TlsMode
from mqcore.config.quotas import parse_quotas
from mqcore.layout import PUSH_TIMEOUT_MS
from mqcore.store.paths import StorePaths
from mqcore.workers.handover import Handover
from mqcore.workers.settings_sheet import SettingsFollower, Sheet
from mqcore.workers.tls import CertificateKeeper

READ_BUDGET_BYTES = 512 * 2**20
"""Memory for frames that have not come whole, over all connections."""

NO_LIMIT = 2**31 - 1
"""Of timerCongestNumEachSlot."""

WAITING_MAX = 1 << 18
"""Answers that wait for disk or slave; who sends meanwhile is refused."""

WRITE_BUDGET_BYTES = 512 * 2**20
"""Memory for answers that have not been read, over all connections."""


def live_options(settings: SettingValues) -> dict[str, Any]:
    """The options of the loop that may change while it runs."""
    store, broker = settings.store, settings.broker
    fails_fast = broker.broker_fast_failure_enable
    return {
        "send_wait_ms": broker.wait_time_in_send_queue_ms if fails_fast else 0,
        "transaction_wait_ms": broker.wait_time_in_transaction_queue_ms if fails_fast else 0,
        "connections_max": settings.mqcore.connections_max,
        "connections_per_host_max": settings.mqcore.connections_per_host_max,
        "quotas": parse_quotas(settings.mqcore.quotas),
        "quota_delay_max_ms": settings.mqcore.quota_delay_max_ms,
        # With the timed rules it looks by itself, and is not to be disturbed.
        "wakes_flush": store.flush_disk_type is FlushDiskType.SYNC_FLUSH or not store.flush_commit_log_timed,
        "refuses_halves": broker.reject_transaction_message,
        "keeps_replies": broker.store_reply_message_enable,
        "trace_on": broker.trace_on,
        "max_message_size": store.max_message_size,
        "sync_timeout_ms": store.sync_flush_timeout_ms,
        "slave_timeout_ms": store.slave_timeout_ms,
        "slave_lag_max": store.ha_slave_fallbehind_max,
        "lock_timeout_ms": store.os_page_cache_busy_time_out_ms,
        # Who limits slots has the broker process look into the wheel.
        "timer_max_delay_ms": (
            store.timer_max_delay_sec * 1000 if store.timer_congest_num_each_slot == NO_LIMIT else 0
        ),
    }


def run(settings: SettingValues, segment: SharedSegment, handover: Handover) -> None:
    """Serve until the broker process says stop; returns within the drain time after that."""
    store = settings.store
    ask_for_short_slices()
    loop = SendLoop(
        segment,
        {
            "number": handover.number,
            "row": handover.row,
            "wake": handover.wake,
            "link": handover.link,
            "listeners": handover.listeners,
            "pullers": [(peer.row, peer.wake) for peer in handover.pullers],
            "reput_row": handover.reput.row,
            "reput_wake": handover.reput.wake,
            "flush_row": handover.flush.row,
            "flush_wake": handover.flush.wake,
            "ha_row": handover.ha.row,
            "ha_wake": handover.ha.wake,
            "commit_log": StorePaths.of(store).log,
            "commit_log_file_size": store.mapped_file_size_commit_log,
            "broker_name": settings.broker.broker_name,
            "timer_precision_ms": store.timer_precision_ms,
            "cluster": settings.broker.broker_cluster_name,
            "region": settings.broker.region_id,
            "frame_length_max": settings.mqcore.frame_max_length - 4,
            "write_buffer_max": settings.mqcore.connection_write_buffer_bytes,
            "read_budget": READ_BUDGET_BYTES,
            "write_budget": WRITE_BUDGET_BYTES,
            "waiting_max": WAITING_MAX,
            "idle_timeout_ms": settings.server.server_channel_max_idle_time_seconds * 1000,
            "is_guarded": settings.broker.acl_enable,
            "push_timeout_ms": PUSH_TIMEOUT_MS,
            "in_group": settings.failover.is_group,
            "waits_for_slave": store.broker_role is BrokerRole.SYNC_MASTER,
            "waits_for_flush": store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            "is_only_sender": settings.mqcore.send_worker_nums == 1,
            "tls_mode": list(TlsMode).index(settings.tls.server_mode),
            "handshake_timeout_ms": settings.tls.handshake_timeout_ms,
            **live_options(settings),
        },
    )
    follower = SettingsFollower(segment, handover, lambda changed: loop.use(live_options(changed)))
    certificates = CertificateKeeper(loop, Sheet(handover.certificates))
    while loop.run(follower.version):
        if loop.wants_context:
            certificates.provide()
        if follower.has_news:
            certificates.follow()
            follower.follow()
