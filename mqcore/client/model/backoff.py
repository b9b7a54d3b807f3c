"""How long a failed message waits before it comes again, and how often it comes."""

from __future__ import annotations

from dataclasses import dataclass

from mqcore.delay_levels import level_of
from mqcore.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Backoff:
    """Deliver a message at most *max_attempts* times; wait *first_s* after the first failure, *factor* times as long
    after each further one, at most *longest_s*. What failed for the last time is a dead letter.

    A concurrent consumer's message waits at the broker, which knows its levels' waits only: each is rounded up. An
    orderly queue waits here, exactly, at most 30 s.
    """

    max_attempts: int = 17
    first_s: float = 10.0
    factor: float = 2.0
    longest_s: float = 7200.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.first_s <= 0 or self.factor < 1 or self.longest_s < self.first_s:
            raise ConfigError(
                f"setting retry: got {self!r}, wanted max_attempts from 1, first_s above 0, factor from 1 and "
                "longest_s from first_s on"
            )

    def delay_s(self, failures: int) -> float:
        """Return the wait after so many failures, at least one."""
        delay_s = self.first_s
        for _ in range(failures - 1):
            delay_s *= self.factor
            if delay_s >= self.longest_s:
                return self.longest_s
        return min(delay_s, self.longest_s)

    def delay_level(self, failures: int) -> int:
        """Return the delay level that comes nearest, not shorter if there is one."""
        return level_of(self.delay_s(failures))
