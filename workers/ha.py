"""The ha worker: the commit log to this broker's slaves. Its loop is _fast/ha/loop.pyx.

It is started when the first slave knocks: a broker that nobody copies has no such process.
"""

from __future__ import annotations

from typing import Any

from mqcore._fast.ha.loop import HaLoop
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import BrokerRole, Settings
from mqcore.store.paths import StorePaths
from mqcore.workers.handover import Handover
from mqcore.workers.settings_sheet import SettingsFollower


def live_options(settings: Settings) -> dict[str, Any]:
    """The options of the loop that may change while it runs."""
    return {
        "heartbeat_ms": settings.store.ha_send_heartbeat_interval_ms,
        "silence_ms": settings.store.ha_housekeeping_interval_ms,
        "frame_size_max": settings.store.ha_transfer_batch_size,
        "from_first_file": settings.mqcore.ha_sync_from_first_file,
    }


def run(settings: Settings, segment: SharedSegment, handover: Handover) -> None:
    """Serve slaves until the broker process says stop."""
    store = settings.store
    loop = HaLoop(
        segment,
        {
            "row": handover.row,
            "wake": handover.wake,
            "link": handover.link,
            "listener": handover.ha_listener,
            "senders": [(peer.row, peer.wake) for peer in handover.senders],
            "broker": (handover.broker.row, handover.broker.wake),
            "commit_log": StorePaths.of(store).log,
            "commit_log_file_size": store.mapped_file_size_commit_log,
            "waits_for_slaves": store.broker_role is BrokerRole.SYNC_MASTER,
            **live_options(settings),
        },
    )
    follower = SettingsFollower(segment, handover, lambda changed: loop.use(live_options(changed)))
    while loop.run(follower.version):
        follower.follow()
