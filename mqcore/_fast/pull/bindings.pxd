# What a pull worker remembers of pulls that the broker process has found in order.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore._fast.base.layout cimport PullRequest

# What a binding is good for, followed by its strings: topic, group, subscription, expression type. Where one of them
# ends and the next begins is part of it, and so is who asks: no two pulls that may be judged differently have one key.
cdef struct BindingKey:
    int64_t principal
    int64_t sub_version
    int32_t queue_id
    int32_t has_subscription    # 1 = the pull's own expression is the one to use; without, the last two sizes are 0
    int32_t topic_size
    int32_t group_size
    int32_t subscription_size   # -1 = absent
    int32_t expression_type_size

cdef struct Binding:
    Binding *next               # of the same bucket
    uint64_t hashed
    int32_t references          # held pulls that point here
    int64_t epoch               # good while this is the board's
    int64_t suspend_limit_ms
    int32_t broker_id
    int32_t slow_broker_id
    int32_t queue_row
    int32_t offset_row
    int32_t tag_count           # 0 = every message
    int32_t *tags
    BindingKey key
    uint8_t strings[1]

cdef struct BindingTable:
    Binding **buckets
    int32_t count
    uint64_t seed

# The binding of a request (its strings behind it), made empty with epoch -1 if it is new; NULL when memory is short.
cdef Binding *binding_of(BindingTable *table, const PullRequest *request) noexcept nogil
cdef bint bindings_open(BindingTable *table) noexcept nogil
cdef void bindings_close(BindingTable *table) noexcept nogil
# Forget what is stale and not pointed to, when there is much of it.
cdef void bindings_sweep(BindingTable *table, int64_t epoch) noexcept nogil
cdef bint binding_matches(const Binding *binding, int64_t tags_code) noexcept nogil
