# From the commit log to consume queues and index: the one writer of both. One thread drives it.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.store_file cimport FileFailure
from mqcore._fast.log.record cimport DecodeStatus, IndexedProperties, RecordView
from mqcore._fast.queues.index_writer cimport IndexWriter
from mqcore._fast.queues.writer cimport QueueTable, QueueWriter


cdef enum DispatchStatus:
    DISPATCH_ALL            # the whole range was consumed
    DISPATCH_SHORT          # the range ends inside a record
    DISPATCH_BLANK          # a filler: go on at the start of the next commit log file
    DISPATCH_INVALID        # no valid record here; decode_status says why (DECODE_OK: its stored offset is another)
    DISPATCH_FAILED         # a file could not be made or grown: *failure* says; the call may be repeated


cdef enum:
    DELAY_LEVELS_MAX = 128
    KEYED_MAX = 64


cdef struct KeyedRecord:    # what the index wants of a record; borrowed
    const uint8_t *topic
    int32_t topic_size
    int64_t physical_offset
    int64_t store_timestamp
    const uint8_t *unique_key
    int32_t unique_key_size
    const uint8_t *keys
    int32_t keys_size


# What the unit of a record says of its tag: for a delayed message its delivery time, ms, else a hash.
cdef int64_t tags_code_of(
    const RecordView *record, const IndexedProperties *properties, const int64_t *delay_levels_ms, int32_t level_count
) noexcept nogil


cdef struct ListedQueues:               # the queues that a record lists besides its own (INNER_MULTI_DISPATCH)
    const uint8_t *topic                # the one at hand; borrowed
    int32_t topic_size
    int64_t queue_offset                # -1: none that can be
    bint is_lmq
    const uint8_t *names                # what is left
    int32_t names_size
    const uint8_t *offsets
    int32_t offsets_size
    int32_t left


# Whether the record lists queues. False with *is_odd*: it does, and the lists of names and offsets do not fit.
cdef bint open_listed(const RecordView *record, ListedQueues *out, bint *is_odd) noexcept nogil

# Go to the next one; False behind the last.
cdef bint next_listed(ListedQueues *listed) noexcept nogil


cdef class Dispatcher:
    cdef QueueTable queues
    cdef IndexWriter index
    cdef bint index_enabled
    cdef bint multi_dispatch_enabled
    cdef bint lmq_enabled
    cdef int32_t delay_level_count
    cdef int64_t delay_levels_ms[DELAY_LEVELS_MAX]
    # Fill the place of units that are missing before a record's own, as recovery does behind a damaged range; otherwise
    # the record gets the next free place, as upstream does.
    cdef public bint fill_gaps
    # results
    cdef readonly int64_t record_end            # end of the record that on_unit is called for, bytes
    cdef readonly int64_t store_timestamp       # of the newest record dispatched, ms
    cdef readonly int64_t logics_timestamp      # the latest store time of a unit, ms
    cdef readonly int64_t record_count          # records dispatched
    cdef readonly int64_t unit_count            # units written
    cdef readonly int64_t order_error_count     # units appended at another place than the record says
    cdef readonly int64_t skipped_count         # records whose topic or queue cannot be a directory
    cdef readonly int64_t dead_count            # records of queues that were dropped
    cdef readonly int64_t ext_failed_count      # units that hold their tags code since no ext unit could be written
    cdef FileFailure failure                    # of the last DISPATCH_FAILED
    # Records whose units are in place, and whose keys are not in the index yet: who asks for messages waits for units,
    # and an entry of the index may have to wait for a page of its file.
    cdef KeyedRecord keyed[KEYED_MAX]
    cdef int32_t keyed_count
    cdef bint pauses                            # dispatch_range ends behind the record that has set it
    cdef DispatchStatus status                  # of the last dispatch_range
    cdef DecodeStatus decode_status             # of the record where it stopped

    # Dispatch the records of base[0:length], the commit log from *physical_offset* on, and return how many bytes were
    # consumed; status says why it stopped. Bodies are not read. Records already dispatched are recognised.
    cdef Py_ssize_t dispatch_range(
        self, const uint8_t *base, int64_t physical_offset, Py_ssize_t length
    ) noexcept nogil

    # Called once per record that belongs in a consume queue, after its unit is in place, also when it was there before.
    # *queue_offset* is the unit's real index. The base class does nothing.
    cdef void on_unit(
        self, const uint8_t *topic, int32_t topic_size, int32_t queue_id, int64_t queue_offset,
        int64_t tags_code, int64_t store_timestamp
    ) noexcept nogil

    cdef bint dispatch_record(self, const RecordView *record) noexcept nogil
    cdef bint put_unit(self, const RecordView *record, int64_t tags_code, bint with_ext) noexcept nogil
    cdef bint put_more_units(self, const RecordView *record, int64_t tags_code) noexcept nogil
    cdef void keep_keys(self, const RecordView *record, const IndexedProperties *properties) noexcept nogil
    cdef Py_ssize_t put_kept(self, int64_t physical_offset, Py_ssize_t at) noexcept nogil
    cdef bint put_keys(self, const KeyedRecord *record) noexcept nogil
    cdef bint put_key(self, const KeyedRecord *record, const uint8_t *key, int32_t key_size) noexcept nogil
    # The filter bitmap of a record in out[0:EXT_BITMAP_MAX]; its size, 0 = none. The base class makes none.
    cdef int32_t bitmap_of(self, const RecordView *record, uint8_t *out) noexcept nogil
    cdef int64_t unit_code(self, QueueWriter *queue, const RecordView *record, int64_t tags_code) noexcept nogil
    cdef int64_t sync_at_once(self) except -1
    cdef object make_error(self)
