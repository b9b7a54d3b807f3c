"""What cleaning of unused topics leaves alone: the queue of op messages, whose topic has no configuration."""

from __future__ import annotations

from pathlib import Path

from fast_rig import shared_segment

from mqcore.broker.segment.multi_dispatch import LightQueues
from mqcore.broker.segment.store_view import SharedStoreView
from mqcore.config import load


class Dropped:
    """Stands for what drops queues: ``rows`` are those that it was to drop."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    async def drop(self, rows: list[int], dead_before: int = -1) -> None:
        self.rows += rows


async def test_op_messages_stay_when_unused_topics_go(tmp_path: Path) -> None:
    settings = load(overrides={"bindAddress": "127.0.0.1", "storePathRootDir": str(tmp_path)}, environment={})
    with shared_segment() as segment:
        rows = {
            name: segment.queue_row(name, 0, True)
            for name in (b"used", b"unused", b"RMQ_SYS_TRANS_HALF_TOPIC", b"RMQ_SYS_TRANS_OP_HALF_TOPIC")
        }
        dropped = Dropped()
        view = SharedStoreView(settings, segment, lambda: 0, dropped, LightQueues())  # type: ignore[arg-type]
        await view.clean_unused_topics(["used", "RMQ_SYS_TRANS_HALF_TOPIC"])
    assert dropped.rows == [rows[b"unused"]]
