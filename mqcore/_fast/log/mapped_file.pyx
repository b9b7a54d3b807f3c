"""Mapped files of the store: reserve, map, warm, advise, lock, sync.

A file's blocks are reserved when it is made, so that a full disk is an error code and never a SIGBUS. Nothing here ever
shortens a file: truncation is a change of a position. Deleted files stay valid for whoever has them mapped.
"""

from libc.errno cimport EEXIST, EINVAL, EMFILE, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from mqcore._fast.log.places cimport make_placed, open_placed, places_close, places_open

import os

from mqcore.errors import StoreError

cdef extern from "make_file.h" nogil:
    int MADV_POPULATE_WRITE

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *address, size_t length, int protection, int flags, int fd, int64_t offset)
    int munmap(void *address, size_t length)
    int madvise(void *address, size_t length, int advice)
    int mlock(const void *address, size_t length)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MADV_DONTNEED, MADV_WILLNEED
    void *MAP_FAILED

cdef extern from "<sys/stat.h>" nogil:
    struct stat_type "stat":
        int64_t st_size
    int fstat(int fd, stat_type *out)

cdef extern from "<fcntl.h>" nogil:
    int open(const char *path, int flags, ...)
    int O_RDONLY, O_RDWR, O_CLOEXEC, O_NOFOLLOW

cdef extern from "<unistd.h>" nogil:
    int close(int fd)


cdef int files_open(FileSet *files, object places, int64_t file_size, bint writable, int lock_fd=-1) except -1:
    cdef int slot
    memset(files, 0, sizeof(FileSet))
    places_open(&files.places, places, lock_fd)
    files.file_size = file_size
    files.writable = writable
    for slot in range(FILE_SLOTS):
        files.slots[slot].start = -1
    files.spare = -1
    keep_spare(files)
    return 0


cdef void unmap_slot(FileSet *files, MappedFile *slot) noexcept nogil:
    if slot.base != NULL:
        munmap(slot.base, files.file_size)
    slot.base = NULL
    slot.start = -1


cdef void keep_spare(FileSet *files) noexcept nogil:
    if files.spare < 0:
        files.spare = open("/dev/null", O_RDONLY | O_CLOEXEC)


cdef bint give_spare(FileSet *files) noexcept nogil:
    # After EMFILE: whether there is a descriptor again. A mapping needs one only until it is made.
    if files.spare < 0:
        return False
    close(files.spare)
    files.spare = -1
    return True


cdef void files_close(FileSet *files) noexcept nogil:
    cdef int slot
    if files.file_size == 0:
        return  # it was never opened
    for slot in range(FILE_SLOTS):
        unmap_slot(files, &files.slots[slot])
    places_close(&files.places)
    give_spare(files)


cdef void files_trim(FileSet *files, int64_t offset) noexcept nogil:
    cdef int slot
    for slot in range(FILE_SLOTS):
        if files.slots[slot].base != NULL and files.slots[slot].start + files.file_size <= offset:
            unmap_slot(files, &files.slots[slot])


cdef void files_rest(FileSet *files) noexcept nogil:
    cdef int slot
    files.round += 1
    for slot in range(FILE_SLOTS):
        if files.slots[slot].base != NULL and files.slots[slot].used_in < files.round - FILE_ROUNDS_KEPT:
            unmap_slot(files, &files.slots[slot])


cdef void files_release(FileSet *files, int64_t offset) noexcept nogil:
    cdef int slot
    cdef int64_t start, end
    offset &= ~<int64_t>4095
    if offset <= files.released:
        return
    for slot in range(FILE_SLOTS):
        start = files.slots[slot].start
        if files.slots[slot].base == NULL or start >= offset or start + files.file_size <= files.released:
            continue
        end = min(offset - start, files.file_size)
        start = max(<int64_t>0, files.released - start)
        madvise(files.slots[slot].base + start, end - start, MADV_DONTNEED)
    files.released = offset


cdef void *map_file(FileSet *files, int64_t start) noexcept nogil:
    cdef int flags = (O_RDWR if files.writable else O_RDONLY) | O_CLOEXEC | O_NOFOLLOW
    cdef int protection = PROT_READ | PROT_WRITE if files.writable else PROT_READ
    cdef stat_type info
    cdef void *base = MAP_FAILED
    cdef int fd = open_placed(&files.places, start, files.file_size, flags)
    if fd == -EMFILE and give_spare(files):
        fd = open_placed(&files.places, start, files.file_size, flags)
    if fd < 0:
        files.error = -fd
        keep_spare(files)
        return base
    # A file that is shorter than its mapping is a SIGBUS waiting to happen.
    if fstat(fd, &info) != 0 or info.st_size != files.file_size:
        files.error = EEXIST
    else:
        base = mmap(NULL, files.file_size, protection, MAP_SHARED, fd, 0)
        if base == MAP_FAILED:
            files.error = errno
    close(fd)
    keep_spare(files)
    return base


