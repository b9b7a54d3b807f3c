# What the parts of the ha worker share. Everything here belongs to one thread of one process.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.layout cimport SEND_WORKERS_MAX, SLAVE_CAPACITY, WorkerRow
from mqcore._fast.log.append cimport Appender
from mqcore._fast.log.mapped_file cimport FileSet
from mqcore._fast.segment.boards cimport Shared

cdef enum:
    # Marks in epoll's data; a slave's is MARK_SLAVE and its slot above.
    MARK_WAKE = 0
    MARK_LINK = 1
    MARK_LISTENER = 2
    MARK_MASTER = 3
    MARK_SLAVE = 16
    STAGED_SIZE = 4096

# A slave that is connected. Its slot is that of its row on the board, where what others look at stands.
cdef struct Slave:
    int fd                      # -1 = nobody
    bint is_blocked             # its socket took no more: EPOLLOUT is armed
    bint is_writable            # it takes more again
    int64_t cold_since          # when what comes next was found to be on disk only, coarse ms; 0 = it was not
    uint8_t partial[8]          # the start of a report that has not come whole
    int32_t partial_size
    int64_t next_offset         # of the first byte that no frame has yet
    int64_t frame_offset        # the frame that is under way
    int32_t frame_size
    int32_t frame_left          # bytes of it, head and body, that are still to be written; 0 = none is under way
    int64_t read_ms             # coarse ms of the last read and write
    int64_t wrote_ms

# The connection of this broker, a slave, to its master.
cdef struct Replica:
    int fd                      # -1 = none
    bint begins_inside          # an empty log was asked for from byte 1 on
    int32_t staged_start        # what was read and is not taken yet, heads of frames first of all
    int32_t staged_end
    int32_t frame_left          # bytes of the body under way that are still to come
    int64_t received            # end of what lies in the mapped file
    int64_t reported
    int64_t read_ms             # coarse ms of the last read and report
    int64_t wrote_ms
    const char *why             # it is over, and why; NULL = it is not
    int64_t why_offset
    int why_error               # errno, or 0
    uint8_t staged[STAGED_SIZE]

cdef struct HaSettings:
    int64_t heartbeat_ms
    int64_t silence_ms
    int32_t frame_size_max
    bint from_first_file        # an empty slave is sent the whole log
    bint waits_for_slaves       # SYNC_MASTER: somebody waits for each byte
    bint wakes_flush            # the flush worker wants to know of what a slave has received

cdef struct HaState:
    Shared *shared
    WorkerRow *row
    HaSettings settings
    FileSet *files
    int64_t file_size
    int epoll
    int listener
    int wake
    int link
    bint is_slave
    Appender appender           # of a slave
    Replica replica
    int64_t master_version      # of the address that it goes by
    bint has_received           # the log of a slave has grown
    WorkerRow *reput_row
    int reput_wake
    WorkerRow *flush_row
    int flush_wake
    Slave slaves[SLAVE_CAPACITY]
    int32_t slave_count         # of those that are connected
    bint has_callers            # somebody waits to be let in
    bint has_more               # a slave was written to as much as one turn allows, and takes more
    bint waits_for_disk         # what a slave needs next is being read
    bint has_acks               # what was reported has moved replicated_offset
    int naps
    int64_t turn_ms
    int64_t housekeeping_at
    int64_t stop_at             # coarse ms at which it ends, whatever the slaves have; 0 = not told to
    bint is_link_closed
    int sender_count
    WorkerRow *sender_rows[SEND_WORKERS_MAX]
    int sender_wakes[SEND_WORKERS_MAX]
    WorkerRow *broker_row
    int broker_wake
