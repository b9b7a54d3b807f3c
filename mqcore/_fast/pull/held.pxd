# Pulls that a pull worker keeps: those that the broker process is asked about, by the number of the question.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.base.layout cimport PullRequest
from mqcore._fast.pull.bindings cimport Binding

cdef enum:
    QUESTIONS_MAX = 1 << 18     # as many as there are tickets of all send workers

# A request that waits: for an answer of the broker process, or for a message.
cdef struct Held:
    Held *next
    Binding *binding
    int64_t resolve_id
    int64_t since               # coarse ms
    int64_t deadline            # coarse ms
    int32_t sender
    int32_t size
    bint is_first               # not woken yet: it may be held, and commits its offset
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

# Give *held* a number, resolve_id. False: there are too many, or memory is short.
cdef bint question_put(Questions *questions, Held *held) noexcept nogil
# The pull of that number, which is free again; NULL if there is none such.
cdef Held *question_take(Questions *questions, int64_t resolve_id) noexcept nogil
# Frees what they hold, too.
cdef void questions_close(Questions *questions) noexcept nogil
