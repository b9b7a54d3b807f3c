"""Warnings that come once per cause and not once per event, with facts that a log collector can read.

    log = CauseLog(logging.getLogger(__name__))
    log.warning("pull failed", group=group, queue=queue, error=error)

logs ``pull failed group=... queue=... error=...``. The same text about the same group, topic, queue, broker, address or
name and the same kind of error is one cause: it is logged at once, then at most every INTERVAL_S seconds, with
``repeated`` for those kept back in between. The facts are also the record's attribute ``mq``, a dict, for structured
logging.

Who writes of a peer that it did not choose calls it ``remote_address``: such a peer has another port with each
connection, and could fill the log if that made another cause.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from mqcore.clock import monotonic_ms

INTERVAL_S: Final = 10.0
CAUSES_MAX: Final = 1024
"""Causes remembered; beyond that the one that was logged longest ago is forgotten."""

CAUSE_FACTS: Final = frozenset({"address", "broker", "group", "name", "queue", "topic"})
"""What makes it another cause. *name* is for a hook, a task or a callback."""

Cause = tuple[object, ...]


class CauseLog:
    """Writes to *logger*, from any thread. Reading the clock and a look-up are all that a kept back warning costs.

    There is no lock, which a forked child might find held for ever. Each step is one operation of a dict; at worst two
    threads log the same cause at the same moment, or one of many that were kept back is not counted.
    """

    def __init__(self, logger: logging.Logger, interval_s: float = INTERVAL_S) -> None:
        self._logger = logger
        self._interval_ms = int(interval_s * 1000)
        self._next_ms: OrderedDict[Cause, int] = OrderedDict()  # the first was logged longest ago
        self._kept_back: dict[Cause, int] = {}

    def warning(self, text: str, /, *, exc_info: BaseException | None = None, **facts: object) -> None:
        """Log *text* and *facts*, with the traceback of *exc_info*, unless this cause was logged a moment ago."""
        self._log(logging.WARNING, text, exc_info, facts)

    def error(self, text: str, /, *, exc_info: BaseException | None = None, **facts: object) -> None:
        """As ``warning``, for a promise that was broken."""
        self._log(logging.ERROR, text, exc_info, facts)

    def _log(self, level: int, text: str, exc_info: BaseException | None, facts: dict[str, object]) -> None:
        about = (value for name, value in facts.items() if name in CAUSE_FACTS)
        repeated = self._repeated((text, type(exc_info or facts.get("error")), *about))
        if repeated is None:
            return
        if repeated:
            facts = {**facts, "repeated": repeated}
        words = "".join(f" {name}=%s" for name in facts)
        self._logger.log(level, text.replace("%", "%%") + words, *map(_shown, facts.values()), exc_info=exc_info,
                         extra={"mq": facts}, stacklevel=3)  # fmt: skip

    def _repeated(self, cause: Cause) -> int | None:
        """Return how often *cause* was kept back since it was last logged, or None when it is kept back now too."""
        now_ms = monotonic_ms()
        if now_ms < self._next_ms.get(cause, 0):
            self._kept_back[cause] = self._kept_back.get(cause, 0) + 1
            return None
        self._next_ms.pop(cause, None)  # it goes to the end
        self._next_ms[cause] = now_ms + self._interval_ms
        if len(self._next_ms) > CAUSES_MAX:
            oldest, _ = self._next_ms.popitem(last=False)
            self._kept_back.pop(oldest, None)
        return self._kept_back.pop(cause, 0)


def name_of(function: object) -> str:
    """Return how a function or another callable of an application is called in a warning."""
    return str(getattr(function, "__qualname__", function))


def _shown(value: object) -> object:
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else value
