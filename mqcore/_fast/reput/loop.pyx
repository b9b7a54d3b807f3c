"""The loop of the reput worker: commit log to consume queues and index, and word of arrivals to the pull workers.

It follows the readable end of the commit log. Consume queue bounds are published after the unit is in place. Queues
that are dropped are cleared before anything behind their drop is dispatched.
"""

from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

import os

from mqcore._fast.base.atomics cimport (coarse_ms, drain_fd, exchange_full, full_fence, monotonic_ns, now_ms,
                                        observe, peek, publish, put_relaxed, raise_full, wake_fd)
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport (CRADLE_CAPACITY, METADATA_DROP_FLAG, PULL_WORKERS_MAX, RING_KIND_ARRIVAL,
                                       RING_KIND_RESCAN, WORKER_COMMAND_STOP, Arrival, QueueRow, WorkerRow)
from mqcore._fast.log.mapped_file cimport (FileSet, bytes_at, files_close, files_open, files_release, files_rest,
                                           files_trim)
from mqcore._fast.queues.dispatch cimport DISPATCH_BLANK, DISPATCH_FAILED, DISPATCH_INVALID, DISPATCH_SHORT, Dispatcher
from mqcore._fast.log.record cimport RecordView
from mqcore._fast.reput.bitmaps cimport (BitmapMaker, TopicPrograms, bitmaps_close, bitmaps_set, filters_of,
                                         make_bitmap)
from mqcore._fast.queues.first_files cimport (FirstFiles, drop_cradle, first_files_close, first_files_open,
                                              has_finished, make_first_files, stop_maker, tell_maker)
from mqcore._fast.queues.writer cimport leave_cradles, resume_cradle
from mqcore._fast.segment.boards cimport (ROW_NONE, Shared, SharedSegment, find_queue_near, find_topic_near,
                                          make_queue, make_topic, puller_of)
from mqcore._fast.segment.bounds cimport note_cleared, note_unit
from mqcore._fast.segment.cradle cimport cradle_number, is_cradle
from mqcore._fast.segment.rings cimport Ring, open_arrival_ring, ring_publish, ring_reserve

from mqcore.errors import StoreError

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *signals)
    short POLLIN

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        int64_t tv_nsec

cdef enum:
    CHUNK_MAX = 1 << 20             # bytes between two publications of the dispatched watermark
    # While traffic lasts nobody has to wake us. Upstream's pace where many records come in a millisecond; where few do,
    # a shorter nap costs little, and what is acknowledged can be read sooner.
    NAP_NS = 1000000
    SHORT_NAP_NS = 200000
    FEW_RECORDS_A_MS = 32
    MS_NS = 1000000
    TIRED_NS = 100000000            # after naps of so much without a record we sleep until we are woken
    SLEEP_S = 1
    HOUSEKEEPING_MS = 1000

# Why the loop came back to Python.
cpdef enum ReputNews:
    REPUT_STOP                      # the broker process says so
    REPUT_LINK                      # there is something to read on the link
    REPUT_FAILED                    # a file could not be made or grown
    REPUT_CORRUPT                   # a record that was published does not hold together
    REPUT_DROPS                     # queues were dropped: their files must go before anything else
    REPUT_HOUSEKEEPING              # time to look around


