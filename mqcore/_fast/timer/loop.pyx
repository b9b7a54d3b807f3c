"""The loop of the timer worker: from the timer topic into the wheel, and when it is time into the log again.

Nothing of it needs to be remembered but in files: a message that waits is a record of the timer topic, a unit of the
timer log and a place in a slot's chain, and one that was delivered is a record that names the one it is a copy of (its
prepared transaction offset, which nobody reads of such a record). Who comes after a death reads the chains again, and
passes over what he finds delivered in the log.

Three times rule it, all multiples of the precision. Slots before ``read_time`` are over: everything in them is
delivered, and nothing is put into them any more. Slots from there to ``loaded_until`` are open: what is in them is in
the heap too. Others are in the files only. What was delivered of open slots lies in the log behind ``scan_offset``.
"""

from libc.errno cimport EIO, ENOENT, ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

import os

from mqcore._fast.base.atomics cimport (coarse_ms, drain_fd, exchange_full, full_fence, now_ms, observe, peek, publish,
                                        put_relaxed, wake_fd)
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport (CQ_UNIT_SIZE, PROPERTIES_SIZE_MAX, PUT_STATUS_MESSAGE_ILLEGAL,
                                       PUT_STATUS_PROPERTIES_SIZE_EXCEEDED, PUT_STATUS_PUT_OK, TIMER_MAGIC_DEFAULT,
                                       TIMER_MAGIC_DELETE, TIMER_MAGIC_ROLL, TIMER_SLOT_COUNT, TIMER_UNIT_SIZE,
                                       TIMER_WHEEL_FILE_SIZE, TOPIC_CAPACITY, TOPIC_SIZE_MAX, WORKER_COMMAND_RUN,
                                       QueueRow, WorkerRow)
from mqcore._fast.base.worker_log cimport Warning, warn_unreadable
from mqcore._fast.log.append cimport Appended, Appender, append_record, append_rest
from mqcore._fast.log.mapped_file cimport (FileSet, bytes_at, files_close, files_open, files_release, files_rest,
                                           files_trim)
from mqcore._fast.log.places cimport open_placed
from mqcore._fast.log.record cimport (DECODE_OK, DecodeStatus, RecordFields, RecordView, decode_record,
                                      find_property, java_hash)
from mqcore._fast.log.republish cimport PropertyName, Republication, republished
from mqcore._fast.log.timed cimport (TextSpan, TimedProperties, find_timed, parse_long, put_number_property, slot_of)
from mqcore._fast.queues.reader cimport QueueReader, queues_close, queues_open, queues_rest, units_at
from mqcore._fast.queues.units cimport CqUnit
from mqcore._fast.queues.units cimport read_unit as read_queue_unit
from mqcore._fast.segment.boards cimport (ROW_NONE, Shared, SharedSegment, find_queue, find_topic, make_queue,
                                          make_topic)
from mqcore._fast.segment.bounds cimport queue_max_offset, queue_min_offset
from mqcore._fast.timer.due cimport (DueEntry, DueHeap, OffsetSet, RecallTable, due_free, due_pop, due_push,
                                     offset_add, offset_free, offset_has, recall_add, recall_has, recall_trim)
from mqcore._fast.timer.units cimport (UNIT_FILLER, UNIT_NONE, UNIT_OK, TimerLog, TimerUnit, UnitStatus, append_unit,
                                       unit_at)
from mqcore._fast.timer.wheel cimport TimerWheel, WheelSlot, wheel_add, wheel_clear, wheel_place, wheel_slot

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout_ms)
    short POLLIN

cdef extern from "<fcntl.h>" nogil:
    int posix_fadvise(int fd, int64_t offset, int64_t size, int advice)
    int O_RDONLY, O_CLOEXEC, O_NOFOLLOW, POSIX_FADV_WILLNEED

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    ssize_t pread(int fd, void *out, size_t size, int64_t offset)

cdef enum:
    ENQUEUED_PER_TURN = 512
    DELIVERED_PER_TURN = 512
    HEAP_FULL = 8_000_000           # entries; no further slot is opened until there are fewer
    SLEEP_MS = 1000
    RETRY_MS = 100
    NAP_MS = 1
    NAPS_MAX = 100
    HOUSEKEEPING_MS = 1000
    FDS = 64                        # commit log files that are open to be read
    HOT_BYTES = 256 << 20           # so far behind the end records are read from the mapping, unless cold_end is nearer
    GAP = 1 << 16                   # bytes between two records that are read ahead as one
    HASHES = 1 << 17
    NUMBERS_SIZE = 128              # of the properties that are added

cdef const char *TIMER_TOPIC = "rmq_sys_wheel_timer"
cdef enum:
    TIMER_TOPIC_SIZE = 19

# Why the loop came back to Python.
cpdef enum TimerNews:
    TIMER_STOP                      # the broker process says so: for good, or to drain
    TIMER_LINK                      # there is something to read on the link
    TIMER_FAILED                    # the timer log could not be written; see failure_error
    TIMER_SETTINGS                  # the board has another version of them
    TIMER_HOUSEKEEPING              # time to look around

cdef enum Delivery:
    DELIVERY_DONE                   # in the log, or not to be there
    DELIVERY_LATER                  # its queue is being dropped: others may go on
    DELIVERY_REFUSED                # the store takes nothing now

cdef PropertyName STALE[3]
STALE[0].text = "TIMER_ENQUEUE_MS"
STALE[0].size = 16
STALE[1].text = "TIMER_DEQUEUE_MS"
STALE[1].size = 16
STALE[2].text = "TIMER_ROLL_TIMES"
STALE[2].size = 16


