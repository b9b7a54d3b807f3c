"""Pulls that wait at the broker: they end with their connection, their time is capped, and no client takes them all."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator

import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.layout import TICKETS_MAX
from tests.fault.rig import DEADLINE_S, SMALL_FILES, attach_segment, await_successor, kill_worker, start_broker
from tests.fault.talker import Talker, pull_request
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC = "Waited"
FOREVER_MS = 10**12
PARKED, PARKERS = 4_000, 17
SHORT_MS = 500
AT_ONCE_S = 20.0
"""Milliseconds where nothing else runs; well below the time that a pull may be held for."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    with start_broker(tmp_path_factory.mktemp("held"), SMALL_FILES) as running:
        wire.create_topic(running.broker_address, TOPIC, queues=1)
        yield running
        running.stop()


def held(broker: MqcoreBroker) -> int:
    """How many pulls the pull worker holds."""
    return attach_segment(broker).waiting_pulls()


def park(talker: Talker, count: int) -> None:
    """Ask *count* times for what is not there yet, with all the patience in the world."""
    talker.send(pull_request(TOPIC, 0, 0, suspend_ms=FOREVER_MS) for _ in range(count))


def is_served(broker: MqcoreBroker) -> bool:
    """Whether somebody who comes only now gets an answer, at once and after a hold."""
    with Talker(broker.broker_address) as talker:
        codes = [talker.call(pull_request(TOPIC, 0, 0, suspend_ms=wait_ms)).code for wait_ms in (0, 1)]
    return codes == [ResponseCode.PULL_NOT_FOUND] * 2


def nothing_is_held(broker: MqcoreBroker) -> None:
    wait_until(lambda: held(broker) == 0, AT_ONCE_S, "no pull is held for those who have left")


def test_pulls_end_with_their_connection(broker: MqcoreBroker) -> None:
    assert PARKED * PARKERS > TICKETS_MAX
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            parkers = [stack.enter_context(Talker(broker.broker_address)) for _ in range(PARKERS)]
            for parker in parkers:
                park(parker, PARKED)
            wait_until(lambda: held(broker) > TICKETS_MAX // 2, DEADLINE_S, "most of them are held")
            # They cannot all be: somebody is told so. Who it is goes by the order in which they are read.
            refused, _, _ = select.select([parker.socket for parker in parkers], [], [], DEADLINE_S)
            assert refused
            for parker in parkers:
                if parker.socket in refused:
                    assert parker.receive().code == ResponseCode.SYSTEM_BUSY
            assert is_served(broker)
        nothing_is_held(broker)
        assert is_served(broker)


def test_one_client_alone_cannot_take_all(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address) as greedy:
        for _ in range(TICKETS_MAX // PARKED):
            park(greedy, PARKED)
        assert greedy.receive(DEADLINE_S).code == ResponseCode.SYSTEM_BUSY
        wait_until(lambda: held(broker) >= TICKETS_MAX // 4, DEADLINE_S, "a share of it is held")
        assert held(broker) <= TICKETS_MAX // 2
        assert is_served(broker)
        with Talker(broker.broker_address) as modest:
            modest.send(pull_request(TOPIC, 0, 0, suspend_ms=SHORT_MS) for _ in range(100))
            assert {modest.receive().code for _ in range(100)} == {ResponseCode.PULL_NOT_FOUND}
    nothing_is_held(broker)


def test_a_pull_is_held_no_longer_than_the_setting_says(broker: MqcoreBroker) -> None:
    def set_longest(milliseconds: int) -> None:
        body = f"pullHoldMaxMillis={milliseconds}\n".encode()
        assert wire.call(broker.broker_address, RequestCode.UPDATE_BROKER_CONFIG, body=body).code == wire.SUCCESS

    set_longest(SHORT_MS)
    try:
        with Talker(broker.broker_address) as talker:
            for wait_ms in (FOREVER_MS, 2**63 - 1):
                answer = talker.call(pull_request(TOPIC, 0, 0, suspend_ms=wait_ms), AT_ONCE_S)
                assert answer.code == ResponseCode.PULL_NOT_FOUND
    finally:
        set_longest(60_000)
    nothing_is_held(broker)


@pytest.mark.parametrize("kind", ["send", "pull"])
def test_pulls_end_with_a_worker_that_dies(broker: MqcoreBroker, kind: str) -> None:
    with Talker(broker.broker_address) as talker:
        park(talker, 1_000)
        wait_until(lambda: held(broker) == 1_000, DEADLINE_S, "the pulls are held")
        pid = kill_worker(broker, kind)
        await_successor(broker, kind, pid)
        nothing_is_held(broker)
    assert is_served(broker)
