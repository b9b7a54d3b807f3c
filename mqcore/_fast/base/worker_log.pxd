# What a loop without the GIL has to say. It may be said very often, so that it is written once in a while only.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct Warning:
    int64_t next_at             # coarse ms before which nothing more is written
    int64_t count               # times since the last line

# Write that *what* cannot be read at *where* because of the errno *error*, unless that was written just now.
cdef void warn_unreadable(Warning *warning, const char *what, int64_t where, int error) noexcept nogil
# Write that the connection of *peer* was closed, and for what, unless that was written just now.
cdef void warn_closed(Warning *warning, const char *peer, const char *cause, const char *detail) noexcept nogil
# Write that the client asker[0:size] has not taken an answer, and why, unless that was written just now.
cdef void warn_not_taken(Warning *warning, const uint8_t *asker, int32_t size, const char *why) noexcept nogil
