"""What op messages say: the queue offsets of half messages that are done with, read where they lie in the log.

There are as many op messages as transactions, so no object is made of one; the twin of what a body says is
mqcore/store/queues/op_numbers.py.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from mqcore._fast.log.mapped_file cimport FileSet, files_close, files_open, files_release, files_rest, files_trim
from mqcore._fast.log.republish cimport StoredRecord, stored_close, stored_open

cdef enum:
    DIGITS_MAX = 18                 # more are no offset


cdef int64_t take_numbers(const uint8_t *body, int64_t size, int64_t *out, int64_t capacity) noexcept nogil:
    # The numbers of a body, how many they are; -1 if there is no room for them. One that has a 0 in front is written as
    # its complement; what is no number is passed over.
    cdef int64_t at = 0, start, value, count = 0
    while at < size:
        start = at
        value = 0
        while at < size and c"0" <= body[at] <= c"9" and at - start <= DIGITS_MAX:
            value = value * 10 + (body[at] - c"0")
            at += 1
        if at > start and at - start <= DIGITS_MAX and (at == size or body[at] == c","):
            if count == capacity:
                return -1
            out[count] = ~value if body[start] == c"0" and at - start > 1 else value
            count += 1
        while at < size and body[at] != c",":
            at += 1
        at += 1
    return count


def numbers_of(const uint8_t[::1] body not None):
    """The numbers of one body, as ``read`` writes them."""
    cdef int64_t size = body.shape[0]
    cdef int64_t count
    cdef int64_t *found = <int64_t *>malloc((size + 1) * sizeof(int64_t))
    if found == NULL:
        raise MemoryError()
    try:
        count = take_numbers(&body[0], size, found, size) if size > 0 else 0
        return [found[index] for index in range(count)]
    finally:
        free(found)


cdef class OpNumbers:
    """Reads the bodies of op messages in a commit log. One object belongs to one thread at a time.

    *places*: the directory of the commit log, or a LogPlaces.
    """

    cdef FileSet *files

    def __cinit__(self, places not None, int64_t file_size):
        self.files = <FileSet *>malloc(sizeof(FileSet))
        if self.files == NULL:
            raise MemoryError()
        memset(self.files, 0, sizeof(FileSet))
        files_open(self.files, places, file_size, False)

    def __dealloc__(self):
        if self.files != NULL:
            files_close(self.files)
            free(self.files)

    def read(self, const int64_t[::1] offsets not None, int64_t end, int64_t[::1] out not None):
        """Write the numbers of the messages at *offsets* to *out*.

        Returns how many messages were read, how many numbers, and the bytes of the records that say of an end.

        A number with a 0 in front comes as its complement. A message that is not there, or does not end before *end*,
        has none. Fewer messages are read if *out* has no room for more. May wait for the disk; lets other threads run.
        """
        cdef int64_t index = 0, count = offsets.shape[0], capacity = out.shape[0], written = 0, size = 0, taken
        cdef int64_t *room = &out[0] if capacity > 0 else NULL
        cdef StoredRecord stored
        with nogil:
            while index < count:
                if stored_open(self.files, offsets[index], end, &stored):
                    taken = take_numbers(stored.view.body, stored.view.body_size, room + written, capacity - written)
                    stored_close(&stored)
                    if taken < 0:
                        break
                    if taken > 0 and room[written] >= 0:
                        size += stored.view.total_size
                    written += taken
                index += 1
        return index, written, size

    def rest(self, int64_t kept, int64_t cold):
        """Let go of files before *kept* and of pages before *cold*."""
        files_trim(self.files, kept)
        files_rest(self.files)
        files_release(self.files, cold)
