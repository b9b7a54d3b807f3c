"""The pull worker: scans consume queues, holds pulls, answers with ranges. Its loop is _fast/pull/loop.pyx."""

from __future__ import annotations

from typing import Any

from mqcore._fast.pull.loop import PullLoop
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import BrokerRole, SettingValues
from mqcore.config.quotas import parse_quotas
from mqcore.machine import memory_bytes
from mqcore.store.geometry import MAPPED_QUEUES_MAX
from mqcore.store.paths import StorePaths
from mqcore.workers.handover import Handover
from mqcore.workers.settings_sheet import SettingsFollower


def live_options(settings: SettingValues) -> dict[str, Any]:
    """The options of the loop that may change while it runs."""
    store, broker = settings.store, settings.broker
    return {
        "pull_wait_ms": broker.wait_time_in_pull_queue_ms if broker.broker_fast_failure_enable else 0,
        "quotas": parse_quotas(settings.mqcore.quotas),
        "quota_delay_max_ms": settings.mqcore.quota_delay_max_ms,
        "bytes_in_memory_max": store.max_transfer_bytes_on_message_in_memory,
        "count_in_memory_max": store.max_transfer_count_on_message_in_memory,
        "bytes_on_disk_max": store.max_transfer_bytes_on_message_in_disk,
        "count_on_disk_max": store.max_transfer_count_on_message_in_disk,
        "is_slave": store.broker_role is BrokerRole.SLAVE,
        "in_group": settings.failover.is_group,
        "corrects_offsets": store.offset_check_in_slave,
        "in_memory_bytes_max": memory_bytes() * store.access_message_in_memory_max_ratio_percent // 100,
    }


BINDING_BUDGET_BYTES = 256 * 2**20
"""Memory for what was found in order; a million bindings of usual names."""


def run(settings: SettingValues, segment: SharedSegment, handover: Handover) -> None:
    """Serve until the broker process says stop."""
    store = settings.store
    paths = StorePaths.of(store)
    loop = PullLoop(
        segment,
        {
            "number": handover.number,
            "row": handover.row,
            "wake": handover.wake,
            "link": handover.link,
            "senders": [(peer.row, peer.wake) for peer in handover.senders],
            "puller_count": len(handover.pullers),
            "consume_queue": str(paths.consume_queue),
            "consume_queue_file_size": store.mapped_file_size_consume_queue,
            "consume_queue_ext": str(paths.consume_queue_ext),
            "ext_file_size": store.mapped_file_size_consume_queue_ext,
            "commit_log": paths.log,
            "commit_log_file_size": store.mapped_file_size_commit_log,
            "binding_budget": BINDING_BUDGET_BYTES,
            "mapped_queues_max": MAPPED_QUEUES_MAX,
            **live_options(settings),
        },
    )
    follower = SettingsFollower(segment, handover, lambda changed: loop.use(live_options(changed)))
    while loop.run(follower.version):
        follower.follow()
