"""A failover group as its ha worker sees it: who leads, who must have what is confirmed, and how far they have it.

The broker process says so on the board, this worker says what follows. From required_seen on nothing is confirmed that
the set of that number does not have: only then may the group's state name a new member. What counts of a member is what
it has reported over the connection that it has now, after a hello of this epoch; of one that has none nothing does, and
what is confirmed stands still.
"""

from libc.stdint cimport int64_t

from mqcore._fast.base.atomics cimport observe, peek, publish
from mqcore._fast.base.layout cimport (GROUP_MEMBERS_MAX, HA_ROLE_MASTER, SLAVE_CAPACITY, SLAVE_STATE_COPYING,
                                       StoreBoard)
from mqcore._fast.ha.master cimport close_slave
from mqcore._fast.ha.replica cimport close_replica
from mqcore._fast.ha.state cimport HaState, confirm_to, own_end


cdef void follow_role(HaState *state) noexcept nogil:
    cdef bint is_slave = observe(&state.shared.board.ha_role) != HA_ROLE_MASTER
    cdef int slot
    if is_slave == state.is_slave:
        return
    state.is_slave = is_slave
    if is_slave:
        for slot in range(SLAVE_CAPACITY):
            if state.slaves[slot].fd >= 0:
                close_slave(state, slot, "this broker leads no more", 0)
    else:
        state.term = observe(&state.shared.board.ha_term)
        close_replica(state)


cdef void read_required(HaState *state) noexcept nogil:
    # Whoever writes it wakes this worker behind the last word: what is under way is read then.
    cdef StoreBoard *board = state.shared.board
    cdef int64_t version = observe(&board.required_version)
    cdef int64_t generation, members
    if version == state.required_version or version & 1:
        return
    generation = observe(&board.required_generation)
    members = observe(&board.required_members)
    if observe(&board.required_version) != version:
        return
    state.required_version = version
    state.required_generation = generation
    state.required_members = members
    publish(&board.required_seen, generation)


cdef int64_t acked_by(const HaState *state, int64_t member) noexcept nogil:
    cdef int slot
    for slot in range(SLAVE_CAPACITY):
        if (state.slaves[slot].fd >= 0 and state.slaves[slot].member == member
                and state.shared.slaves[slot].state == SLAVE_STATE_COPYING):
            return peek(&state.shared.slaves[slot].acked)
    return -1


cdef void count_confirmed(HaState *state) noexcept nogil:
    cdef int64_t own = peek(&state.shared.board.ha_member)
    cdef int64_t end, member
    if state.is_slave:
        return
    read_required(state)
    state.counted_end = end = own_end(state)
    if state.required_generation == 0:
        return
    for member in range(GROUP_MEMBERS_MAX):
        if (state.required_members >> member) & 1 and member != own:
            end = min(end, acked_by(state, member))
    confirm_to(state, end)