cdef class TimerLoop:
    """One thread drives it: ``recover`` once, then ``run``. *wheel* is the mapped file `timerwheel`."""

    cdef SharedSegment segment
    cdef Shared *shared
    cdef WorkerRow *row
    cdef uint8_t[::1] wheel_memory
    cdef TimerWheel wheel
    cdef TimerLog log
    cdef Appender appender
    cdef FileSet *files                 # of the commit log, to append and to read what is hot
    cdef FileSet *timer_files
    cdef QueueReader queues
    cdef object kept
    cdef int32_t topic_row
    cdef int32_t queue_row
    cdef DueHeap heap
    cdef DueHeap parked
    cdef OffsetSet delivered
    cdef int64_t delivered_until        # a slot: from there on nobody before us can have delivered anything
    cdef RecallTable *recalled
    cdef int64_t precision_ms
    cdef int64_t window_ms
    cdef int64_t window_slots
    cdef int64_t read_time
    cdef int64_t loaded_until
    cdef int64_t queue_offset
    cdef int64_t scan_offset
    cdef int64_t newest_delivered       # the latest slot of which something was delivered
    cdef int64_t stored_before          # bytes: what the log had at the start, or with a recall that comes late
    cdef int64_t behind_until           # where in the topic that ends; -1: that is not dispatched yet
    cdef bint is_behind                 # whether some of that is not in the wheel yet
    cdef int64_t pending
    cdef int64_t *waiting               # messages that wait, by commit log file from waiting_base on
    cdef int64_t waiting_base
    cdef int64_t waiting_capacity
    cdef int64_t *topic_pending         # by topic row
    cdef uint8_t *scratch
    cdef int64_t scratch_size
    cdef int fds[FDS]
    cdef int64_t fd_starts[FDS]
    cdef bint stops_enqueue
    cdef bint stops_dequeue
    cdef bint wakes_flush
    cdef bint has_appended
    cdef int wake
    cdef int link
    cdef WorkerRow *reput_row
    cdef int reput_wake
    cdef WorkerRow *flush_row
    cdef int flush_wake
    cdef int64_t housekeeping_at
    cdef int naps
    cdef int error
    cdef Warning unreadable
    cdef Warning unusable

    def __cinit__(self, SharedSegment segment not None, uint8_t[::1] wheel not None, dict options not None):
        cdef int index
        if wheel.shape[0] != TIMER_WHEEL_FILE_SIZE:
            raise ValueError(f"timer wheel of {wheel.shape[0]} bytes, wanted {TIMER_WHEEL_FILE_SIZE}")
        self.segment = segment
        self.shared = &segment.shared
        self.row = &segment.shared.workers[<int>options["row"]]
        self.wheel_memory = wheel
        self.wheel.base = &wheel[0]
        self.precision_ms = self.wheel.precision_ms = options["precision_ms"]
        self.window_slots = options["window_slots"]
        self.window_ms = self.window_slots * self.precision_ms
        self.queue_row = <int32_t>(observe(&self.shared.board.timer_row) - 1)
        self.topic_row = self.shared.queues[self.queue_row].topic_row
        self.wake = options["wake"]
        self.link = options["link"]
        self.reput_row = &segment.shared.workers[<int>options["reput_row"]]
        self.reput_wake = options["reput_wake"]
        self.flush_row = &segment.shared.workers[<int>options["flush_row"]]
        self.flush_wake = options["flush_wake"]
        for index in range(FDS):
            self.fds[index] = -1
        self.take_memory(options)
        self.use(options)

    cdef take_memory(self, dict options):
        cdef const char *root
        cdef const char *ext_root
        self.files = <FileSet *>calloc(1, sizeof(FileSet))
        self.timer_files = <FileSet *>calloc(1, sizeof(FileSet))
        self.recalled = <RecallTable *>calloc(1, sizeof(RecallTable))
        self.topic_pending = <int64_t *>calloc(TOPIC_CAPACITY, sizeof(int64_t))
        if self.files == NULL or self.timer_files == NULL or self.recalled == NULL or self.topic_pending == NULL:
            raise MemoryError()
        files_open(self.files, options["commit_log"], options["commit_log_file_size"], True, self.segment.fd)
        files_open(self.timer_files, options["timer_log"], options["timer_log_file_size"], True, -1)
        self.log.files = self.timer_files
        self.log.file_size = options["timer_log_file_size"]
        self.appender.shared = self.shared
        self.appender.files = self.files
        self.appender.file_size = options["commit_log_file_size"]
        self.appender.counts_topics = True
        self.appender.tallies = False
        self.appender.keeps_lock = True
        self.kept = options["consume_queue"].encode(), options["consume_queue_ext"].encode()
        root, ext_root = self.kept
        queues_open(&self.queues, self.shared, root, options["consume_queue_file_size"], ext_root,
                    options["ext_file_size"], 4)

    def use(self, dict options not None):
        """Go by what *options* has of ``live_options`` in workers/timer.py. Not while another thread is in ``run``."""
        self.stops_enqueue = options["stops_enqueue"]
        self.stops_dequeue = options["stops_dequeue"]
        self.wakes_flush = options["wakes_flush"]
        self.appender.record_size_max = <int64_t>options["max_message_size"] + 65536
        self.appender.lock_timeout_ms = options["lock_timeout_ms"]

    def __dealloc__(self):
        cdef int index
        if self.files != NULL:
            files_close(self.files)
        if self.timer_files != NULL:
            files_close(self.timer_files)
        queues_close(&self.queues)
        due_free(&self.heap)
        due_free(&self.parked)
        offset_free(&self.delivered)
        if self.recalled != NULL:
            recall_trim(self.recalled, INT64_MAX)
        free(self.files)
        free(self.timer_files)
        free(self.recalled)
        free(self.waiting)
        free(self.topic_pending)
        free(self.scratch)
        for index in range(FDS):
            if self.fds[index] >= 0:
                close(self.fds[index])

    # The commit log -----------------------------------------------------------------------------------------------

    cdef int64_t hot_from(self) noexcept nogil:
        return max(observe(&self.shared.board.cold_end), observe(&self.shared.board.wrote_offset) - HOT_BYTES)

    cdef int fd_of(self, int64_t offset) noexcept nogil:
        # A descriptor of the commit log file that holds *offset*; -errno.
        cdef int64_t start = offset - offset % self.appender.file_size
        cdef int place = <int>(start // self.appender.file_size % FDS)
        if self.fds[place] >= 0 and self.fd_starts[place] == start:
            return self.fds[place]
        if self.fds[place] >= 0:
            close(self.fds[place])
        self.fds[place] = open_placed(&self.files.places, start, self.appender.file_size,
                                      O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        self.fd_starts[place] = start
        return self.fds[place]

    cdef const uint8_t *read_cold(self, int64_t offset, int32_t size) noexcept nogil:
        # By a plain read: a mapping would fault in one page after the other.
        cdef int64_t done = 0
        cdef ssize_t got
        cdef uint8_t *grown
        cdef int fd = self.fd_of(offset)
        if fd < 0:
            self.error = -fd
            return NULL
        if size > self.scratch_size:
            grown = <uint8_t *>realloc(self.scratch, size)
            if grown == NULL:
                self.error = EIO
                return NULL
            self.scratch = grown
            self.scratch_size = size
        while done < size:
            got = pread(fd, self.scratch + done, size - done, offset % self.appender.file_size + done)
            if got <= 0:
                self.error = EIO
                return NULL
            done += got
        return self.scratch

    cdef bint look(self, int64_t offset, int32_t size, RecordView *out) noexcept nogil:
        # The record that starts at *offset*; good until the next look. False: *error* says why, ENOENT: it is gone.
        cdef const uint8_t *at
        cdef int64_t available = size
        self.error = ENOENT
        if offset < observe(&self.shared.board.min_offset) or offset + size > observe(&self.shared.board.wrote_offset):
            return False
        if offset < self.hot_from():
            at = self.read_cold(offset, size)
        else:
            at = bytes_at(self.files, offset, &available)
            if at == NULL:
                self.error = ENOENT if self.files.error == 0 else self.files.error
        if at == NULL:
            return False
        self.error = ENOENT
        return available >= size and decode_record(at, size, False, out) == DECODE_OK and (
            out.physical_offset == offset and out.total_size == size and out.topic_size == TIMER_TOPIC_SIZE
            and memcmp(out.topic, TIMER_TOPIC, TIMER_TOPIC_SIZE) == 0)

    cdef void advise(self, int64_t start, int64_t end) noexcept nogil:
        # Have the kernel read ahead; it may be asked for more than it takes, and then the reads wait.
        cdef int64_t stop
        cdef int fd
        while start < end:
            stop = min(end, start - start % self.appender.file_size + self.appender.file_size)
            fd = self.fd_of(start)
            if fd >= 0:
                posix_fadvise(fd, start % self.appender.file_size, stop - start, POSIX_FADV_WILLNEED)
            start = stop

    # What waits ---------------------------------------------------------------------------------------------------

    cdef bint count_waiting(self, int64_t physical_offset, int64_t change) noexcept nogil:
        # So many more, or fewer, wait in the commit log file that holds the offset.
        cdef int64_t number = physical_offset // self.appender.file_size
        cdef int64_t capacity, index
        cdef int64_t *grown
        if self.waiting_capacity == 0:
            self.waiting_base = number
        if number < self.waiting_base or number >= self.waiting_base + self.waiting_capacity:
            # Rare: at the start, and once in 64 files. What is empty in front goes.
            capacity = max(self.waiting_base + self.waiting_capacity, number + 64) - min(self.waiting_base, number)
            grown = <int64_t *>calloc(capacity, sizeof(int64_t))
            if grown == NULL:
                return False
            for index in range(self.waiting_capacity):
                grown[self.waiting_base - min(self.waiting_base, number) + index] = self.waiting[index]
            free(self.waiting)
            self.waiting = grown
            self.waiting_capacity = capacity
            self.waiting_base = min(self.waiting_base, number)
        self.waiting[number - self.waiting_base] += change
        check(self.waiting[number - self.waiting_base] >= 0, "who waits no longer has waited")
        return True

    cdef int64_t oldest_waiting(self) noexcept nogil:
        cdef int64_t index
        for index in range(self.waiting_capacity):
            if self.waiting[index] > 0:
                return (self.waiting_base + index) * self.appender.file_size
        return INT64_MAX

    cdef void publish_keeps(self) noexcept nogil:
        # The end first: what comes into the queue afterwards lies behind it.
        cdef int64_t end = observe(&self.shared.board.dispatched_offset)
        cdef QueueRow *queue = &self.shared.queues[self.queue_row]
        cdef int64_t count
        cdef const uint8_t *units
        cdef CqUnit unit
        cdef int64_t keeps = min(end, self.oldest_waiting())
        if self.queue_offset < queue_max_offset(queue):
            units = units_at(&self.queues, self.queue_row, max(self.queue_offset, queue_min_offset(queue)),
                             queue_max_offset(queue), coarse_ms(), &count)
            if units == NULL:
                return
            read_queue_unit(units, &unit)
            keeps = min(keeps, unit.physical_offset)
        publish(&self.shared.board.timer_keeps, max(<int64_t>1, keeps))

    cdef void forget_one(self, const DueEntry *entry) noexcept nogil:
        self.count_waiting(entry.physical_offset, -1)

    cdef void count_topic(self, const uint8_t *topic, int32_t topic_size, int64_t change) noexcept nogil:
        cdef int32_t row = find_topic(self.shared, topic, topic_size)
        if row != ROW_NONE:
            self.topic_pending[row] += change

    cdef void advance(self, int64_t slot) noexcept nogil:
        # Slots before *slot* are over. The end of the log is taken before anything of the others is delivered by us.
        cdef WheelSlot over
        if slot <= self.read_time:
            return
        while self.read_time < slot:
            if wheel_slot(&self.wheel, self.read_time, &over):
                self.pending -= over.count
            self.read_time += self.precision_ms
        recall_trim(self.recalled, slot)
        put_relaxed(&self.shared.board.timer_read_time, slot)
        put_relaxed(&self.shared.board.timer_pending, self.pending)
        if self.delivered.count > 0 and slot >= self.delivered_until and (
                self.queue_offset >= queue_max_offset(&self.shared.queues[self.queue_row])):
            offset_free(&self.delivered)
        if self.delivered.count == 0 and slot > self.newest_delivered:
            # Not before: a predecessor may have been further than we are, and our successor has to find that, too; and
            # while one message waited for its queue, others of later slots were delivered.
            self.scan_offset = observe(&self.shared.board.wrote_offset)

    cdef int64_t over_until(self, int64_t now) noexcept nogil:
        # The first slot that is not over.
        cdef int64_t slot = min(self.loaded_until, now // self.precision_ms * self.precision_ms)
        cdef int64_t index
        if self.heap.count > 0:
            slot = min(slot, slot_of(self.heap.entries[0].deliver_time, self.precision_ms))
        for index in range(self.parked.count):
            slot = min(slot, self.parked.entries[index].slot_time)
        return slot

    # Into the wheel -----------------------------------------------------------------------------------------------

    cdef int64_t exact_time(self, const TimedProperties *found, const RecordView *record, int64_t out) noexcept nogil:
        # When the message is due: within its slot (out, out + precision]. Relative times count from its store time,
        # which is no earlier than the time that the slot was computed from.
        cdef int64_t value = 0
        cdef int64_t last = out + self.precision_ms
        cdef const TextSpan *relative = &found.delay_sec if found.delay_sec.size > 0 else &found.delay_ms
        if relative.size == 0:
            return min(max(value, out + 1), last) if parse_long(&found.deliver_ms, &value) else last
        if not parse_long(relative, &value):
            return last
        value = record.store_timestamp + (value * 1000 if found.delay_sec.size > 0 else value)
        return min(max(value, out + 1), last)

    cdef bint open_entry(self, const TimerUnit *unit, const RecordView *record,
                         const TimedProperties *found) noexcept nogil:
        # A unit of an open slot. *record* and *found* may be NULL: they are looked up if they are needed.
        cdef DueEntry entry
        cdef RecordView own
        cdef TimedProperties own_found
        if unit.magic & TIMER_MAGIC_DELETE and not unit.magic & TIMER_MAGIC_ROLL:
            if found == NULL and self.look(unit.physical_offset, unit.record_size, &own):
                find_timed(own.properties, own.properties_size, &own_found)
                found = &own_found
            if found != NULL and found.delete_key.size > 0 and not recall_add(
                    self.recalled, unit.slot_time, found.delete_key.at, found.delete_key.size):
                return False
        entry.deliver_time = unit.deliver_time
        if unit.deliver_time <= 0 or unit.deliver_time > unit.slot_time + self.precision_ms:
            entry.deliver_time = unit.slot_time + self.precision_ms     # RocketMQ knows no other time
        entry.physical_offset = unit.physical_offset
        entry.record_size = unit.record_size
        entry.slot_time = unit.slot_time
        entry.write_time = unit.write_time
        entry.magic = unit.magic
        return due_push(&self.heap, &entry)

    cdef bint enqueue(self, int64_t offset, int32_t size, int64_t now) noexcept nogil:
        # One message of the timer topic; False: it cannot be done now, and *error* says why.
        cdef RecordView record
        cdef TimedProperties found
        cdef TimerUnit unit
        cdef WheelSlot slot
        cdef int64_t out, position, real_queue_id
        cdef int32_t count
        if not self.look(offset, size, &record):
            if self.error != ENOENT:
                return False
            warn_unreadable(&self.unusable, "timer message", offset, ENOENT)
            return True
        find_timed(record.properties, record.properties_size, &found)
        if not parse_long(&found.out_ms, &out) or not parse_long(&found.real_queue_id, &real_queue_id) or (
                found.real_topic.size == 0 or found.real_topic.size > TOPIC_SIZE_MAX or out < 0
                or not 0 <= real_queue_id <= 0x7FFFFFFF):
            # Who writes into the topic by himself gets what he asks for: RocketMQ would try it for ever.
            warn_unreadable(&self.unusable, "timer properties", offset, EIO)
            return True
        unit.write_time = now // self.precision_ms * self.precision_ms
        unit.slot_time = out // self.precision_ms * self.precision_ms
        unit.magic = TIMER_MAGIC_DEFAULT
        if unit.slot_time - unit.write_time >= self.window_ms:
            unit.magic |= TIMER_MAGIC_ROLL
            if unit.slot_time - unit.write_time - self.window_ms < self.window_slots // 3 * self.precision_ms:
                unit.slot_time = unit.write_time + self.window_slots // 2 * self.precision_ms
            else:
                unit.slot_time = unit.write_time + self.window_ms
            unit.deliver_time = unit.slot_time + self.precision_ms
        else:
            unit.deliver_time = self.exact_time(&found, &record, unit.slot_time)
            # One that comes late waits in the first slot that is not over, and is due at once.
            unit.slot_time = max(unit.slot_time, self.read_time)
            unit.write_time = min(unit.write_time, unit.slot_time)
        if found.delete_key.size > 0:
            unit.magic |= TIMER_MAGIC_DELETE
        unit.physical_offset = offset
        unit.record_size = size
        unit.topic_hash = java_hash(found.real_topic.at, found.real_topic.size)
        wheel_slot(&self.wheel, unit.slot_time, &slot)
        unit.previous_position = slot.last_position
        if not self.count_waiting(offset, 1):
            self.error = EIO
            return False
        position = append_unit(&self.log, &unit)
        if position < 0:
            self.count_waiting(offset, -1)
            self.error = <int>-position
            return False
        count = -1 if found.delete_key.size > 0 else 1
        wheel_add(&self.wheel, unit.slot_time, position, count)
        self.pending += count
        self.count_topic(found.real_topic.at, found.real_topic.size, count)
        put_relaxed(&self.shared.board.timer_enqueued, self.shared.board.timer_enqueued + 1)
        if unit.slot_time < self.loaded_until and not self.open_entry(&unit, &record, &found):
            self.error = EIO
            return False
        return True

    cdef int enqueue_some(self, int64_t now) noexcept nogil:
        # How many; -1: it failed.
        cdef QueueRow *queue = &self.shared.queues[self.queue_row]
        cdef int64_t limit = queue_max_offset(queue)
        cdef int64_t first = max(self.queue_offset, queue_min_offset(queue))
        cdef int64_t count = 0
        cdef int64_t index
        cdef CqUnit unit
        cdef const uint8_t *units
        if self.stops_enqueue or first >= limit:
            return 0
        units = units_at(&self.queues, self.queue_row, first, limit, coarse_ms(), &count)
        if units == NULL:
            warn_unreadable(&self.unreadable, "consume queue of the timer topic", first, self.queues.error)
            self.is_behind = False
            return 0
        count = min(count, <int64_t>ENQUEUED_PER_TURN)
        for index in range(count):
            read_queue_unit(units + index * CQ_UNIT_SIZE, &unit)
            if not self.enqueue(unit.physical_offset, unit.record_size, now):
                self.is_behind = False      # what waits longer than that is not held up
                return -1
            self.queue_offset = first + index + 1
        put_relaxed(&self.shared.board.timer_queue_offset, self.queue_offset)
        put_relaxed(&self.shared.board.timer_pending, self.pending)
        return <int>count

    cdef bint load_slot(self, int64_t time) noexcept nogil:
        # Open a slot: its chain into the heap. What lies far back in the log is asked for at once, in order of offset.
        cdef WheelSlot slot
        cdef TimerUnit unit
        cdef int64_t cold_end = self.hot_from()
        cdef int64_t start = 0
        cdef int64_t end = 0
        cdef int64_t position
        if not wheel_slot(&self.wheel, time, &slot):
            return True
        position = slot.last_position
        while position >= 0:
            if unit_at(&self.log, position, &unit) != UNIT_OK or unit.slot_time != time or (
                    unit.previous_position >= position):
                warn_unreadable(&self.unreadable, "timer log", position, self.timer_files.error)
                break
            if not self.open_entry(&unit, NULL, NULL):
                return False
            if unit.physical_offset < cold_end:
                if unit.physical_offset + unit.record_size + GAP >= start and unit.physical_offset < end:
                    start = min(start, unit.physical_offset)
                else:
                    self.advise(start, end)
                    start = unit.physical_offset
                    end = start + unit.record_size
            position = unit.previous_position
        self.advise(start, end)
        return True

    cdef bint load_some(self, int64_t now) noexcept nogil:
        # Open the slots that begin within one precision from now.
        while self.loaded_until <= now + self.precision_ms and self.heap.count < HEAP_FULL:
            if not self.load_slot(self.loaded_until):
                return False
            self.loaded_until += self.precision_ms
        return True

    # Out of the wheel ---------------------------------------------------------------------------------------------

    cdef int32_t queue_of(self, const TimedProperties *found, int32_t *topic_row, int32_t *queue_id) noexcept nogil:
        # The row of the queue where the message belongs. A new row is made without the put lock: see SHARING.md.
        cdef int64_t value = 0
        cdef int32_t row
        parse_long(&found.real_queue_id, &value)
        queue_id[0] = <int32_t>value
        topic_row[0] = find_topic(self.shared, found.real_topic.at, found.real_topic.size)
        row = ROW_NONE if topic_row[0] == ROW_NONE else find_queue(self.shared, topic_row[0], queue_id[0])
        if row != ROW_NONE:
            return row
        append_rest(&self.appender)
        topic_row[0] = make_topic(self.shared, found.real_topic.at, found.real_topic.size)
        return ROW_NONE if topic_row[0] == ROW_NONE else make_queue(self.shared, topic_row[0], queue_id[0])

    cdef int32_t new_properties(self, const DueEntry *entry, const TimedProperties *found, int64_t now,
                                uint8_t *out) noexcept nogil:
        # What is added to a message that leaves the wheel; no 0x02 at the end.
        cdef int64_t rolls = 0
        cdef int64_t out_ms = 0
        cdef int64_t write_time = entry.write_time
        cdef int32_t size
        if parse_long(&found.out_ms, &out_ms) and not entry.magic & TIMER_MAGIC_ROLL and out_ms < entry.slot_time:
            write_time = INT64_MAX      # as upstream says of what was late
        size = put_number_property(out, "TIMER_ENQUEUE_MS", 16, write_time)
        size += put_number_property(out + size, "TIMER_DEQUEUE_MS", 16, now)
        if entry.magic & TIMER_MAGIC_ROLL:
            parse_long(&found.roll_times, &rolls)
            size += put_number_property(out + size, "TIMER_ROLL_TIMES", 16, rolls + 1)
        return size - 1

    cdef Delivery put(self, const DueEntry *entry, const RecordView *record, const TimedProperties *found,
                      int64_t now) noexcept nogil:
        cdef Republication change
        cdef RecordFields fields
        cdef Appended done
        cdef uint8_t added[NUMBERS_SIZE]
        cdef uint8_t text[PROPERTIES_SIZE_MAX]
        cdef int status
        memset(&change, 0, sizeof(change))
        if entry.magic & TIMER_MAGIC_ROLL:
            change.topic_row = self.topic_row
            change.queue_row = self.queue_row
        else:
            change.queue_row = self.queue_of(found, &change.topic_row, &change.queue_id)
            if change.queue_row == ROW_NONE:
                warn_unreadable(&self.unusable, "no row for the topic of a timer message", entry.physical_offset, EIO)
                return DELIVERY_LATER
        # By it a start tells what was delivered before it. One more, as 0 is that of every other message.
        change.prepared_transaction_offset = entry.physical_offset + 1
        change.added = added
        change.added_size = self.new_properties(entry, found, now, added)
        change.dropped = STALE
        change.dropped_count = 3 if entry.magic & TIMER_MAGIC_ROLL else 2
        if not republished(self.shared, record, &change, text, &fields):
            # Better without its times than not at all.
            change.added_size = 0
            republished(self.shared, record, &change, text, &fields)
        status = append_record(&self.appender, &fields, change.topic_row, change.queue_row, &done)
        if status == PUT_STATUS_PUT_OK:
            self.has_appended = True
            return DELIVERY_DONE
        if status == PUT_STATUS_MESSAGE_ILLEGAL or status == PUT_STATUS_PROPERTIES_SIZE_EXCEEDED:
            # Larger than maxMessageSize is now: the limit is for who sends, and this one was accepted.
            if self.appender.record_size_max < self.appender.file_size:
                self.appender.record_size_max = self.appender.file_size
                return DELIVERY_REFUSED
            warn_unreadable(&self.unusable, "a timer message that no file takes", entry.physical_offset, EIO)
            return DELIVERY_DONE
        if peek(&self.shared.queues[change.queue_row].next_offset) < 0:
            return DELIVERY_LATER
        return DELIVERY_REFUSED

    cdef Delivery deliver(self, const DueEntry *entry, int64_t now) noexcept nogil:
        cdef RecordView record
        cdef TimedProperties found
        cdef Delivery outcome
        if entry.magic & TIMER_MAGIC_DELETE and not entry.magic & TIMER_MAGIC_ROLL:
            return DELIVERY_DONE
        if not self.look(entry.physical_offset, entry.record_size, &record):
            if self.error != ENOENT:
                return DELIVERY_REFUSED
            warn_unreadable(&self.unreadable, "a timer message that is due", entry.physical_offset, ENOENT)
            return DELIVERY_DONE
        find_timed(record.properties, record.properties_size, &found)
        if offset_has(&self.delivered, entry.physical_offset):
            self.count_topic(found.real_topic.at, found.real_topic.size, -1)
            return DELIVERY_DONE
        if not entry.magic & TIMER_MAGIC_ROLL and recall_has(
                self.recalled, entry.slot_time, found.real_topic.at, found.real_topic.size, found.unique_key.at,
                found.unique_key.size):
            put_relaxed(&self.shared.board.timer_recalled, self.shared.board.timer_recalled + 1)
            return DELIVERY_DONE
        outcome = self.put(entry, &record, &found, now)
        if outcome == DELIVERY_DONE:
            self.newest_delivered = max(self.newest_delivered, entry.slot_time)
            self.count_topic(found.real_topic.at, found.real_topic.size,
                             1 if entry.magic & TIMER_MAGIC_DELETE else -1)
            if entry.magic & TIMER_MAGIC_ROLL:
                put_relaxed(&self.shared.board.timer_rolled, self.shared.board.timer_rolled + 1)
                if entry.magic & TIMER_MAGIC_DELETE and entry.deliver_time + self.precision_ms <= now:
                    # Late, after a pause of ours: what it takes back may be due as well.
                    self.wait_for_topic()
            else:
                put_relaxed(&self.shared.board.timer_delivered, self.shared.board.timer_delivered + 1)
        return outcome

    cdef void wait_for_topic(self) noexcept nogil:
        # Deliver nothing before what the log has now of the timer topic is in the wheel.
        self.stored_before = observe(&self.shared.board.wrote_offset)
        self.behind_until = -1
        self.is_behind = True

    cdef bint waits_for_topic(self) noexcept nogil:
        # What came while nobody looked may take back what is due by now: it goes into the wheel first.
        if self.is_behind and self.behind_until < 0 and (
                observe(&self.shared.board.dispatched_offset) >= self.stored_before):
            self.behind_until = queue_max_offset(&self.shared.queues[self.queue_row])
        if self.is_behind and (self.stops_enqueue or 0 <= self.behind_until <= self.queue_offset):
            self.is_behind = False
        return self.is_behind

    cdef int deliver_some(self, int64_t now) noexcept nogil:
        # How many; -1: the store takes nothing now.
        cdef DueEntry entry
        cdef Delivery outcome
        cdef int count = 0
        if self.stops_dequeue or self.waits_for_topic():
            return 0
        while self.parked.count > 0 and self.parked.entries[0].deliver_time <= now:
            entry = self.parked.entries[0]
            if not due_push(&self.heap, &entry):
                return -1
            due_pop(&self.parked)
        while count < DELIVERED_PER_TURN and self.heap.count > 0 and self.heap.entries[0].deliver_time <= now and (
                not self.is_behind):
            self.advance(self.over_until(now))
            entry = self.heap.entries[0]
            outcome = self.deliver(&entry, now)
            if outcome == DELIVERY_REFUSED:
                count = -1
                break
            due_pop(&self.heap)
            if outcome == DELIVERY_LATER:
                entry.deliver_time = now + RETRY_MS
                due_push(&self.parked, &entry)
            else:
                self.forget_one(&entry)
            count += 1
        append_rest(&self.appender)
        return count

    # The loop -----------------------------------------------------------------------------------------------------

    cdef void wake_others(self) noexcept nogil:
        if not self.has_appended:
            return
        self.has_appended = False
        full_fence()
        if peek(&self.reput_row.sleeping):
            wake_fd(self.reput_wake)
            put_relaxed(&self.row.wakes, self.row.wakes + 1)
        if self.wakes_flush and peek(&self.flush_row.sleeping):
            wake_fd(self.flush_wake)
            put_relaxed(&self.row.wakes, self.row.wakes + 1)

    cdef bint has_news(self) noexcept nogil:
        return not self.stops_enqueue and (
            self.queue_offset < queue_max_offset(&self.shared.queues[self.queue_row]))

    cdef int time_left(self, int64_t now) noexcept nogil:
        # Until there is something to do that nobody wakes us for.
        cdef int64_t until = min(now + SLEEP_MS, now + self.housekeeping_at - coarse_ms())
        if self.heap.count < HEAP_FULL:
            until = min(until, self.loaded_until - self.precision_ms)
        if self.is_behind:
            until = min(until, now + NAP_MS)
        elif self.heap.count > 0 and not self.stops_dequeue:
            until = min(until, self.heap.entries[0].deliver_time)
        if self.parked.count > 0:
            until = min(until, self.parked.entries[0].deliver_time)
        return <int>max(<int64_t>0, until - now)

    cdef bint rest(self, int timeout) noexcept nogil:
        # Nothing to do: nap while traffic lasts, then sleep. True when the link has something to say.
        cdef pollfd fds[2]
        fds[0].fd = self.wake
        fds[0].events = POLLIN
        fds[0].revents = 0
        fds[1].fd = self.link
        fds[1].events = POLLIN
        fds[1].revents = 0
        if self.naps < NAPS_MAX:
            self.naps += 1
            timeout = min(timeout, <int>NAP_MS)
        else:
            exchange_full(&self.row.sleeping, 1)
            if self.has_news():
                timeout = 0
        poll(fds, 2, timeout)
        put_relaxed(&self.row.sleeping, 0)
        if fds[0].revents:
            drain_fd(self.wake)
        return fds[1].revents != 0

    cdef void keep_house(self) noexcept nogil:
        put_relaxed(&self.row.heartbeat, now_ms())
        put_relaxed(&self.row.backlog, queue_max_offset(&self.shared.queues[self.queue_row]) - self.queue_offset)
        files_trim(self.files, observe(&self.shared.board.min_offset))
        files_rest(self.files)
        files_rest(self.timer_files)
        queues_rest(&self.queues, coarse_ms() - 10 * HOUSEKEEPING_MS)
        self.publish_keeps()

    cdef void release_cold(self) noexcept nogil:
        cdef int64_t cold = observe(&self.shared.board.cold_end)
        if cold > peek(&self.row.released):
            files_release(self.files, cold)
            publish(&self.row.released, cold)

    cdef TimerNews follow(self, int64_t settings_version) noexcept nogil:
        cdef int64_t now
        cdef int enqueued, delivered
        while observe(&self.row.command) == WORKER_COMMAND_RUN:
            if observe(&self.shared.board.settings_version) != settings_version:
                return TIMER_SETTINGS
            now = now_ms()
            if not self.load_some(now):
                self.error = ENOMEM
                return TIMER_FAILED
            # In this order: what comes late may take back what is due.
            enqueued = self.enqueue_some(now)
            delivered = self.deliver_some(now)
            self.advance(self.over_until(now))
            self.wake_others()
            self.release_cold()
            put_relaxed(&self.row.turns, self.row.turns + 1)
            if enqueued < 0:
                return TIMER_FAILED
            put_relaxed(&self.row.units, self.row.units + enqueued)
            if coarse_ms() >= self.housekeeping_at:
                self.housekeeping_at = coarse_ms() + HOUSEKEEPING_MS
                self.keep_house()
                return TIMER_HOUSEKEEPING
            if delivered > 0 or enqueued > 0:
                self.naps = 0
            elif self.rest(<int>RETRY_MS if delivered < 0 else self.time_left(now)):
                return TIMER_LINK
        return TIMER_STOP

    def run(self, int64_t settings_version=0):
        """Work until something needs Python's attention; which is a TimerNews."""
        cdef TimerNews news
        with nogil:
            news = self.follow(settings_version)
            append_rest(&self.appender)
        return news

    def failure(self):
        """What TIMER_FAILED is about, in words."""
        return f"timer log at {self.log.end}, timer topic at {self.queue_offset}: {os.strerror(self.error)}"

    def snapshot(self):
        """(read time, timer log end, queue offset, scan offset, commit log end): what a start would go on from."""
        return (self.read_time, self.log.end, self.queue_offset, self.scan_offset,
                observe(&self.shared.board.wrote_offset))

    def pending_by_topic(self):
        """How many messages wait for each topic (bytes); topics without are left out."""
        cdef int32_t row
        cdef int32_t count = self.shared.board.topic_rows
        return {bytes(self.shared.topics[row].name[:self.shared.topics[row].name_size]): self.topic_pending[row]
                for row in range(count) if self.topic_pending[row] != 0}

    # The start ----------------------------------------------------------------------------------------------------

    cdef void apply_unit(self, const TimerUnit *unit, int64_t position) noexcept nogil:
        # What was written into the log, and perhaps not into the wheel.
        cdef WheelSlot slot
        if unit.slot_time < self.read_time:
            return
        if wheel_slot(&self.wheel, unit.slot_time, &slot) and slot.last_position >= position:
            return
        wheel_add(&self.wheel, unit.slot_time, position, -1 if unit.magic & TIMER_MAGIC_DELETE else 1)

    cdef int64_t scan_log(self, int64_t position, int64_t *last) noexcept nogil:
        # Apply the units from *position* on; returns where they end. *last* gets the position of the last one.
        cdef TimerUnit unit
        cdef UnitStatus status
        cdef int64_t end = observe(&self.shared.board.wrote_offset)
        while True:
            status = unit_at(&self.log, position, &unit)
            if status == UNIT_FILLER:
                position += self.log.file_size - position % self.log.file_size
            elif status == UNIT_NONE or unit.physical_offset + unit.record_size > end:
                # The second: its record did not survive a power cut.
                return position
            else:
                self.apply_unit(&unit, position)
                last[0] = position
                position += TIMER_UNIT_SIZE

    cdef void wipe_behind(self) noexcept nogil:
        # What lies behind the end of the log could one day be taken for units: they have their places.
        cdef int64_t available = 0
        cdef int64_t index
        cdef uint8_t *at
        if self.log.end % self.log.file_size == 0:
            return
        at = bytes_at(self.timer_files, self.log.end, &available)
        if at == NULL:
            return
        for index in range(available):
            if at[index] != 0:
                memset(at + index, 0, available - index)
                return

    cdef bint is_ahead(self, const WheelSlot *slot, int32_t index) noexcept nogil:
        # Whether what stands at this place of the wheel is a slot that is not over.
        return slot.time > 0 and slot.time >= self.read_time and (
            slot.time // self.precision_ms % TIMER_SLOT_COUNT == index)

    cdef bint is_torn(self, int64_t *earliest) noexcept nogil:
        # Whether a slot names a unit that is not there: a power cut came when the wheel was written, and the log not.
        cdef WheelSlot slot
        cdef int32_t index
        cdef bint torn = False
        earliest[0] = INT64_MAX
        for index in range(TIMER_SLOT_COUNT):
            wheel_place(&self.wheel, index, &slot)
            if not self.is_ahead(&slot, index):
                continue
            torn = torn or slot.last_position >= self.log.end
            earliest[0] = min(earliest[0], slot.time)
        return torn

    cdef bint count_chain(self, WheelSlot *slot, int32_t *hashes, int64_t *counts) noexcept nogil:
        # Count what waits in one slot; False: its chain does not hold together.
        cdef TimerUnit unit
        cdef int64_t position = slot.last_position
        cdef int32_t place
        while position >= 0:
            if unit_at(&self.log, position, &unit) != UNIT_OK or unit.slot_time != slot.time or (
                    unit.previous_position >= position):
                return False
            self.count_waiting(unit.physical_offset, 1)
            place = unit.topic_hash & (HASHES - 1)
            while counts[place] != 0 and hashes[place] != unit.topic_hash:
                place = (place + 1) & (HASHES - 1)
            hashes[place] = unit.topic_hash
            # Twice, and one more, so that a sum of nothing is not an empty place.
            counts[place] = (counts[place] | 1) + (-2 if unit.magic & TIMER_MAGIC_DELETE else 2)
            position = unit.previous_position
        return True

    cdef int64_t count_all(self, int32_t *hashes, int64_t *counts) noexcept nogil:
        # Count what waits in all slots; returns how many chains are broken.
        cdef WheelSlot slot
        cdef int32_t index, row, place, topic_hash
        cdef int64_t broken = 0
        self.pending = 0
        for index in range(TIMER_SLOT_COUNT):
            wheel_place(&self.wheel, index, &slot)
            if not self.is_ahead(&slot, index):
                continue
            self.pending += slot.count
            broken += not self.count_chain(&slot, hashes, counts)
        for row in range(self.shared.board.topic_rows):
            topic_hash = java_hash(self.shared.topics[row].name, self.shared.topics[row].name_size)
            place = topic_hash & (HASHES - 1)
            while counts[place] != 0:
                if hashes[place] == topic_hash:
                    self.topic_pending[row] = counts[place] >> 1
                    break
                place = (place + 1) & (HASHES - 1)
        return broken

    cdef bint find_delivered(self, int64_t at) noexcept nogil:
        # Remember the copies that the log has from *at* on; False: no memory.
        cdef int64_t end = observe(&self.shared.board.wrote_offset)
        cdef int64_t available = 0
        cdef int32_t value_size = 0
        cdef const uint8_t *base
        cdef const uint8_t *value
        cdef RecordView record
        cdef DecodeStatus status
        at = max(at, observe(&self.shared.board.min_offset))
        while at < end:
            base = bytes_at(self.files, at, &available)
            if base == NULL:
                at += self.appender.file_size - at % self.appender.file_size
                continue
            status = decode_record(base, min(available, end - at), False, &record)
            if status != DECODE_OK:
                at += self.appender.file_size - at % self.appender.file_size
                continue
            if record.prepared_transaction_offset > 0 and find_property(
                    record.properties, record.properties_size, "TIMER_OUT_MS", 12, &value, &value_size):
                if not offset_add(&self.delivered, record.prepared_transaction_offset - 1):
                    return False
            at += record.total_size
        return True

    cdef int64_t first_record(self) noexcept nogil:
        # Where the oldest message of the timer topic lies; all that was ever delivered of those lies behind it.
        cdef QueueRow *queue = &self.shared.queues[self.queue_row]
        cdef int64_t count = 0
        cdef CqUnit unit
        cdef const uint8_t *units
        if queue_min_offset(queue) < queue_max_offset(queue):
            units = units_at(&self.queues, self.queue_row, queue_min_offset(queue), queue_max_offset(queue),
                             coarse_ms(), &count)
            if units != NULL:
                read_queue_unit(units, &unit)
                return unit.physical_offset
        return observe(&self.shared.board.wrote_offset)

    def recover(self, int64_t read_time, int64_t queue_offset, int64_t scan_offset, int64_t log_first,
                int64_t log_start):
        """Take over the files as they are; (units found behind, chains that are broken, deliveries found).

        *read_time*, *queue_offset*, *scan_offset*: of the last checkpoint; a scan offset of -1: nobody knows what was
        delivered since; -2: there is no checkpoint, and the log is looked at from the first message of the topic on.
        *log_first*: start of the oldest file of the timer log; *log_start*: of the file in which to
        look for its end.
        """
        cdef int64_t earliest = INT64_MAX
        cdef int64_t last = -1
        cdef int64_t broken = 0
        cdef TimerUnit unit
        cdef RecordView record
        cdef int64_t now = now_ms()
        cdef bint remembers = True
        cdef int32_t *hashes = <int32_t *>calloc(HASHES, sizeof(int32_t))
        cdef int64_t *counts = <int64_t *>calloc(HASHES, sizeof(int64_t))
        if hashes == NULL or counts == NULL:
            free(hashes)
            free(counts)
            raise MemoryError()
        with nogil:
            self.read_time = read_time // self.precision_ms * self.precision_ms
            self.log.end = self.scan_log(log_start, &last)
            self.wipe_behind()
            if self.is_torn(&earliest):
                wheel_clear(&self.wheel)
                self.scan_log(log_first, &last)
                self.is_torn(&earliest)
            self.read_time = max(self.read_time, min(earliest, now // self.precision_ms * self.precision_ms))
            self.loaded_until = self.read_time
            self.queue_offset = queue_offset
            if last >= 0 and unit_at(&self.log, last, &unit) == UNIT_OK and self.look(
                    unit.physical_offset, unit.record_size, &record):
                self.queue_offset = record.queue_offset + 1
            broken = self.count_all(hashes, counts)
            if scan_offset == -2:
                scan_offset = self.first_record()
            self.scan_offset = observe(&self.shared.board.wrote_offset) if scan_offset < 0 else scan_offset
            if scan_offset >= 0:
                remembers = self.find_delivered(scan_offset)
            self.wait_for_topic()
            self.delivered_until = (now // self.precision_ms + 2) * self.precision_ms
            put_relaxed(&self.shared.board.timer_read_time, self.read_time)
            put_relaxed(&self.shared.board.timer_queue_offset, self.queue_offset)
            put_relaxed(&self.shared.board.timer_pending, self.pending)
            self.publish_keeps()
        free(hashes)
        free(counts)
        if not remembers:
            raise MemoryError()
        return last, broken, self.delivered.count
