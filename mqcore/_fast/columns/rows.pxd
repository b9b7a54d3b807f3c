# Columns that grow row by row: the memory of every wanted column of a batch, in Arrow's layout.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.columns.codes cimport COLUMN_COUNT
from mqcore._fast.columns.memory cimport Memory
from mqcore._fast.columns.property_pairs cimport Pairs
from mqcore._fast.log.record cimport Host, RecordView


cdef enum:
    HOST_TEXT_SIZE = 64


cdef struct HostText:                       # the host that was written last, and its text
    uint8_t[16] address
    int32_t address_size                    # 0: none yet
    int32_t port
    uint8_t[HOST_TEXT_SIZE] text
    int32_t text_size


cdef struct Columns:                        # all zero bytes: no columns, no rows
    bint[COLUMN_COUNT] wanted
    Memory[COLUMN_COUNT] values
    Memory[COLUMN_COUNT] offsets
    Memory[COLUMN_COUNT] valid
    Memory map_key_offsets
    Memory map_keys
    Memory map_value_offsets
    Memory map_values
    HostText born_host                      # to be made ready for a row by make_host_text, if wanted
    HostText store_host
    int64_t fixed_row_size                  # what each row adds whatever is in it
    int64_t bytes                           # collected in this batch
    int64_t rows


# What one row is made of; all is borrowed for the call. *topic* and *pairs* are UTF-8, *body* is as it shall be.
cdef struct Row:
    const RecordView *view
    const Pairs *pairs
    const uint8_t *topic
    Py_ssize_t topic_size
    const uint8_t *body
    Py_ssize_t body_size


# Add a row to every wanted column. False: no memory; the batch is of no use then.
cdef bint put_row(Columns *columns, const Row *row) noexcept nogil

# Make *cache* hold the text of *host*. False: an IPv6 address, which Python writes; see keep_host_text.
cdef bint make_host_text(HostText *cache, const Host *host) noexcept nogil

cdef int keep_host_text(HostText *cache, const Host *host) except -1
cdef int want_columns(Columns *columns, tuple wanted) except -1     # of Column objects; once, before all else
cdef int start_rows(Columns *columns) except -1                     # begin a batch
cdef dict take_columns(Columns *columns, tuple wanted, broker_name)  # ColumnBuffers by name; start_rows comes next
cdef void free_columns(Columns *columns) noexcept