cdef MappedFile *file_at(FileSet *files, int64_t offset) noexcept nogil:
    cdef int64_t number = offset // files.file_size
    cdef int64_t start = number * files.file_size
    cdef MappedFile *slot = &files.slots[number % FILE_SLOTS]
    cdef void *base
    if slot.start == start:
        slot.used_in = files.round
        return slot
    if offset < 0:
        files.error = 0
        return NULL
    base = map_file(files, start)
    if base == MAP_FAILED:
        return NULL
    unmap_slot(files, slot)
    slot.start = start
    slot.base = <uint8_t *>base
    slot.used_in = files.round
    return slot


cdef MappedFile *file_made_at(FileSet *files, int64_t offset) noexcept nogil:
    cdef MappedFile *slot = file_at(files, offset)
    if slot != NULL:
        return slot
    if offset % files.file_size != 0:
        return NULL
    files.error = make_placed(&files.places, offset, files.file_size)
    if files.error == EMFILE and give_spare(files):
        files.error = make_placed(&files.places, offset, files.file_size)
    return NULL if files.error != 0 else file_at(files, offset)


cdef uint8_t *bytes_at(FileSet *files, int64_t offset, int64_t *available) noexcept nogil:
    cdef MappedFile *slot = file_at(files, offset)
    if slot == NULL:
        return NULL
    available[0] = slot.start + files.file_size - offset
    return slot.base + (offset - slot.start)


cdef class MappedFiles:
    """A set of mapped files for the flush worker and for tests: make, warm, lock, write.

    *places*: a directory, or a LogPlaces. *lock_fd*: a descriptor that all who make files in several places share.
    """

    cdef FileSet *files
    cdef object places

    def __cinit__(self, places not None, int64_t file_size, bint writable=True, int lock_fd=-1):
        if file_size <= 0:
            raise StoreError(f"mapped files in {places}: file size {file_size} is out of range")
        self.files = <FileSet *>malloc(sizeof(FileSet))
        if self.files == NULL:
            raise MemoryError()
        files_open(self.files, places, file_size, writable, lock_fd)
        self.places = places

    def __dealloc__(self):
        if self.files != NULL:
            files_close(self.files)
            free(self.files)

    def make(self, int64_t offset):
        """Make the file that holds *offset*, with all blocks reserved, unless it is there. Raises OSError (ENOSPC)."""
        cdef int64_t start = offset // self.files.file_size * self.files.file_size
        cdef int failed
        with nogil:
            failed = make_placed(&self.files.places, start, self.files.file_size)
        if failed != 0:
            raise OSError(failed, os.strerror(failed), f"{self.places}, file at {start}")

    def warm(self, int64_t offset, int64_t size):
        """Bring pages [offset, offset + size) into memory, to be written. Raises OSError; EFAULT means no space."""
        cdef MappedFile *slot = file_at(self.files, offset)
        cdef int64_t at, end
        cdef int failed = 0
        if slot == NULL:
            raise OSError(self.files.error, os.strerror(self.files.error), str(self.places))
        at = (offset - slot.start) & ~<int64_t>4095
        end = min(offset - slot.start + size, self.files.file_size)
        with nogil:
            # EINVAL: a kernel before 5.14, where the appends touch the pages themselves.
            if madvise(slot.base + at, end - at, MADV_POPULATE_WRITE) != 0 and errno != EINVAL:
                failed = errno
        if failed != 0:
            raise OSError(failed, os.strerror(failed))

    def lock(self, int64_t offset, int64_t size):
        """Keep pages in memory. Raises OSError beyond RLIMIT_MEMLOCK."""
        cdef MappedFile *slot = file_at(self.files, offset)
        if slot == NULL or mlock(slot.base + (offset - slot.start), size) != 0:
            raise OSError(errno, os.strerror(errno))

    def advise_needed(self, int64_t offset, int64_t size):
        """Tell the kernel that pages will be read soon."""
        cdef MappedFile *slot = file_at(self.files, offset)
        if slot != NULL:
            madvise(slot.base + ((offset - slot.start) & ~<int64_t>4095), size, MADV_WILLNEED)

    def trim(self, int64_t offset):
        """Unmap the files that end at or before *offset*."""
        files_trim(self.files, offset)

    def release(self, int64_t offset):
        """Let go of the pages before *offset*; their bytes stay readable."""
        files_release(self.files, offset)

    def view(self, int64_t offset):
        """A writable view from *offset* to the end of its file. Borrowed: not valid after trim() or close."""
        cdef int64_t available = 0
        cdef uint8_t *at = bytes_at(self.files, offset, &available)
        if at == NULL:
            raise OSError(self.files.error, os.strerror(self.files.error))
        return <uint8_t[:available]>at
