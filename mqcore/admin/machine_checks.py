"""What ``mqcore doctor`` looks at on this machine: what the kernel gives, and a directory that is to hold a store."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mqcore.admin.findings import Finding, Health
from mqcore.broker.start_failures import in_words
from mqcore.machine import memory_bytes, physical_bytes
from mqcore.store.disk import CLEAN_FORCIBLY_RATIO, WARNING_LEVEL_RATIO, DiskSpace

OPEN_FILES_MIN: Final = 65_536
MAP_COUNT_MIN: Final = 65_530
SWAPPINESS_MAX: Final = 10
MEMORY_MIN: Final = 512 << 20
SYNC_MS_MAX: Final = 20.0
SYNCS: Final = 20
BLOCK: Final = bytes(4096)

SYSCTL: Final = Path("/proc/sys")
HUGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
TIMEX_SIZE: Final = 256
"""At least as much as Linux's struct timex has; one of zeros asks and sets nothing."""

CLOCK_NOT_SYNCHRONIZED: Final = 5


def machine_findings() -> Iterator[Finding]:
    """Look at this machine."""
    yield memory(memory_bytes(), physical_bytes())
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield map_count(read_number(SYSCTL / "vm" / "max_map_count"))
    yield swappiness(read_number(SYSCTL / "vm" / "swappiness"), has_swap(Path("/proc/swaps")))
    yield huge_pages(HUGE_PAGES)
    yield clock(clock_state())


def memory(available: int, physical: int) -> Finding:
    said = f"{available >> 20} MiB" + (f", of {physical >> 20} MiB of the machine" if available < physical else "")
    if available < MEMORY_MIN:
        return Finding("memory", "here", Health.WARNING, said, f"give the container {MEMORY_MIN >> 20} MiB or more")
    return Finding("memory", "here", Health.OK, said)


def open_files(most: int) -> Finding:
    if most == resource.RLIM_INFINITY or most >= OPEN_FILES_MIN:
        return Finding("open files", "here", Health.OK, "no limit" if most == resource.RLIM_INFINITY else str(most))
    mend = f"ulimit -Hn {OPEN_FILES_MIN}, or LimitNOFILE={OPEN_FILES_MIN} in a unit: each connection needs one"
    return Finding("open files", "here", Health.WARNING, str(most), mend)


def map_count(most: int | None) -> Finding:
    if most is None or most >= MAP_COUNT_MIN:
        return Finding("vm.max_map_count", "here", Health.OK, "unknown" if most is None else str(most))
    mend = f"sysctl -w vm.max_map_count={MAP_COUNT_MIN}: files of a store are mapped"
    return Finding("vm.max_map_count", "here", Health.WARNING, str(most), mend)


def swappiness(value: int | None, is_swapping: bool) -> Finding:
    if value is None or value <= SWAPPINESS_MAX or not is_swapping:
        said = "unknown" if value is None else f"{value}" + ("" if is_swapping else ", without swap")
        return Finding("vm.swappiness", "here", Health.OK, said)
    mend = f"sysctl -w vm.swappiness={SWAPPINESS_MAX}: pages of processes should not leave for those of the log"
    return Finding("vm.swappiness", "here", Health.WARNING, str(value), mend)


def huge_pages(path: Path) -> Finding:
    """Say what holds; nothing here gets better or worse by it, as the log is mapped from files."""
    try:
        words = path.read_text().split()
    except OSError:
        words = []
    chosen = next((word.strip("[]") for word in words if word.startswith("[")), "unknown")
    return Finding("huge pages", "here", Health.OK, chosen)


def clock_state() -> int:
    """Return what adjtimex says of the clock: 0 to 4 for one that is kept right, 5 for one that nobody keeps."""
    return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_SIZE)))


def clock(state: int) -> Finding:
    if state != CLOCK_NOT_SYNCHRONIZED:
        return Finding("clock", "here", Health.OK, "synchronized")
    mend = "run an NTP client (chrony, systemd-timesyncd): times of messages, delays and leases go by this clock"
    return Finding("clock", "here", Health.WARNING, "not synchronized", mend)


def store_findings(directory: Path) -> Iterator[Finding]:
    """Look at *directory*, which is to hold a store or does; a file is made there for a moment."""
    there = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))
        yield Finding("store", str(directory), Health.ERROR, in_words(refused), "see to it before the first start")
        return
    yield space(directory, DiskSpace.of(there))
    yield syncs(directory, sync_times_ms(there))


def space(directory: Path, found: DiskSpace) -> Finding:
    said = f"{found.free >> 20} of {found.total >> 20} MiB free"
    if found.ratio > WARNING_LEVEL_RATIO:
        mend = f"make room: sends are refused above {WARNING_LEVEL_RATIO:.0%}"
        return Finding("disk space", str(directory), Health.ERROR, said, mend)
    if found.ratio > CLEAN_FORCIBLY_RATIO:
        mend = f"make room, or lower fileReservedTime: above {CLEAN_FORCIBLY_RATIO:.0%} files go before their time"
        return Finding("disk space", str(directory), Health.WARNING, said, mend)
    return Finding("disk space", str(directory), Health.OK, said)


def sync_times_ms(directory: Path) -> list[float]:
    """Return how long it takes to have a page on disk, some times in turn."""
    took = []
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".mqcore-doctor-") as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(file.fileno(), BLOCK)
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return took


def syncs(directory: Path, took_ms: list[float]) -> Finding:
    middle, worst = statistics.median(took_ms), max(took_ms)
    said = f"a sync takes {middle:.2f} ms, at most {worst:.1f} ms of {len(took_ms)}"
    if middle <= SYNC_MS_MAX:
        return Finding("disk speed", str(directory), Health.OK, said)
    mend = "take a faster disk for SYNC_FLUSH: a send waits for a sync there"
    return Finding("disk speed", str(directory), Health.WARNING, said, mend)


def read_number(path: Path) -> int | None:
    """Return the number in *path*; None if there is none."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def has_swap(table: Path) -> bool:
    """Whether the machine has some: the table has a heading, and a line for each."""
    try:
        return len(table.read_text().splitlines()) > 1
    except OSError:
        return False
