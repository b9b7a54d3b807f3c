"""Warnings that a peer can cause as often as it likes, and that must not fill the log."""

from __future__ import annotations

import logging
import time
from typing import Final

INTERVAL_S: Final = 10.0


class LimitedWarning:
    """Logs at most one warning per interval, and says how many it kept back since the last one."""

    def __init__(self, logger: logging.Logger, interval_s: float = INTERVAL_S) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._next_s = 0.0
        self._kept_back = 0

    def warn(self, message: str, *args: object) -> None:
        """Log *message* with *args*, unless the interval since the last warning has not passed."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._kept_back += 1
            return
        self._next_s = now_s + self._interval_s
        kept_back, self._kept_back = self._kept_back, 0
        self._logger.warning(message + " kept_back=%d", *args, kept_back)
