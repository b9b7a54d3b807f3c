"""How far the timers have come: RocketMQ's ``config/timercheck``, and beside it ``mqcore/timers``.

Both may say too little, never too much: what was done since is found in the timer log and in the commit log. Ours has
the place from which the commit log is to be read for that. It is written first and keeps the state before its newest,
so that one of the two fits ``timercheck`` at any time; if none does, RocketMQ has been there, and nobody knows what was
delivered since. Source: RocketMQ store/timer/TimerCheckpoint.java.
"""

from __future__ import annotations

import logging
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqcore import clock
from mqcore.files import make_directory, sync_directory, write_atomically
from mqcore.layout import TIMER_CHECK, TIMER_STATE
from mqcore.store.codec import crc32

logger = logging.getLogger(__name__)

FILE_SIZE: Final = 4096
UNKNOWN: Final = -1
FROM_THE_FIRST: Final = -2
_CRC: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class TimerCheck:
    """The content of ``timercheck``; times ms, positions bytes."""

    read_time: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0

    def encode(self) -> bytes:
        """The 56 bytes that stand in the file, and in the answer to GET_TIMER_CHECK_POINT."""
        return TIMER_CHECK.struct.pack(
            self.read_time, self.log_position, self.queue_offset, self.master_queue_offset, self.state_version,
            self.version_timestamp, self.version_counter,
        )  # fmt: skip

    @classmethod
    def read(cls, path: Path) -> TimerCheck:
        """What the file says; zeros if it is missing or cut short."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        if len(data) < TIMER_CHECK.size:
            logger.warning("timercheck cut short path=%s size=%d", path, len(data))
            return cls()
        return cls(*TIMER_CHECK.struct.unpack_from(data))

    def write(self, path: Path) -> None:
        """Write it in place, durably: it lies within one sector."""
        is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size < FILE_SIZE:
                os.ftruncate(descriptor, FILE_SIZE)
            os.pwrite(descriptor, self.encode(), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            sync_directory(path.parent)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a start goes on: the first three as in ``timercheck``; *scan_offset* -1 = nobody knows.

    -2 = there is no checkpoint, as of a slave that has become a master: what is in the log tells what was delivered.
    """

    read_time: int = 0
    log_position: int = 0
    queue_offset: int = 0
    scan_offset: int = UNKNOWN

    def fits(self, check: TimerCheck) -> bool:
        """Whether this is the state that *check* is of."""
        return (self.read_time, self.log_position, self.queue_offset) == (
            check.read_time, check.log_position, check.queue_offset,
        )  # fmt: skip


def write_states(path: Path, before: ResumePoint, newest: ResumePoint) -> None:
    """Write both states, durably."""
    text = b"".join(
        TIMER_STATE.struct.pack(state.read_time, state.log_position, state.queue_offset, state.scan_offset)
        for state in (before, newest)
    )
    make_directory(path.parent)
    write_atomically(path, _CRC.pack(_signed(crc32(text))) + text, keep_backup=False)


def write_checkpoint(states_path: Path, check_path: Path, before: ResumePoint, newest: ResumePoint) -> None:
    """Let a start go on from *newest*, durably; *before* is what it would go on from now."""
    write_states(states_path, before, newest)
    version = TimerCheck.read(check_path)
    TimerCheck(
        newest.read_time, newest.log_position, newest.queue_offset, newest.queue_offset, version.state_version,
        clock.now_ms(), version.version_counter + 1,
    ).write(check_path)  # fmt: skip


def read_states(path: Path) -> tuple[ResumePoint, ...]:
    """The states of the file, the newest last; none if it is missing or damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ()
    text = data[_CRC.size :]
    if len(text) != 2 * TIMER_STATE.size or _CRC.unpack_from(data)[0] != _signed(crc32(text)):
        logger.warning("what was delivered since the last checkpoint is not known, file damaged path=%s", path)
        return ()
    return tuple(ResumePoint(*TIMER_STATE.struct.unpack_from(text, at)) for at in (0, TIMER_STATE.size))


def starting_state(check: TimerCheck, states: tuple[ResumePoint, ...]) -> ResumePoint:
    """The state from which a start goes on."""
    for state in reversed(states):
        if state.fits(check):
            return state
    if check == TimerCheck():
        return ResumePoint(scan_offset=FROM_THE_FIRST)
    return ResumePoint(check.read_time, check.log_position, check.queue_offset)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
