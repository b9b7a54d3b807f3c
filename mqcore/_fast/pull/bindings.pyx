"""The pull worker's memory of checked pulls: (group, topic, queue, subscription) -> filter, rows, limits.

All policy is in the broker process; here is only its answer, good until the configuration epoch changes.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from mqcore._fast.base.layout cimport PullRequest

from mqcore.codes import PullSysFlag

cdef int32_t SUBSCRIPTION_FLAG = PullSysFlag.SUBSCRIPTION

cdef enum:
    BUCKET_COUNT = 1 << 16
    SWEEP_COUNT = 1 << 15           # entries that make a sweep worth its while
    KEY_FIXED = 24                  # queue id, flag, subscription version, two sizes


cdef bint bindings_open(BindingTable *table) noexcept nogil:
    table.buckets = <Binding **>calloc(BUCKET_COUNT, sizeof(Binding *))
    table.count = 0
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


cdef int32_t strings_size(const PullRequest *request) noexcept nogil:
    # The subscription counts only when it is the one to use.
    cdef int32_t size = request.topic_size + request.group_size
    if request.sys_flag & SUBSCRIPTION_FLAG:
        size += max(request.subscription_size, 0) + max(request.expression_type_size, 0)
    return size


cdef void put_fixed(const PullRequest *request, uint8_t *out) noexcept nogil:
    # Where one string ends and the next begins is part of the key.
    cdef int32_t words[6]
    words[0] = request.queue_id
    words[1] = request.sys_flag & SUBSCRIPTION_FLAG
    memcpy(&words[2], &request.sub_version, 8)
    words[4] = request.group_size
    words[5] = request.subscription_size if words[1] != 0 else 0
    memcpy(out, words, KEY_FIXED)


cdef uint64_t hash_of(const uint8_t *data, int32_t size, uint64_t seed) noexcept nogil:
    cdef int32_t index
    for index in range(size):
        seed = (seed ^ data[index]) * <uint64_t>0x100000001b3
    return seed


cdef Binding *binding_of(BindingTable *table, const PullRequest *request) noexcept nogil:
    cdef uint8_t fixed[KEY_FIXED]
    cdef const uint8_t *strings = <const uint8_t *>request + sizeof(PullRequest)
    cdef int32_t size = strings_size(request)
    cdef uint64_t hashed
    cdef Binding *binding
    put_fixed(request, fixed)
    hashed = hash_of(strings, size, hash_of(fixed, KEY_FIXED, <uint64_t>0xcbf29ce484222325))
    hashed ^= hashed >> 29
    binding = table.buckets[hashed & (BUCKET_COUNT - 1)]
    while binding != NULL:
        if (binding.hashed == hashed and binding.key_size == KEY_FIXED + size
                and memcmp(binding.key, fixed, KEY_FIXED) == 0
                and memcmp(binding.key + KEY_FIXED, strings, size) == 0):
            return binding
        binding = binding.next
    binding = <Binding *>malloc(sizeof(Binding) + KEY_FIXED + size)
    if binding == NULL:
        return NULL
    memset(binding, 0, sizeof(Binding))
    binding.hashed = hashed
    binding.key_size = KEY_FIXED + size
    binding.epoch = -1
    memcpy(binding.key, fixed, KEY_FIXED)
    memcpy(binding.key + KEY_FIXED, strings, size)
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
