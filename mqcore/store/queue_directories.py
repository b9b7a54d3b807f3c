"""The directories of a topic's consume queues."""

from __future__ import annotations

import os
from pathlib import Path

from mqcore.store.paths import QUEUE_ID_MAX


def is_queue_id(name: str) -> bool:
    """Whether the directory *name* is that of a queue."""
    return name.isascii() and name.isdigit() and name == str(int(name)) and int(name) <= QUEUE_ID_MAX


def survey_topic(directory: bytes, file_size: int, commit_log_min: int) -> list[tuple[int, bool, int, int, int]]:
    """Return (queue id, odd, min offset, max offset, max physical) of each queue below a topic's *directory*, in order.

    The twin of _fast/queues/survey.pyx, which knows of most queues what it says: to this one all are odd.
    """
    return [(number, True, 0, 0, -1) for number in _queue_ids(directory)]


def cut_topic(directory: bytes, file_size: int, physical_offset: int) -> list[tuple[int, bool, int, bool, int, int]]:
    """Return (queue id, odd, newest file, to be synced, last physical offset, its size) of each queue, in order.

    The twin of _fast/queues/survey.pyx, which cuts most queues itself: to this one all are odd.
    """
    return [(number, True, -1, False, 0, 0) for number in _queue_ids(directory)]


def _queue_ids(directory: bytes) -> list[int]:
    try:
        names = [entry.name for entry in Path(os.fsdecode(directory)).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name) for name in names if is_queue_id(name))
