"""Slaves of this master: who they are, what each is sent, what they have.

The stream is RocketMQ's: a slave reports the end of its log as 8 bytes, again and again, the first time to say where it
is to go on; the master sends frames of a head and bytes of the log as they lie there, never across a file's end. The
bytes go from the mapping into the socket by one writev for many frames, so that none is copied in this process.

A member of a failover group says hello first, with the epoch that it follows and what it has announced itself by, and
is sent frames whose heads tell the epoch and what is confirmed. What it reports counts for that as group.pyx says.

Who reports more than there is has another history. RocketMQ takes that for a slave that is up to date; here it is
refused, remembered by its address and end, and counts for nothing. Source: RocketMQ store/ha/HAConnection.java.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

import ipaddress
import logging
import os

from mqcore._fast.base.atomics cimport monotonic_ns, now_ms, observe, peek, publish, put_relaxed
from mqcore._fast.base.big_endian cimport load_i32, load_i64, store_i32, store_i64
from mqcore._fast.base.layout cimport (GROUP_MEMBERS_MAX, HA_FRAME_HEAD_PHYSICAL_OFFSET_AT, HA_FRAME_HEAD_SIZE,
                                       HA_FRAME_HEAD_SIZE_AT, HA_GROUP_FRAME_HEAD_CONFIRMED_AT,
                                       HA_GROUP_FRAME_HEAD_SIZE, HA_GROUP_FRAME_HEAD_TERM_AT,
                                       HA_GROUP_FRAME_HEAD_ZERO_AT, HA_HELLO_END_AT,
                                       HA_HELLO_MAGIC, HA_HELLO_MAGIC_AT, HA_HELLO_MEMBER_AT, HA_HELLO_NONCE_AT,
                                       HA_HELLO_SIZE, HA_HELLO_TERM_AT, HA_REPORT_SIZE, SLAVE_CAPACITY,
                                       SLAVE_STATE_BEFORE_FIRST_FILE,
                                       SLAVE_STATE_CONNECTED, SLAVE_STATE_COPYING, SLAVE_STATE_FREE,
                                       SLAVE_STATE_REFUSED_AHEAD, SlaveRow)
from mqcore._fast.base.sockets cimport (EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLL_CTL_ADD, EPOLL_CTL_MOD, IPPROTO_TCP,
                                        SOCK_CLOEXEC, SOCK_NONBLOCK, TCP_NODELAY, accept4, epoll_ctl, epoll_event,
                                        peer_address, setsockopt, sockaddr, sockaddr_storage)
from mqcore._fast.ha.state cimport MARK_SLAVE, HaState, Slave, beat_ms, own_end
from mqcore._fast.log.mapped_file cimport bytes_at

logger = logging.getLogger("mqcore.workers.ha")

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *address, size_t length, int advice)
    int mincore(void *address, size_t length, unsigned char *resident)
    int MADV_WILLNEED

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *out, size_t size, int flags)

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t writev(int fd, const iovec *parts, int count)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    ACCEPTS_PER_TURN = 16
    READ_SIZE = 4096
    FRAMES_MAX = 16                 # of one write
    GROUP_FRAME_MAX = 1 << 18       # bytes of the log in a frame to a member of a group
    BURST_MAX = 1 << 20             # bytes of the log in one write
    BURSTS_PER_TURN = 8             # then the other slaves, and the reports, have their turn
    HOT_BYTES = 1 << 26             # so near the end nobody looks whether pages are in memory
    PAGE_SIZE = 4096
    BURST_PAGES = (BURST_MAX >> 12) + 2
    READ_AHEAD = 1 << 22
    DISK_PATIENCE_MS = 200          # pages that are thrown out as fast as they are read: write, and wait for the disk
    REFUSED_KEPT_MS = 600_000       # who has not tried again for so long is forgotten
    LINE_PAUSE_MS = 60_000
    CONFIRMED_PAUSE_MS = 5          # between frames that only say what is confirmed
    PIECES_PER_S = 1000             # that a slave is sent of what it may have in a second
    PACE_BURST_NS = 5_000_000       # for so long a slave that took nothing is given its share later

cdef int64_t NS_PER_S = 1_000_000_000


cdef void say(const char *what, const SlaveRow *row, int64_t offset, int64_t end) noexcept with gil:
    host = ipaddress.ip_address((<const char *>row.host)[:row.host_size])
    logger.warning("slave %s slave=%s:%d offset=%d log_end=%d", what.decode(), host, row.port, offset, end)


cdef void say_closed(const char *why, const SlaveRow *row, int error) noexcept with gil:
    host = ipaddress.ip_address((<const char *>row.host)[:row.host_size])
    reason = f": {os.strerror(error)}" if error else ""
    logger.info("slave disconnected slave=%s:%d acked=%d why=%s%s", host, row.port, row.acked, why.decode(), reason)


cdef void close_slave(HaState *state, int slot, const char *why, int error) noexcept nogil:
    cdef Slave *slave = &state.slaves[slot]
    cdef SlaveRow *row = &state.shared.slaves[slot]
    cdef int fd = slave.fd
    slave.fd = -1
    state.slave_count -= 1
    if why != NULL:
        say_closed(why, row, error)
    if row.state != SLAVE_STATE_REFUSED_AHEAD:
        publish(&row.state, SLAVE_STATE_FREE)
    publish_slaves(state)
    # Last: who sees the end of the connection sees what it was about.
    close(fd)


cdef void publish_slaves(HaState *state) noexcept nogil:
    cdef SlaveRow *row
    cdef int64_t count = 0
    cdef int64_t wanted = 0
    cdef int64_t needs
    cdef int slot
    for slot in range(SLAVE_CAPACITY):
        row = &state.shared.slaves[slot]
        if row.state == SLAVE_STATE_COPYING:
            count += 1
            # Should it come again, it asks for what it has not reported.
            needs = row.acked if row.acked > 0 else state.slaves[slot].next_offset
            needs = max(<int64_t>1, needs)
            wanted = needs if wanted == 0 else min(wanted, needs)
    publish(&state.shared.board.ha_wanted, wanted)
    publish(&state.shared.board.slave_count, count)
    put_relaxed(&state.row.connections, state.slave_count)


cdef int free_slot(HaState *state) noexcept nogil:
    # A free row, else that of the refused slave that was heard last the longest ago; -1 = all are connected.
    cdef int slot
    cdef int found = -1
    cdef int64_t oldest = 0
    for slot in range(SLAVE_CAPACITY):
        if state.slaves[slot].fd >= 0:
            continue
        if state.shared.slaves[slot].state == SLAVE_STATE_FREE:
            return slot
        if found < 0 or state.shared.slaves[slot].connected_at < oldest:
            found = slot
            oldest = state.shared.slaves[slot].connected_at
    return found


cdef void accept_slaves(HaState *state) noexcept nogil:
    cdef sockaddr_storage storage
    cdef unsigned int size
    cdef epoll_event event
    cdef SlaveRow *row
    cdef int fd, slot, _turn
    cdef int on = 1
    for _turn in range(ACCEPTS_PER_TURN):
        size = sizeof(storage)
        memset(&storage, 0, sizeof(storage))
        fd = accept4(state.listener, <sockaddr *>&storage, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd < 0:
            return
        slot = free_slot(state)
        event.events = EPOLLIN | EPOLLRDHUP
        event.data.u64 = MARK_SLAVE + slot
        if slot < 0 or epoll_ctl(state.epoll, EPOLL_CTL_ADD, fd, &event) != 0:
            close(fd)
            continue
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on))
        row = &state.shared.slaves[slot]
        memset(&state.slaves[slot], 0, sizeof(Slave))
        state.slaves[slot].fd = fd
        state.slaves[slot].head_size = HA_FRAME_HEAD_SIZE
        state.slaves[slot].member = -1
        state.slaves[slot].read_ms = state.slaves[slot].wrote_ms = state.turn_ms
        state.slave_count += 1
        row.host_size = peer_address(&storage, row.host, &row.port)
        publish(&row.connected_at, now_ms())
        publish(&row.acked, -1)
        publish(&row.acked_at, 0)
        publish(&row.sent, 0)
        publish(&row.caught_up_at, 0)
        publish(&row.sent_bytes, 0)
        publish(&row.member, -1)
        publish(&row.state, SLAVE_STATE_CONNECTED)
        put_relaxed(&state.row.accepted, state.row.accepted + 1)
        put_relaxed(&state.row.connections, state.slave_count)


# Reports ----------------------------------------------------------------------------------------------------------


cdef int find_refused(HaState *state, const SlaveRow *row, int64_t reported) noexcept nogil:
    # The row in which this address was refused with the same end; -1 = there is none. A slave that has gone its own way
    # does not move, so the two name it even when this log has meanwhile grown past its end.
    cdef SlaveRow *other
    cdef int slot
    for slot in range(SLAVE_CAPACITY):
        other = &state.shared.slaves[slot]
        if (other.state == SLAVE_STATE_REFUSED_AHEAD and other.acked == reported and other.host_size == row.host_size
                and memcmp(other.host, row.host, row.host_size) == 0):
            return slot
    return -1


cdef void refuse_ahead(HaState *state, int slot, int64_t reported, int64_t end) noexcept nogil:
    cdef SlaveRow *row = &state.shared.slaves[slot]
    cdef int before = find_refused(state, row, reported)
    cdef int64_t now = now_ms()
    put_relaxed(&state.row.refused, state.row.refused + 1)
    if before >= 0:
        row = &state.shared.slaves[before]
        publish(&row.connected_at, now)
    else:
        publish(&row.acked, reported)
        publish(&row.acked_at, 0)
        publish(&row.state, SLAVE_STATE_REFUSED_AHEAD)
    if now - row.acked_at >= LINE_PAUSE_MS:
        publish(&row.acked_at, now)
        say("refused: it has what this log does not have, so its history is another one. It counts for nothing."
            " Empty its store, or restore this one;", row, reported, end)
    close_slave(state, slot, NULL, 0)


cdef void say_state(const SlaveRow *row, int64_t start) noexcept with gil:
    host = ipaddress.ip_address((<const char *>row.host)[:row.host_size])
    logger.info("slave copies slave=%s:%d end=%d from=%d", host, row.port, row.acked, start)


cdef void begin_copy(HaState *state, int slot, int64_t reported, int64_t end) noexcept nogil:
    cdef Slave *slave = &state.slaves[slot]
    cdef SlaveRow *row = &state.shared.slaves[slot]
    cdef int64_t kept = observe(&state.shared.board.min_offset)
    slave.next_offset = reported
    if reported == 0:
        slave.next_offset = kept if state.settings.from_first_file else max(kept, end - end % state.file_size)
    publish(&row.sent, slave.next_offset)
    if slave.next_offset < kept:
        lose_slave(state, slot, kept)
        return
    publish(&row.state, SLAVE_STATE_COPYING)
    say_state(row, slave.next_offset)


cdef void lose_slave(HaState *state, int slot, int64_t kept) noexcept nogil:
    # What it needs is deleted here. It gets heart-beats, so that it sees where it stands, and counts for nothing.
    publish(&state.shared.slaves[slot].state, SLAVE_STATE_BEFORE_FIRST_FILE)
    say("cannot catch up: it ends before the first file that is kept here. Empty its store;",
        &state.shared.slaves[slot], state.slaves[slot].next_offset, kept)


cdef const char *why_not(const HaState *state, int64_t term, int64_t nonce, int64_t member, int64_t end) noexcept nogil:
    # Why who says this is not let in; NULL if it is.
    if state.is_slave:
        return "this broker leads no epoch"
    if term != state.term:
        return "it follows another epoch"
    if not 0 <= member < GROUP_MEMBERS_MAX or member == peek(&state.shared.board.ha_member):
        return "it says an id that it cannot have"
    if nonce <= 0 or nonce != observe(&state.shared.group_nonces[member]):
        return "it is not who has announced itself by its id"
    if end < 0 or end > observe(&state.shared.board.wrote_offset):
        return "its log ends where this one does not go"
    return NULL


cdef void say_member(const SlaveRow *row, int64_t start) noexcept with gil:
    host = ipaddress.ip_address((<const char *>row.host)[:row.host_size])
    logger.info("member copies member=%d slave=%s:%d from=%d", row.member, host, row.port, start)


cdef bint greet(HaState *state, int slot, const uint8_t *hello) noexcept nogil:
    # False: it was sent away.
    cdef Slave *slave = &state.slaves[slot]
    cdef SlaveRow *row = &state.shared.slaves[slot]
    cdef int64_t member = load_i32(hello + HA_HELLO_MEMBER_AT)
    cdef int64_t end = load_i64(hello + HA_HELLO_END_AT)
    cdef int64_t kept = observe(&state.shared.board.min_offset)
    cdef const char *why = "a hello of another kind"
    cdef int other
    if load_i64(hello + HA_HELLO_MAGIC_AT) == HA_HELLO_MAGIC:
        why = why_not(state, load_i64(hello + HA_HELLO_TERM_AT), load_i64(hello + HA_HELLO_NONCE_AT), member, end)
    if why != NULL:
        put_relaxed(&state.row.refused, state.row.refused + 1)
        close_slave(state, slot, why, 0)
        return False
    for other in range(SLAVE_CAPACITY):
        if state.slaves[other].fd >= 0 and state.slaves[other].member == member:
            close_slave(state, other, "it has connected anew", 0)
    slave.member = member
    slave.head_size = HA_GROUP_FRAME_HEAD_SIZE
    slave.next_offset = end
    slave.told_confirmed = -1
    publish(&row.member, member)
    publish(&row.sent, end)
    if end < kept:
        lose_slave(state, slot, kept)
    else:
        publish(&row.state, SLAVE_STATE_COPYING)
        say_member(row, end)
    publish_slaves(state)
    return True


cdef void note_member_report(HaState *state, int slot, int64_t reported) noexcept nogil:
    cdef SlaveRow *row = &state.shared.slaves[slot]
    cdef int64_t end = observe(&state.shared.board.wrote_offset)
    if reported < 0 or reported < row.acked:
        close_slave(state, slot, "a report that goes back", 0)
        return
    if reported > end:
        close_slave(state, slot, "it reports what this log does not have", 0)
        return
    publish(&row.acked, reported)
    publish(&row.acked_at, now_ms())
    if reported == end:
        publish(&row.caught_up_at, row.acked_at)
    publish_slaves(state)


cdef void note_report(HaState *state, int slot, int64_t reported) noexcept nogil:
    cdef SlaveRow *row = &state.shared.slaves[slot]
    cdef int64_t end = observe(&state.shared.board.wrote_offset)
    cdef bint is_first = row.state == SLAVE_STATE_CONNECTED
    if state.slaves[slot].member >= 0:
        note_member_report(state, slot, reported)
        return
    if reported < 0 or (not is_first and reported < row.acked):
        close_slave(state, slot, "a report that goes back", 0)
        return
    if reported > end or (is_first and find_refused(state, row, reported) >= 0):
        refuse_ahead(state, slot, reported, end)
        return
    publish(&row.acked, reported)
    publish(&row.acked_at, now_ms())
    if is_first:
        begin_copy(state, slot, reported, end)
    if row.state == SLAVE_STATE_COPYING:
        if reported == end:
            publish(&row.caught_up_at, row.acked_at)
        # In a group that is for members to move: who only copies along may be gone tomorrow.
        if not state.in_group and reported > peek(&state.shared.board.replicated_offset):
            publish(&state.shared.board.replicated_offset, reported)
            state.has_acks = True
    publish_slaves(state)


cdef int32_t take_hello(HaState *state, int slot, const uint8_t *data, int32_t size) noexcept nogil:
    # Bytes of data[0:size] that are a hello; -1: it has not come whole, or who said it was sent away.
    if not state.in_group or state.shared.slaves[slot].state != SLAVE_STATE_CONNECTED:
        return 0
    if size < HA_REPORT_SIZE:
        return -1
    if load_i64(data) >= 0:
        if not state.is_slave:
            return 0
        close_slave(state, slot, "this broker leads no epoch", 0)
        return -1
    return HA_HELLO_SIZE if size >= HA_HELLO_SIZE and greet(state, slot, data) else -1


cdef void read_slave(HaState *state, int slot) noexcept nogil:
    # Of all that was reported, the last word counts.
    cdef Slave *slave = &state.slaves[slot]
    cdef uint8_t data[HA_HELLO_SIZE + READ_SIZE]
    cdef int32_t size, whole, said
    cdef ssize_t got
    memcpy(data, slave.partial, slave.partial_size)
    got = recv(slave.fd, data + slave.partial_size, READ_SIZE, 0)
    if got <= 0:
        if got == 0:
            close_slave(state, slot, "it has closed the connection", 0)
        elif errno != EAGAIN and errno != EINTR:
            close_slave(state, slot, "reading failed", errno)
        return
    slave.read_ms = state.turn_ms
    size = slave.partial_size + <int32_t>got
    said = take_hello(state, slot, data, size)
    if slave.fd < 0:
        return
    whole = said + (size - said) // HA_REPORT_SIZE * HA_REPORT_SIZE if said >= 0 else 0
    slave.partial_size = size - whole
    memcpy(slave.partial, data + whole, slave.partial_size)
    if whole > max(said, 0):
        note_report(state, slot, load_i64(data + whole - HA_REPORT_SIZE))


# Frames -----------------------------------------------------------------------------------------------------------


cdef void block(HaState *state, int slot, bint is_blocked) noexcept nogil:
    cdef epoll_event event
    if state.slaves[slot].is_blocked == is_blocked:
        return
    event.events = (EPOLLIN | EPOLLRDHUP | EPOLLOUT) if is_blocked else (EPOLLIN | EPOLLRDHUP)
    event.data.u64 = MARK_SLAVE + slot
    epoll_ctl(state.epoll, EPOLL_CTL_MOD, state.slaves[slot].fd, &event)
    state.slaves[slot].is_blocked = is_blocked


cdef bint is_on_disk(HaState *state, Slave *slave, const uint8_t *base, int64_t size, int64_t available) noexcept nogil:
    # Whether [base, base + size) must be read first; then that has begun, and what follows comes along.
    cdef uint8_t *page = <uint8_t *>(<uint64_t>base & ~<uint64_t>(PAGE_SIZE - 1))
    cdef unsigned char resident[BURST_PAGES]
    cdef int64_t pages = (base + size - page + PAGE_SIZE - 1) // PAGE_SIZE
    cdef int64_t index
    if mincore(page, pages * PAGE_SIZE, resident) != 0:
        return False
    for index in range(pages):
        if not resident[index] & 1:
            break
    else:
        slave.cold_since = 0
        return False
    if slave.cold_since == 0:
        slave.cold_since = state.turn_ms
        madvise(page, min(base - page + available, <int64_t>READ_AHEAD), MADV_WILLNEED)
    elif state.turn_ms - slave.cold_since >= DISK_PATIENCE_MS:
        slave.cold_since = 0
        return False
    state.waits_for_disk = True
    return True


cdef struct Burst:
    int64_t offsets[FRAMES_MAX]
    int32_t sizes[FRAMES_MAX]
    int32_t count
    int32_t gone                # bytes of the first frame that were written before
    int64_t first_confirmed     # what the heads say: the first frame's may have been written in part
    int64_t confirmed
    const uint8_t *base         # where the body of the first frame with one lies, at *base_offset*
    int64_t base_offset


cdef bint plan_burst(HaState *state, Slave *slave, int64_t end, Burst *burst) noexcept nogil:
    # The frame under way, and those that follow it up to *end* in the same file; False: what they hold cannot be
    # written now.
    cdef int64_t at = slave.next_offset
    cdef int64_t limit, available, first
    cdef int64_t size_max = state.settings.frame_size_max
    burst.count = 0
    burst.gone = 0
    burst.first_confirmed = burst.confirmed = peek(&state.shared.board.confirmed_offset)
    if slave.member >= 0:
        size_max = max(size_max, <int64_t>GROUP_FRAME_MAX)
    first = slave.next_offset
    if slave.frame_left > 0:
        burst.offsets[0] = slave.frame_offset
        burst.sizes[0] = slave.frame_size
        burst.gone = <int32_t>(slave.head_size + slave.frame_size - slave.frame_left)
        burst.first_confirmed = slave.frame_confirmed
        burst.count = 1
        first = slave.frame_offset
    limit = min(end, first - first % state.file_size + state.file_size)
    limit = min(limit, first + <int64_t>BURST_MAX)
    while burst.count < FRAMES_MAX and at < limit:
        burst.offsets[burst.count] = at
        burst.sizes[burst.count] = <int32_t>min(limit - at, size_max)
        at += burst.sizes[burst.count]
        burst.count += 1
    burst.base_offset = first
    burst.base = NULL
    if at > first:
        burst.base = bytes_at(state.files, first, &available)
        if burst.base == NULL:
            return False
        if end - first > HOT_BYTES and is_on_disk(state, slave, burst.base, at - first, available):
            burst.count = 0
    return True


cdef inline int64_t confirmed_by(const Burst *burst, int32_t index) noexcept nogil:
    return burst.first_confirmed if index == 0 else burst.confirmed


cdef int64_t write_burst(const HaState *state, const Slave *slave, const Burst *burst) noexcept nogil:
    # Bytes written, or -1 with errno.
    cdef iovec parts[2 * FRAMES_MAX]
    cdef uint8_t heads[FRAMES_MAX * HA_GROUP_FRAME_HEAD_SIZE]
    cdef int32_t head_size = slave.head_size
    cdef uint8_t *head
    cdef int32_t index, gone
    cdef int count = 0
    for index in range(burst.count):
        head = heads + index * HA_GROUP_FRAME_HEAD_SIZE
        store_i64(head + HA_FRAME_HEAD_PHYSICAL_OFFSET_AT, burst.offsets[index])
        store_i32(head + HA_FRAME_HEAD_SIZE_AT, burst.sizes[index])
        if slave.member >= 0:
            store_i32(head + HA_GROUP_FRAME_HEAD_ZERO_AT, 0)
            store_i64(head + HA_GROUP_FRAME_HEAD_TERM_AT, state.term)
            store_i64(head + HA_GROUP_FRAME_HEAD_CONFIRMED_AT, confirmed_by(burst, index))
        gone = burst.gone if index == 0 else 0
        if gone < head_size:
            parts[count].iov_base = head + gone
            parts[count].iov_len = head_size - gone
            count += 1
            gone = 0
        else:
            gone -= head_size
        if burst.sizes[index] > 0:
            parts[count].iov_base = <void *>(burst.base + (burst.offsets[index] - burst.base_offset) + gone)
            parts[count].iov_len = burst.sizes[index] - gone
            count += 1
    return writev(slave.fd, parts, count)


cdef bint note_written(HaState *state, int slot, const Burst *burst, int64_t written) noexcept nogil:
    # Move on by what the socket has taken; whether that was all.
    cdef Slave *slave = &state.slaves[slot]
    cdef SlaveRow *row = &state.shared.slaves[slot]
    cdef int32_t index
    cdef int64_t left
    slave.wrote_ms = state.turn_ms
    slave.frame_left = 0
    for index in range(burst.count):
        left = slave.head_size + burst.sizes[index] - (burst.gone if index == 0 else 0)
        if written == 0 and (index > 0 or burst.gone == 0):
            slave.next_offset = burst.offsets[index]
            break
        slave.next_offset = max(slave.next_offset, burst.offsets[index] + burst.sizes[index])
        if written < left:
            slave.frame_offset = burst.offsets[index]
            slave.frame_size = burst.sizes[index]
            slave.frame_confirmed = slave.told_confirmed = confirmed_by(burst, index)
            slave.frame_left = <int32_t>(left - written)
            break
        slave.told_confirmed = confirmed_by(burst, index)
        written -= left
        put_relaxed(&state.row.units, state.row.units + 1)
    else:
        publish(&row.sent, slave.next_offset)
        return True
    publish(&row.sent, slave.next_offset - min(slave.frame_left, slave.frame_size))
    return False


cdef int64_t pause_of(const HaState *state, const Slave *slave) noexcept nogil:
    # How long nothing is sent where there is nothing to send.
    if slave.member >= 0 and slave.told_confirmed < peek(&state.shared.board.confirmed_offset):
        return CONFIRMED_PAUSE_MS
    return beat_ms(state)


cdef int64_t allowed_end(const HaState *state, Slave *slave) noexcept nogil:
    # Up to where it may be sent the log for now. What it did not take is made up for, but of a few ms only.
    cdef int64_t per_s = state.settings.bytes_per_s
    cdef int64_t now = monotonic_ns()
    cdef int64_t passed = min(now - slave.allowed_at, <int64_t>PACE_BURST_NS)
    cdef int64_t added = per_s * passed // NS_PER_S
    if added > 0:
        slave.allowed = min(slave.allowed + added, max(per_s * PACE_BURST_NS // NS_PER_S, <int64_t>1))
        slave.allowed_at = now
    return slave.next_offset + slave.allowed


cdef bint push_some(HaState *state, int slot) noexcept nogil:
    # One write. True: the socket may take more, and there may be more.
    cdef Slave *slave = &state.slaves[slot]
    cdef SlaveRow *row = &state.shared.slaves[slot]
    cdef int64_t end = observe(&state.shared.board.wrote_offset) if row.state == SLAVE_STATE_COPYING else 0
    cdef int64_t first = slave.next_offset
    cdef int64_t allowed
    cdef int64_t sent = row.sent
    cdef int64_t written
    cdef Burst burst
    if state.settings.bytes_per_s > 0 and first < end:
        allowed = allowed_end(state, slave)
        # Not a few bytes each time that it is looked at: pieces of a millisecond, or the rest.
        slave.is_paced = allowed < end and slave.allowed < max(state.settings.bytes_per_s // PIECES_PER_S, <int64_t>1)
        state.waits_for_pace |= slave.is_paced
        end = first if slave.is_paced else min(end, allowed)
    if slave.frame_left == 0 and first >= end:
        if state.turn_ms - slave.wrote_ms <= pause_of(state, slave):
            return False
        slave.frame_offset = slave.next_offset
        slave.frame_size = 0
        slave.frame_left = slave.head_size
        slave.frame_confirmed = peek(&state.shared.board.confirmed_offset)
    if not plan_burst(state, slave, end, &burst):
        close_slave(state, slot, "the commit log cannot be read", state.files.error)
        return False
    if burst.count == 0:
        return False
    written = write_burst(state, slave, &burst)
    if written < 0:
        if errno == EAGAIN:
            block(state, slot, True)
        elif errno != EINTR:
            close_slave(state, slot, "writing failed", errno)
        return False
    if not note_written(state, slot, &burst, written):
        block(state, slot, True)
    if state.settings.bytes_per_s > 0:
        slave.allowed -= slave.next_offset - first
    publish(&row.sent_bytes, row.sent_bytes + row.sent - sent)
    put_relaxed(&state.row.bytes, state.row.bytes + row.sent - sent)
    state.naps = 0
    return not slave.is_blocked


cdef void push_slave(HaState *state, int slot) noexcept nogil:
    cdef int64_t kept = observe(&state.shared.board.min_offset)
    cdef SlaveRow *row = &state.shared.slaves[slot]
    cdef int _burst
    if row.state == SLAVE_STATE_CONNECTED:
        return  # it has not said from where on
    if row.state == SLAVE_STATE_COPYING and state.slaves[slot].next_offset < kept:
        lose_slave(state, slot, kept)
        publish_slaves(state)
    block(state, slot, False)
    state.slaves[slot].is_paced = False
    for _burst in range(BURSTS_PER_TURN):
        if not push_some(state, slot):
            return
    state.has_more = True


# Looking around ---------------------------------------------------------------------------------------------------


cdef void check_slaves(HaState *state) noexcept nogil:
    cdef SlaveRow *row
    cdef int slot
    for slot in range(SLAVE_CAPACITY):
        row = &state.shared.slaves[slot]
        if state.slaves[slot].fd >= 0:
            if state.turn_ms - state.slaves[slot].read_ms > state.settings.silence_ms:
                close_slave(state, slot, "nothing was heard of it for too long", 0)
        elif row.state == SLAVE_STATE_REFUSED_AHEAD and now_ms() - row.connected_at > REFUSED_KEPT_MS:
            publish(&row.state, SLAVE_STATE_FREE)


cdef bint takes_more(const HaState *state, int slot) noexcept nogil:
    return (state.slaves[slot].fd >= 0 and state.shared.slaves[slot].state == SLAVE_STATE_COPYING
            and not state.slaves[slot].is_blocked and not state.slaves[slot].is_paced)


cdef inline bint leads(const HaState *state) noexcept nogil:
    return state.in_group and not state.is_slave


cdef bint has_news(const HaState *state) noexcept nogil:
    cdef int64_t end = observe(&state.shared.board.wrote_offset)
    cdef int slot
    if leads(state) and own_end(state) > state.counted_end:
        return True
    for slot in range(SLAVE_CAPACITY):
        if takes_more(state, slot) and state.slaves[slot].next_offset < end:
            return True
    return False


cdef bint wants_news(const HaState *state) noexcept nogil:
    cdef int slot
    if leads(state):
        return True
    for slot in range(SLAVE_CAPACITY):
        if takes_more(state, slot):
            return True
    return False


cdef bint is_copied(const HaState *state) noexcept nogil:
    cdef int64_t end = observe(&state.shared.board.wrote_offset)
    cdef int slot
    for slot in range(SLAVE_CAPACITY):
        if (state.slaves[slot].fd >= 0 and state.shared.slaves[slot].state == SLAVE_STATE_COPYING
                and state.shared.slaves[slot].acked < end):
            return False
    return True


cdef int64_t next_deadline(const HaState *state) noexcept nogil:
    cdef int64_t found = -1
    cdef int64_t due
    cdef int slot
    for slot in range(SLAVE_CAPACITY):
        if state.slaves[slot].fd < 0:
            continue
        due = state.slaves[slot].read_ms + state.settings.silence_ms
        if state.shared.slaves[slot].state != SLAVE_STATE_CONNECTED and not state.slaves[slot].is_blocked:
            due = min(due, state.slaves[slot].wrote_ms + pause_of(state, &state.slaves[slot]))
        found = due if found < 0 else min(found, due)
    return found
