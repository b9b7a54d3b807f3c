"""The guard of a send worker: signatures and permissions of the requests that it serves itself.

A connection's first request under a version of the rules goes to the broker process, whose grant says which account
it was, whether its address is enough, and whether its certificate stands for a signature; so patterns of addresses are
known there alone. From then on a signature costs its blocks of SHA-1 and a permission one look-up. The twin is
mqcore/broker/security/validator.py.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from mqcore._fast.base.checks cimport check
from mqcore._fast.base.hashing cimport hash_bytes
from mqcore._fast.base.layout cimport (ACL_PERM_DENY, ACL_PERM_PUB, ACL_PERM_SUB, ACL_TRUST_ADDRESS,
                                       ACL_TRUST_CERTIFICATE, AclAccount, AclGrant, AclRule, AclTable)
from mqcore._fast.base.sha1 cimport SHA1_SIZE, Sha1, hmac_begin, hmac_end, hmac_key, sha1_put
from mqcore._fast.wire.header cimport (COMMAND_OK, FIELDS_MAX, CommandView, TextView, field_of, scan_command,
                                       text_unescape)

from mqcore.codes import RequestCode
from mqcore.protocol.names import RETRY_GROUP_TOPIC_PREFIX, TRACE_TOPIC

cdef int32_t SEND_MESSAGE = RequestCode.SEND_MESSAGE
cdef int32_t SEND_MESSAGE_V2 = RequestCode.SEND_MESSAGE_V2
cdef int32_t SEND_BATCH_MESSAGE = RequestCode.SEND_BATCH_MESSAGE
cdef int32_t PULL_MESSAGE = RequestCode.PULL_MESSAGE
cdef int32_t LITE_PULL_MESSAGE = RequestCode.LITE_PULL_MESSAGE
cdef int32_t END_TRANSACTION = RequestCode.END_TRANSACTION
cdef int32_t SEND_REPLY_MESSAGE = RequestCode.SEND_REPLY_MESSAGE
cdef int32_t SEND_REPLY_MESSAGE_V2 = RequestCode.SEND_REPLY_MESSAGE_V2

cdef bytes RETRY_TEXT = RETRY_GROUP_TOPIC_PREFIX.encode()
cdef const uint8_t *RETRY = RETRY_TEXT
cdef int32_t RETRY_SIZE = <int32_t>len(RETRY_TEXT)
cdef bytes TRACE_TEXT = TRACE_TOPIC.encode()
cdef const uint8_t *TRACE = TRACE_TEXT
cdef int32_t TRACE_SIZE = <int32_t>len(TRACE_TEXT)

cdef const uint8_t *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

cdef enum:
    RULES_MIN = 16
    GROUP_SIZE_MAX = 1024       # of a longer name the broker process knows more
    SIGNATURE_SIZE = 28         # 20 bytes in base 64


cdef inline bint is_text(const TextView *text, const uint8_t *wanted, int32_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, wanted, size) == 0


# The table ------------------------------------------------------------------------------------------------------------

cdef inline int64_t rule_place(const GuardTable *table, int32_t account, const uint8_t *name,
                               int32_t size) noexcept nogil:
    # Where the rule stands, or would.
    cdef int64_t at = <int64_t>(hash_bytes(name, size, <uint64_t>account) & <uint64_t>table.rule_mask)
    cdef const GuardRule *rule
    while True:
        rule = &table.rules[at]
        if rule.name == NULL or (rule.account == account and rule.name_size == size
                                 and memcmp(rule.name, name, size) == 0):
            return at
        at = (at + 1) & table.rule_mask


cdef void guard_free(GuardTable *table) noexcept nogil:
    free(table.accounts)
    free(table.rules)
    free(table.texts)
    memset(table, 0, sizeof(GuardTable))


cdef bint make_room(GuardTable *table, const AclTable *head, const uint8_t *texts, int64_t size) noexcept nogil:
    cdef int64_t places = RULES_MIN
    while places < 2 * <int64_t>head.rule_count:
        places *= 2
    table.accounts = <GuardAccount *>calloc(max(1, head.account_count), sizeof(GuardAccount))
    table.rules = <GuardRule *>calloc(places, sizeof(GuardRule))
    table.texts = <uint8_t *>malloc(max(<int64_t>1, size))
    if table.accounts == NULL or table.rules == NULL or table.texts == NULL:
        guard_free(table)
        return False
    table.rule_mask = places - 1
    memcpy(table.texts, texts, size)
    return True


cdef int64_t take_rule(GuardTable *table, int32_t account, int64_t at) noexcept nogil:
    # The rule at texts[at:]; where it ends.
    cdef AclRule rule
    cdef GuardRule *place
    memcpy(&rule, table.texts + at, sizeof(AclRule))
    at += <int64_t>sizeof(AclRule)
    place = &table.rules[rule_place(table, account, table.texts + at, rule.name_size)]
    place.name = table.texts + at
    place.name_size = rule.name_size
    place.account = account
    place.perm = rule.perm
    return at + rule.name_size


cdef int64_t take_account(GuardTable *table, int32_t number, int64_t at) noexcept nogil:
    cdef AclAccount source
    cdef GuardAccount *account = &table.accounts[number]
    cdef int32_t _index
    memcpy(&source, table.texts + at, sizeof(AclAccount))
    at += <int64_t>sizeof(AclAccount)
    account.key = table.texts + at
    account.key_size = source.key_size
    account.topic_perm = source.default_topic_perm
    account.group_perm = source.default_group_perm
    account.may_do_all = source.may_do_all != 0
    at += source.key_size
    hmac_key(&account.secret, table.texts + at, source.secret_size)
    # Nobody needs it any more, and it is in no dump of this process.
    memset(table.texts + at, 0, source.secret_size)
    at += source.secret_size
    for _index in range(source.rule_count):
        at = take_rule(table, number, at)
    return at


cdef void guard_take(GuardTable *table, const uint8_t *payload, int64_t size) noexcept nogil:
    cdef AclTable head
    cdef int64_t at = 0
    cdef int32_t number
    guard_free(table)
    memcpy(&head, payload, sizeof(AclTable))
    size -= <int64_t>sizeof(AclTable)
    if not make_room(table, &head, payload + sizeof(AclTable), size):
        return
    for number in range(head.account_count):
        at = take_account(table, number, at)
    check(at == size, "a table of accounts is as long as it says")
    table.account_count = head.account_count
    table.version = head.version


# Permissions ----------------------------------------------------------------------------------------------------------

cdef bint may(const GuardTable *table, int32_t number, const uint8_t *name, int32_t size,
              int32_t needed) noexcept nogil:
    cdef const GuardAccount *account = &table.accounts[number]
    cdef const GuardRule *rule = &table.rules[rule_place(table, number, name, size)]
    cdef int32_t perm
    if rule.name != NULL:
        perm = rule.perm
    elif size >= RETRY_SIZE and memcmp(name, RETRY, RETRY_SIZE) == 0:
        perm = account.group_perm
    else:
        perm = account.topic_perm
    return not perm & ACL_PERM_DENY and (perm & needed) != 0


cdef bint may_send(const GuardTable *table, int32_t account, const TextView *topic) noexcept nogil:
    if topic.at == NULL or topic.is_escaped:
        return False
    # Who sends to a retry topic needs something else.
    if topic.size >= RETRY_SIZE and memcmp(topic.at, RETRY, RETRY_SIZE) == 0:
        return False
    return (is_text(topic, TRACE, TRACE_SIZE) or table.accounts[account].may_do_all
            or may(table, account, topic.at, topic.size, ACL_PERM_PUB))


cdef bint may_pull(const GuardTable *table, int32_t account, const TextView *topic,
                   const TextView *group) noexcept nogil:
    cdef uint8_t retry[GROUP_SIZE_MAX]
    if topic.at == NULL or topic.is_escaped or group.at == NULL or group.is_escaped:
        return False
    if table.accounts[account].may_do_all:
        return True
    if RETRY_SIZE + group.size > GROUP_SIZE_MAX:
        return False
    memcpy(retry, RETRY, RETRY_SIZE)
    memcpy(retry + RETRY_SIZE, group.at, group.size)
    return (may(table, account, topic.at, topic.size, ACL_PERM_SUB)
            and may(table, account, retry, RETRY_SIZE + group.size, ACL_PERM_SUB))


cdef bint has_permission(const GuardTable *table, int32_t account, const CommandView *command) noexcept nogil:
    cdef TextView topic, group
    if command.code == SEND_MESSAGE_V2:
        topic = field_of(command, "b", 1)
        return may_send(table, account, &topic)
    if command.code == SEND_MESSAGE:
        topic = field_of(command, "topic", 5)
        return may_send(table, account, &topic)
    if command.code == PULL_MESSAGE:
        topic = field_of(command, "topic", 5)
        group = field_of(command, "consumerGroup", 13)
        return may_pull(table, account, &topic, &group)
    # These need a good signature and nothing else, as upstream has it.
    return command.code in (SEND_BATCH_MESSAGE, LITE_PULL_MESSAGE, END_TRANSACTION, SEND_REPLY_MESSAGE,
                            SEND_REPLY_MESSAGE_V2)


# Signatures -----------------------------------------------------------------------------------------------------------

cdef inline int order_of(const TextView *first, const TextView *second) noexcept nogil:
    # Of names, as Java has it: byte by byte is the same for all that is in the first plane, where names are.
    cdef int32_t size = min(first.size, second.size)
    cdef int order = <int>first.at[0] - <int>second.at[0] if size > 0 else 0
    if order == 0:
        order = memcmp(first.at, second.at, size)
    return order if order != 0 else first.size - second.size


cdef int32_t sort_names(const CommandView *command, int32_t *order) noexcept nogil:
    # The numbers of the signed fields in the order of their names, and how many; -1 for what somebody must look at.
    cdef const TextView *name
    cdef int32_t index, at
    cdef int32_t count = 0
    cdef int compared
    for index in range(command.field_count):
        name = &command.names[index]
        # _UNIQUE_KEY_QUERY is signed by some; a letter outside ASCII may have another place in Java's order.
        if name.size == 0 or name.at[0] == c"_" or name.at[0] >= 0x80:
            return -1
        if is_text(name, b"Signature", 9):
            continue
        at = count
        while at > 0:
            compared = order_of(name, &command.names[order[at - 1]])
            if compared == 0:
                return -1
            if compared > 0:
                break
            order[at] = order[at - 1]
            at -= 1
        order[at] = index
        count += 1
    return count


cdef void put_base64(const uint8_t *data, uint8_t *out) noexcept nogil:
    # SHA1_SIZE bytes: six times three, and two.
    cdef int index
    cdef uint64_t word
    for index in range(7):
        word = <uint64_t>data[3 * index] << 16 | <uint64_t>data[3 * index + 1] << 8
        if index < 6:
            word |= data[3 * index + 2]
        out[4 * index] = BASE64[word >> 18]
        out[4 * index + 1] = BASE64[word >> 12 & 63]
        out[4 * index + 2] = BASE64[word >> 6 & 63]
        out[4 * index + 3] = BASE64[word & 63]
    out[SIGNATURE_SIZE - 1] = c"="


cdef bint is_signed(const GuardAccount *account, const CommandView *command, const TextView *signature,
                    uint8_t *scratch, int32_t capacity) noexcept nogil:
    cdef int32_t order[FIELDS_MAX]
    cdef int32_t count = sort_names(command, order)
    cdef const TextView *value
    cdef Sha1 sum
    cdef uint8_t digest[SHA1_SIZE + 1]
    cdef uint8_t wanted[SIGNATURE_SIZE]
    cdef uint8_t differs = 0
    cdef int32_t index, size
    if count < 0 or signature.size != SIGNATURE_SIZE:
        return False
    hmac_begin(&account.secret, &sum)
    for index in range(count):
        value = &command.values[order[index]]
        if not value.is_escaped:
            sha1_put(&sum, value.at, value.size)
            continue
        size = text_unescape(value, scratch, capacity)
        if size < 0:
            return False
        sha1_put(&sum, scratch, size)
    sha1_put(&sum, command.body, command.body_size)
    hmac_end(&account.secret, &sum, digest)
    put_base64(digest, wanted)
    # As long for a wrong first letter as for a wrong last one.
    for index in range(SIGNATURE_SIZE):
        differs |= wanted[index] ^ signature.at[index]
    return differs == 0


cdef bint guard_passes(const GuardTable *table, const AclGrant *grant, const CommandView *command, uint8_t *scratch,
                       int32_t capacity) noexcept nogil:
    cdef TextView key, signature
    cdef const GuardAccount *account
    if table.version == 0 or grant.version != table.version:
        return False
    if grant.account < 0:
        return True
    account = &table.accounts[grant.account]
    key = field_of(command, "AccessKey", 9)
    if key.at == NULL:
        # The certificate of the connection says who it is, if anything does.
        if not grant.trust & ACL_TRUST_CERTIFICATE:
            return False
        return grant.trust & ACL_TRUST_ADDRESS != 0 or has_permission(table, grant.account, command)
    if key.is_escaped or not is_text(&key, account.key, account.key_size):
        return False
    if grant.trust & ACL_TRUST_ADDRESS:
        return True
    signature = field_of(command, "Signature", 9)
    return (signature.at != NULL and has_permission(table, grant.account, command)
            and is_signed(account, command, &signature, scratch, capacity))


def passes(bytes table not None, bytes grant not None, bytes payload not None):
    """Whether a request, a frame without its length, is served at once by a send worker with *table* and *grant*."""
    cdef GuardTable taken
    cdef AclGrant given
    cdef CommandView command
    cdef bint verdict = False
    cdef bytearray scratch = bytearray(len(payload) + 1)
    memset(&taken, 0, sizeof(GuardTable))
    memcpy(&given, <const char *>grant, sizeof(AclGrant))
    guard_take(&taken, <const uint8_t *><const char *>table, len(table))
    if scan_command(<const uint8_t *><const char *>payload, <int32_t>len(payload), &command) == COMMAND_OK:
        verdict = guard_passes(&taken, &given, &command, <uint8_t *><char *>scratch, <int32_t>len(scratch))
    guard_free(&taken)
    return verdict
