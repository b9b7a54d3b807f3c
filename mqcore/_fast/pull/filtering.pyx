"""Whether a record is wanted by the filter of a binding: its bitmap may tell, else its properties in the log do.

What has just been written is in memory, and is looked at where it is mapped. Older records are read: a mapping would
make this process wait for the disk without a word, page by page, and a bad block would end it.
"""

from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.atomics cimport monotonic_ns
from mqcore._fast.filter.program cimport FILTER_TRUE, filter_cost, filter_run
from mqcore._fast.log.mapped_file cimport bytes_at
from mqcore._fast.log.record cimport DECODE_OK, RecordView, decode_record
from mqcore._fast.pull.cold_reader cimport cold_bytes
from mqcore._fast.queues.ext cimport ExtUnit, is_ext_address
from mqcore._fast.queues.reader cimport ext_unit_at
from mqcore._fast.queues.units cimport RECORD_GONE, RECORD_LATER, RECORD_UNWANTED, RECORD_WANTED


# Whether the record's bitmap says that it does not match; it never says that it does.
cdef bint is_ruled_out(Filtering *filtering, const CqUnit *unit) noexcept nogil:
    cdef const KnownBinding *binding = filtering.binding
    cdef ExtUnit ext
    cdef int32_t number, bit
    if binding.bit_count == 0 or binding.bitmap_from < 0 or unit.physical_offset < binding.bitmap_from:
        return False
    if not is_ext_address(unit.tags_code) or not ext_unit_at(filtering.queues, filtering.queue_row, unit.tags_code,
                                                             filtering.now, &ext):
        return False
    if ext.bitmap_size * 8 != binding.bitmap_bits:
        return False
    for number in range(binding.bit_count):
        bit = binding.bits[number]
        if not ext.bitmap[bit >> 3] & (1 << (bit & 7)):
            return True
    return False


cdef const uint8_t *find_record(Filtering *filtering, const CqUnit *unit) noexcept nogil:
    cdef const uint8_t *at
    cdef int64_t available, done = 0
    if unit.physical_offset < filtering.hot_from:
        at = cold_bytes(filtering.cold, unit.physical_offset, unit.record_size, &done, &filtering.error)
        filtering.work += done // COLD_BYTES_A_UNIT
        return at
    at = bytes_at(filtering.files, unit.physical_offset, &available)
    filtering.error = filtering.files.error if at == NULL else 0
    return at if at != NULL and unit.record_size <= available else NULL


cdef inline bint is_over(const Filtering *filtering) noexcept nogil:
    if filtering.looked_at == 0:
        return False
    return filtering.work > FILTER_WORK_MAX or (
        filtering.looked_at % FILTER_LOOKS_A_CLOCK == 0 and monotonic_ns() >= filtering.until_ns)


cdef RecordVerdict filter_look(void *source, const CqUnit *unit) noexcept nogil:
    cdef Filtering *filtering = <Filtering *>source
    cdef const uint8_t *at
    cdef RecordView record
    if is_over(filtering):
        return RECORD_LATER
    filtering.looked_at += 1
    filtering.work += 1
    if is_ruled_out(filtering, unit):
        return RECORD_UNWANTED
    at = find_record(filtering, unit)
    if at == NULL and filtering.error != 0:
        return RECORD_GONE if filtering.error == ENOENT else RECORD_LATER
    if at == NULL or decode_record(at, unit.record_size, False, &record) != DECODE_OK:
        # The consumer gets the damage to see, as it would without a filter.
        return RECORD_WANTED
    filtering.work += filter_cost(&filtering.binding.filter, record.properties_size)
    if filter_run(&filtering.binding.filter, record.properties, record.properties_size) == FILTER_TRUE:
        return RECORD_WANTED
    return RECORD_UNWANTED
