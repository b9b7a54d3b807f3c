"""The fields of received messages, for those who hand them out."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    IPV4_SIZE = 4


cdef class RecordFields:
    cdef object _ext
    cdef public object queue
    cdef public object topic
    cdef public object held
    cdef public object settler
    cdef public bint settled
    cdef public double consume_started_s
    cdef public int64_t queue_offset
    cdef public int64_t body_size
    # What the record says, as long as there is no ext.
    cdef bytes raw_body
    cdef bytes raw_properties
    cdef str record_topic
    cdef int64_t min_offset, max_offset
    cdef int64_t physical_offset, raw_born_timestamp, raw_store_timestamp, prepared_transaction_offset
    cdef int32_t queue_id, raw_flag, sys_flag, body_crc, raw_reconsume_times, store_size, born_port, store_port
    cdef uint8_t born_ip[IPV4_SIZE]
    cdef uint8_t store_ip[IPV4_SIZE]

    cdef object raw_property(self, bytes name)
