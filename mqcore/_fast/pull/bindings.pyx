"""The pull worker's memory of checked pulls: (who asks, group, topic, queue, subscription) -> filter, rows, limits.

All policy is in the broker process; here is only its answer, good until the configuration epoch changes.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from mqcore._fast.base.atomics cimport monotonic_ns
from mqcore._fast.base.hashing cimport hash_bytes
from mqcore._fast.base.layout cimport PullRequest

from mqcore.codes import PullSysFlag

cdef int32_t SUBSCRIPTION_FLAG = PullSysFlag.SUBSCRIPTION

cdef enum:
    BUCKET_COUNT = 1 << 16
    SWEEP_COUNT = 1 << 15           # entries that make a sweep worth its while


cdef bint bindings_open(BindingTable *table) noexcept nogil:
    table.buckets = <Binding **>calloc(BUCKET_COUNT, sizeof(Binding *))
    table.count = 0
    # Clients choose what is hashed here: without it they could have all their pulls in one bucket.
    table.seed = <uint64_t>monotonic_ns()
    return table.buckets != NULL


cdef void free_binding(Binding *binding) noexcept nogil:
    free(binding.tags)
    free(binding)


cdef void bindings_close(BindingTable *table) noexcept nogil:
    cdef int32_t bucket
    cdef Binding *binding
    cdef Binding *following
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
    key.queue_id = request.queue_id
    key.topic_size = request.topic_size
    key.group_size = request.group_size
    if request.sys_flag & SUBSCRIPTION_FLAG:
        key.has_subscription = 1
        key.subscription_size = request.subscription_size
        key.expression_type_size = request.expression_type_size


cdef int32_t strings_size(const BindingKey *key) noexcept nogil:
    return key.topic_size + key.group_size + max(key.subscription_size, 0) + max(key.expression_type_size, 0)


cdef Binding *binding_of(BindingTable *table, const PullRequest *request) noexcept nogil:
    cdef const uint8_t *strings = <const uint8_t *>request + sizeof(PullRequest)
    cdef BindingKey key
    cdef int32_t size
    cdef uint64_t hashed
    cdef Binding *binding
    put_key(request, &key)
    size = strings_size(&key)
    hashed = hash_bytes(strings, size, hash_bytes(<const uint8_t *>&key, sizeof(BindingKey), table.seed))
    binding = table.buckets[hashed & (BUCKET_COUNT - 1)]
    while binding != NULL:
        if (binding.hashed == hashed and memcmp(&binding.key, &key, sizeof(BindingKey)) == 0
                and memcmp(binding.strings, strings, size) == 0):
            return binding
        binding = binding.next
    binding = <Binding *>malloc(sizeof(Binding) + size)
    if binding == NULL:
        return NULL
    memset(binding, 0, sizeof(Binding))
    binding.hashed = hashed
    binding.epoch = -1
    binding.key = key
    memcpy(binding.strings, strings, size)
    binding.next = table.buckets[hashed & (BUCKET_COUNT - 1)]
    table.buckets[hashed & (BUCKET_COUNT - 1)] = binding
    table.count += 1
    return binding


cdef void bindings_sweep(BindingTable *table, int64_t epoch) noexcept nogil:
    cdef int32_t bucket
    cdef Binding **link
    cdef Binding *binding
    if table.count < SWEEP_COUNT:
        return
    for bucket in range(BUCKET_COUNT):
        link = &table.buckets[bucket]
        while link[0] != NULL:
            binding = link[0]
            if binding.epoch != epoch and binding.references == 0:
                link[0] = binding.next
                free_binding(binding)
                table.count -= 1
            else:
                link = &binding.next


cdef bint binding_matches(const Binding *binding, int64_t tags_code) noexcept nogil:
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
