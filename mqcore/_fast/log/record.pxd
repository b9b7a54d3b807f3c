# Commit log records, message properties and the members of a batch body.
#
# Pointer and length in, status out, results through a struct. Views are borrowed: they point into the caller's buffer.
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef enum DecodeStatus:
    DECODE_OK           # *out is set
    DECODE_SHORT        # the buffer ends before the record does (or its total size is a lie)
    DECODE_BLANK        # a filler: nothing more in this file; out.total_size is the size it claims
    DECODE_BAD_MAGIC    # not a V1 record; unused space reads 0
    DECODE_BAD_SIZE     # lengths inside the record contradict its total size
    DECODE_BAD_CRC      # the body is not what was stored


cdef enum:
    SYS_TRANSACTION_MASK = 0xC      # sys flag bits
    SYS_TRANSACTION_PREPARED = 0x4
    SYS_TRANSACTION_COMMIT = 0x8
    SYS_TRANSACTION_ROLLBACK = 0xC
    SYS_BORN_HOST_V6 = 0x10
    SYS_STORE_HOST_V6 = 0x20


cdef struct Host:
    const uint8_t *address          # 4 or 16 bytes
    int32_t address_size
    int32_t port


cdef struct RecordView:             # borrowed: valid only while the caller holds the buffer
    int32_t total_size
    int32_t magic
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int64_t queue_offset
    int64_t physical_offset
    int32_t sys_flag
    int64_t born_timestamp
    Host born_host
    int64_t store_timestamp
    Host store_host
    int32_t reconsume_times
    int64_t prepared_transaction_offset
    int32_t body_size
    const uint8_t *body
    int32_t topic_size
    const uint8_t *topic
    int32_t properties_size
    const uint8_t *properties


# What encode_record writes. Set it to zero bytes (memset) first: members may be added.
cdef struct NewRecord:
    int32_t body_crc                # already masked with BODY_CRC_MASK
    int32_t queue_id
    int32_t flag
    int64_t queue_offset
    int64_t physical_offset
    int32_t sys_flag                # the encoder sets and clears both IPv6 bits by the address sizes
    int64_t born_timestamp
    Host born_host
    int64_t store_timestamp
    Host store_host
    int32_t reconsume_times
    int64_t prepared_transaction_offset
    int32_t body_size
    const uint8_t *body
    int32_t topic_size
    const uint8_t *topic
    int32_t properties_size
    const uint8_t *properties
    int32_t batch_properties_size   # of a batch: joined behind the member's own with one 0x02; 0 = none
    const uint8_t *batch_properties


cdef struct BatchMember:            # borrowed, as RecordView
    int32_t flag
    int32_t body_size
    const uint8_t *body
    int32_t properties_size
    const uint8_t *properties
    int32_t total_size              # what the member occupies, by its own lengths; the stated total is not looked at


# Decode one V1 record from buf[0:length]. *out* is whole on DECODE_OK and DECODE_BAD_CRC; total_size, magic (if 8
# bytes are there) on the others. Never reads past length. physical_offset is as stored: the caller compares it with the
# place.
cdef DecodeStatus decode_record(const uint8_t *buf, Py_ssize_t length, bint check_crc, RecordView *out) noexcept nogil

# Bytes that encode_record will write, or -1 if a limit of the layout is broken (topic 1..127, properties joined
# 0..32767, hosts 4 or 16 bytes, total within i32). maxMessageSize is the caller's to check.
cdef int32_t record_size(const NewRecord *fields) noexcept nogil

# Write the record to out[0:record_size(fields)], which is zero where it begins; the caller has seen that the size is
# not -1 and that there is room. Size and magic are written last, so that a killed writer leaves no record.
cdef void encode_record(uint8_t *out, const NewRecord *fields) noexcept nogil

# Find *name* in a properties text; the last duplicate wins. True: *value points into props and *value_size > 0.
cdef bint find_property(
    const uint8_t *props, int32_t size, const char *name, int32_t name_size,
    const uint8_t **value, int32_t *value_size
) noexcept nogil

# Whether a sector that the decoded record at *start* lies across never reached the disk: see the twin.
cdef bint is_torn(const uint8_t *start, const RecordView *view) noexcept nogil

# Whether who wrote the decoded record died before its end; *behind* are the *size* bytes that follow. See the twin.
cdef bint is_cut_off(const RecordView *view, const uint8_t *behind, int64_t size) noexcept nogil

# What becomes of a message in consume queue and index: *_size is 0 where the property is absent.
cdef struct IndexedProperties:
    const uint8_t *tags
    int32_t tags_size
    const uint8_t *keys
    int32_t keys_size
    const uint8_t *unique_key
    int32_t unique_key_size
    const uint8_t *delay
    int32_t delay_size

# Find them all in one pass; find_property's rules.
cdef void find_indexed_properties(const uint8_t *props, int32_t size, IndexedProperties *out) noexcept nogil

# Java's String.hashCode of UTF-8 text; malformed bytes count as U+FFFD, exactly as Java decodes them.
cdef int32_t java_hash(const uint8_t *utf8, Py_ssize_t size) noexcept nogil
# The same, going on from the hash *h* of the text before: hash(a + b) = java_hash_continue(java_hash(a), b).
cdef int32_t java_hash_continue(int32_t h, const uint8_t *utf8, Py_ssize_t size) noexcept nogil

# Decode the member at the start of buf[0:length] (length > 0): DECODE_OK, DECODE_SHORT or DECODE_BAD_SIZE.
cdef DecodeStatus next_batch_member(const uint8_t *buf, Py_ssize_t length, BatchMember *out) noexcept nogil
