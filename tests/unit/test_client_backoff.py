"""A back-off's waits grow, are rounded up to what brokers know, and end."""

from __future__ import annotations

import pytest

from mqcore.client.model.backoff import Backoff
from mqcore.client.settings.classes import ConsumerSettings
from mqcore.delay_levels import DELAY_LEVELS_S, level_of
from mqcore.errors import ConfigError


@pytest.mark.parametrize(("delay_s", "level"), [(0.1, 1), (1, 1), (1.1, 2), (5, 2), (7200, 18), (10**6, 18)])
def test_a_wait_becomes_the_first_level_that_is_long_enough(delay_s: float, level: int) -> None:
    assert level_of(delay_s) == level


def test_waits_grow_up_to_the_longest() -> None:
    backoff = Backoff(first_s=1, factor=3, longest_s=20)
    assert [backoff.delay_s(failures) for failures in range(1, 6)] == [1, 3, 9, 20, 20]
    assert [DELAY_LEVELS_S[backoff.delay_level(failures) - 1] for failures in range(1, 5)] == [1, 5, 10, 30]
    assert backoff.delay_s(10**6) == 20


@pytest.mark.parametrize(
    "wrong", [{"max_attempts": 0}, {"first_s": 0}, {"factor": 0.5}, {"first_s": 10, "longest_s": 5}]
)
def test_a_back_off_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="setting retry: got Backoff"):
        Backoff(**wrong)  # type: ignore[arg-type]


def test_attempts_are_one_more_than_repetitions() -> None:
    assert ConsumerSettings(retry=Backoff(max_attempts=8)).max_reconsume_times_effective == 7
    assert ConsumerSettings(retry=Backoff(max_attempts=8), max_reconsume_times=3).max_reconsume_times_effective == 3
    assert ConsumerSettings(orderly=True, retry=Backoff()).max_reconsume_times_effective == 16
