# The frames of the client: send requests written in one pass, and commands written and read without a dict of fields.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.buffers cimport Buffer

# An empty buffer, with the memory of one that was handed back if there is such. Fresh memory for each batch would be
# asked of the kernel page by page, which costs several times what writing it does.
cdef void borrow(Buffer *buffer) noexcept
cdef void hand_back(Buffer *buffer) noexcept

# Room for *size* bytes, and bytes, behind what *out* holds; -1 with MemoryError set.
cdef int need(Buffer *out, int64_t size) except -1
cdef int put(Buffer *out, const void *data, int64_t size) except -1

# Put *text* as UTF-8 behind what *out* holds; lone surrogates become "?" as in the twin. The size, or -1 with an
# exception set.
cdef int64_t put_utf8_text(Buffer *out, object text) except -1

# Put the properties text of a dict of str behind what *out* holds; the size, or -1 with HeaderError or ProtocolError
# set: a separator inside, or more than PROPERTIES_SIZE_MAX bytes.
cdef int64_t put_properties(Buffer *out, dict properties) except -1
# One pair of them, with its name checked too; *is_first* is cleared, and decides about the separator in front.
cdef int put_property(Buffer *out, object name, object value, bint *is_first) except -1


cdef class SendHead:
    cdef bytes before               # the header up to the value of sys_flag
    cdef bytes after                # from behind the properties up to the opaque

    # Put the whole frame behind what *out* holds. *scratch* is emptied and used.
    cdef int put_frame(
        self, Buffer *out, Buffer *scratch, int32_t opaque, int32_t sys_flag, int64_t born_timestamp, int32_t flag,
        dict properties, const uint8_t *body, int64_t body_size
    ) except -1
