# Units of a consume queue, and the choice of the units that answer one pull.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.queues.ext cimport ExtSource


cdef struct CqUnit:
    int64_t physical_offset
    int32_t record_size
    int64_t tags_code


cdef struct RecordRange:                # what a pull is answered with: a slice of the commit log
    int64_t physical_offset
    int32_t size


cdef struct ScanLimits:
    int32_t count_max                   # what the client asked for
    int32_t units_max                   # so many are examined at most, or count_max if that is more
    int64_t bytes_in_memory_max         # maxTransferBytesOnMessageInMemory
    int32_t count_in_memory_max         # maxTransferCountOnMessageInMemory
    int64_t bytes_on_disk_max           # maxTransferBytesOnMessageInDisk
    int32_t count_on_disk_max           # maxTransferCountOnMessageInDisk
    int64_t in_memory_bytes_max         # RAM x accessMessageInMemoryMaxRatio: further back than this counts as on disk
    int64_t commit_log_min              # records below are gone
    int64_t commit_log_max              # records that end behind this cannot be read yet
    int64_t commit_log_file_size


cdef enum:                              # bits of ScanResult.flags
    SCAN_FOUND = 1                      # at least one record was chosen
    SCAN_REMOVING = 2                   # nothing was chosen, and a record that was wanted is gone
    SCAN_FULL = 4                       # stopped because the batch is full, not because the units ended
    SCAN_SUGGEST_SLAVE = 8              # the last unit looked at lies further back than in_memory_bytes_max


cdef enum RecordVerdict:
    RECORD_WANTED
    RECORD_UNWANTED
    RECORD_GONE                         # its file is
    RECORD_LATER                        # nothing more in this scan: the unit counts as not looked at


# What looks into the records themselves, for a scan.
ctypedef RecordVerdict (*RecordLook)(void *source, const CqUnit *unit) noexcept nogil


cdef struct RecordFilter:
    RecordLook look
    void *source


cdef enum:
    SCAN_UNITS_MIN = 800                # the units_max of a scan that looks at units alone


cdef struct ScanResult:
    int32_t units_examined              # the next queue offset is the first one + this
    int32_t range_count                 # ranges filled
    int64_t bytes_total                 # their sum
    int64_t physical_offset_last        # of the last unit looked at; -1 if none
    int32_t flags


cdef void write_unit(uint8_t *at, int64_t physical_offset, int32_t record_size, int64_t tags_code) noexcept nogil
cdef void read_unit(const uint8_t *at, CqUnit *out) noexcept nogil

# How many whole units of units[0:unit_count] are written: those before the first with offset < 0 or size <= 0.
cdef Py_ssize_t count_valid_units(const uint8_t *units, Py_ssize_t unit_count) noexcept nogil

# The getMessage loop over units[0:unit_count]; the commit log is not touched but by *records*, which is asked about
# each that the tags let through, and may be NULL. *tag_codes*: the wanted hashes, sorted
# ascending, tag_code_count = 0 for all; *ext* is asked for the code of a unit that holds an ext address, which matches
# if nobody knows. *ranges* has room for range_capacity >= 1; a full array stops the scan as a full batch does. Returns
# range_count.
cdef int scan_units(
    const uint8_t *units, Py_ssize_t unit_count, const ScanLimits *limits,
    const int32_t *tag_codes, int32_t tag_code_count, const ExtSource *ext, const RecordFilter *records,
    RecordRange *ranges, int32_t range_capacity, ScanResult *out
) noexcept nogil
