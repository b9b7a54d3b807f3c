# The first files of new queues. Their units lie in cradles meanwhile (_fast/segment/cradle.pxd), and a thread of its
# own makes the files: these may take as long as the file system likes, and what was acknowledged is readable.
#
# Two threads: the *owner* has the queues and calls all but make_first_files, the *maker* runs that. A cradle has a job,
# and whoever claims the job's state has the rest of it.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.base.layout cimport CRADLE_CAPACITY
from mqcore._fast.base.store_file cimport FileFailure
from mqcore._fast.queues.newest_file cimport NewestFile, QueuePlace
from mqcore._fast.segment.boards cimport Shared


cdef enum JobState:
    JOB_NONE                        # the cradle is free
    JOB_WAITING                     # for the maker; the owner may take it back
    JOB_TAKEN                       # by one of them
    JOB_DONE                        # the file is there, with the first units
    JOB_FAILED                      # *error* says why; the owner tries again


cdef struct FirstFile:
    int64_t state
    QueuePlace place                # what it points to stays while the job does
    void *queue                     # the owner's
    NewestFile file                 # mapped, once it is there
    int error


cdef struct FirstFiles:
    Shared *shared
    FirstFile jobs[CRADLE_CAPACITY]
    int32_t free[CRADLE_CAPACITY]   # numbers of free cradles; the last one is taken first
    int32_t free_count
    int32_t waiting[CRADLE_CAPACITY]    # numbers, a ring; the owner writes, the maker reads
    int64_t waiting_end             # the owner's
    int64_t waiting_begin           # the maker's
    int64_t told_end                # up to here the maker was woken for
    int64_t finished                # jobs that the maker has ended, of either kind
    int64_t seen                    # of them, by the owner
    bint failing                    # the owner has met a job that failed, and has not got it done since
    int64_t stopping
    int maker_wake                  # an eventfd, blocking
    int owner_wake                  # an eventfd


# *owner_wake* is written when a job has ended. False: no memory, no descriptor.
cdef bint first_files_open(FirstFiles *files, Shared *shared, int owner_wake) noexcept nogil
# Not while the maker runs. What lies in cradles stays there.
cdef void first_files_close(FirstFiles *files) noexcept nogil

# Whether the board has no unit of a queue. Then none is in files either, but for one that a predecessor did not live to
# tell of, and that is dispatched again.
cdef bint has_no_units(FirstFiles *files, const QueuePlace *place) noexcept nogil
# Give a queue without files a cradle, from where its units go on; its number, -1 if there is none. *file* is the cradle
# from now on, as if it were mapped.
cdef int32_t take_cradle(FirstFiles *files, const QueuePlace *place, void *queue, NewestFile *file) noexcept nogil
# The same for one that the predecessor of this process had taken; its units are in it.
cdef void keep_cradle(FirstFiles *files, int32_t number, const QueuePlace *place, void *queue,
                      NewestFile *file) noexcept nogil
# So many bytes of units are whole.
cdef void note_cradle(FirstFiles *files, int32_t number, int64_t wrote) noexcept nogil
# Have the file made now, or wait for who makes it, and let the queue go on there: *file* is that file, with all units.
# False: it cannot be made, *failure* says why, and the queue keeps its cradle.
cdef bint leave_cradle(FirstFiles *files, int32_t number, NewestFile *file, FileFailure *failure) noexcept nogil
# The queue was dropped: forget its units. Also those that a predecessor has left, and nobody has kept.
cdef void drop_cradle(FirstFiles *files, int32_t number) noexcept nogil

# Wake the maker for the cradles that were taken since the last time.
cdef void tell_maker(FirstFiles *files) noexcept nogil
# Whether there are jobs that have ended: since the last time that this was asked, or failed ones.
cdef bint has_finished(FirstFiles *files) noexcept nogil
# The maker: make files until stop_maker().
cdef void make_first_files(FirstFiles *files) noexcept nogil
cdef void stop_maker(FirstFiles *files) noexcept nogil
