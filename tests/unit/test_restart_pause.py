"""How long who died waits for its next start."""

from __future__ import annotations

from mqcore.broker.restart_pause import HEALTHY_AFTER_S, RestartPause
from mqcore.config import load


def test_the_first_death_is_mended_at_once_and_young_ones_wait_longer_each_time() -> None:
    settings = load(environment={}).mqcore
    first, most = settings.worker_restart_backoff_ms, settings.worker_restart_backoff_max_ms
    pause = RestartPause()
    waited = [pause.after(0.1, settings) for _ in range(12)]
    assert waited[:4] == [0, first, 2 * first, 4 * first]
    assert waited[-1] == most
    assert pause.young_deaths == 11


def test_who_lived_long_begins_anew() -> None:
    settings = load(environment={}).mqcore
    pause = RestartPause()
    for _ in range(5):
        pause.after(0.1, settings)
    assert pause.after(HEALTHY_AFTER_S, settings) == 0
    assert pause.young_deaths == 0
    assert pause.after(0.1, settings) == settings.worker_restart_backoff_ms
