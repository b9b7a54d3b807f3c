"""Warnings that a peer can cause as often as it likes, and that must not fill the log."""

from __future__ import annotations

import logging
from typing import Final

from mqcore.clock import monotonic_ms

INTERVAL_MS: Final = 10_000


class LimitedWarning:
    """Logs at most one warning per interval, and says how many it kept back since the last one."""

    def __init__(self, logger: logging.Logger, interval_ms: int = INTERVAL_MS) -> None:
        self._logger = logger
        self._interval_ms = interval_ms
        self._next_ms = 0
        self._kept_back = 0

    def warn(self, message: str, *args: object) -> None:
        """Log *message* with *args*, unless the interval since the last warning has not passed."""
        now_ms = monotonic_ms()
        if now_ms < self._next_ms:
            self._kept_back += 1
            return
        self._next_ms = now_ms + self._interval_ms
        kept_back, self._kept_back = self._kept_back, 0
        self._logger.warning(message + " kept_back=%d", *args, kept_back)
