"""The entries of one index file, followed in order; the twin is mqcore/store/queues/index_tally.py."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from mqcore._fast.base.big_endian cimport load_i32, load_i64
from mqcore._fast.base.hashing cimport hash_mix, hash_word
from mqcore._fast.base.layout cimport (INDEX_ENTRY_KEY_HASH_AT, INDEX_ENTRY_PHYSICAL_OFFSET_AT,
                                       INDEX_ENTRY_PREVIOUS_ENTRY_AT, INDEX_ENTRY_SECONDS_SINCE_BEGIN_AT,
                                       INDEX_ENTRY_SIZE, INDEX_SLOT_SIZE)

from mqcore.store.queues import index_tally as twin


cdef enum:
    BREAKS_MAX = 64
    RUNS_MAX = 1024
    SUMS_FIRST = 64

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF

cdef struct Chain:
    int64_t number
    int64_t got
    int64_t wanted

cdef struct Ascent:
    int64_t first
    int64_t first_physical
    int64_t last_physical

cdef struct FileSum:
    int64_t file
    int64_t count
    uint64_t total

assert (BREAKS_MAX, RUNS_MAX) == (twin.BREAKS_MAX, twin.RUNS_MAX)


cdef class IndexTally:
    """Takes the entries of one file in order; see the twin."""

    cdef int32_t *newest
    cdef int64_t slot_count
    cdef int64_t bounds[2]
    cdef int64_t log_first
    cdef int64_t log_file_size
    cdef int64_t log_start
    cdef int64_t log_end
    cdef int64_t next_entry
    cdef Chain broken[BREAKS_MAX]
    cdef Ascent found[RUNS_MAX]
    cdef int64_t last_physical
    cdef FileSum *files
    cdef int64_t file_count
    cdef int64_t file_capacity
    cdef readonly int64_t break_count
    cdef readonly int64_t run_count

    def __init__(self, int64_t slot_count, bounds, int64_t log_first, int64_t log_file_size, int64_t log_start,
                 int64_t log_end):
        if slot_count < 1 or log_file_size < 1:
            raise ValueError(f"index: got {slot_count} slots and log files of {log_file_size} bytes")
        if self.newest != NULL:
            raise TypeError("a tally is made once")
        self.newest = <int32_t *>calloc(slot_count, sizeof(int32_t))
        if self.newest == NULL:
            raise MemoryError
        self.slot_count = slot_count
        self.bounds[0], self.bounds[1] = bounds
        self.log_first = log_first
        self.log_file_size = log_file_size
        self.log_start = log_start
        self.log_end = log_end
        self.next_entry = 1

    def __dealloc__(self):
        free(self.newest)
        free(self.files)

    def feed(self, const uint8_t[::1] buffer not None):
        """Take the entries in *buffer*, which follow those that were taken before."""
        cdef Py_ssize_t count = buffer.shape[0] // INDEX_ENTRY_SIZE, index
        cdef const uint8_t *base = &buffer[0] if count > 0 else NULL
        cdef bint has_memory = True
        with nogil:
            for index in range(count):
                has_memory = self.take(base + index * INDEX_ENTRY_SIZE)
                if not has_memory:
                    break
        if not has_memory:
            raise MemoryError

    @cython.cdivision(True)         # slot_count is positive, and a negative hash is seen before
    cdef bint take(self, const uint8_t *at) noexcept nogil:
        cdef int32_t key_hash = load_i32(at + INDEX_ENTRY_KEY_HASH_AT)
        cdef int64_t physical_offset = load_i64(at + INDEX_ENTRY_PHYSICAL_OFFSET_AT)
        cdef int32_t seconds = load_i32(at + INDEX_ENTRY_SECONDS_SINCE_BEGIN_AT)
        cdef int32_t previous = load_i32(at + INDEX_ENTRY_PREVIOUS_ENTRY_AT)
        cdef int64_t slot = key_hash % self.slot_count
        if slot < 0:
            slot += self.slot_count         # as the twin's remainder
        if key_hash < 0 or previous != self.newest[slot]:
            if self.break_count < BREAKS_MAX:
                self.broken[self.break_count].number = self.next_entry
                self.broken[self.break_count].got = previous
                self.broken[self.break_count].wanted = self.newest[slot]
            self.break_count += 1
        self.newest[slot] = <int32_t>self.next_entry
        self.follow(physical_offset)
        self.next_entry += 1
        return self.add(physical_offset, key_hash, seconds)

    cdef void follow(self, int64_t physical_offset) noexcept nogil:
        cdef Ascent *run
        if self.run_count == 0 or physical_offset < self.last_physical:
            if self.run_count < RUNS_MAX:
                run = &self.found[self.run_count]
                run.first = self.next_entry
                run.first_physical = physical_offset
            self.run_count += 1
        self.last_physical = physical_offset
        self.found[min(self.run_count, <int64_t>RUNS_MAX) - 1].last_physical = physical_offset

    @cython.cdivision(True)         # no offset counts that lies before the log
    cdef bint add(self, int64_t physical_offset, int32_t key_hash, int32_t seconds) noexcept nogil:
        cdef int64_t file, capacity
        cdef FileSum *files
        if physical_offset == self.bounds[0] or physical_offset == self.bounds[1] or not (
                self.log_start <= physical_offset < self.log_end):
            return True
        file = self.log_first + (physical_offset - self.log_first) // self.log_file_size * self.log_file_size
        if self.file_count == 0 or self.files[self.file_count - 1].file != file:
            if self.file_count == self.file_capacity:
                capacity = max(<int64_t>SUMS_FIRST, self.file_capacity * 2)
                files = <FileSum *>realloc(self.files, capacity * sizeof(FileSum))
                if files == NULL:
                    return False
                self.files, self.file_capacity = files, capacity
            self.files[self.file_count].file = file
            self.files[self.file_count].count = 0
            self.files[self.file_count].total = 0
            self.file_count += 1
        self.files[self.file_count - 1].count += 1
        self.files[self.file_count - 1].total += hash_mix(hash_word(
            hash_word(<uint64_t>physical_offset, <uint64_t>key_hash), <uint64_t>seconds))
        return True

    def slots(self, const uint8_t[::1] buffer not None):
        """Compare the slots of the file with the entries: how many are in use, and those that name another entry."""
        cdef int64_t slot, used = 0, wrong_count = 0
        cdef int32_t got, wanted
        cdef Chain wrong[BREAKS_MAX]
        if buffer.shape[0] != self.slot_count * INDEX_SLOT_SIZE:
            raise ValueError(f"slots: got {buffer.shape[0]} bytes, wanted {self.slot_count * INDEX_SLOT_SIZE}")
        with nogil:
            for slot in range(self.slot_count):
                got = load_i32(&buffer[0] + slot * INDEX_SLOT_SIZE)
                wanted = self.newest[slot]
                used += wanted > 0
                if got != wanted and not (wanted == 0 and not 0 < got < self.next_entry) and wrong_count < BREAKS_MAX:
                    wrong[wrong_count].number = slot
                    wrong[wrong_count].got = got
                    wrong[wrong_count].wanted = wanted
                    wrong_count += 1
        return used, [twin.ChainBreak(wrong[slot].number, wrong[slot].got, wrong[slot].wanted)
                      for slot in range(wrong_count)]

    def breaks(self):
        """Return the first entries that break their chain, BREAKS_MAX at most."""
        return [twin.ChainBreak(self.broken[at].number, self.broken[at].got, self.broken[at].wanted)
                for at in range(min(self.break_count, <int64_t>BREAKS_MAX))]

    def runs(self):
        """Return where the physical offsets fall, as runs in which they do not, RUNS_MAX at most."""
        return [twin.OffsetRun(self.found[at].first, self.found[at].first_physical, self.found[at].last_physical)
                for at in range(min(self.run_count, <int64_t>RUNS_MAX))]

    def sums(self):
        """Return log file, count and sum of the entries that follow one another into the same log file."""
        return [(self.files[at].file, self.files[at].count, self.files[at].total) for at in range(self.file_count)]
