# A stored record put again under another topic or queue: a half message that is committed, a timer that is due.
#
# The copy has body, flag, hosts, born time and reconsume times of the record, a place and a store time of its own, and
# what a Republication says. Its tags code needs no word: dispatch takes that from the properties. No Python object is
# made, and no byte of the body is copied but into the log; its checksum is taken over as it is stored.
#
#   stored_open(files, physical_offset, end, &stored)      the record, pinned in *files*
#   republish(&appender, &stored.view, &change, &done)     or republished() and an append of one's own, as append_pair
#   stored_close(&stored)                                  once nothing points into the record any more
#
# *files* may be the appender's own: a pin keeps the record mapped while the append maps files. Neither call waits for
# anything but pages of the record that are not in memory, and those before the put lock is taken. Who may not wait for
# the disk at all asks first whether the record lies behind the board's cold_end.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.log.append cimport Appended, Appender
from mqcore._fast.log.mapped_file cimport FileSet, MappedFile
from mqcore._fast.log.record cimport NewRecord, RecordView
from mqcore._fast.segment.boards cimport Shared

cdef struct StoredRecord:
    RecordView view                 # good until stored_close
    MappedFile *file

# The whole record that starts at *physical_offset* and ends at or before *end*, what the log may be read to; body and
# CRC are not compared. False: none starts there, or its file is gone; nothing is pinned then.
cdef bint stored_open(FileSet *files, int64_t physical_offset, int64_t end, StoredRecord *out) noexcept nogil
cdef void stored_close(StoredRecord *stored) noexcept nogil

cdef struct PropertyName:
    const char *text
    int32_t size

# What is another in the copy. Set it to zero bytes (memset) first: members may be added.
cdef struct Republication:
    int32_t topic_row               # of the board; the copy's topic has its name
    int32_t queue_row               # of the board, of that topic and queue_id
    int32_t queue_id
    int32_t sys_flag_cleared        # bits of the record's sys_flag that the copy does not have,
    int32_t sys_flag_set            # and bits that it has besides
    int64_t prepared_transaction_offset
    const PropertyName *dropped     # properties that the copy does not have; none is needed for what is added anew
    int32_t dropped_count
    const uint8_t *added            # properties text behind the others: NAME 0x01 value, with 0x02 between two. Where a
    int32_t added_size              # name comes twice the last one counts, for all readers

# Fill *out* with the copy: everything but queue offset, physical offset and store time. *text* has room for
# PROPERTIES_SIZE_MAX bytes, and both it and the record must stay as long as *out* is used. False: the properties grow
# beyond what a record can have. The record's pages are in memory afterwards.
cdef bint republished(const Shared *shared, const RecordView *record, const Republication *change, uint8_t *text,
                      NewRecord *out) noexcept nogil

# Append the copy. Returns a PutStatus; *out* is set on PUT_OK.
cdef int republish(Appender *appender, const RecordView *record, const Republication *change,
                   Appended *out) noexcept nogil
