"""Units of a consume queue, and the choice of the units that answer one pull.

The twin is mqcore/store/queues/units.py. To look through 800 units takes 4 us; the twin takes 640 us.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from mqcore._fast.base.big_endian cimport load_i32, load_i64, store_fence, store_i32, store_i64
from mqcore._fast.base.layout cimport (CQ_UNIT_PHYSICAL_OFFSET_AT, CQ_UNIT_RECORD_SIZE_AT, CQ_UNIT_SIZE,
                                       CQ_UNIT_TAGS_CODE_AT)
from mqcore._fast.queues.ext cimport ExtSource, ExtUnit, ext_offset, is_ext_address, read_ext_unit

from mqcore.store.queues import units as twin


cdef void write_unit(uint8_t *at, int64_t physical_offset, int32_t record_size, int64_t tags_code) noexcept nogil:
    # The size last: a unit whose size is 0 is not there, should the writer die in between.
    store_i64(at + CQ_UNIT_PHYSICAL_OFFSET_AT, physical_offset)
    store_i64(at + CQ_UNIT_TAGS_CODE_AT, tags_code)
    store_fence()
    store_i32(at + CQ_UNIT_RECORD_SIZE_AT, record_size)


cdef void read_unit(const uint8_t *at, CqUnit *out) noexcept nogil:
    out.physical_offset = load_i64(at + CQ_UNIT_PHYSICAL_OFFSET_AT)
    out.record_size = load_i32(at + CQ_UNIT_RECORD_SIZE_AT)
    out.tags_code = load_i64(at + CQ_UNIT_TAGS_CODE_AT)


cdef Py_ssize_t count_valid_units(const uint8_t *units, Py_ssize_t unit_count) noexcept nogil:
    cdef Py_ssize_t index
    cdef const uint8_t *at = units
    for index in range(unit_count):
        if load_i64(at + CQ_UNIT_PHYSICAL_OFFSET_AT) < 0 or load_i32(at + CQ_UNIT_RECORD_SIZE_AT) <= 0:
            return index
        at += CQ_UNIT_SIZE
    return unit_count


cdef bint is_wanted(
    int64_t tags_code, const int32_t *tag_codes, int32_t tag_code_count, const ExtSource *ext
) noexcept nogil:
    cdef int32_t code
    cdef int32_t low = 0, high = tag_code_count, middle
    if tag_code_count == 0:
        return True
    # What cannot be read hides no message: the consumer compares the tags themselves anyway.
    if is_ext_address(tags_code) and not ext.look_up(ext.source, tags_code, &tags_code):
        return True
    code = <int32_t>tags_code
    while low < high:
        middle = low + (high - low) // 2
        if tag_codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low < tag_code_count and tag_codes[low] == code


cdef bint is_full(const ScanLimits *limits, const ScanResult *out, int32_t size, bint on_disk) noexcept nogil:
    if out.range_count == 0:        # one message always passes, whatever its size
        return False
    if out.range_count >= limits.count_max:
        return True
    if on_disk:
        return (out.bytes_total + size > limits.bytes_on_disk_max
                or out.range_count >= limits.count_on_disk_max)
    return (out.bytes_total + size > limits.bytes_in_memory_max
            or out.range_count >= limits.count_in_memory_max)


cdef int scan_units(
    const uint8_t *units, Py_ssize_t unit_count, const ScanLimits *limits,
    const int32_t *tag_codes, int32_t tag_code_count, const ExtSource *ext, const RecordFilter *records,
    RecordRange *ranges, int32_t range_capacity, ScanResult *out
) noexcept nogil:
    cdef Py_ssize_t examined_max = max(limits.units_max, limits.count_max)
    cdef Py_ssize_t index
    cdef int64_t skip_below = 0     # records below were in a file that is gone
    cdef RecordVerdict verdict
    cdef CqUnit unit
    out.units_examined = 0
    out.range_count = 0
    out.bytes_total = 0
    out.physical_offset_last = -1
    out.flags = 0
    for index in range(min(unit_count, examined_max)):
        read_unit(units + index * CQ_UNIT_SIZE, &unit)
        out.physical_offset_last = unit.physical_offset
        if unit.physical_offset >= skip_below:
            if out.range_count >= range_capacity or is_full(
                    limits, out, unit.record_size, is_on_disk(unit.physical_offset, limits)):
                out.flags |= SCAN_FULL
                break
            if is_wanted(unit.tags_code, tag_codes, tag_code_count, ext):
                if not is_readable(&unit, limits):
                    verdict = RECORD_GONE
                elif records == NULL:
                    verdict = RECORD_WANTED
                else:
                    verdict = records.look(records.source, &unit)
                if verdict == RECORD_WANTED:
                    ranges[out.range_count].physical_offset = unit.physical_offset
                    ranges[out.range_count].size = unit.record_size
                    out.range_count += 1
                    out.bytes_total += unit.record_size
                    skip_below = 0
                elif verdict == RECORD_LATER:
                    break
                elif verdict == RECORD_GONE:
                    out.flags |= SCAN_REMOVING
                    skip_below = next_file_start(unit.physical_offset, limits.commit_log_file_size)
        out.units_examined += 1
    if out.range_count > 0:
        out.flags = (out.flags | SCAN_FOUND) & ~SCAN_REMOVING
    if out.physical_offset_last >= 0 and is_on_disk(out.physical_offset_last, limits):
        out.flags |= SCAN_SUGGEST_SLAVE
    return out.range_count


# Written so that no offset, however wrong, overflows.
cdef inline bint is_on_disk(int64_t physical_offset, const ScanLimits *limits) noexcept nogil:
    return physical_offset < limits.commit_log_max - limits.in_memory_bytes_max


cdef inline bint is_readable(const CqUnit *unit, const ScanLimits *limits) noexcept nogil:
    return (unit.record_size > 0 and unit.physical_offset >= limits.commit_log_min
            and unit.physical_offset <= limits.commit_log_max - unit.record_size)


@cython.cdivision(True)             # both are positive when it comes to dividing
cdef inline int64_t next_file_start(int64_t physical_offset, int64_t file_size) noexcept nogil:
    if physical_offset < 0 or file_size <= 0 or physical_offset > (<int64_t>1 << 62):
        return 0                    # a unit that cannot be: skip it alone
    return physical_offset - physical_offset % file_size + file_size


# ------------------------------------------------------------------------------------------------- the Python side


def encode_unit(int64_t physical_offset, int32_t record_size, int64_t tags_code):
    """Return the 20 bytes of one unit."""
    cdef uint8_t[CQ_UNIT_SIZE] out
    write_unit(out, physical_offset, record_size, tags_code)
    return (<const uint8_t *>out)[:CQ_UNIT_SIZE]


def decode_unit(const uint8_t[::1] buffer not None, Py_ssize_t index=0):
    """Return unit number *index* of *buffer* as (physical_offset, record_size, tags_code)."""
    cdef CqUnit unit
    if not 0 <= index < buffer.shape[0] // CQ_UNIT_SIZE:
        raise IndexError(f"unit {index} of {buffer.shape[0] // CQ_UNIT_SIZE}")
    read_unit(&buffer[index * CQ_UNIT_SIZE], &unit)
    return twin.Unit(unit.physical_offset, unit.record_size, unit.tags_code)


def valid_units(const uint8_t[::1] buffer not None):
    """Return how many whole units at the start of *buffer* are written."""
    cdef Py_ssize_t count = buffer.shape[0] // CQ_UNIT_SIZE
    return count_valid_units(&buffer[0], count) if count > 0 else 0


cdef struct ExtView:                # one ext file
    const uint8_t *base
    int64_t size
    int64_t start


cdef bint look_up_in_view(void *source, int64_t address, int64_t *tags_code) noexcept nogil:
    cdef const ExtView *view = <const ExtView *>source
    cdef int64_t position = ext_offset(address) - view.start
    cdef ExtUnit unit
    if not 0 <= position < view.size or not read_ext_unit(view.base + position, view.size - position, &unit):
        return False
    tags_code[0] = unit.tags_code
    return True


def choose(const uint8_t[::1] units not None, limits, tag_codes=(), const uint8_t[::1] ext not None=b"",
           int64_t ext_start=0):
    """Choose from *units*, a run of one consume queue, what answers one pull; see the twin."""
    cdef ExtView view
    cdef ExtSource source
    cdef ScanLimits bounds
    cdef ScanResult result
    cdef Py_ssize_t unit_count = units.shape[0] // CQ_UNIT_SIZE
    cdef int32_t capacity = max(1, limits.count_max)
    cdef int32_t code_count = len(tag_codes), index
    cdef RecordRange *ranges = NULL
    cdef int32_t *codes = NULL
    if unit_count == 0:
        return twin.NOTHING
    view.base = &ext[0] if ext.shape[0] > 0 else NULL
    view.size = ext.shape[0]
    view.start = ext_start
    source.look_up = look_up_in_view
    source.source = &view
    bounds.count_max = limits.count_max
    bounds.units_max = SCAN_UNITS_MIN
    bounds.bytes_in_memory_max = limits.bytes_in_memory_max
    bounds.count_in_memory_max = limits.count_in_memory_max
    bounds.bytes_on_disk_max = limits.bytes_on_disk_max
    bounds.count_on_disk_max = limits.count_on_disk_max
    bounds.in_memory_bytes_max = limits.in_memory_bytes_max
    bounds.commit_log_min = limits.commit_log_min
    bounds.commit_log_max = limits.commit_log_max
    bounds.commit_log_file_size = limits.commit_log_file_size
    ranges = <RecordRange *>malloc(capacity * sizeof(RecordRange))
    codes = <int32_t *>malloc(max(1, code_count) * sizeof(int32_t))
    try:
        if ranges == NULL or codes == NULL:
            raise MemoryError
        for index, code in enumerate(sorted(tag_codes)):
            codes[index] = code
        scan_units(&units[0], unit_count, &bounds, codes, code_count, &source, NULL, ranges, capacity, &result)
        chosen = tuple([(ranges[index].physical_offset, ranges[index].size) for index in range(result.range_count)])
    finally:
        free(ranges)
        free(codes)
    return twin.Choice(
        ranges=chosen, units_examined=result.units_examined, bytes_total=result.bytes_total,
        physical_offset_last=result.physical_offset_last, flags=twin.ScanFlag(result.flags),
    )
