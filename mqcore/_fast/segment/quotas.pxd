# Quotas: messages and bytes that a topic, a group or a client may send, or pull, in a second.
#
# Each has a row in the segment, which all workers share: a limit holds over all of them, whoever's connection it is.
# Of a row two times are all that counts: when the messages, and the bytes, that were let through will fit their rate.
# Who comes waits until that is less than a second ahead; what it asks for is added afterwards, so that one large
# message passes a small quota, and is paid for by those behind it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore._fast.base.hashing cimport hash_bytes
from mqcore._fast.segment.boards cimport Shared

cdef enum QuotaKind:
    QUOTA_TOPIC, QUOTA_GROUP, QUOTA_CLIENT, QUOTA_KINDS

cdef enum QuotaDirection:
    QUOTA_SEND, QUOTA_PULL

cdef enum:
    QUOTA_BURST_NS = 1_000_000_000      # so far ahead of its rate one may be

cdef struct QuotaRule:
    int64_t key                 # 0 = free
    int64_t messages            # a second; 0 = as many as it likes
    int64_t bytes

# The rules of one direction.
cdef struct QuotaBook:
    QuotaDirection direction
    bint has_any
    bint counts_messages        # some rule limits them
    bint has_kind[3]
    QuotaRule others[3]         # of those without a rule of their own, by kind; no limits = none
    QuotaRule *rules            # by key, with gaps
    int64_t mask                # places less one

# What one request draws on.
cdef struct QuotaDraw:
    int32_t count
    int64_t keys[3]
    QuotaKind kinds[3]
    const QuotaRule *rules[3]
    QuotaKind slowest           # whose quota quota_wait_ns has found to make it wait longest

# The key of a name; a client's is its address of 4 or 16 bytes. Never 0.
cdef inline int64_t quota_key(QuotaDirection direction, QuotaKind kind, const uint8_t *name,
                              int64_t size) noexcept nogil:
    return <int64_t>(hash_bytes(name, size, <uint64_t>(1 + <int>kind + (<int>direction << 4))) | 1)

cdef bint quota_take_rules(QuotaBook *book, QuotaDirection direction, object rules) except -1
cdef void quota_free(QuotaBook *book) noexcept nogil
# Add what *key*, of that kind, is limited by.
cdef void quota_draw_on(const QuotaBook *book, QuotaKind kind, int64_t key, QuotaDraw *draw) noexcept nogil
# How long a request must wait, ns; 0 = it may go.
cdef int64_t quota_wait_ns(Shared *shared, QuotaDraw *draw, int64_t now_ns) noexcept nogil
# Count what was let through.
cdef void quota_charge(Shared *shared, const QuotaDraw *draw, int64_t messages, int64_t size,
                       int64_t now_ns) noexcept nogil
