"""Where fast or plain is chosen: the extensions, or with ``MQ_PURE=1`` in the environment their plain twins.

Everything in Python that reads or writes bytes of the store takes its functions from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.store.crc32 import checksum as crc32
    from mqcore.store.crc32 import implementation as crc32_implementation
    from mqcore.store.log.queue_ends import QueueEnds
    from mqcore.store.log.record import batch_members, property_value, string_hash
    from mqcore.store.log.record import decode as decode_record
    from mqcore.store.log.record import encode as encode_record
    from mqcore.store.log.record import scan as scan_records
    from mqcore.store.queue_directories import cut_topic, survey_topic
    from mqcore.store.queues.dispatch import Dispatcher
    from mqcore.store.queues.ext import decode_ext_unit, encode_ext_unit, ext_end
    from mqcore.store.queues.index_file import covers as index_covers
    from mqcore.store.queues.index_file import key_hash as index_key_hash
    from mqcore.store.queues.index_file import put as index_put
    from mqcore.store.queues.index_file import query as index_query
    from mqcore.store.queues.units import choose as choose_units
    from mqcore.store.queues.units import decode_unit, encode_unit, valid_units
else:
    from mqcore._fast.base.crc32 import checksum as crc32
    from mqcore._fast.base.crc32 import implementation as crc32_implementation
    from mqcore._fast.log.queue_ends import QueueEnds
    from mqcore._fast.log.record import batch_members, property_value, string_hash
    from mqcore._fast.log.record import decode as decode_record
    from mqcore._fast.log.record import encode as encode_record
    from mqcore._fast.log.record import scan as scan_records
    from mqcore._fast.queues.dispatch import Dispatcher
    from mqcore._fast.queues.ext import decode_ext_unit, encode_ext_unit, ext_end
    from mqcore._fast.queues.index_file import covers as index_covers
    from mqcore._fast.queues.index_file import key_hash as index_key_hash
    from mqcore._fast.queues.index_file import put as index_put
    from mqcore._fast.queues.index_file import query as index_query
    from mqcore._fast.queues.survey import cut_topic, survey_topic
    from mqcore._fast.queues.units import choose as choose_units
    from mqcore._fast.queues.units import decode_unit, encode_unit, valid_units

__all__ = [
    "PURE",
    "Dispatcher",
    "QueueEnds",
    "batch_members",
    "choose_units",
    "crc32",
    "crc32_implementation",
    "decode_ext_unit",
    "cut_topic",
    "decode_record",
    "decode_unit",
    "encode_ext_unit",
    "encode_record",
    "encode_unit",
    "ext_end",
    "index_covers",
    "index_key_hash",
    "index_put",
    "index_query",
    "property_value",
    "scan_records",
    "string_hash",
    "survey_topic",
    "valid_units",
]
