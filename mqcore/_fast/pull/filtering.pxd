# Whether a record is wanted by the filter of a binding: by its bitmap if that tells, else by its properties in the log.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.log.mapped_file cimport FileSet
from mqcore._fast.pull.bindings cimport KnownBinding
from mqcore._fast.pull.cold_reader cimport ColdReader
from mqcore._fast.queues.reader cimport QueueReader
from mqcore._fast.queues.units cimport CqUnit, RecordVerdict

cdef enum:
    # Of one scan, in units of a few nanoseconds: who needs more is told to ask again, so that others come in between.
    FILTER_WORK_MAX = 200_000
    COLD_BYTES_A_UNIT = 16
    # Units of one scan. RocketMQ ends each after 800: who wants few of many messages would ask again all the time.
    FILTER_UNITS_MAX = 3200
    FILTER_SCAN_NS = 5_000_000
    FILTER_LOOKS_A_CLOCK = 128      # looks between two at the clock

cdef struct Filtering:
    FileSet *files              # the newest part of the log, mapped
    ColdReader *cold            # the rest, which may have to come from the disk: read, never mapped
    QueueReader *queues
    const KnownBinding *binding
    int32_t queue_row
    int64_t hot_from            # physical offset; what lies before it is cold
    int64_t now                 # coarse ms
    int64_t work                # so far
    int64_t until_ns            # the end of its time: the disk may take more of that than work says
    int32_t looked_at           # units
    int error                   # errno of a record that could not be read; the scan ends before it

# A RecordLook; *source* is a Filtering.
cdef RecordVerdict filter_look(void *source, const CqUnit *unit) noexcept nogil
