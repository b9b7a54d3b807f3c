# What the parts of the ha worker share. Everything here belongs to one thread of one process.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.atomics cimport observe, peek, publish
from mqcore._fast.base.layout cimport HA_HELLO_SIZE, SEND_WORKERS_MAX, SLAVE_CAPACITY, WorkerRow
from mqcore._fast.log.append cimport Appender
from mqcore._fast.log.mapped_file cimport FileSet
from mqcore._fast.segment.boards cimport Shared
from mqcore._fast.segment.bounds cimport note_confirmed

cdef enum:
    # Marks in epoll's data; a slave's is MARK_SLAVE and its slot above.
    MARK_WAKE = 0
    MARK_LINK = 1
    MARK_LISTENER = 2
    MARK_MASTER = 3
    MARK_SLAVE = 16
    STAGED_SIZE = 4096
    GROUP_BEAT_MS = 250

# A slave that is connected. Its slot is that of its row on the board, where what others look at stands.
cdef struct Slave:
    int fd                      # -1 = nobody
    bint is_blocked             # its socket took no more: EPOLLOUT is armed
    bint is_writable            # it takes more again
    int64_t cold_since          # when what comes next was found to be on disk only, coarse ms; 0 = it was not
    uint8_t partial[HA_HELLO_SIZE]      # the start of a report or a hello that has not come whole
    int32_t partial_size
    int32_t head_size           # of its frames: they are those of a group, or RocketMQ's
    int64_t member              # its id in the group; -1 = it has said no hello
    int64_t next_offset         # of the first byte that no frame has yet
    int64_t frame_offset        # the frame that is under way
    int32_t frame_size
    int32_t frame_left          # bytes of it, head and body, that are still to be written; 0 = none is under way
    int64_t frame_confirmed     # what its head says is confirmed: a head that goes in two parts says one thing
    int64_t told_confirmed      # the same of the newest frame
    int64_t read_ms             # coarse ms of the last read and write
    int64_t wrote_ms
    bint is_paced               # it has had what it may be sent for now
    int64_t allowed             # bytes that it may be sent at once, as of *allowed_at*, monotonic ns
    int64_t allowed_at

# The connection of this broker, a slave, to its master.
cdef struct Replica:
    int fd                      # -1 = none
    int32_t head_size           # of its frames, as above
    int64_t term                # epoch that it leads; 0 outside of groups
    int64_t confirmed           # the most that it has said is confirmed; this log may not go so far yet
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
    int64_t bytes_per_s         # that one slave is sent at most; 0 = as fast as it can be
    bint from_first_file        # an empty slave is sent the whole log
    bint waits_for_slaves       # SYNC_MASTER: somebody waits for each byte
    bint acks_flushed           # what counts of this log, and is reported of it, is what is on disk
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
    bint is_slave               # in a group whoever does not lead
    bint in_group
    int64_t term                # epoch that is led
    int64_t required_version    # of the set that confirmed_offset goes by; see require in segment/boards
    int64_t required_generation
    int64_t required_members
    int64_t counted_end         # end of the own log when that was last looked at for it
    Appender appender           # of a slave
    Replica replica
    int64_t master_version      # of the address that it goes by
    bint has_received           # the log of a slave has grown
    bint has_confirmed          # more of the log may be read
    WorkerRow *reput_row
    int reput_wake
    WorkerRow *flush_row
    int flush_wake
    Slave slaves[SLAVE_CAPACITY]
    int32_t slave_count         # of those that are connected
    bint has_callers            # somebody waits to be let in
    bint has_more               # a slave was written to as much as one turn allows, and takes more
    bint waits_for_disk         # what a slave needs next is being read
    bint waits_for_pace         # a slave may be sent more soon
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


# What of the own log counts, and is reported of it.
cdef inline int64_t own_end(const HaState *state) noexcept nogil:
    cdef int64_t end = observe(&state.shared.board.wrote_offset)
    return min(end, observe(&state.shared.board.flushed_offset)) if state.settings.acks_flushed else end


# How long a connection is left silent. Who is missing in a group is to be found missing soon.
cdef inline int64_t beat_ms(const HaState *state) noexcept nogil:
    return min(state.settings.heartbeat_ms, <int64_t>GROUP_BEAT_MS) if state.in_group else state.settings.heartbeat_ms


# All who must have the log have it up to *end*: it may be read so far, and who waits for a slave need not wait longer.
cdef inline void confirm_to(HaState *state, int64_t end) noexcept nogil:
    if end <= peek(&state.shared.board.confirmed_offset):
        return
    publish(&state.shared.board.confirmed_offset, end)
    note_confirmed(state.shared.board)
    if end > peek(&state.shared.board.replicated_offset):
        publish(&state.shared.board.replicated_offset, end)
    state.has_confirmed = state.has_acks = True
