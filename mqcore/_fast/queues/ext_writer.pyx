"""The newest consume queue ext file of one queue, being written. The twin is mqcore/store/queues/ext_writer.py."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.big_endian cimport store_i16
from mqcore._fast.base.layout cimport CQ_EXT_UNIT_SIZE, EXT_FILE_END_MIN_BLANK_SIZE, EXT_FILE_FULL
from mqcore._fast.queues.ext cimport (ExtUnit, ext_address, ext_offset, ext_units_end, is_ext_address, read_ext_unit,
                                      write_ext_unit)
from mqcore._fast.queues.newest_file cimport find_file, make_file, map_file, reserve_file, resume_file


cdef bint load_ext(ExtWriter *ext, const QueuePlace *place, int64_t known, FileFailure *failure) noexcept nogil:
    cdef NewestFile *file = &ext.file
    if not find_file(file, place, failure):
        return False
    if file.file_start >= 0:
        if not map_file(file, place, failure):
            return False
        resume_file(file, place, max(ext_units_end(file.map, place.file_size), end_of_known(file, place, known)))
    ext.loaded = True
    return True


# Where the ext unit that the queue's newest unit names ends, if it lies in the newest file; else 0.
cdef int64_t end_of_known(const NewestFile *file, const QueuePlace *place, int64_t known) noexcept nogil:
    cdef int64_t position
    cdef ExtUnit unit
    if not is_ext_address(known):
        return 0
    position = ext_offset(known) - file.file_start
    if not 0 <= position <= place.file_size - CQ_EXT_UNIT_SIZE:
        return 0
    if not read_ext_unit(file.map + position, place.file_size - position, &unit):
        return position + CQ_EXT_UNIT_SIZE
    return position + unit.size


# See that the newest file is mapped and has room for a unit of *size* bytes and the rest that must stay behind it.
cdef bint open_ext(NewestFile *file, const QueuePlace *place, int32_t size, FileFailure *failure) noexcept nogil:
    if file.file_start < 0:
        return make_file(file, place, 0, failure) and map_file(file, place, failure)
    if file.map == NULL and not map_file(file, place, failure):
        return False
    if size <= place.file_size - file.wrote - EXT_FILE_END_MIN_BLANK_SIZE:
        return True
    if place.file_size - file.wrote >= EXT_FILE_END_MIN_BLANK_SIZE:
        store_i16(file.map + file.wrote, EXT_FILE_FULL)
    return make_file(file, place, file.file_start + place.file_size, failure) and map_file(file, place, failure)


cdef bint ext_append(
    ExtWriter *ext, const QueuePlace *place, int64_t known, int64_t tags_code, int64_t store_timestamp,
    const uint8_t *bitmap, int32_t bitmap_size, int64_t *address, FileFailure *failure
) noexcept nogil:
    cdef NewestFile *file = &ext.file
    cdef int32_t size
    if CQ_EXT_UNIT_SIZE + bitmap_size > place.file_size - EXT_FILE_END_MIN_BLANK_SIZE:
        bitmap_size = 0             # no file would have room for it
    size = CQ_EXT_UNIT_SIZE + bitmap_size
    if not ext.loaded and not load_ext(ext, place, known, failure):
        return False
    if not open_ext(file, place, size, failure):
        return False
    if file.wrote + size > file.reserved and not reserve_file(file, place, failure):
        return False
    write_ext_unit(file.map + file.wrote, tags_code, store_timestamp, bitmap, bitmap_size)
    address[0] = ext_address(file.file_start + file.wrote)
    file.wrote += size
    return True
