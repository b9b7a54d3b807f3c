"""Units of a consume queue ext file. The twin is mqcore/store/queues/ext.py."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from mqcore._fast.base.big_endian cimport load_i16, load_i64, store_fence, store_i16, store_i64
from mqcore._fast.base.layout cimport (CQ_EXT_UNIT_BITMAP_SIZE_AT, CQ_EXT_UNIT_SIZE, CQ_EXT_UNIT_STORE_TIMESTAMP_AT,
                                       CQ_EXT_UNIT_TAGS_CODE_AT, CQ_EXT_UNIT_UNIT_SIZE_AT)

from mqcore.store.queues import ext as twin


cdef void write_ext_unit(uint8_t *at, int64_t tags_code, int64_t store_timestamp, const uint8_t *bitmap,
                         int32_t bitmap_size) noexcept nogil:
    # The size last: a unit whose size is 0 is not there, should the writer die in between.
    store_i64(at + CQ_EXT_UNIT_TAGS_CODE_AT, tags_code)
    store_i64(at + CQ_EXT_UNIT_STORE_TIMESTAMP_AT, store_timestamp)
    store_i16(at + CQ_EXT_UNIT_BITMAP_SIZE_AT, <int16_t>bitmap_size)
    if bitmap_size > 0:
        memcpy(at + CQ_EXT_UNIT_SIZE, bitmap, bitmap_size)
    store_fence()
    store_i16(at + CQ_EXT_UNIT_UNIT_SIZE_AT, <int16_t>(CQ_EXT_UNIT_SIZE + bitmap_size))


cdef bint read_ext_unit(const uint8_t *at, int64_t length, ExtUnit *out) noexcept nogil:
    cdef int32_t size, bitmap_size
    if length < CQ_EXT_UNIT_SIZE:
        return False
    size = load_i16(at + CQ_EXT_UNIT_UNIT_SIZE_AT)
    bitmap_size = load_i16(at + CQ_EXT_UNIT_BITMAP_SIZE_AT)
    if bitmap_size < 0 or size != CQ_EXT_UNIT_SIZE + bitmap_size or size > length:
        return False
    out.size = size
    out.tags_code = load_i64(at + CQ_EXT_UNIT_TAGS_CODE_AT)
    out.store_timestamp = load_i64(at + CQ_EXT_UNIT_STORE_TIMESTAMP_AT)
    out.bitmap = at + CQ_EXT_UNIT_SIZE
    out.bitmap_size = bitmap_size
    return True


cdef int64_t ext_units_end(const uint8_t *base, int64_t length) noexcept nogil:
    cdef int64_t at = 0
    cdef int32_t size
    while length - at >= CQ_EXT_UNIT_SIZE:
        size = load_i16(base + at + CQ_EXT_UNIT_UNIT_SIZE_AT)
        if size < CQ_EXT_UNIT_SIZE or size > length - at:
            break
        at += size
    return at


# ------------------------------------------------------------------------------------------------- the Python side


def encode_ext_unit(int64_t tags_code, int64_t store_timestamp, bytes bitmap not None=b""):
    """Return the bytes of one ext unit. Raises ValueError for a bitmap that is too long."""
    cdef bytearray unit
    cdef uint8_t *at
    cdef int32_t size = CQ_EXT_UNIT_SIZE + <int32_t>len(bitmap)
    if len(bitmap) > twin.EXT_UNIT_SIZE_MAX - CQ_EXT_UNIT_SIZE:
        return twin.encode_ext_unit(tags_code, store_timestamp, bitmap)
    unit = bytearray(size)
    at = unit
    write_ext_unit(at, tags_code, store_timestamp, bitmap, <int32_t>len(bitmap))
    return bytes(unit)


def decode_ext_unit(const uint8_t[::1] buffer not None, Py_ssize_t position=0):
    """Return the ext unit at *position* of *buffer*; None if no whole one starts there."""
    cdef ExtUnit unit
    if not 0 <= position <= buffer.shape[0] - CQ_EXT_UNIT_SIZE:
        return None
    if not read_ext_unit(&buffer[position], buffer.shape[0] - position, &unit):
        return None
    return twin.ExtUnit(unit.tags_code, unit.store_timestamp, unit.bitmap[:unit.bitmap_size])


def ext_end(const uint8_t[::1] buffer not None):
    """Return the position in *buffer* behind the last of the ext units that follow its start."""
    return ext_units_end(&buffer[0], buffer.shape[0]) if buffer.shape[0] > 0 else 0
