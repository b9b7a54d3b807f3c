# What a pull worker remembers of pulls that the broker process has found in order.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore._fast.base.layout cimport PullRequest

cdef struct Binding:
    Binding *next               # of the same bucket
    uint64_t hashed
    int32_t key_size
    int32_t references          # held pulls that point here
    int64_t epoch               # good while this is the board's
    int64_t suspend_limit_ms
    int32_t broker_id
    int32_t slow_broker_id
    int32_t queue_row
    int32_t offset_row
    int32_t tag_count           # 0 = every message
    int32_t *tags
    uint8_t key[1]              # key_size bytes

cdef struct BindingTable:
    Binding **buckets
    int32_t count

# The binding of a request (its strings behind it), made empty with epoch -1 if it is new; NULL when memory is short.
cdef Binding *binding_of(BindingTable *table, const PullRequest *request) noexcept nogil
cdef bint bindings_open(BindingTable *table) noexcept nogil
cdef void bindings_close(BindingTable *table) noexcept nogil
# Forget what is stale and not pointed to, when there is much of it.
cdef void bindings_sweep(BindingTable *table, int64_t epoch) noexcept nogil
cdef bint binding_matches(const Binding *binding, int64_t tags_code) noexcept nogil