cdef class ReputLoop(Dispatcher):
    """A Dispatcher that follows the store board. One thread drives it."""

    cdef Shared *shared
    cdef SharedSegment segment
    cdef WorkerRow *row
    cdef FileSet *files
    cdef int64_t file_size
    cdef int wake
    cdef int link
    cdef int puller_count
    cdef WorkerRow *puller_rows[PULL_WORKERS_MAX]
    cdef int puller_wakes[PULL_WORKERS_MAX]
    cdef Ring arrivals[PULL_WORKERS_MAX]
    cdef bint puller_has_news[PULL_WORKERS_MAX]
    cdef WorkerRow *timer_row
    cdef int timer_wake
    cdef bint timer_has_news
    cdef int32_t last_topic_row         # of the last unit: where the next one's is likely to be
    cdef int32_t last_queue_row
    cdef int64_t housekeeping_at
    cdef int64_t drops                  # so many have been seen to; none after a start, which looks anew
    cdef BitmapMaker bitmaps
    cdef bytes metadata_name
    cdef const uint8_t *metadata_topic
    cdef int32_t metadata_topic_size
    cdef int64_t started_at             # the readable end of then: no predecessor can have dispatched more
    cdef int64_t napped_ns              # since the last record
    cdef int64_t nap_ns
    cdef int64_t counted_from_ns        # since when records are counted to choose it, and how many there were before
    cdef int64_t counted_from_record
    cdef FirstFiles *first_files

    def attach(self, SharedSegment segment not None, dict options not None):
        """Follow *segment*; once, before run(). *options* names every descriptor, see workers/reput.py."""
        cdef int index
        self.segment = segment
        self.shared = &segment.shared
        self.row = &segment.shared.workers[<int>options["row"]]
        self.wake = options["wake"]
        self.link = options["link"]
        self.drops = -1
        self.nap_ns = SHORT_NAP_NS
        self.file_size = options["commit_log_file_size"]
        self.last_topic_row = self.last_queue_row = ROW_NONE
        self.metadata_name = options["metadata_topic"]
        self.metadata_topic = self.metadata_name
        self.metadata_topic_size = <int32_t>len(self.metadata_name)
        self.started_at = self.readable_end()
        self.files = <FileSet *>malloc(sizeof(FileSet))
        if self.files == NULL:
            raise MemoryError()
        files_open(self.files, options["commit_log"], self.file_size, False)
        self.first_files = <FirstFiles *>malloc(sizeof(FirstFiles))
        if self.first_files == NULL or not first_files_open(self.first_files, self.shared, self.wake):
            raise MemoryError()
        self.queues.first_files = self.first_files
        self.puller_count = len(options["pullers"])
        for index, (row, wake) in enumerate(options["pullers"]):
            self.puller_rows[index] = &segment.shared.workers[<int>row]
            self.puller_wakes[index] = wake
            open_arrival_ring(&self.arrivals[index], self.shared, index)
        row, wake = options["timer"]
        self.timer_row = &segment.shared.workers[<int>row]
        self.timer_wake = wake

    def __dealloc__(self):
        bitmaps_close(&self.bitmaps)
        if self.files != NULL:
            files_close(self.files)
            free(self.files)
        if self.first_files != NULL:
            first_files_close(self.first_files)
            free(self.first_files)

    cdef void on_unit(self, const uint8_t *topic, int32_t topic_size, int32_t queue_id, int64_t queue_offset,
                      int64_t tags_code, int64_t store_timestamp) noexcept nogil:
        cdef int32_t queue_row
        cdef QueueRow *queue
        self.last_topic_row = find_topic_near(self.shared, topic, topic_size, self.last_topic_row)
        if self.last_topic_row == ROW_NONE:
            self.last_topic_row = make_topic(self.shared, topic, topic_size)
        if self.last_topic_row == ROW_NONE:
            return
        queue_row = find_queue_near(self.shared, self.last_topic_row, queue_id, self.last_queue_row)
        if queue_row == ROW_NONE:
            queue_row = make_queue(self.shared, self.last_topic_row, queue_id)
        if queue_row == ROW_NONE:
            return
        self.last_queue_row = queue_row
        queue = &self.shared.queues[queue_row]
        if queue_offset + 1 <= peek(&queue.max_offset):
            return
        note_unit(queue, queue_offset, self.record_end)
        if queue_row + 1 == peek(&self.shared.board.timer_row):
            self.timer_has_news = True
        full_fence()
        if peek(&queue.waiters) != 0:
            self.tell_arrival(topic, topic_size, queue_row, queue_offset + 1, tags_code, store_timestamp)

    cdef int32_t bitmap_of(self, const RecordView *record, uint8_t *out) noexcept nogil:
        cdef const TopicPrograms *filters
        if self.bitmaps.topic_count == 0:
            return 0
        filters = filters_of(&self.bitmaps, make_topic(self.shared, record.topic, record.topic_size))
        return 0 if filters == NULL else make_bitmap(filters, record.properties, record.properties_size, out)

    cdef void tell_arrival(self, const uint8_t *topic, int32_t topic_size, int32_t queue_row, int64_t max_offset,
                           int64_t tags_code, int64_t store_timestamp) noexcept nogil:
        cdef int puller = puller_of(topic, topic_size, self.shared.queues[queue_row].queue_id, self.puller_count)
        cdef Arrival *arrival
        self.puller_has_news[puller] = True
        arrival = <Arrival *>ring_reserve(&self.arrivals[puller], sizeof(Arrival), RING_KIND_ARRIVAL)
        if arrival == NULL:
            # It looks at every held pull by itself within five seconds; nothing is lost.
            return
        arrival.queue_row = queue_row
        arrival.max_offset = max_offset
        arrival.tags_code = tags_code
        arrival.store_timestamp = store_timestamp
        ring_publish(&self.arrivals[puller], sizeof(Arrival))

    cdef void wake_pullers(self) noexcept nogil:
        cdef int puller
        full_fence()
        for puller in range(self.puller_count):
            if self.puller_has_news[puller]:
                self.puller_has_news[puller] = False
                if peek(&self.puller_rows[puller].sleeping):
                    wake_fd(self.puller_wakes[puller])
                    self.row.wakes += 1

        if self.timer_has_news:
            self.timer_has_news = False
            if peek(&self.timer_row.sleeping):
                wake_fd(self.timer_wake)
                self.row.wakes += 1

    cdef bint dispatch_record(self, const RecordView *record) noexcept nogil:
        if record.flag == METADATA_DROP_FLAG and self.drops_queues(record):
            # Before the record counts as dispatched: who comes after us stands there, too.
            raise_full(&self.shared.board.drops_met, record.physical_offset + record.total_size)
            self.pauses = True
        return Dispatcher.dispatch_record(self, record)

    # Whether queues are dropped at the record, of which the broker process has to see to first: what lies behind it may
    # be of new ones of their names.
    cdef bint drops_queues(self, const RecordView *record) noexcept nogil:
        return (peek(&self.shared.board.keeps_metadata) != 0 and record.topic_size == self.metadata_topic_size
                and memcmp(record.topic, self.metadata_topic, self.metadata_topic_size) == 0)

    # Where dispatch stands, or the readable end.
    cdef int64_t dispatchable_end(self) noexcept nogil:
        cdef int64_t met = peek(&self.shared.board.drops_met)
        cdef int64_t end = self.readable_end()
        return end if observe(&self.shared.board.drops_applied) >= met else min(met, end)

    cdef int64_t readable_end(self) noexcept nogil:
        return observe(&self.shared.board.readable_offset)

    cdef void publish_progress(self, int64_t offset) noexcept nogil:
        check(offset >= peek(&self.shared.board.dispatched_offset), "what is dispatched stays dispatched")
        check(offset <= observe(&self.shared.board.wrote_offset), "what is dispatched was written")
        publish(&self.shared.board.dispatched_timestamp, self.logics_timestamp)
        publish(&self.shared.board.index_timestamp, self.index.synced_timestamp)
        publish(&self.shared.board.dispatched_offset, offset)
        put_relaxed(&self.row.units, self.record_count)

    cdef int dispatch_some(self) noexcept nogil:
        # One chunk. Returns 1 when something was done, 0 when there is nothing to do, -1 on failure, -2 on corruption,
        # -3 when queues were dropped. The end first: who sees a message of a new queue sees the drop before it too.
        cdef int64_t at = peek(&self.shared.board.dispatched_offset)
        cdef int64_t end = self.dispatchable_end()
        cdef int64_t kept = observe(&self.shared.board.min_offset)
        cdef int64_t available
        cdef const uint8_t *base
        cdef Py_ssize_t done
        if observe(&self.shared.board.drops) != self.drops:
            return -3
        if has_finished(self.first_files) and not leave_cradles(&self.queues, False, &self.failure):
            self.status = DISPATCH_FAILED
            return -1
        if at < kept:
            at = kept
        if at >= end:
            return 0
        base = bytes_at(self.files, at, &available)
        if base == NULL:
            self.failure.error_number = ENOENT if self.files.error == 0 else self.files.error
            return -1
        done = self.dispatch_range(base, at, min(min(available, end - at), <int64_t>CHUNK_MAX))
        at += done
        if self.status == DISPATCH_BLANK:
            at += self.file_size - at % self.file_size
        elif self.status == DISPATCH_SHORT and done == 0:
            # A record longer than a chunk: hand over all there is. If that is short too, it is no record.
            done = self.dispatch_range(base, at, min(available, end - at))
            at += done
            if done == 0 and self.status == DISPATCH_SHORT:
                return -2
        self.publish_progress(at)
        put_relaxed(&self.row.bytes, self.row.bytes + done)
        if self.status == DISPATCH_FAILED:
            return -1
        return -2 if self.status == DISPATCH_INVALID else 1

    cdef bint are_pulls_held(self) noexcept nogil:
        cdef int puller
        for puller in range(self.puller_count):
            if peek(&self.puller_rows[puller].parked) != 0:
                return True
        return False

    # By the records of a millisecond and more, and not by what one nap brought, which is little because it was short.
    cdef void choose_nap(self) noexcept nogil:
        cdef int64_t now = monotonic_ns()
        cdef int64_t elapsed = now - self.counted_from_ns
        if elapsed < NAP_NS:
            return
        if (self.record_count - self.counted_from_record) * MS_NS < FEW_RECORDS_A_MS * elapsed:
            self.nap_ns = SHORT_NAP_NS
        else:
            self.nap_ns = NAP_NS
        self.counted_from_ns = now
        self.counted_from_record = self.record_count

    cdef int rest(self) noexcept nogil:
        # Nothing to do: nap while traffic lasts, then sleep. True when the link has something to say.
        cdef pollfd fds[2]
        cdef timespec pause
        self.choose_nap()
        fds[0].fd = self.wake
        fds[0].events = POLLIN
        fds[1].fd = self.link
        fds[1].events = POLLIN
        fds[1].revents = 0
        pause.tv_sec = 0
        pause.tv_nsec = self.nap_ns
        if self.napped_ns >= TIRED_NS or self.are_pulls_held():
            exchange_full(&self.row.sleeping, 1)
            pause.tv_sec = 0 if peek(&self.shared.board.dispatched_offset) < self.dispatchable_end() else SLEEP_S
            pause.tv_nsec = 0
        else:
            self.napped_ns += self.nap_ns
        ppoll(fds, 2, &pause, NULL)
        put_relaxed(&self.row.sleeping, 0)
        if fds[0].revents:
            drain_fd(self.wake)
            self.napped_ns = 0
        return fds[1].revents != 0

    cdef void release_cold(self) noexcept nogil:
        cdef int64_t cold = observe(&self.shared.board.cold_end)
        if cold > peek(&self.row.released):
            files_release(self.files, cold)
            publish(&self.row.released, cold)

    cdef ReputNews follow(self) noexcept nogil:
        cdef int done
        while observe(&self.row.command) != WORKER_COMMAND_STOP:
            done = self.dispatch_some()
            self.row.turns += 1
            self.release_cold()
            if done != 0:
                self.wake_pullers()
                self.napped_ns = 0
                tell_maker(self.first_files)
            if done == -1:
                return REPUT_FAILED
            if done == -2:
                return REPUT_CORRUPT
            if done == -3:
                return REPUT_DROPS
            if done == 0 and self.rest():
                return REPUT_LINK
            if coarse_ms() >= self.housekeeping_at:
                self.housekeeping_at = coarse_ms() + HOUSEKEEPING_MS
                put_relaxed(&self.row.heartbeat, now_ms())
                put_relaxed(&self.row.backlog, self.readable_end() - peek(&self.shared.board.dispatched_offset))
                files_trim(self.files, observe(&self.shared.board.min_offset))
                files_rest(self.files)
                return REPUT_HOUSEKEEPING
        return REPUT_STOP

    def run(self):
        """Dispatch until something needs Python's attention; which is a ReputNews."""
        cdef ReputNews news
        with nogil:
            news = self.follow()
        return news

    def failure_error(self):
        """What REPUT_FAILED is about, as a StoreError."""
        if self.files.error != 0 and self.status != DISPATCH_FAILED:
            return StoreError(f"commit log at {self.segment.get('dispatched_offset')}: {os.strerror(self.files.error)}")
        return self.make_error()

    def skip_damage(self):
        """After REPUT_CORRUPT: go on behind the damaged part, at the next file or at the end; (from, to)."""
        cdef int64_t at = peek(&self.shared.board.dispatched_offset)
        cdef int64_t target = min(at + self.file_size - at % self.file_size, self.readable_end())
        publish(&self.shared.board.dispatched_offset, target)
        return at, target

    def rescan(self):
        """Make every pull worker look at its held pulls."""
        cdef int puller
        for puller in range(self.puller_count):
            if ring_reserve(&self.arrivals[puller], 0, RING_KIND_RESCAN) != NULL:
                ring_publish(&self.arrivals[puller], 0)
                self.puller_has_news[puller] = True
        self.wake_pullers()

    def set_filters(self, bytes topic not None, int32_t bitmap_bits, list filters not None):
        """Make bitmaps for *topic* by *filters*, (bits, program) each, and return from where in the log on.

        Raises ValueError, MemoryError for what cannot be; the topic has no bitmaps then.
        """
        bitmaps_set(&self.bitmaps, make_topic(self.shared, topic, <int32_t>len(topic)), bitmap_bits, filters)
        # Units may be there whose records do not count as dispatched yet: of a chunk that failed, or of a predecessor.
        return max(peek(&self.shared.board.dispatched_offset), self.record_end, self.started_at)

    def note_drops(self):
        """How often queues were dropped so far; to be taken before one looks which, and given to drops_done then."""
        return observe(&self.shared.board.drops)

    def drops_done(self, int64_t count):
        """The files of all the queues are gone that were dropped in the first *count* drops; go on."""
        self.drops = count

    def clear_queue(self, int row, int64_t born):
        """The files of the queue that was there before *born* are gone: its new bounds count."""
        cdef int32_t number = cradle_number(peek(&self.shared.queues[row].cradle))
        if number >= 0:
            drop_cradle(self.first_files, number)
        note_cleared(&self.shared.queues[row], born)

    def resume_cradles(self):
        """Go on with the queues whose units a predecessor has left in cradles; once, when queues are cleared."""
        cdef int32_t number
        cdef QueueRow *queue
        for number in range(CRADLE_CAPACITY):
            if not is_cradle(self.shared, number):
                continue
            queue = &self.shared.queues[self.shared.cradles[number].queue_row - 1]
            if not resume_cradle(&self.queues, self.shared.topics[queue.topic_row].name,
                                 self.shared.topics[queue.topic_row].name_size, queue.queue_id, number, &self.failure):
                raise self.make_error()
        tell_maker(self.first_files)

    def leave_cradles(self):
        """See that every queue has its first file, with all of its units. Raises StoreError if one cannot be made."""
        cdef bint done
        with nogil:
            done = leave_cradles(&self.queues, True, &self.failure)
        if not done:
            raise self.make_error()

    def make_first_files(self):
        """Make the first files of queues whose units lie in cradles, until stop_maker(); a thread of its own does."""
        with nogil:
            make_first_files(self.first_files)

    def stop_maker(self):
        """Let make_first_files() return. Another thread calls it."""
        stop_maker(self.first_files)
