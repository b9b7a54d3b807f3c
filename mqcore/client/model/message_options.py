"""The keyword arguments of ``Message``, for type checkers and editors; a test compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict


class MessageOptions(TypedDict, total=False):
    """The keyword arguments of Message."""

    tag: str | None
    keys: Sequence[str]
    properties: Mapping[str, str] | None
    delay_level: int
    flag: int
    wait_store_ok: bool
    delay: timedelta | float | None
    deliver_at: datetime | int | None
