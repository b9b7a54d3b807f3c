"""Rates of what is copied, on a clock of the test."""

from __future__ import annotations

from mqcore.broker.segment.transfer_rates import TransferRates


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_rate_is_what_was_transferred_between_the_last_two_samples() -> None:
    seconds = Seconds()
    rates = TransferRates(seconds)
    rates.sample({"one": 5000})
    assert rates.of("one") == 0, "nobody knows yet how long that has taken"
    for total, passed_s, wanted in ((7000, 1.0, 2000), (7000, 1.0, 0), (8000, 2.0, 500)):
        seconds.now += passed_s
        rates.sample({"one": total})
        assert rates.of("one") == wanted


def test_who_comes_began_with_nothing_and_who_goes_has_no_rate() -> None:
    seconds = Seconds()
    rates = TransferRates(seconds)
    rates.sample({"one": 5000})
    seconds.now += 1
    rates.sample({"two": 300})
    assert (rates.of("one"), rates.of("two")) == (0, 300)


def test_two_samples_at_one_moment_leave_the_rates_alone() -> None:
    seconds = Seconds()
    rates = TransferRates(seconds)
    rates.sample({"one": 0})
    seconds.now += 1
    rates.sample({"one": 10})
    rates.sample({"one": 20})
    assert rates.of("one") == 10
