"""The event loop of the ha worker: slaves that come, report and are sent the log; of a slave, its master's log.

It sleeps for as long as nobody has anything for it. While it waits for more of the log it says so in its row; with
SYNC_MASTER at once, since somebody waits for each message, else after a while of naps, so that those who append need
not wake it as long as traffic lasts.
"""

from libc.errno cimport errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import os

from mqcore._fast.base.atomics cimport (coarse_ms, exchange_full, full_fence, now_ms, observe, peek, publish,
                                        put_relaxed, wake_fd)
from mqcore._fast.base.layout cimport (SEND_WORKERS_MAX, SLAVE_CAPACITY, SLAVE_STATE_FREE, SLAVE_STATE_REFUSED_AHEAD,
                                       WORKER_COMMAND_STOP, WORKER_STATE_RUNNING, WORKER_STATE_STOPPED)
from mqcore._fast.base.sockets cimport (EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLL_CLOEXEC,
                                        EPOLL_CTL_ADD, epoll_create1, epoll_ctl, epoll_event, epoll_wait)
from mqcore._fast.ha.master cimport (accept_slaves, check_slaves, close_slave, has_news, is_copied, next_deadline,
                                     publish_slaves, push_slave, read_slave, wants_news)
from mqcore._fast.ha.group cimport count_confirmed, follow_role
from mqcore._fast.ha.replica cimport (begin_replica, close_replica, has_more_to_report, read_master, replica_deadline,
                                      tend_replica)
from mqcore._fast.ha.state cimport MARK_LINK, MARK_LISTENER, MARK_MASTER, MARK_SLAVE, MARK_WAKE, HaState
from mqcore._fast.log.append cimport wipe_behind
from mqcore._fast.log.mapped_file cimport FileSet, files_close, files_open, files_release, files_rest, files_trim
from mqcore._fast.segment.boards cimport SharedSegment

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void *out, size_t size)
    int close(int fd)

cdef enum:
    EVENTS_MAX = 64
    HOUSEKEEPING_MS = 1000
    NAP_MS = 1
    NAPS_MAX = 100
    DISK_PAUSE_MS = 1               # between looks whether the pages are there
    PACE_MS = 1                     # between pieces for a slave that is sent so much in a second only
    STOP_MS_MAX = 1000              # for slaves to report what is there when nothing more comes
    STOP_PAUSE_MS = 20
    LOCK_WAIT_MS = 5000

cdef int64_t NOTHING_MAPPED = 2**63 - 1


cdef void handle_event(HaState *state, const epoll_event *event) noexcept nogil:
    cdef char told[4096]
    cdef int slot
    if event.data.u64 == MARK_WAKE:
        return  # each write is an event of its own: nothing has to be read
    if event.data.u64 == MARK_LINK:
        # The broker process has nothing to say here; its end does.
        if read(state.link, told, sizeof(told)) == 0:
            state.is_link_closed = True
    elif event.data.u64 == MARK_LISTENER:
        state.has_callers = True
    elif event.data.u64 == MARK_MASTER:
        if state.replica.fd >= 0:
            read_master(state)
    else:
        slot = <int>(event.data.u64 - MARK_SLAVE)
        if state.slaves[slot].fd < 0:
            return
        if event.events & EPOLLOUT:
            state.slaves[slot].is_writable = True
        if event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR):
            read_slave(state, slot)


cdef void wake_followers(HaState *state) noexcept nogil:
    # As a send worker does behind its appends, and for dispatch also where more may be read.
    cdef bint has_received = state.has_received
    if not has_received and not state.has_confirmed:
        return
    state.has_received = state.has_confirmed = False
    full_fence()
    if peek(&state.reput_row.sleeping) != 0:
        wake_fd(state.reput_wake)
        state.row.wakes += 1
    if has_received and state.settings.wakes_flush and peek(&state.flush_row.sleeping) != 0:
        wake_fd(state.flush_wake)
        state.row.wakes += 1


