"""Times as operators write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

AGO = re.compile(r"-?(\d{1,9})(s|m|h|d)")
AGO_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_time(text: str) -> datetime | None:
    """Return the time that *text* means, ISO 8601 (UTC when it names no zone) or how long ago; None if it is none."""
    ago = AGO.fullmatch(text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{AGO_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
