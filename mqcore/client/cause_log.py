"""Warnings that come once per cause and not once per event, with facts that a log collector can read.

    log = CauseLog(logging.getLogger(__name__))
    log.warning("pull failed", group=group, queue=queue, error=error)

logs ``pull failed group=... queue=... error=...``. The same text about the same group, topic, queue, broker or address
and the same kind of error is one cause: it is logged at once, then at most every INTERVAL_S seconds, with ``repeated``
for those kept back in between. The facts are also the record's attribute ``mq``, a dict, for structured logging.
"""

from __future__ import annotations

import logging
from typing import Final

from mqcore.clock import monotonic_ms

INTERVAL_S: Final = 10.0
CAUSES_MAX: Final = 1024
"""Causes remembered; beyond that the one that was logged longest ago is forgotten."""

CAUSE_FACTS: Final = frozenset({"address", "broker", "group", "queue", "topic"})

Cause = tuple[object, ...]


class CauseLog:
    """Writes to *logger*. Used from one event loop; reading the clock is all that a kept back warning costs."""

    def __init__(self, logger: logging.Logger, interval_s: float = INTERVAL_S) -> None:
        self._logger = logger
        self._interval_ms = int(interval_s * 1000)
        self._next_ms: dict[Cause, int] = {}
        self._kept_back: dict[Cause, int] = {}

    def warning(self, text: str, /, *, exc_info: BaseException | None = None, **facts: object) -> None:
        """Log *text* and *facts*, with the traceback of *exc_info*, unless this cause was logged a moment ago."""
        about = (value for name, value in facts.items() if name in CAUSE_FACTS)
        cause = (text, type(exc_info or facts.get("error")), *about)
        now_ms = monotonic_ms()
        if now_ms < self._next_ms.get(cause, 0):
            self._kept_back[cause] = self._kept_back.get(cause, 0) + 1
            return
        self._next_ms.pop(cause, None)  # it goes to the end: the first is always the one longest ago
        self._next_ms[cause] = now_ms + self._interval_ms
        if len(self._next_ms) > CAUSES_MAX:
            oldest = next(iter(self._next_ms))
            del self._next_ms[oldest]
            self._kept_back.pop(oldest, None)
        repeated = self._kept_back.pop(cause, 0)
        if repeated:
            facts = {**facts, "repeated": repeated}
        words = "".join(f" {name}=%s" for name in facts)
        self._logger.warning(text.replace("%", "%%") + words, *facts.values(), exc_info=exc_info, extra={"mq": facts},
                             stacklevel=2)  # fmt: skip