cdef void wake_waiters(HaState *state) noexcept nogil:
    # Who waits for a slave's word, and sleeps over it.
    cdef int index
    if not state.has_acks:
        return
    state.has_acks = False
    full_fence()
    for index in range(state.sender_count):
        if peek(&state.sender_rows[index].parked) != 0 and peek(&state.sender_rows[index].sleeping) != 0:
            wake_fd(state.sender_wakes[index])
            state.row.wakes += 1
    if peek(&state.broker_row.sleeping) != 0:
        wake_fd(state.broker_wake)
        state.row.wakes += 1


cdef void release_cold(HaState *state) noexcept nogil:
    # In each turn: what a slave receives is far more in a second than it can do without.
    cdef int64_t cold = observe(&state.shared.board.cold_end)
    if cold > peek(&state.row.released):
        files_release(state.files, cold)
        publish(&state.row.released, cold)


cdef void housekeeping(HaState *state) noexcept nogil:
    cdef int64_t cold = observe(&state.shared.board.cold_end)
    state.housekeeping_at = state.turn_ms + HOUSEKEEPING_MS
    put_relaxed(&state.row.heartbeat, now_ms())
    check_slaves(state)
    if state.slave_count == 0 and state.replica.fd < 0:
        files_trim(state.files, NOTHING_MAPPED)
        publish(&state.row.released, NOTHING_MAPPED)
        return
    files_trim(state.files, observe(&state.shared.board.min_offset))
    files_rest(state.files)
    files_release(state.files, cold)
    publish(&state.row.released, cold)


cdef bint is_in_use(const HaState *state) noexcept nogil:
    return state.slave_count > 0 or state.replica.fd >= 0


cdef int rest_ms(HaState *state) noexcept nogil:
    # How long to wait for an event; -1 = for ever. Says in the row whether it wants to be woken.
    cdef int64_t due
    cdef int64_t found = -1
    if state.has_more:
        return 0
    if is_in_use(state):
        due = state.housekeeping_at
        if state.slave_count > 0:
            due = min(due, next_deadline(state) + 1)
        if state.replica.fd >= 0:
            due = min(due, replica_deadline(state) + 1)
        found = max(<int64_t>0, due - state.turn_ms)
    if state.stop_at != 0:
        return STOP_PAUSE_MS
    if state.waits_for_disk:
        return DISK_PAUSE_MS
    if state.waits_for_pace:
        found = PACE_MS
    if wants_news(state) or (state.settings.acks_flushed and state.replica.fd >= 0):
        if not state.settings.waits_for_slaves and state.naps < NAPS_MAX:
            state.naps += 1
            return NAP_MS
        exchange_full(&state.row.sleeping, 1)
        if has_news(state) or has_more_to_report(state):
            return 0
    return <int>found


cdef void turn(HaState *state) noexcept nogil:
    cdef epoll_event events[EVENTS_MAX]
    cdef int count, index, slot
    count = epoll_wait(state.epoll, events, EVENTS_MAX, rest_ms(state))
    put_relaxed(&state.row.sleeping, 0)
    state.turn_ms = coarse_ms()
    state.row.turns += 1
    state.has_more = state.waits_for_disk = state.waits_for_pace = False
    if state.in_group:
        follow_role(state)
    for index in range(count):
        handle_event(state, &events[index])
    if state.in_group:
        count_confirmed(state)
    # Reports first: somebody may wait for them.
    wake_waiters(state)
    wake_followers(state)
    if state.replica.fd >= 0:
        tend_replica(state)
    if state.has_callers:
        # Not among the events: a slot that was given up there must not get those of its successor.
        state.has_callers = False
        accept_slaves(state)
    for slot in range(SLAVE_CAPACITY):
        if state.slaves[slot].fd >= 0 and (state.slaves[slot].is_writable or not state.slaves[slot].is_blocked):
            state.slaves[slot].is_writable = False
            push_slave(state, slot)
    release_cold(state)
    if is_in_use(state) and state.turn_ms >= state.housekeeping_at:
        housekeeping(state)
    elif not is_in_use(state) and peek(&state.row.released) != NOTHING_MAPPED:
        housekeeping(state)


