# What the parts of the timer worker share: files, tables, and how far everything is. One thread of one process has it.
#
# Three times rule it, all multiples of the precision. Slots before read_time are over: everything in them is delivered,
# and nothing is put into them any more. Slots from there to loaded_until are open: what is in them is in the heap too.
# Others are in the files only. What was delivered of open slots lies in the commit log behind scan_offset.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.worker_log cimport Warning
from mqcore._fast.log.append cimport Appender
from mqcore._fast.log.mapped_file cimport FileSet
from mqcore._fast.queues.reader cimport QueueReader
from mqcore._fast.segment.boards cimport Shared
from mqcore._fast.timer.due cimport DueHeap, OffsetSet, RecallTable
from mqcore._fast.timer.units cimport TimerLog
from mqcore._fast.timer.wheel cimport TimerWheel

cdef enum:
    LOG_FDS = 64                    # commit log files that are open to be read
    HEAP_FULL = 8_000_000           # entries; no further slot is opened until there are fewer

cdef struct TimerState:
    Shared *shared
    int32_t topic_row               # of the timer topic, and
    int32_t queue_row               # of its queue
    int64_t precision_ms
    int64_t window_slots            # what waits longer is rolled
    int64_t window_ms
    const int64_t *skips            # how many, and of each when and how long it was, ms; see skipped.pxd
    bint stops_enqueue
    bint stops_dequeue

    TimerWheel wheel
    TimerLog log
    FileSet *timer_files
    Appender appender
    FileSet *files                  # of the commit log, to append and to read what is hot
    QueueReader queues
    int fds[LOG_FDS]                # of the commit log, to read what is cold
    int64_t fd_starts[LOG_FDS]
    uint8_t *scratch                # a cold record
    int64_t scratch_size

    int64_t read_time
    int64_t loaded_until
    int64_t queue_offset
    int64_t scan_offset
    int64_t newest_delivered        # the latest slot of which something was delivered
    int64_t met_until               # all that was stored before this time is in the wheel, ms
    int64_t asked_ms                # when it was last looked how far the log goes
    int64_t stored_before           # bytes: what the log had then
    int64_t behind_until            # where in the topic that ends; -1: that is not dispatched yet
    bint is_behind                  # whether some of that is not in the wheel yet
    bint has_rolled_late            # something of a slot that was over for longer, since it was last looked
    bint has_appended               # since others were woken

    DueHeap heap
    DueHeap parked                  # due, and their queues are being dropped
    RecallTable *recalled
    OffsetSet delivered             # by predecessors: places of what was copied, and for RocketMQ's copies their names
    int64_t delivered_until         # a slot: from there on nobody before us can have delivered anything

    int64_t pending                 # messages that wait,
    int64_t *topic_pending          # by topic row,
    int64_t *waiting                # and by commit log file, from waiting_base on
    int64_t waiting_base
    int64_t waiting_capacity

    int error                       # errno of what failed last
    Warning unreadable
    Warning unusable
