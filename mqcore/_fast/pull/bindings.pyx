"""The pull worker's memory of checked pulls: (who asks, group, topic, subscription) -> filter, rows, limits.

All policy is in the broker process; here is only its answer, good until the epoch of its topic and group changes. Any
may be forgotten while no pull points to it: that costs a question. So their memory is bounded, whatever is asked.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from mqcore._fast.base.atomics cimport monotonic_ns
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.hashing cimport hash_bytes
from mqcore._fast.base.layout cimport PullRequest
from mqcore._fast.filter.program cimport filter_free, filter_load
from mqcore._fast.segment.boards cimport ROW_NONE, Shared, epoch_row

from mqcore.codes import PullSysFlag

cdef int32_t SUBSCRIPTION_FLAG = PullSysFlag.SUBSCRIPTION

cdef enum:
    BUCKET_COUNT = 1 << 16
    SWEEP_BUCKETS = 1 << 10         # of one sweep
    REST_MS = 600_000               # a binding that nobody has used for so long is forgotten
    ROWS_FIRST = 8
    ROWS_MAX = 1 << 16              # the rows of queues beyond are looked up each time


cdef bint bindings_open(BindingTable *table, int64_t budget) noexcept nogil:
    memset(table, 0, sizeof(BindingTable))
    table.buckets = <KnownBinding **>calloc(BUCKET_COUNT, sizeof(KnownBinding *))
    table.budget = budget
    # Clients choose what is hashed here: without it they could have all their pulls in one bucket.
    table.seed = <uint64_t>monotonic_ns()
    return table.buckets != NULL


cdef void free_binding(KnownBinding *binding) noexcept nogil:
    free(binding.tags)
    free(binding.bits)
    free(binding.rows)
    filter_free(&binding.filter)
    free(binding)


cdef void bindings_close(BindingTable *table) noexcept nogil:
    cdef int32_t bucket
    cdef KnownBinding *binding
    cdef KnownBinding *following
    if table.buckets == NULL:
        return
    for bucket in range(BUCKET_COUNT):
        binding = table.buckets[bucket]
        while binding != NULL:
            following = binding.next
            free_binding(binding)
            binding = following
    free(table.buckets)
    table.buckets = NULL


cdef void put_key(const PullRequest *request, BindingKey *key) noexcept nogil:
    # The subscription counts only when it is the one to use.
    memset(key, 0, sizeof(BindingKey))
    key.principal = request.principal
    key.sub_version = request.sub_version
    key.topic_size = request.topic_size
    key.group_size = request.group_size
    if request.sys_flag & SUBSCRIPTION_FLAG:
        key.has_subscription = 1
        key.subscription_size = request.subscription_size
        key.expression_type_size = request.expression_type_size


cdef int32_t strings_size(const BindingKey *key) noexcept nogil:
    return key.topic_size + key.group_size + max(key.subscription_size, 0) + max(key.expression_type_size, 0)


cdef int64_t bytes_of(const KnownBinding *binding) noexcept nogil:
    return (<int64_t>sizeof(KnownBinding) + strings_size(&binding.key) + binding.filter.size
            + (binding.tag_count + binding.bit_count) * <int64_t>sizeof(int32_t)
            + binding.rows_count * <int64_t>sizeof(PullRows))


cdef void sweep_next(BindingTable *table, const Shared *shared, int64_t now_ms) noexcept nogil:
    # Look through one bucket; without *shared* forget all that may be forgotten.
    cdef KnownBinding **link = &table.buckets[table.hand]
    cdef KnownBinding *binding
    table.hand = (table.hand + 1) & (BUCKET_COUNT - 1)
    while link[0] != NULL:
        binding = link[0]
        if binding.references == 0 and (
                shared == NULL or now_ms - binding.used_at >= REST_MS or not binding_is_good(shared, binding)):
            link[0] = binding.next
            table.bytes -= bytes_of(binding)
            check(table.bytes >= 0, "bindings take back what they took of the budget")
            free_binding(binding)
        else:
            link = &binding.next


cdef bint make_room(BindingTable *table, int64_t size) noexcept nogil:
    cdef int32_t _bucket
    for _bucket in range(BUCKET_COUNT):
        if table.bytes + size <= table.budget:
            return True
        sweep_next(table, NULL, 0)
    return table.bytes + size <= table.budget


cdef KnownBinding *make_binding(BindingTable *table, const BindingKey *key, const uint8_t *strings,
                                uint64_t hashed) noexcept nogil:
    cdef int32_t size = strings_size(key)
    cdef KnownBinding *binding
    if not make_room(table, <int64_t>sizeof(KnownBinding) + size):
        return NULL
    binding = <KnownBinding *>malloc(sizeof(KnownBinding) + size)
    if binding == NULL:
        return NULL
    memset(binding, 0, sizeof(KnownBinding))
    binding.hashed = hashed
    binding.epoch = -1
    binding.topic_epoch_row = epoch_row(strings, key.topic_size)
    binding.group_epoch_row = epoch_row(strings + key.topic_size, key.group_size)
    binding.key = key[0]
    memcpy(binding.strings, strings, size)
    binding.next = table.buckets[hashed & (BUCKET_COUNT - 1)]
    table.buckets[hashed & (BUCKET_COUNT - 1)] = binding
    table.bytes += bytes_of(binding)
    return binding


cdef KnownBinding *binding_of(BindingTable *table, const PullRequest *request, int64_t now_ms) noexcept nogil:
    cdef const uint8_t *strings = <const uint8_t *>request + sizeof(PullRequest)
    cdef BindingKey key
    cdef int32_t size
    cdef uint64_t hashed
    cdef KnownBinding *binding
    put_key(request, &key)
    size = strings_size(&key)
    hashed = hash_bytes(strings, size, hash_bytes(<const uint8_t *>&key, sizeof(BindingKey), table.seed))
    binding = table.buckets[hashed & (BUCKET_COUNT - 1)]
    while binding != NULL:
        if (binding.hashed == hashed and memcmp(&binding.key, &key, sizeof(BindingKey)) == 0
                and memcmp(binding.strings, strings, size) == 0):
            break
        binding = binding.next
    if binding == NULL:
        binding = make_binding(table, &key, strings, hashed)
    if binding != NULL:
        binding.used_at = now_ms
    return binding


cdef bint binding_set_tags(BindingTable *table, KnownBinding *binding, const int32_t *tags,
                           int32_t count) noexcept nogil:
    cdef int32_t *copy = NULL
    if count > 0:
        copy = <int32_t *>malloc(count * sizeof(int32_t))
        if copy == NULL:
            return False
        memcpy(copy, tags, count * sizeof(int32_t))
    free(binding.tags)
    table.bytes += (count - binding.tag_count) * <int64_t>sizeof(int32_t)
    binding.tags = copy
    binding.tag_count = count
    return True


cdef bint binding_set_filter(BindingTable *table, KnownBinding *binding, const uint8_t *program, int32_t size,
                             const int32_t *bits, int32_t bit_count) noexcept nogil:
    table.bytes -= bytes_of(binding)
    filter_free(&binding.filter)
    free(binding.bits)
    binding.bits = NULL
    binding.bit_count = 0
    if size > 0 and not filter_load(&binding.filter, program, size):
        table.bytes += bytes_of(binding)
        return False
    if bit_count > 0:
        binding.bits = <int32_t *>malloc(bit_count * sizeof(int32_t))
        if binding.bits != NULL:
            memcpy(binding.bits, bits, bit_count * sizeof(int32_t))
            binding.bit_count = bit_count
    table.bytes += bytes_of(binding)
    return True


cdef bint grow_rows(BindingTable *table, KnownBinding *binding, int32_t queue_id) noexcept nogil:
    cdef int32_t count = max(<int32_t>ROWS_FIRST, binding.rows_count)
    cdef int32_t index
    cdef int64_t size
    cdef PullRows *rows
    while count <= queue_id:
        count *= 2
    size = (count - binding.rows_count) * <int64_t>sizeof(PullRows)
    if not make_room(table, size):
        return False
    rows = <PullRows *>realloc(binding.rows, count * sizeof(PullRows))
    if rows == NULL:
        return False
    for index in range(binding.rows_count, count):
        rows[index].queue_row = rows[index].offset_row = ROW_NONE
    binding.rows = rows
    binding.rows_count = count
    table.bytes += size
    return True


cdef PullRows *binding_rows(BindingTable *table, KnownBinding *binding, int32_t queue_id) noexcept nogil:
    if not 0 <= queue_id < ROWS_MAX:
        return NULL
    if queue_id >= binding.rows_count and not grow_rows(table, binding, queue_id):
        return NULL
    return &binding.rows[queue_id]


cdef void bindings_sweep(BindingTable *table, const Shared *shared, int64_t now_ms) noexcept nogil:
    cdef int32_t _bucket
    for _bucket in range(SWEEP_BUCKETS):
        sweep_next(table, shared, now_ms)


cdef bint binding_matches(const KnownBinding *binding, int64_t tags_code) noexcept nogil:
    # As RocketMQ compares: the low 32 bits with the hashes of the subscribed tags, which are sorted.
    cdef int32_t wanted = <int32_t>tags_code
    cdef int32_t low = 0
    cdef int32_t high = binding.tag_count
    cdef int32_t middle
    if binding.tag_count == 0:
        return True
    while low < high:
        middle = (low + high) // 2
        if binding.tags[middle] == wanted:
            return True
        if binding.tags[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return False
