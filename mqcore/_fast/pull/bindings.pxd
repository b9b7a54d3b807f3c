# What a pull worker remembers of pulls that the broker process has found in order.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore._fast.base.layout cimport PullRequest
from mqcore._fast.filter.program cimport FilterProgram
from mqcore._fast.segment.boards cimport Shared, pull_epoch

# What a binding is good for, followed by its strings: topic, group, subscription, expression type. Where one of them
# ends and the next begins is part of it, and so is who asks: no two pulls that may be judged differently have one key.
cdef struct BindingKey:
    int64_t principal
    int64_t sub_version
    int32_t has_subscription    # 1 = the pull's own expression is the one to use; without, the last two sizes are 0
    int32_t topic_size
    int32_t group_size
    int32_t subscription_size   # -1 = absent
    int32_t expression_type_size

# What the boards have of one queue and of the group's place in it.
cdef struct PullRows:
    int32_t queue_row
    int32_t offset_row          # -1 = the two have not been looked up

cdef struct KnownBinding:
    KnownBinding *next          # of the same bucket
    uint64_t hashed
    int64_t used_at             # coarse ms
    int32_t references          # pulls that point here; it stays while there are any
    int64_t epoch               # good while this is pull_epoch of the two rows
    int32_t topic_epoch_row
    int32_t group_epoch_row
    int64_t suspend_limit_ms
    int32_t suspend_max_ms
    int32_t broker_id
    int32_t slow_broker_id
    int32_t queue_count         # that may be read; whoever asks for another one is for the broker process
    int32_t rows_count
    PullRows *rows              # by queue id, of the first rows_count queues
    int64_t asked               # the number of the last question about it that is under way; 0 = none is
    int64_t asked_at            # coarse ms
    int32_t tag_count           # 0 = every message
    int32_t *tags
    FilterProgram filter        # without memory: there is none
    int64_t bitmap_from         # physical offset; bitmaps of older messages do not tell; -1 = none does
    int32_t bitmap_bits
    int32_t bit_count
    int32_t *bits               # of the group in filter bitmaps
    BindingKey key
    uint8_t strings[1]

cdef struct BindingTable:
    KnownBinding **buckets
    int64_t bytes               # memory of all bindings
    int64_t budget
    int32_t hand                # the bucket to be swept next
    uint64_t seed

cdef bint bindings_open(BindingTable *table, int64_t budget) noexcept nogil
cdef void bindings_close(BindingTable *table) noexcept nogil
# The binding of a request (its strings behind it), made empty with epoch -1 if it is new; others are forgotten if all
# together would pass the budget. NULL when memory is short.
cdef KnownBinding *binding_of(BindingTable *table, const PullRequest *request, int64_t now_ms) noexcept nogil
# Give it tags, which are copied. False when memory is short.
cdef bint binding_set_tags(BindingTable *table, KnownBinding *binding, const int32_t *tags,
                           int32_t count) noexcept nogil
# Give it the filter in program[0:size], and the group's bits, which are copied; size 0 for none. False when memory is
# short or the filter is no sound one.
cdef bint binding_set_filter(BindingTable *table, KnownBinding *binding, const uint8_t *program, int32_t size,
                             const int32_t *bits, int32_t bit_count) noexcept nogil
# Where a binding remembers the rows of a queue; NULL where it does not, for want of memory or as there are too many.
cdef PullRows *binding_rows(BindingTable *table, KnownBinding *binding, int32_t queue_id) noexcept nogil
# Forget, in the next part of the table, what is stale or has not been used for long.
cdef void bindings_sweep(BindingTable *table, const Shared *shared, int64_t now_ms) noexcept nogil
cdef inline bint binding_is_good(const Shared *shared, const KnownBinding *binding) noexcept nogil:
    return binding.epoch == pull_epoch(shared, binding.topic_epoch_row, binding.group_epoch_row)
cdef bint binding_matches(const KnownBinding *binding, int64_t tags_code) noexcept nogil
