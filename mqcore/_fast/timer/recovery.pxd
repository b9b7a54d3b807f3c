# What a start makes of the files as they are.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.log.timed cimport TimedProperties
from mqcore._fast.timer.state cimport TimerState

cpdef enum TimerDamage:
    DAMAGE_NONE
    DAMAGE_WHEEL                    # it names units that the log has not: it is to be built anew from the log
    DAMAGE_LOG                      # units are missing: all is to be built anew from the timer topic

cdef enum:
    HASHES = 1 << 17                # places for topics, to count what waits for each

# Where to look. *log_first*: start of the oldest file of the timer log; *log_start*: of the one that *log_position*, of
# the last checkpoint, is in. *is_new_wheel*: it is empty, and everything comes from the log.
cdef struct Beginning:
    int64_t read_time
    int64_t log_position
    int64_t log_first
    int64_t log_start
    bint is_new_wheel

# Bring the wheel up to the log, find the end of the log, and count what waits; *last* gets the position of the last
# unit, or -1. *hashes* and *counts*: HASHES zeros each.
cdef TimerDamage scan_files(TimerState *state, const Beginning *beginning, int64_t now, int32_t *hashes,
                            int64_t *counts, int64_t *last) noexcept nogil
# Remember the copies that the commit log has from *at* on. False: no memory. Ours say of what they are copies; those of
# RocketMQ are known by topic, unique key and slot.
cdef bint find_delivered(TimerState *state, int64_t at) noexcept nogil
# Whether a message was delivered by a predecessor.
cdef bint was_delivered(const TimerState *state, int64_t physical_offset, const TimedProperties *found) noexcept nogil
# What is stored from *time* on, ms, lies behind this offset.
cdef int64_t stored_since(TimerState *state, int64_t time) noexcept nogil
# All that was ever delivered of the messages that the timer topic has lies behind this offset.
cdef int64_t first_record(TimerState *state) noexcept nogil
