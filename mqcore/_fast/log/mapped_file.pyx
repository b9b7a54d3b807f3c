"""Mapped files of the store: reserve, map, warm, advise, lock, sync.

A file's blocks are reserved when it is made, so that a full disk is an error code and never a SIGBUS. Nothing here ever
shortens a file: truncation is a change of a position. Deleted files stay valid for whoever has them mapped.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINVAL, EMFILE, ENOBUFS, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from mqcore._fast.base.checks cimport check
from mqcore._fast.base.fixed_file cimport mq_map_open, mq_unmap_file
from mqcore._fast.base.layout cimport PAGE_SIZE
from mqcore._fast.log.places cimport make_placed, open_placed, places_close, places_open

import os

from mqcore.errors import StoreError

cdef extern from "make_file.h" nogil:
    int MADV_POPULATE_WRITE

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *address, size_t length, int advice)
    int mlock(const void *address, size_t length)
    int MADV_DONTNEED, MADV_WILLNEED

cdef extern from "<fcntl.h>" nogil:
    int open(const char *path, int flags, ...)
    int O_RDONLY, O_RDWR, O_CLOEXEC, O_NOFOLLOW

cdef extern from "<unistd.h>" nogil:
    int close(int fd)


cdef int files_open(FileSet *files, object places, int64_t file_size, bint writable, int lock_fd=-1) except -1:
    cdef int index
    memset(files, 0, sizeof(FileSet))
    places_open(&files.places, places, lock_fd)
    files.file_size = file_size
    files.writable = writable
    for index in range(FILE_MAPPINGS_MAX):
        files.mappings[index].start = -1
    files.spare = -1
    keep_spare(files)
    return 0


cdef inline MappedFile **bucket_of(FileSet *files, int64_t number) noexcept nogil:
    return &files.buckets[number & (FILE_MAPPINGS_MAX - 1)]


cdef void unmap_file(FileSet *files, MappedFile *file) noexcept nogil:
    cdef MappedFile **link = bucket_of(files, file.start // files.file_size)
    check(file.pins == 0, "a file that somebody holds a pointer into stays mapped")
    while link[0] != file:
        link = &link[0].next
    link[0] = file.next
    mq_unmap_file(file.base, files.file_size)
    file.base = NULL
    file.start = -1


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
    cdef int index
    if files.file_size == 0:
        return  # it was never opened
    for index in range(FILE_MAPPINGS_MAX):
        if files.mappings[index].base != NULL:
            unmap_file(files, &files.mappings[index])
    places_close(&files.places)
    give_spare(files)


cdef void files_trim(FileSet *files, int64_t offset) noexcept nogil:
    cdef int index
    cdef MappedFile *file
    for index in range(FILE_MAPPINGS_MAX):
        file = &files.mappings[index]
        if file.base != NULL and file.pins == 0 and file.start + files.file_size <= offset:
            unmap_file(files, file)


cdef void files_rest(FileSet *files) noexcept nogil:
    cdef int index
    cdef MappedFile *file
    files.round += 1
    for index in range(FILE_MAPPINGS_MAX):
        file = &files.mappings[index]
        if file.base != NULL and file.pins == 0 and file.used_in < files.round - FILE_ROUNDS_KEPT:
            unmap_file(files, file)


cdef void files_release(FileSet *files, int64_t offset) noexcept nogil:
    cdef int index
    cdef int64_t start, end
    cdef const MappedFile *file
    offset &= ~<int64_t>(PAGE_SIZE - 1)
    if offset <= files.released:
        return
    for index in range(FILE_MAPPINGS_MAX):
        file = &files.mappings[index]
        if file.base == NULL or file.start >= offset or file.start + files.file_size <= files.released:
            continue
        start = max(<int64_t>0, files.released - file.start)
        end = min(offset - file.start, files.file_size)
        madvise(file.base + start, end - start, MADV_DONTNEED)
    files.released = offset


cdef uint8_t *map_file(FileSet *files, int64_t start) noexcept nogil:
    cdef int flags = (O_RDWR if files.writable else O_RDONLY) | O_CLOEXEC | O_NOFOLLOW
    cdef uint8_t *base = NULL
    cdef int fd = open_placed(&files.places, start, files.file_size, flags)
    if fd == -EMFILE and give_spare(files):
        fd = open_placed(&files.places, start, files.file_size, flags)
    if fd < 0:
        files.error = -fd
        keep_spare(files)
        return NULL
    files.error = mq_map_open(fd, files.file_size, files.writable, &base)
    close(fd)
    keep_spare(files)
    return base


cdef MappedFile *free_mapping(FileSet *files) noexcept nogil:
    # One that is not in use, if need be after unmapping its file: the next behind the last one taken that this round
    # has not asked for, else any. NULL: all are pinned.
    cdef int step
    cdef MappedFile *file
    for step in range(2 * FILE_MAPPINGS_MAX):
        files.hand = (files.hand + 1) & (FILE_MAPPINGS_MAX - 1)
        file = &files.mappings[files.hand]
        if file.base == NULL:
            return file
        if file.pins == 0 and (file.used_in != files.round or step >= FILE_MAPPINGS_MAX):
            unmap_file(files, file)
            return file
    files.error = ENOBUFS
    return NULL


cdef MappedFile *map_another(FileSet *files, int64_t number) noexcept nogil:
    cdef MappedFile *file
    cdef MappedFile **bucket
    cdef uint8_t *base = map_file(files, number * files.file_size)
    if base == NULL:
        return NULL
    file = free_mapping(files)
    if file == NULL:
        mq_unmap_file(base, files.file_size)
        return NULL
    bucket = bucket_of(files, number)
    file.start = number * files.file_size
    file.base = base
    file.next = bucket[0]
    bucket[0] = file
    return file


cdef MappedFile *file_at(FileSet *files, int64_t offset) noexcept nogil:
    cdef int64_t number = offset // files.file_size
    cdef int64_t start = number * files.file_size
    cdef MappedFile *file = bucket_of(files, number)[0]
    while file != NULL and file.start != start:
        file = file.next
    if file == NULL:
        if offset < 0:
            files.error = 0
            return NULL
        file = map_another(files, number)
        if file == NULL:
            return NULL
    file.used_in = files.round
    return file


cdef MappedFile *file_pinned_at(FileSet *files, int64_t offset) noexcept nogil:
    cdef MappedFile *file = file_at(files, offset)
    if file != NULL:
        file.pins += 1
    return file


cdef void file_unpin(MappedFile *file) noexcept nogil:
    check(file.pins > 0, "a pin is given back once")
    file.pins -= 1


cdef MappedFile *file_made_at(FileSet *files, int64_t offset) noexcept nogil:
    cdef MappedFile *file = file_at(files, offset)
    if file != NULL:
        return file
    if offset % files.file_size != 0:
        return NULL
    files.error = make_placed(&files.places, offset, files.file_size)
    if files.error == EMFILE and give_spare(files):
        files.error = make_placed(&files.places, offset, files.file_size)
    return NULL if files.error != 0 else file_at(files, offset)


cdef uint8_t *bytes_at(FileSet *files, int64_t offset, int64_t *available) noexcept nogil:
    cdef MappedFile *file = file_at(files, offset)
    if file == NULL:
        return NULL
    available[0] = file.start + files.file_size - offset
    return file.base + (offset - file.start)


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
        cdef MappedFile *file = file_at(self.files, offset)
        cdef int64_t at, end
        cdef int failed = 0
        if file == NULL:
            raise OSError(self.files.error, os.strerror(self.files.error), str(self.places))
        at = (offset - file.start) & ~<int64_t>(PAGE_SIZE - 1)
        end = min(offset - file.start + size, self.files.file_size)
        with nogil:
            # EINVAL: a kernel before 5.14, where the appends touch the pages themselves.
            if madvise(file.base + at, end - at, MADV_POPULATE_WRITE) != 0 and errno != EINVAL:
                failed = errno
        if failed != 0:
            raise OSError(failed, os.strerror(failed))

    def lock(self, int64_t offset, int64_t size):
        """Keep pages in memory. Raises OSError beyond RLIMIT_MEMLOCK."""
        cdef MappedFile *file = file_at(self.files, offset)
        if file == NULL or mlock(file.base + (offset - file.start), size) != 0:
            raise OSError(errno, os.strerror(errno))

    def advise_needed(self, int64_t offset, int64_t size):
        """Tell the kernel that pages will be read soon."""
        cdef MappedFile *file = file_at(self.files, offset)
        if file != NULL:
            madvise(file.base + ((offset - file.start) & ~<int64_t>(PAGE_SIZE - 1)), size, MADV_WILLNEED)

    def trim(self, int64_t offset):
        """Unmap the files that end at or before *offset*."""
        files_trim(self.files, offset)

    def release(self, int64_t offset):
        """Let go of the pages before *offset*; their bytes stay readable."""
        files_release(self.files, offset)

    def view(self, int64_t offset):
        """A writable view from *offset* to the end of its file, which stays mapped for as long as the view is there."""
        return memoryview(MappedBytes(self, offset))


cdef class MappedBytes:
    """The bytes from an offset to the end of their file, as a buffer that holds a pin."""

    cdef MappedFiles owner
    cdef MappedFile *file
    cdef uint8_t *at
    cdef Py_ssize_t size

    def __cinit__(self, MappedFiles owner not None, int64_t offset):
        self.owner = owner
        self.file = file_pinned_at(owner.files, offset)
        if self.file == NULL:
            raise OSError(owner.files.error, os.strerror(owner.files.error))
        self.at = self.file.base + (offset - self.file.start)
        self.size = self.file.start + owner.files.file_size - offset

    def __dealloc__(self):
        if self.file != NULL:
            file_unpin(self.file)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.at, self.size, not self.owner.files.writable, flags)
