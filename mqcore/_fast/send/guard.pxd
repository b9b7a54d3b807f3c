# Who a request is from, and whether he may: the accounts as the broker process has sent them, and a look at a request.
#
# It only ever says yes, or that the broker process must look: what is refused, and in which words, is decided there.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.layout cimport AclGrant
from mqcore._fast.base.sha1 cimport HmacKey
from mqcore._fast.wire.header cimport CommandView

cdef struct GuardAccount:
    const uint8_t *key          # in the table's copy of the message
    int32_t key_size
    int32_t topic_perm
    int32_t group_perm
    bint may_do_all
    HmacKey secret

cdef struct GuardRule:
    const uint8_t *name         # NULL = no rule here
    int32_t name_size
    int32_t account
    int32_t perm

cdef struct GuardTable:
    int64_t version             # 0 = there is none
    int32_t account_count
    GuardAccount *accounts
    int64_t rule_mask
    GuardRule *rules            # open addressing over name and account
    uint8_t *texts              # owned

# Take the accounts of an ACL_TABLE instead of those that there were; without memory there are none, and nobody passes.
cdef void guard_take(GuardTable *table, const uint8_t *payload, int64_t size) noexcept nogil
cdef void guard_free(GuardTable *table) noexcept nogil
# Whether a request of a connection with *grant* may be served here. *scratch* has room for every value unescaped.
cdef bint guard_passes(const GuardTable *table, const AclGrant *grant, const CommandView *command, uint8_t *scratch,
                       int32_t capacity) noexcept nogil
