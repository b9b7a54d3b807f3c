"""How long who watches a process waits before it starts the process again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqcore.config import MqcoreSettings

HEALTHY_AFTER_S: Final = 10.0
"""Who has lived so long did not die of its start."""


@dataclass(slots=True)
class RestartPause:
    """The first death is mended at once; one that dies young again waits longer each time."""

    next_ms: int = 0
    """The pause after the next death, if that is young; 0 if nobody has died yet."""
    young_deaths: int = 0
    """How many in a row were young, behind the first."""

    def after(self, lived_s: float, settings: MqcoreSettings) -> int:
        """Note a death after *lived_s* seconds; return the pause before the next start, ms."""
        if lived_s >= HEALTHY_AFTER_S or self.next_ms == 0:
            self.young_deaths = 0
            self.next_ms = settings.worker_restart_backoff_ms
            return 0
        self.young_deaths += 1
        pause_ms = self.next_ms
        self.next_ms = min(2 * pause_ms, settings.worker_restart_backoff_max_ms)
        return pause_ms
