"""Units of the timer log. The twin is mqcore.store.timer.log; the layout is TIMER_UNIT."""

from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.big_endian cimport load_i32, load_i64, store_fence, store_i32, store_i64
from mqcore._fast.base.layout cimport (BLANK_MAGIC, TIMER_FILLER_SIZE, TIMER_UNIT_DELAY_AT, TIMER_UNIT_DELIVER_TIME_AT,
                                       TIMER_UNIT_MAGIC_AT, TIMER_UNIT_PHYSICAL_OFFSET_AT,
                                       TIMER_UNIT_PREVIOUS_POSITION_AT, TIMER_UNIT_RECORD_SIZE_AT, TIMER_UNIT_SIZE,
                                       TIMER_UNIT_SIZE_AT, TIMER_UNIT_TOPIC_HASH_AT, TIMER_UNIT_WRITE_TIME_AT)
from mqcore._fast.log.mapped_file cimport MappedFile, bytes_at, file_made_at

cdef enum:
    MAGIC_BITS = 0xF


cdef UnitStatus read_unit(const uint8_t *at, TimerUnit *out) noexcept nogil:
    out.magic = load_i32(at + TIMER_UNIT_MAGIC_AT)
    if out.magic == BLANK_MAGIC:
        return UNIT_FILLER
    if load_i32(at + TIMER_UNIT_SIZE_AT) != TIMER_UNIT_SIZE or out.magic & ~MAGIC_BITS:
        return UNIT_NONE
    out.previous_position = load_i64(at + TIMER_UNIT_PREVIOUS_POSITION_AT)
    out.write_time = load_i64(at + TIMER_UNIT_WRITE_TIME_AT)
    out.slot_time = out.write_time + load_i32(at + TIMER_UNIT_DELAY_AT)
    out.physical_offset = load_i64(at + TIMER_UNIT_PHYSICAL_OFFSET_AT)
    out.record_size = load_i32(at + TIMER_UNIT_RECORD_SIZE_AT)
    out.topic_hash = load_i32(at + TIMER_UNIT_TOPIC_HASH_AT)
    out.deliver_time = load_i64(at + TIMER_UNIT_DELIVER_TIME_AT)
    return UNIT_OK if out.physical_offset >= 0 and out.record_size > 0 else UNIT_NONE


cdef UnitStatus unit_at(TimerLog *log, int64_t position, TimerUnit *out) noexcept nogil:
    cdef int64_t available
    cdef const uint8_t *at
    if position < 0:
        return UNIT_NONE
    at = bytes_at(log.files, position, &available)
    if at == NULL or available < TIMER_FILLER_SIZE:
        return UNIT_NONE
    if available < TIMER_UNIT_SIZE:
        return UNIT_FILLER if load_i32(at + TIMER_UNIT_MAGIC_AT) == BLANK_MAGIC else UNIT_NONE
    return read_unit(at, out)


cdef void write_unit(uint8_t *at, const TimerUnit *unit) noexcept nogil:
    store_i64(at + TIMER_UNIT_PREVIOUS_POSITION_AT, unit.previous_position)
    store_i32(at + TIMER_UNIT_MAGIC_AT, unit.magic)
    store_i64(at + TIMER_UNIT_WRITE_TIME_AT, unit.write_time)
    store_i32(at + TIMER_UNIT_DELAY_AT, <int32_t>(unit.slot_time - unit.write_time))
    store_i64(at + TIMER_UNIT_PHYSICAL_OFFSET_AT, unit.physical_offset)
    store_i32(at + TIMER_UNIT_RECORD_SIZE_AT, unit.record_size)
    store_i32(at + TIMER_UNIT_TOPIC_HASH_AT, unit.topic_hash)
    store_i64(at + TIMER_UNIT_DELIVER_TIME_AT, unit.deliver_time)
    store_fence()
    store_i32(at + TIMER_UNIT_SIZE_AT, TIMER_UNIT_SIZE)


cdef int64_t append_unit(TimerLog *log, const TimerUnit *unit) noexcept nogil:
    cdef int64_t position = log.end
    cdef int64_t rest = log.file_size - position % log.file_size
    cdef MappedFile *file = file_made_at(log.files, position)
    cdef uint8_t *at
    if file == NULL:
        return -EIO if log.files.error == 0 else -log.files.error
    at = file.base + (position - file.start)
    if rest < TIMER_UNIT_SIZE + TIMER_FILLER_SIZE:
        # The next file first: without it a filler would be the end of what a start finds.
        if file_made_at(log.files, position + rest) == NULL:
            return -EIO if log.files.error == 0 else -log.files.error
        file = file_made_at(log.files, position)
        if file == NULL:
            return -EIO if log.files.error == 0 else -log.files.error
        at = file.base + (position - file.start)
        store_i32(at, <int32_t>rest)
        store_i64(at + 4, 0)
        store_i32(at + TIMER_UNIT_MAGIC_AT, BLANK_MAGIC)
        log.end = position + rest
        return append_unit(log, unit)
    write_unit(at, unit)
    log.end = position + TIMER_UNIT_SIZE
    return position


def decode(const uint8_t[::1] data not None, Py_ssize_t position=0):
    """The unit at data[position:], as mqcore.store.timer.log.decode gives it."""
    cdef TimerUnit unit
    if data.shape[0] - position < TIMER_UNIT_SIZE or position < 0:
        return None
    if read_unit(&data[position], &unit) != UNIT_OK:
        return None
    return (unit.previous_position, unit.magic, unit.slot_time, unit.write_time, unit.physical_offset,
            unit.record_size, unit.topic_hash, unit.deliver_time)


def encode(int64_t previous_position, int32_t magic, int64_t slot_time, int64_t write_time, int64_t physical_offset,
           int32_t record_size, int32_t topic_hash, int64_t deliver_time):
    """The bytes of a unit."""
    cdef uint8_t out[TIMER_UNIT_SIZE]
    cdef TimerUnit unit
    unit.previous_position = previous_position
    unit.magic = magic
    unit.slot_time = slot_time
    unit.write_time = write_time
    unit.physical_offset = physical_offset
    unit.record_size = record_size
    unit.topic_hash = topic_hash
    unit.deliver_time = deliver_time
    write_unit(out, &unit)
    return out[:TIMER_UNIT_SIZE]
