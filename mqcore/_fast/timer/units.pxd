# The timer log: a unit for each message that waits, in the order in which they came, chained by slot.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.log.mapped_file cimport FileSet

cdef struct TimerUnit:
    int64_t previous_position
    int32_t magic                   # TimerMagic
    int64_t slot_time               # ms; on disk as the difference to write_time
    int64_t write_time
    int64_t physical_offset
    int32_t record_size
    int32_t topic_hash
    int64_t deliver_time            # 0 = RocketMQ wrote it

cdef enum UnitStatus:
    UNIT_OK
    UNIT_FILLER                     # the next unit is at the start of the next file
    UNIT_NONE                       # nothing, or nothing that can be one

cdef struct TimerLog:
    FileSet *files
    int64_t file_size
    int64_t end                     # bytes

cdef UnitStatus read_unit(const uint8_t *at, TimerUnit *out) noexcept nogil
# The unit at *position*; UNIT_NONE if its file cannot be read.
cdef UnitStatus unit_at(TimerLog *log, int64_t position, TimerUnit *out) noexcept nogil
# Append it; its position, or -errno. What is killed in it leaves no unit.
cdef int64_t append_unit(TimerLog *log, const TimerUnit *unit) noexcept nogil