cdef bint follow_command(HaState *state) noexcept nogil:
    # What the broker process wants; True when this loop is to end.
    if state.is_link_closed:
        return True
    if observe(&state.row.command) != WORKER_COMMAND_STOP:
        return False
    if state.is_slave:
        return True
    if state.stop_at == 0:
        state.stop_at = state.turn_ms + STOP_MS_MAX
    # Nothing is appended any more: a slave that keeps up leaves with everything.
    return is_copied(state) or state.turn_ms >= state.stop_at


cdef class HaLoop:
    """The loop of the ha worker. *options* names all of HaSettings and every descriptor; see workers/ha.py."""

    cdef HaState state
    cdef SharedSegment segment

    def __cinit__(self, SharedSegment segment not None, dict options not None):
        cdef HaState *state = &self.state
        cdef int index
        self.segment = segment
        state.shared = &segment.shared
        state.row = &segment.shared.workers[<int>options["row"]]
        state.listener = options["listener"]
        state.wake = options["wake"]
        state.link = options["link"]
        state.file_size = options["commit_log_file_size"]
        state.settings.waits_for_slaves = options["waits_for_slaves"]
        self.use(options)
        state.broker_row = &segment.shared.workers[<int>options["broker"][0]]
        state.broker_wake = options["broker"][1]
        if len(options["senders"]) > SEND_WORKERS_MAX:
            raise ValueError(f"senders: got {len(options['senders'])}, wanted at most {SEND_WORKERS_MAX}")
        state.sender_count = len(options["senders"])
        for index, (row, wake) in enumerate(options["senders"]):
            state.sender_rows[index] = &segment.shared.workers[<int>row]
            state.sender_wakes[index] = wake
        for index in range(SLAVE_CAPACITY):
            state.slaves[index].fd = -1
            # What a predecessor had is gone with it, but not whom it had refused.
            if observe(&state.shared.slaves[index].state) != SLAVE_STATE_REFUSED_AHEAD:
                publish(&state.shared.slaves[index].state, SLAVE_STATE_FREE)
        state.files = <FileSet *>malloc(sizeof(FileSet))
        if state.files == NULL:
            raise MemoryError()
        # Whoever is in a group is a slave until it is told that it leads.
        state.in_group = options["in_group"]
        state.is_slave = options["is_slave"] or state.in_group
        state.replica.fd = -1
        files_open(state.files, options["commit_log"], state.file_size, state.is_slave, segment.fd)
        state.reput_row = &segment.shared.workers[<int>options["reput"][0]]
        state.reput_wake = options["reput"][1]
        state.flush_row = &segment.shared.workers[<int>options["flush"][0]]
        state.flush_wake = options["flush"][1]
        state.appender.shared = state.shared
        state.appender.files = state.files
        state.appender.file_size = state.file_size
        state.appender.lock_timeout_ms = LOCK_WAIT_MS
        # What was told a predecessor is over with it; who knows the master tells anew.
        state.master_version = observe(&state.shared.board.master_version)
        if state.is_slave:
            close_replica(state)
            publish(&state.shared.board.followed_version, state.master_version)
        self.open_epoll()

    def use(self, dict options not None):
        """Go by what *options* has of ``live_options`` in workers/ha.py. Not while another thread is in ``run``."""
        cdef HaState *state = &self.state
        state.settings.heartbeat_ms = options["heartbeat_ms"]
        state.settings.silence_ms = options["silence_ms"]
        state.settings.frame_size_max = options["frame_size_max"]
        state.settings.bytes_per_s = options["bytes_per_s"]
        state.settings.from_first_file = options["from_first_file"]
        state.settings.acks_flushed = options["acks_flushed"]
        state.settings.wakes_flush = options["wakes_flush"]

    cdef open_epoll(self):
        cdef HaState *state = &self.state
        cdef epoll_event event
        state.epoll = epoll_create1(EPOLL_CLOEXEC)
        if state.epoll < 0:
            raise OSError(errno, "epoll: " + os.strerror(errno))
        for mark, fd in ((MARK_WAKE, state.wake), (MARK_LINK, state.link), (MARK_LISTENER, state.listener)):
            event.events = (EPOLLIN | EPOLLET) if mark == MARK_WAKE else EPOLLIN
            event.data.u64 = mark
            if epoll_ctl(state.epoll, EPOLL_CTL_ADD, fd, &event) != 0:
                raise OSError(errno, "epoll: " + os.strerror(errno))

    def run(self, int64_t settings_version=0):
        """Serve until the broker process says STOP or is gone. Holds no GIL; raises nothing.

        True: the board has another version of the settings than *settings_version*, which are to be used, or another
        master, or the connection to it is over; see to it and call again.
        """
        cdef HaState *state = &self.state
        cdef bint is_over = False
        cdef int slot
        with nogil:
            state.turn_ms = coarse_ms()
            if state.in_group:
                # Before it sleeps: a successor of one that led may be wanted by nobody else.
                follow_role(state)
            if peek(&state.row.state) != WORKER_STATE_RUNNING:
                publish_slaves(state)
                publish(&state.row.released, NOTHING_MAPPED)
                publish(&state.row.state, WORKER_STATE_RUNNING)
            while True:
                is_over = follow_command(state)
                if is_over or observe(&state.shared.board.settings_version) != settings_version:
                    break
                if state.is_slave and (state.replica.why != NULL or (
                        observe(&state.shared.board.master_version) != state.master_version)):
                    break
                turn(state)
            if is_over:
                for slot in range(SLAVE_CAPACITY):
                    if state.slaves[slot].fd >= 0:
                        close_slave(state, slot, NULL, 0)
                if state.is_slave:
                    close_replica(state)
                    # Half a record that came last is no part of a store that was stopped.
                    wipe_behind(&state.appender, observe(&state.shared.board.received_offset))
                publish(&state.row.state, WORKER_STATE_STOPPED)
        return not is_over

    def forget_master(self, int64_t version):
        """End the connection to the master, if there is one, as told by *version*: nothing more is reported to it."""
        self.leave_master()
        self.state.master_version = version
        publish(&self.state.shared.board.followed_version, version)

    def join_master(self, int fd, int64_t start, int64_t term=0):
        """Copy from the master that the connected socket *fd*, which is given away, leads to.

        An empty log begins at *start*; see SharedSegment.set_master. In a failover group it leads epoch *term*.
        """
        cdef HaState *state = &self.state
        cdef epoll_event event
        state.turn_ms = coarse_ms()
        event.events = EPOLLIN | EPOLLRDHUP
        event.data.u64 = MARK_MASTER
        if epoll_ctl(state.epoll, EPOLL_CTL_ADD, fd, &event) != 0:
            raise OSError(errno, "epoll: " + os.strerror(errno))
        with nogil:
            begin_replica(state, fd, start, term)

    def leave_master(self):
        """End the connection to the master, if there is one; why it was over, or None."""
        cdef HaState *state = &self.state
        why = None
        if state.replica.why != NULL:
            reason = f": {os.strerror(state.replica.why_error)}" if state.replica.why_error else ""
            why = f"{state.replica.why.decode()}{reason} (offset={state.replica.why_offset})"
        close_replica(state)
        memset(&state.replica, 0, sizeof(state.replica))
        state.replica.fd = -1
        return why

    def __dealloc__(self):
        cdef HaState *state = &self.state
        cdef int slot
        if state.replica.fd > 0:
            close(state.replica.fd)
        for slot in range(SLAVE_CAPACITY):
            if state.slaves[slot].fd > 0:
                close(state.slaves[slot].fd)
        if state.files != NULL:
            files_close(state.files)
            free(state.files)
        if state.epoll > 0:
            close(state.epoll)
