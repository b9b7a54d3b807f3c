"""The figures that tools show of a consumer cover the last minute and the last hour."""

from __future__ import annotations

import pytest

from mqcore.client.telemetry.statistics import TopicStatistics


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_rates_are_over_the_last_minute() -> None:
    clock = Clock()
    statistics = TopicStatistics(clock)
    for _ in range(10):
        statistics.add_pull(32, 4.0)
        statistics.add_consumed(30, 2, [6.0])
        clock.now_s += 5
    figures = statistics.figures()
    assert figures["pullRT"] == 4.0
    assert figures["consumeRT"] == 6.0
    assert figures["pullTPS"] == pytest.approx(320 / 50)
    assert figures["consumeOKTPS"] == pytest.approx(300 / 50)
    assert figures["consumeFailedTPS"] == pytest.approx(20 / 50)


def test_failures_are_counted_for_an_hour_and_rates_are_forgotten_before() -> None:
    clock = Clock()
    statistics = TopicStatistics(clock)
    statistics.add_consumed(5, 3, [1.0])
    clock.now_s += 600
    figures = statistics.figures()
    assert (figures["consumeFailedMsgs"], figures["consumeOKTPS"]) == (3, 0.0)
    clock.now_s += 3600
    assert statistics.figures()["consumeFailedMsgs"] == 0


def test_without_messages_all_figures_are_zero() -> None:
    assert set(TopicStatistics(Clock()).figures().values()) == {0}


def test_totals_are_since_the_beginning() -> None:
    clock = Clock()
    statistics = TopicStatistics(clock)
    for _ in range(400):
        statistics.add_pull(32, 4.0)
        statistics.add_consumed(30, 2, [6.0])
        clock.now_s += 10
    assert statistics.figures()["consumeFailedMsgs"] == 360 * 2
    assert statistics.totals() == (400 * 32, 400 * 2)
