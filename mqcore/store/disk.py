"""How full the disk is, as RocketMQ computes it, and what follows. Source: RocketMQ common/UtilAll.java."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CLEAN_FORCIBLY_RATIO = 0.85
WARNING_LEVEL_RATIO = 0.90
# A disk is cleaned at once before it counts as full.
assert 0 < CLEAN_FORCIBLY_RATIO < WARNING_LEVEL_RATIO < 1


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """One directory of the store. ``ratio`` is the used share, -1 when the path is missing."""

    path: str
    ratio: float
    total: int = 0
    free: int = 0

    @classmethod
    def of(cls, path: Path) -> DiskSpace:
        """Look at the disk of *path*."""
        try:
            status = os.statvfs(path)
        except OSError:
            return cls(str(path), -1.0)
        return cls(str(path), _used_ratio(status), status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def disk_used_ratio(path: Path) -> float:
    """Return used / (used + usable by us), rounded up to whole percents, 0..1; -1.0 if *path* cannot be asked."""
    return DiskSpace.of(path).ratio


def _used_ratio(status: os.statvfs_result) -> float:
    used = status.f_blocks - status.f_bfree
    entire = used + status.f_bavail
    if entire <= 0:
        return -1.0
    return -(-used * 100 // entire) / 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskVerdict:
    """What a look at the disk means: whether to clean, at once even what is not expired, and whether it is full."""

    clean: bool
    clean_at_once: bool
    full: bool


def judge_disk(commit_log_ratio: float, consume_queue_ratio: float, used_ratio_max: float) -> DiskVerdict:
    """Judge the two ratios; *used_ratio_max* is diskMaxUsedSpaceRatio / 100. An unknown ratio asks for cleaning.

    The consume queue's disk counts only if the commit log's is well; whichever is looked at last says whether it is
    full.
    """
    verdict = _judge(commit_log_ratio, used_ratio_max)
    if verdict.clean:
        return verdict
    other = _judge(consume_queue_ratio, used_ratio_max)
    return DiskVerdict(clean=other.clean, clean_at_once=verdict.clean_at_once or other.clean_at_once, full=other.full)


def _judge(ratio: float, used_ratio_max: float) -> DiskVerdict:
    return DiskVerdict(
        clean=ratio < 0 or ratio > used_ratio_max,
        clean_at_once=ratio > CLEAN_FORCIBLY_RATIO,
        full=ratio > WARNING_LEVEL_RATIO,
    )
