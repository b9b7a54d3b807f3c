# Pulls that a pull worker keeps: those that the broker process is asked about, by the number of the question; those
# that wait for a message, by their queue; and all by their ticket, so that they can be let go of with their connection.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.base.layout cimport SEND_WORKERS_MAX, TICKETS_MAX, PullRequest
from mqcore._fast.pull.bindings cimport KnownBinding, PullRows

cdef enum:
    QUESTIONS_MAX = 1 << 18     # as many as there are tickets of all send workers
    HELD_MAX = 1 << 18

# A request that waits: for an answer of the broker process, or for a message.
cdef struct Held:
    Held *next                  # of the same queue, newest first
    Held *previous
    Held *line                  # behind one that was asked about: who waits for the same answer, the newest first
    KnownBinding *binding
    PullRows rows               # of the queue that it reads; set when it is served
    int64_t resolve_id
    int64_t since               # coarse ms
    int64_t deadline            # coarse ms
    int64_t woken               # turn_ns of the turn in which its hold ended; 0 = it was not held
    int64_t due                 # coarse ms at which it has waited for its quota; 0 = it has not had to
    int32_t sender
    int32_t size
    int32_t queue_row           # that it waits in; -1 = in none
    bint is_first               # not woken yet: it may be held, and commits its offset
    bint has_place              # its ticket leads here
    bint is_gone                # nobody waits for it; it ends with the answer to its question
    PullRequest request         # and its strings behind it

cdef struct Question:
    Held *held                  # NULL = free
    int32_t next_free

# The questions that are open, by their numbers. A number names its place and, above that, which use of the place it is.
cdef struct Questions:
    Question *places
    int32_t capacity
    int32_t free                # -1 = none
    int64_t asked

cdef struct HeldPulls:
    Questions questions
    Held **queues               # by row
    int32_t queue_capacity
    int64_t waiting             # over all queues
    Held **tickets[SEND_WORKERS_MAX]

cdef bint held_open(HeldPulls *pulls, int sender_count) noexcept nogil
# Frees them all, too.
cdef void held_close(HeldPulls *pulls) noexcept nogil

# Let its ticket lead to it. Another pull that it led to has lost its place: *out* gets it, to be let go of.
cdef void ticket_put(HeldPulls *pulls, Held *held, Held **out) noexcept nogil
cdef inline void ticket_clear(HeldPulls *pulls, Held *held) noexcept nogil:
    if held.has_place:
        held.has_place = False
        pulls.tickets[held.sender][held.request.ticket & (TICKETS_MAX - 1)] = NULL

# The pull of a ticket's number, NULL if it is not kept.
cdef inline Held *ticket_find(const HeldPulls *pulls, int32_t sender, int32_t number) noexcept nogil:
    cdef Held *held = pulls.tickets[sender][number & (TICKETS_MAX - 1)]
    return held if held != NULL and held.request.ticket == number else NULL

# Into the queue of its binding and out of it. False: memory is short.
cdef bint queue_put(HeldPulls *pulls, Held *held) noexcept nogil
cdef void queue_leave(HeldPulls *pulls, Held *held) noexcept nogil

# Give *held* a number, resolve_id. False: there are too many, or memory is short.
cdef bint question_put(Questions *questions, Held *held) noexcept nogil
# The pull of that number, which is open or NULL; and the same, whose number is free again.
cdef Held *question_find(const Questions *questions, int64_t resolve_id) noexcept nogil
cdef Held *question_take(Questions *questions, int64_t resolve_id) noexcept nogil
