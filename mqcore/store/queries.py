"""What a look-up by key found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Records of a key, raw as stored, in commit log order, and where the index ended when it was asked."""

    records: Sequence[bytes]
    index_last_update_timestamp: int
    index_last_update_physical_offset: int
