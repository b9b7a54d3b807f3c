"""The timer worker's files at its start: taken over as they are, or built anew where they do not hold together.

The wheel follows from the timer log, and the timer log from the timer topic, whose messages retention keeps while they
wait. So a wheel that is missing, or that names units which the log has not, is built anew from the log, and a log that
lacks units from the topic; what was delivered of that is found in the commit log. A wheel gets its name when it is
whole: who dies over it begins again.
"""

from __future__ import annotations

import logging
import mmap

from mqcore._fast.timer.loop import TimerLoop
from mqcore._fast.timer.recovery import TimerDamage
from mqcore.config import SettingValues
from mqcore.files import delete_file, make_directory, sync_directory, sync_file
from mqcore.store.paths import StorePaths, file_name
from mqcore.store.timer.checkpoint import (
    FROM_THE_FIRST,
    UNKNOWN,
    ResumePoint,
    TimerCheck,
    read_states,
    starting_state,
    write_checkpoint,
)
from mqcore.store.timer.log import file_starts
from mqcore.store.timer.wheel import map_wheel

logger = logging.getLogger(__name__)


class TimerFiles:
    """Wheel, timer log and checkpoint of one store; *state* is the last checkpoint."""

    def __init__(self, settings: SettingValues) -> None:
        store = settings.store
        self._paths = StorePaths.of(store)
        self._log_file_size = store.mapped_file_size_timer_log
        self._wheel_in_making = self._paths.timer_wheel.with_name(self._paths.timer_wheel.name + ".making")
        make_directory(self._paths.timer_log)
        self._is_new_wheel = not self._paths.timer_wheel.exists()
        self.state = starting_state(TimerCheck.read(self._paths.timer_check), read_states(self._paths.timers))
        self._map = self._make_wheel() if self._is_new_wheel else map_wheel(self._paths.timer_wheel, make=True)

    @property
    def wheel(self) -> memoryview:
        return memoryview(self._map)

    def take_over(self, loop: TimerLoop) -> int:
        """Let *loop* begin with what is there, built anew where that must be; how many deliveries it has found."""
        damage = self._scan(loop)
        if damage == TimerDamage.DAMAGE_WHEEL:
            logger.error("the timer wheel names units that the timer log has not, building it anew from the log")
            self._replace_wheel(loop)
            damage = self._scan(loop)
        if damage != TimerDamage.DAMAGE_NONE:
            self._mend_log(loop)
        if self._is_new_wheel:
            self._finish_wheel()
        return loop.begin(self.state.queue_offset, self.state.scan_offset)

    def _scan(self, loop: TimerLoop) -> TimerDamage:
        state, size = self.state, self._log_file_size
        starts = file_starts(self._paths.timer_log, size)
        first = starts[0] if starts else _round_up(state.log_position, size)
        known = [start for start in starts if start <= state.log_position]
        damage = loop.scan(
            state.read_time, state.log_position, first, known[-1] if known else first, self._is_new_wheel
        )
        is_missing = state.log_position > 0 and not known
        return TimerDamage.DAMAGE_LOG if is_missing and damage == TimerDamage.DAMAGE_NONE else damage

    def _mend_log(self, loop: TimerLoop) -> None:
        if self.state.scan_offset == UNKNOWN:
            # Everything that RocketMQ has delivered would come again; it goes on without these as well.
            logger.error("the timer log of RocketMQ's broker lacks units, some messages that wait may be lost")
            return
        logger.error("the timer log lacks units, building it anew from the timer topic")
        self._start_over()
        self._replace_wheel(loop)
        self._scan(loop)

    def _start_over(self) -> None:
        """Leave nothing of the timer log. The checkpoint first: who dies in between finds less than it says."""
        starts = file_starts(self._paths.timer_log, self._log_file_size)
        end = max([self.state.log_position, *(start + 1 for start in starts)])
        before = self.state
        self.state = ResumePoint(before.read_time, _round_up(end, self._log_file_size), 0, FROM_THE_FIRST)
        write_checkpoint(self._paths.timers, self._paths.timer_check, before, self.state)
        for start in reversed(starts):
            delete_file(self._paths.timer_log / file_name(start))
        sync_directory(self._paths.timer_log)

    # The wheel.

    def _make_wheel(self) -> mmap.mmap:
        self._wheel_in_making.unlink(missing_ok=True)
        return map_wheel(self._wheel_in_making, make=True)

    def _replace_wheel(self, loop: TimerLoop) -> None:
        self._paths.timer_wheel.unlink(missing_ok=True)
        sync_directory(self._paths.timer_wheel.parent)
        self._is_new_wheel = True
        self._map = self._make_wheel()
        loop.take_wheel(self.wheel)

    def _finish_wheel(self) -> None:
        self._map.flush()
        sync_file(self._wheel_in_making)
        self._wheel_in_making.rename(self._paths.timer_wheel)
        sync_directory(self._paths.timer_wheel.parent)
        self._is_new_wheel = False


def _round_up(position: int, size: int) -> int:
    return -(-position // size) * size
