"""Brokers that were slow or failed are avoided for exactly as long as Java's client avoids them."""

from __future__ import annotations

import pytest

from mqcore.client.model.selectors import Rotation
from mqcore.client.produce.fault_strategy import FaultStrategy, LatencyFaultTolerance, not_available_duration_ms
from mqcore.client.settings.classes import ProducerSettings
from mqcore.errors import ConfigError
from mqcore.protocol.message import MessageQueue


class Clock:
    """The clock that never goes back, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("mqcore.clock.monotonic_ms", clock)
    return clock


def rotation_of(*brokers: str, each: int = 2) -> Rotation:
    return Rotation([MessageQueue("T", broker, queue_id) for broker in brokers for queue_id in range(each)], start=0)


def brokers_chosen(strategy: FaultStrategy, rotation: Rotation, times: int = 12) -> set[str]:
    return {strategy.select(rotation).broker_name for _ in range(times)}


# Latency, and for how long it keeps a broker out: the bounds of the table, and their neighbours.
TABLE = [
    (0, 0),
    (49, 0),
    (50, 0),
    (99, 0),
    (100, 0),
    (549, 0),
    (550, 30_000),
    (999, 30_000),
    (1_000, 60_000),
    (1_999, 60_000),
    (2_000, 120_000),
    (2_999, 120_000),
    (3_000, 180_000),
    (14_999, 180_000),
    (15_000, 600_000),
    (30_000, 600_000),
    (10**9, 600_000),
]


@pytest.mark.parametrize(("latency_ms", "duration_ms"), TABLE)
def test_a_slow_send_keeps_its_broker_out_for_the_time_in_the_table(
    clock: Clock, latency_ms: int, duration_ms: int
) -> None:
    assert not_available_duration_ms(latency_ms) == duration_ms
    strategy, rotation = FaultStrategy(enabled=True), rotation_of("a", "b")
    strategy.update("a", latency_ms)
    if duration_ms:
        assert brokers_chosen(strategy, rotation) == {"b"}
        clock.now_ms += duration_ms - 1
        assert brokers_chosen(strategy, rotation) == {"b"}
        clock.now_ms += 1
    assert brokers_chosen(strategy, rotation) == {"a", "b"}


def test_a_failed_send_isolates_its_broker_for_ten_minutes_however_short_it_was(clock: Clock) -> None:
    strategy, rotation = FaultStrategy(enabled=True), rotation_of("a", "b")
    strategy.update("a", 3, isolate=True)
    (fault,) = strategy.faults()
    assert (fault.broker_name, fault.latency_ms, fault.is_available) == ("a", 3, False)
    assert fault.available_in_ms == 600_000
    clock.now_ms += 599_999
    assert brokers_chosen(strategy, rotation) == {"b"}
    clock.now_ms += 1
    assert brokers_chosen(strategy, rotation) == {"a", "b"}
    assert (fault.is_available, fault.available_in_ms) == (True, 0)


def test_a_quick_send_ends_the_isolation(clock: Clock) -> None:
    strategy, rotation = FaultStrategy(enabled=True), rotation_of("a", "b")
    strategy.update("a", 3, isolate=True)
    strategy.update("a", 3)
    assert brokers_chosen(strategy, rotation) == {"a", "b"}


def test_other_tables_may_be_given(clock: Clock) -> None:
    strategy, rotation = FaultStrategy(True, (10, 20), (5, 70)), rotation_of("a", "b")
    strategy.update("a", 19)
    assert strategy.faults()[0].available_in_ms == 5
    strategy.update("a", 20)
    assert strategy.faults()[0].available_in_ms == 70
    assert brokers_chosen(strategy, rotation) == {"b"}


def test_switched_off_nothing_is_learnt_and_only_the_last_broker_is_passed_over(clock: Clock) -> None:
    strategy, rotation = FaultStrategy(), rotation_of("a", "b")
    strategy.update("a", 3, isolate=True)
    assert strategy.faults() == []
    assert brokers_chosen(strategy, rotation) == {"a", "b"}
    assert {strategy.select(rotation, "a").broker_name for _ in range(12)} == {"b"}


def test_switched_on_the_last_broker_is_not_passed_over_while_it_is_available(clock: Clock) -> None:
    strategy, rotation = FaultStrategy(enabled=True), rotation_of("a", "b")
    assert {strategy.select(rotation, "a").broker_name for _ in range(12)} == {"a", "b"}


def test_it_may_be_switched_while_running(clock: Clock) -> None:
    strategy, rotation = FaultStrategy(enabled=True), rotation_of("a", "b")
    strategy.update("a", 3, isolate=True)
    strategy.enabled = False
    assert brokers_chosen(strategy, rotation) == {"a", "b"}
    strategy.enabled = True
    assert brokers_chosen(strategy, rotation) == {"b"}


def test_available_brokers_share_the_sends_in_turn(clock: Clock) -> None:
    strategy, rotation = FaultStrategy(enabled=True), rotation_of("a", "b", "c", each=1)
    strategy.update("b", 3, isolate=True)
    chosen = [strategy.select(rotation).broker_name for _ in range(6)]
    # The queue after one that is avoided gets its turn too.
    assert chosen == ["a", "c", "c", "a", "c", "c"]


def test_the_ranking_is_available_first_then_faster_then_available_earlier(clock: Clock) -> None:
    tolerance = LatencyFaultTolerance()
    tolerance.update("out and fast", 1, 1_000)
    tolerance.update("slow", 700, 0)
    tolerance.update("out and slow", 700, 1_000)
    tolerance.update("fast", 5, 0)
    tolerance.update("out longer", 1, 2_000)
    names = [fault.broker_name for fault in tolerance.ranking()]
    assert names == ["fast", "slow", "out and fast", "out longer", "out and slow"]


@pytest.mark.parametrize(("count", "better_half"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (8, 4)])
def test_when_all_are_out_the_better_half_is_tried_in_turn(clock: Clock, count: int, better_half: int) -> None:
    tolerance = LatencyFaultTolerance(pick_start=0)
    for number in range(count):
        tolerance.update(f"b{number}", 600 + number, 30_000)
    picked = [tolerance.pick_one_at_least() for _ in range(2 * better_half)]
    assert set(picked) == {f"b{number}" for number in range(better_half)}
    assert picked[:better_half] == picked[better_half:]


def test_nothing_is_picked_from_nothing() -> None:
    assert LatencyFaultTolerance().pick_one_at_least() is None


def test_when_all_brokers_are_out_the_queues_of_a_picked_one_take_turns(clock: Clock) -> None:
    strategy, rotation = FaultStrategy(enabled=True), rotation_of("a", "b", each=4)
    strategy.update("a", 700, isolate=True)
    strategy.update("b", 20, isolate=True)
    chosen = [strategy.select(rotation) for _ in range(12)]
    assert {queue.broker_name for queue in chosen} == {"b"}
    assert len({queue.queue_id for queue in chosen}) == 4


def test_a_picked_broker_without_queues_of_the_topic_is_forgotten_and_the_rotation_goes_on(clock: Clock) -> None:
    strategy, rotation = FaultStrategy(enabled=True), rotation_of("a")
    strategy.update("gone", 1, isolate=True)
    strategy.update("a", 2, isolate=True)
    assert strategy.select(rotation).broker_name == "a"
    assert [fault.broker_name for fault in strategy.faults()] == ["a"]


def test_tables_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="got 2 and 1 values, wanted as many of both"):
        ProducerSettings(latency_max_ms=(1, 2), not_available_duration_ms=(0,))
    with pytest.raises(ConfigError, match="wanted rising values"):
        ProducerSettings(latency_max_ms=(2, 1), not_available_duration_ms=(0, 1))
