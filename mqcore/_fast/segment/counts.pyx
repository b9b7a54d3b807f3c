"""What the workers have counted in rows of the shared segment: how much since the last look, where anything was.

Statistics look every few seconds at tables of up to a million rows, of which few have moved. Only those get objects.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from mqcore._fast.base.atomics cimport observe_i32, peek
from mqcore._fast.segment.boards cimport Shared, SharedSegment

cdef enum:
    PUT_VALUES = 2      # messages, bytes
    GET_VALUES = 3      # messages, bytes, pulls


# What was taken of a table's rows, `width` values a row.
cdef struct Taken:
    int64_t *values
    int64_t rows
    int32_t width


cdef int make_room(Taken *taken, int64_t rows) except -1:
    cdef int64_t *values
    if rows > taken.rows:
        values = <int64_t *>realloc(taken.values, rows * taken.width * sizeof(int64_t))
        if values == NULL:
            raise MemoryError()
        memset(values + taken.rows * taken.width, 0, (rows - taken.rows) * taken.width * sizeof(int64_t))
        taken.values = values
        taken.rows = rows
    return 0


cdef inline void read_put(const Shared *shared, int64_t row, int64_t *out) noexcept nogil:
    out[0] = peek(&shared.topics[row].put_nums)
    out[1] = peek(&shared.topics[row].put_bytes)


cdef inline void read_get(const Shared *shared, int64_t row, int64_t *out) noexcept nogil:
    out[0] = peek(&shared.offsets[row].get_nums)
    out[1] = peek(&shared.offsets[row].get_bytes)
    out[2] = peek(&shared.offsets[row].pulls)


# How many of the rows 0 to count - 1 have moved since they were taken.
cdef int64_t moved(const Shared *shared, const Taken *taken, int64_t count) noexcept nogil:
    cdef int64_t row, found = 0
    cdef int64_t now[GET_VALUES]
    for row in range(count):
        if taken.width == PUT_VALUES:
            read_put(shared, row, now)
        else:
            read_get(shared, row, now)
        found += now[0] != taken.values[row * taken.width]
    return found


# Take up to room rows that have moved: their numbers, and by how much each of their values; how many were taken.
cdef int64_t take(const Shared *shared, Taken *taken, int64_t count, int64_t room, int32_t *rows,
                  int64_t *values) noexcept nogil:
    cdef int64_t row, found = 0
    cdef int32_t value
    cdef int64_t *before
    cdef int64_t now[GET_VALUES]
    for row in range(count):
        if found == room:
            break
        before = taken.values + row * taken.width
        if taken.width == PUT_VALUES:
            read_put(shared, row, now)
        else:
            read_get(shared, row, now)
        if now[0] == before[0]:
            continue
        rows[found] = <int32_t>row
        for value in range(taken.width):
            values[found * taken.width + value] = now[value] - before[value]
            before[value] = now[value]
        found += 1
    return found


cdef class CountTaker:
    """Takes the counts of one segment. A row is looked at when its first value, of messages, has moved."""

    cdef SharedSegment segment
    cdef Taken puts
    cdef Taken gets

    def __cinit__(self, SharedSegment segment not None):
        self.segment = segment
        self.puts.width = PUT_VALUES
        self.gets.width = GET_VALUES

    def __dealloc__(self):
        free(self.puts.values)
        free(self.gets.values)

    def take_puts(self):
        """Return the topic rows (format i) that grew since the last call; messages and bytes for each (format q)."""
        return self._take(&self.puts, observe_i32(&self.segment.shared.board.topic_rows))

    def take_gets(self):
        """Return the offset rows that grew since the last call, and for each messages, bytes and pulls."""
        return self._take(&self.gets, observe_i32(&self.segment.shared.board.offset_rows))

    cdef _take(self, Taken *taken, int64_t count):
        cdef const Shared *shared = &self.segment.shared
        cdef int64_t room
        make_room(taken, count)
        with nogil:
            room = moved(shared, taken, count)
        # What moves from here on is for the next call, or comes along if there is room.
        rows, values = bytearray(4 * room), bytearray(8 * taken.width * room)
        cdef int32_t *row_at = <int32_t *><char *>rows
        cdef int64_t *value_at = <int64_t *><char *>values
        with nogil:
            room = take(shared, taken, count, room, row_at, value_at)
        return memoryview(rows)[:4 * room].cast("i"), memoryview(values)[:8 * taken.width * room].cast("q")
