"""Who was refused what: counted, and logged, now and then of the same one. No secret and no signature stands in it."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from typing import Final

from mqcore.broker.ports import Clock
from mqcore.broker.security.validator import AclError, Refusal

logger = logging.getLogger(__name__)

LOG_PAUSE_MS: Final = 60_000
REMEMBERED_MAX: Final = 1024
KEY_SHOWN_MAX: Final = 64


class Refusals:
    """The count of refusals by reason, and their log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.by_reason: Counter[Refusal] = Counter()
        self.turned_away = 0
        """Connections that were closed unheard, as their address guesses keys."""
        self._logged: OrderedDict[tuple[str, str, Refusal], tuple[int, int]] = OrderedDict()

    def note(self, error: AclError, address: str, code: int) -> None:
        """Count a refusal; log it unless this key, address and reason have been logged in the last minute."""
        self.by_reason[error.why] += 1
        # Who asks chooses the key: it may be anything, of any length.
        key = error.access_key[:KEY_SHOWN_MAX]
        who = (address, key, error.why)
        now = self._clock()
        logged_at, passed_over = self._logged.pop(who, (-LOG_PAUSE_MS, 0))
        if now - logged_at >= LOG_PAUSE_MS:
            logger.warning(
                "refused reason=%r key=%r address=%s code=%d passed_over=%d detail=%.200r",
                error.why.value, key, address, code, passed_over, error.args[1],
            )  # fmt: skip
            logged_at, passed_over = now, 0
        else:
            passed_over += 1
        self._logged[who] = (logged_at, passed_over)
        if len(self._logged) > REMEMBERED_MAX:
            self._logged.popitem(last=False)

    def figures(self) -> dict[str, str]:
        """Rows of the runtime table; RocketMQ has none of them."""
        return {
            "aclRefused": str(self.by_reason.total()),
            "aclRefusedByReason": ", ".join(f"{why}: {count}" for why, count in sorted(self.by_reason.items()))
            or "none",
            "aclGuessersTurnedAway": str(self.turned_away),
        }
