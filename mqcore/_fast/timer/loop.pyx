"""The loop of the timer worker: from the timer topic into the wheel, and when it is time into the log again.

Nothing of it needs to be remembered but in files: a message that waits is a record of the timer topic, a unit of the
timer log and a place in a slot's chain, and one that was delivered is a record that names the one it is a copy of (its
prepared transaction offset, which nobody reads of such a record). Who comes after a death reads the chains again, and
passes over what he finds delivered in the log.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import os

from mqcore._fast.base.atomics cimport (coarse_ms, drain_fd, exchange_full, full_fence, now_ms, observe, peek, publish,
                                        put_relaxed, wake_fd)
from mqcore._fast.base.layout cimport TIMER_WHEEL_FILE_SIZE, TOPIC_CAPACITY, WORKER_COMMAND_RUN, WorkerRow
from mqcore._fast.log.append cimport append_rest
from mqcore._fast.log.mapped_file cimport FileSet, files_close, files_open, files_release, files_rest, files_trim
from mqcore._fast.log.record cimport RecordView
from mqcore._fast.queues.reader cimport queues_close, queues_open, queues_rest
from mqcore._fast.segment.boards cimport Shared, SharedSegment
from mqcore._fast.segment.bounds cimport queue_max_offset
from mqcore._fast.timer.deliver cimport RETRY_MS, deliver_some, wait_for_topic
from mqcore._fast.timer.due cimport RecallTable, due_free, offset_free, recall_trim
from mqcore._fast.timer.enqueue cimport enqueue_some
from mqcore._fast.timer.records cimport timer_record
from mqcore._fast.timer.recovery cimport (HASHES, Beginning, TimerDamage, find_delivered, first_record, scan_files,
                                          stored_since)
from mqcore._fast.timer.skipped cimport timer_now
from mqcore._fast.timer.slots cimport advance, load_slots, over_until
from mqcore._fast.timer.state cimport HEAP_FULL, LOG_FDS, TimerState
from mqcore._fast.timer.units cimport UNIT_OK, TimerUnit, unit_at
from mqcore._fast.timer.waiting cimport publish_keeps

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout_ms)
    short POLLIN

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    SLEEP_MS = 1000
    NAP_MS = 1
    NAPS_MAX = 100
    HOUSEKEEPING_MS = 1000
    NOBODY_KNOWS = -1               # what was delivered since the last checkpoint
    FROM_THE_FIRST = -2             # what was delivered of all that the topic has is to be looked up

# Why the loop came back to Python.
cpdef enum TimerNews:
    TIMER_STOP                      # the broker process says so: for good, or to drain
    TIMER_LINK                      # there is something to read on the link
    TIMER_FAILED                    # the timer log could not be written; see failure_error
    TIMER_SETTINGS                  # the board has another version of them
    TIMER_HOUSEKEEPING              # time to look around


cdef class TimerLoop:
    """One thread drives it: ``scan`` and ``begin``, then ``run``. *wheel* is the mapped file `timerwheel`."""

    cdef TimerState state
    cdef SharedSegment segment
    cdef Shared *shared
    cdef WorkerRow *row
    cdef uint8_t[::1] wheel_memory
    cdef const int64_t[::1] time_sheet
    cdef object kept
    cdef int64_t checked_until          # what is due before was delivered before the last checkpoint, ms
    cdef int64_t last_unit              # its position when the files were scanned, or -1
    cdef bint wakes_flush
    cdef int wake
    cdef int link
    cdef WorkerRow *reput_row
    cdef int reput_wake
    cdef WorkerRow *flush_row
    cdef int flush_wake
    cdef int64_t housekeeping_at
    cdef int naps

    def __cinit__(self, SharedSegment segment not None, uint8_t[::1] wheel not None, dict options not None):
        cdef int index
        memset(&self.state, 0, sizeof(TimerState))
        for index in range(LOG_FDS):
            self.state.fds[index] = -1
        self.segment = segment
        self.shared = self.state.shared = &segment.shared
        self.row = &segment.shared.workers[<int>options["row"]]
        self.state.precision_ms = self.state.wheel.precision_ms = options["precision_ms"]
        self.state.window_slots = options["window_slots"]
        self.state.window_ms = self.state.window_slots * self.state.precision_ms
        self.state.queue_row = <int32_t>(observe(&self.shared.board.timer_row) - 1)
        self.state.topic_row = self.shared.queues[self.state.queue_row].topic_row
        self.wake = options["wake"]
        self.link = options["link"]
        self.reput_row = &segment.shared.workers[<int>options["reput_row"]]
        self.reput_wake = options["reput_wake"]
        self.flush_row = &segment.shared.workers[<int>options["flush_row"]]
        self.flush_wake = options["flush_wake"]
        self.time_sheet = options["time_sheet"]
        self.state.skips = &self.time_sheet[0]
        self.take_wheel(wheel)
        self.take_memory(options)
        self.use(options)

    def take_wheel(self, uint8_t[::1] wheel not None):
        """Go on with another wheel; ``scan`` has to follow."""
        if wheel.shape[0] != TIMER_WHEEL_FILE_SIZE:
            raise ValueError(f"timer wheel of {wheel.shape[0]} bytes, wanted {TIMER_WHEEL_FILE_SIZE}")
        self.wheel_memory = wheel
        self.state.wheel.base = &wheel[0]

    cdef take_memory(self, dict options):
        cdef const char *root
        cdef const char *ext_root
        cdef TimerState *state = &self.state
        state.files = <FileSet *>calloc(1, sizeof(FileSet))
        state.timer_files = <FileSet *>calloc(1, sizeof(FileSet))
        state.recalled = <RecallTable *>calloc(1, sizeof(RecallTable))
        state.topic_pending = <int64_t *>calloc(TOPIC_CAPACITY, sizeof(int64_t))
        if state.files == NULL or state.timer_files == NULL or state.recalled == NULL or state.topic_pending == NULL:
            raise MemoryError()
        files_open(state.files, options["commit_log"], options["commit_log_file_size"], True, self.segment.fd)
        files_open(state.timer_files, options["timer_log"], options["timer_log_file_size"], True, -1)
        state.log.files = state.timer_files
        state.log.file_size = options["timer_log_file_size"]
        state.appender.shared = self.shared
        state.appender.files = state.files
        state.appender.file_size = options["commit_log_file_size"]
        state.appender.counts_topics = True
        state.appender.tallies = False
        state.appender.keeps_lock = True
        self.kept = options["consume_queue"].encode(), options["consume_queue_ext"].encode()
        root, ext_root = self.kept
        queues_open(&state.queues, self.shared, root, options["consume_queue_file_size"], ext_root,
                    options["ext_file_size"], 4)

    def use(self, dict options not None):
        """Go by what *options* has of ``live_options`` in workers/timer.py. Not while another thread is in ``run``."""
        self.state.stops_enqueue = options["stops_enqueue"]
        self.state.stops_dequeue = options["stops_dequeue"]
        self.wakes_flush = options["wakes_flush"]
        self.state.appender.record_size_max = <int64_t>options["max_message_size"] + 65536
        self.state.appender.lock_timeout_ms = options["lock_timeout_ms"]

    def __dealloc__(self):
        cdef TimerState *state = &self.state
        cdef int index
        if state.files != NULL:
            files_close(state.files)
        if state.timer_files != NULL:
            files_close(state.timer_files)
        queues_close(&state.queues)
        due_free(&state.heap)
        due_free(&state.parked)
        offset_free(&state.delivered)
        if state.recalled != NULL:
            recall_trim(state.recalled, INT64_MAX)
        free(state.files)
        free(state.timer_files)
        free(state.recalled)
        free(state.waiting)
        free(state.topic_pending)
        free(state.scratch)
        for index in range(LOG_FDS):
            if state.fds[index] >= 0:
                close(state.fds[index])

    # The start ----------------------------------------------------------------------------------------------------

    def scan(self, int64_t read_time, int64_t log_position, int64_t log_first, int64_t log_start, bint is_new_wheel):
        """Hold the files against one another, and bring the wheel up to the log; a TimerDamage.

        *read_time*, *log_position*: of the last checkpoint. *log_first*: start of the oldest file of the timer log;
        *log_start*: of the one in which to look for its end. *is_new_wheel*: it is empty, all comes from the log.
        """
        cdef Beginning beginning
        cdef TimerDamage damage
        cdef int32_t *hashes = <int32_t *>calloc(HASHES, sizeof(int32_t))
        cdef int64_t *counts = <int64_t *>calloc(HASHES, sizeof(int64_t))
        if hashes == NULL or counts == NULL:
            free(hashes)
            free(counts)
            raise MemoryError()
        beginning.read_time = read_time
        self.checked_until = read_time
        beginning.log_position = log_position
        beginning.log_first = log_first
        beginning.log_start = log_start
        beginning.is_new_wheel = is_new_wheel
        with nogil:
            damage = scan_files(&self.state, &beginning, timer_now(&self.state), hashes, counts, &self.last_unit)
        free(hashes)
        free(counts)
        return damage

    def begin(self, int64_t queue_offset, int64_t scan_offset):
        """Go on behind what was scanned; how many deliveries of predecessors were found.

        *queue_offset*, *scan_offset*: of the last checkpoint; a scan offset of -1: nobody says what was delivered
        since, and that is known by its time; -2: the log is looked at from the first message of the topic on.
        """
        cdef TimerState *state = &self.state
        cdef TimerUnit unit
        cdef RecordView record
        cdef bint remembers = True
        with nogil:
            state.queue_offset = queue_offset
            if self.last_unit >= 0 and unit_at(&state.log, self.last_unit, &unit) == UNIT_OK and timer_record(
                    state, unit.physical_offset, unit.record_size, &record):
                state.queue_offset = record.queue_offset + 1
            if scan_offset == FROM_THE_FIRST:
                scan_offset = first_record(state)
            elif scan_offset == NOBODY_KNOWS:
                scan_offset = stored_since(state, self.checked_until)
            state.scan_offset = scan_offset
            remembers = find_delivered(state, scan_offset)
            wait_for_topic(state)
            state.delivered_until = (timer_now(state) // state.precision_ms + 2) * state.precision_ms
            put_relaxed(&self.shared.board.timer_read_time, state.read_time)
            put_relaxed(&self.shared.board.timer_queue_offset, state.queue_offset)
            put_relaxed(&self.shared.board.timer_pending, state.pending)
            publish_keeps(state)
        if not remembers:
            raise MemoryError()
        return state.delivered.count

    # The loop -----------------------------------------------------------------------------------------------------

    cdef void wake_others(self) noexcept nogil:
        if not self.state.has_appended:
            return
        self.state.has_appended = False
        full_fence()
        if peek(&self.reput_row.sleeping):
            wake_fd(self.reput_wake)
            put_relaxed(&self.row.wakes, self.row.wakes + 1)
        if self.wakes_flush and peek(&self.flush_row.sleeping):
            wake_fd(self.flush_wake)
            put_relaxed(&self.row.wakes, self.row.wakes + 1)

    cdef bint has_news(self) noexcept nogil:
        return not self.state.stops_enqueue and (
            self.state.queue_offset < queue_max_offset(&self.shared.queues[self.state.queue_row]))

    cdef int time_left(self, int64_t now) noexcept nogil:
        # Until there is something to do that nobody wakes us for.
        cdef int64_t until = min(now + SLEEP_MS, now + self.housekeeping_at - coarse_ms())
        if self.state.heap.count < HEAP_FULL:
            until = min(until, self.state.loaded_until - self.state.precision_ms)
        if self.state.is_behind:
            until = min(until, now + NAP_MS)
        elif self.state.heap.count > 0 and not self.state.stops_dequeue:
            until = min(until, self.state.heap.entries[0].deliver_time)
        if self.state.parked.count > 0:
            until = min(until, self.state.parked.entries[0].deliver_time)
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
        put_relaxed(&self.row.backlog,
                    queue_max_offset(&self.shared.queues[self.state.queue_row]) - self.state.queue_offset)
        files_trim(self.state.files, observe(&self.shared.board.min_offset))
        files_rest(self.state.files)
        files_rest(self.state.timer_files)
        queues_rest(&self.state.queues, coarse_ms() - 10 * HOUSEKEEPING_MS)
        publish_keeps(&self.state)

    cdef void release_cold(self) noexcept nogil:
        cdef int64_t cold = observe(&self.shared.board.cold_end)
        if cold > peek(&self.row.released):
            files_release(self.state.files, cold)
            publish(&self.row.released, cold)

    cdef TimerNews follow(self, int64_t settings_version) noexcept nogil:
        cdef int64_t now
        cdef int enqueued, delivered
        while observe(&self.row.command) == WORKER_COMMAND_RUN:
            if observe(&self.shared.board.settings_version) != settings_version:
                return TIMER_SETTINGS
            now = timer_now(&self.state)
            if not load_slots(&self.state, now):
                self.state.error = ENOMEM
                return TIMER_FAILED
            # In this order: what comes late may take back what is due.
            enqueued = enqueue_some(&self.state, now)
            delivered = deliver_some(&self.state, now)
            advance(&self.state, over_until(&self.state, now))
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
            append_rest(&self.state.appender)
        return news

    def failure(self):
        """What TIMER_FAILED is about, in words."""
        where = f"timer log at {self.state.log.end}, timer topic at {self.state.queue_offset}"
        return f"{where}: {os.strerror(self.state.error)}"

    def snapshot(self):
        """(read time, timer log end, queue offset, scan offset, commit log end): what a start would go on from."""
        return (self.state.read_time, self.state.log.end, self.state.queue_offset, self.state.scan_offset,
                observe(&self.shared.board.wrote_offset))

    def pending_by_topic(self):
        """How many messages wait for each topic (bytes); topics without are left out."""
        cdef int32_t row
        cdef int32_t count = self.shared.board.topic_rows
        return {bytes(self.shared.topics[row].name[:self.shared.topics[row].name_size]): self.state.topic_pending[row]
                for row in range(count) if self.state.topic_pending[row] != 0}
