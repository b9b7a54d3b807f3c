"""A broker of a group dies before, or behind, each step of an election and of a change of the set.

The steps are those of ``campaign/points``. Whoever dies comes back, nothing acknowledged is lost, the group goes on.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import pytest

from mqcore.client import Client
from tests.fault.campaign.faults.processes import linger
from tests.fault.campaign.faults.roles import name_next
from tests.fault.campaign.points import STEPS
from tests.fault.campaign.rig import Group, replica_of
from tests.fault.campaign.round import PROGRAM
from tests.integration.group_sends import Sends
from tests.rigs import etcd
from tests.rigs.process import ChildError
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(etcd.missing_tools()), reason=etcd.missing_tools()),
]

DEADLINE_S = 60.0
CHANGED_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with Group(tmp_path_factory.mktemp("group"), random.Random(), has_machines=False, program=PROGRAM) as group:
        yield group


@pytest.fixture(scope="module")
def sends(group: Group) -> Iterator[Sends]:
    with Client(group.name_server) as client, client.producer("sends") as producer:
        yield Sends(producer)


def lose_the_master(group: Group) -> None:
    """It is killed: another one is elected."""
    group.master().kill()


def change_the_master(group: Group) -> None:
    """An operator names a slave: the master steps down."""
    name_next(group, group.others(group.master_number())[0])


def lose_a_slave(group: Group) -> None:
    """The set is changed, twice: it comes back."""
    number = group.others(group.master_number())[0]
    group.brokers[number].kill()
    linger(lambda: has_come_to_it(group) or len(in_sync(group)) == 2, CHANGED_WITHIN_S)
    group.start_again(number)
    linger(lambda: has_come_to_it(group), CHANGED_WITHIN_S)


def in_sync(group: Group) -> frozenset[int]:
    state = group.view().state
    return state.isr if state is not None else frozenset()


Work = Callable[[Group], None]

ELECTION = ("the swap", "the announcement", "the epoch entry", "the identity", "the required set", "leading",
            "the promotion")  # fmt: skip
POINTS: tuple[tuple[str, Work], ...] = (
    *((step, lose_the_master) for step in ELECTION),
    ("the demotion", change_the_master),
    ("the swap", lose_a_slave),
    ("the required set", lose_a_slave),
)
CUT = {"the cut", "the queues' cut", "the zeros"}
"""``unit/test_log_cut`` dies at each call of these."""

assert {step for step, _ in POINTS} | CUT == set(STEPS)


@pytest.mark.parametrize("side", ["before", "behind"])
@pytest.mark.parametrize(
    ("step", "work"), POINTS, ids=lambda given: given if isinstance(given, str) else given.__name__
)
def test_a_broker_may_die_at_any_step(group: Group, sends: Sends, side: str, step: str, work: Work) -> None:
    group.await_in_sync(3)
    sends.send(5)
    for number in range(group.size):
        group.point_of(number).write_text(f"{side} {step}")
    # The one that dies may be the one that is being started.
    with contextlib.suppress(ChildError):
        work(group)
    wait_until(lambda: has_come_to_it(group), DEADLINE_S, f"a broker comes to the point {side} {step}")
    dying = disarm(group)
    wait_until(lambda: not any(group.brokers[number].child.is_alive for number in dying), DEADLINE_S, "it dies there")
    # Everybody may have died there.
    group.start_the_ended()
    group.await_in_sync(3)
    sends.send(5)


def has_come_to_it(group: Group) -> bool:
    return not all(group.point_of(number).exists() for number in range(group.size))


def disarm(group: Group) -> list[int]:
    """Let nobody else die; the numbers of those who do."""
    dying = []
    for number in range(group.size):
        try:
            group.point_of(number).unlink()
        except FileNotFoundError:
            dying.append(number)
    return dying


def test_everything_acknowledged_is_in_all_stores_where_it_was_said_to_be(group: Group, sends: Sends) -> None:
    group.await_equal_ends()
    group.stop_all()
    for number, broker in enumerate(group.brokers):
        sends.check(replica_of(f"broker{number}", broker.store_dir))
