"""A group of brokers is broken again and again under load, and keeps its promises.

``MQCORE_CAMPAIGN_S`` lets a round last for so long, ``MQCORE_CAMPAIGN_ROUNDS`` plays so many, and
``MQCORE_CAMPAIGN_SEED`` plays one again. Hours of it are played by ``python -m tests.fault.campaign``.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.fault import ext4
from tests.fault.campaign.checker import (
    a_place_has_one_message_and_a_message_one_place,
    acknowledged_messages_are_where_they_were_said_to_be,
)
from tests.fault.campaign.modes import Mode
from tests.fault.campaign.rig import Group
from tests.fault.campaign.round import Setting, play
from tests.rigs import etcd, network
from tests.waiting import wait_until

SECONDS = float(os.environ.get("MQCORE_CAMPAIGN_S", "60"))
ROUNDS = int(os.environ.get("MQCORE_CAMPAIGN_ROUNDS", "1"))
SEED = "MQCORE_CAMPAIGN_SEED"
ALONE_S = 20.0
LOST_SIZE = 4096
MISSING = network.missing_tools() or ext4.missing_means()

pytestmark = [
    pytest.mark.fault,
    pytest.mark.timeout(SECONDS + 600),
]


@pytest.fixture(
    params=[
        pytest.param(False, id="on one machine"),
        pytest.param(
            True,
            id="on machines of their own",
            marks=[pytest.mark.root, pytest.mark.skipif(bool(MISSING), reason=MISSING)],
        ),
    ]
)
def has_machines(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def suffer(home: Path, setting: Setting) -> None:
    """Play a round, and look whether all promises were kept."""
    print(f"to play it again: {SEED}={setting.seed}")
    report, _ = play(home, setting)
    print(report.line())
    found = [f"{rule}: {what}" for rule, what in report.violations[:20]]
    assert not found, "\n".join([f"{SEED}={setting.seed}, what was seen is in {home}", *found])
    assert report.ok


def seed_of(chance: random.Random) -> int:
    return int(os.environ.get(SEED, chance.getrandbits(32)))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.skipif(bool(etcd.missing_tools()), reason=etcd.missing_tools())
def test_a_group_keeps_its_promises(
    tmp_path: Path, chance: random.Random, mode: Mode, has_machines: bool, number: int
) -> None:
    suffer(tmp_path, Setting(seed_of(chance), SECONDS, mode, has_machines=has_machines))


@pytest.mark.slow
def test_a_broker_alone_keeps_the_promises_that_it_can(
    tmp_path: Path, chance: random.Random, has_machines: bool
) -> None:
    suffer(tmp_path, Setting(seed_of(chance), min(SECONDS, ALONE_S), size=1, has_machines=has_machines))


def lose_what_was_acknowledged(group: Group, chance: random.Random) -> None:
    """Kill the only broker and take the last records from its log, as a machine does that loses power."""
    broker = group.brokers[0]
    log = broker.store_dir / "commitlog"
    wait_until(lambda: len((log / f"{0:020d}").read_bytes().rstrip(b"\0")) > 2 * LOST_SIZE, 60, "messages are stored")
    broker.kill()
    last = max(path for path in log.iterdir() if any(path.read_bytes()))
    data = last.read_bytes()
    end = len(data.rstrip(b"\0"))
    last.write_bytes(data[: max(0, end - LOST_SIZE)].ljust(len(data), b"\0"))
    group.start_again(0)


def test_what_a_broker_has_lost_is_found(tmp_path: Path) -> None:
    report, _ = play(tmp_path, Setting(0, 0.0, size=1, has_machines=False), lose_what_was_acknowledged)
    found = {rule for rule, _ in report.violations}
    assert acknowledged_messages_are_where_they_were_said_to_be.__name__ in found
    assert a_place_has_one_message_and_a_message_one_place.__name__ in found
