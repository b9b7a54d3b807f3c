"""Groups that read too far behind are switched off, where the settings ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_ports import FakeClock, MemoryOffsets
from fast_rig import shared_segment

from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.config_file import ConfigFile
from mqcore.broker.groups import SubscriptionGroupManager
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.segment.shared_ports import SharedOffsetTable
from mqcore.broker.slow_consumers import SlowConsumers
from mqcore.config import load
from mqcore.protocol import fastjson
from mqcore.protocol.bodies import SubscriptionGroupConfig

THRESHOLD = 1 << 20


class Rig:
    def __init__(self, root: Path, is_on: str) -> None:
        settings = load(
            overrides={
                "bindAddress": "127.0.0.1",
                "disableConsumeIfConsumerReadSlowly": is_on,
                "consumerFallbehindThreshold": str(THRESHOLD),
            },
            environment={},
        )
        self.clock = FakeClock()
        live = LiveSettings(settings, self.clock)
        self.bumped: list[str] = []
        self.path = root / "subscriptionGroup.json"
        self.groups = SubscriptionGroupManager(live, ConfigFile(self.path), self.bumped.append, self.clock)
        self.offsets = MemoryOffsets()
        self.slow = SlowConsumers(live, self.groups, self.offsets, self.clock)

    def may_consume(self, name: str) -> bool:
        config = self.groups.find(name)
        assert config is not None
        return config.consume_enable

    def on_disk(self, name: str) -> bool:
        value = fastjson.loads(self.path.read_bytes())
        return bool(value["subscriptionGroupTable"][name]["consumeEnable"])


async def rig_with_groups(root: Path, is_on: str) -> Rig:
    rig = Rig(root, is_on)
    for name in ("slow", "quick"):
        await rig.groups.find_or_create(name)
    rig.offsets.behind = {"slow": THRESHOLD + 1, "quick": THRESHOLD, "unknown": 1 << 40}
    rig.bumped.clear()
    return rig


async def test_a_group_that_reads_too_far_behind_is_switched_off_until_it_is_configured(tmp_path: Path) -> None:
    rig = await rig_with_groups(tmp_path, "true")
    version = rig.groups.wrapper.data_version.counter
    await rig.slow.look()
    assert (rig.may_consume("slow"), rig.may_consume("quick")) == (False, True)
    assert rig.bumped == ["slow"], "its pulls are checked anew"
    assert rig.groups.wrapper.data_version.counter == version + 1
    assert rig.on_disk("slow"), "as in RocketMQ it is not written"
    assert rig.slow.figures() == {"slowGroupsSwitchedOff": "1"}
    await rig.slow.look()
    assert rig.slow.switched_off == 1
    # An administrator.
    await rig.groups.update(SubscriptionGroupConfig(group_name="slow"))
    assert rig.may_consume("slow")
    # The next change writes what holds then.
    await rig.slow.look()
    await rig.groups.find_or_create("another")
    assert not rig.on_disk("slow")


async def test_by_default_nobody_is_switched_off(tmp_path: Path) -> None:
    rig = await rig_with_groups(tmp_path, "false")
    await rig.slow.look()
    assert rig.may_consume("slow")
    assert rig.slow.figures() == {}


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


def test_what_counts_is_what_was_read_lately(segment: SharedSegment) -> None:
    table = SharedOffsetTable(segment)
    for group, queue_id, behind, at in (
        ("slow", 0, 10, 1000), ("slow", 1, 5001, 1000), ("long gone", 0, 9999, 999), ("quick", 0, 5000, 2000)
    ):  # fmt: skip
        row = segment.offset_row(group.encode(), b"T", queue_id, True)
        segment.set_offset_word(row, "behind_bytes", behind)
        segment.set_offset_word(row, "get_timestamp", at)
    assert table.slow_groups(5000, 1000) == ["slow"]
    assert table.slow_groups(10_000, 0) == []
    assert sorted(table.slow_groups(0, 0)) == ["long gone", "quick", "slow"]
