"""Kernels beside their readable twins: whatever they are given, they say the same, or refuse it in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mqcore._fast.client import records as fast_pulled
from mqcore._fast.columns.decoder import ColumnDecoder as FastColumns
from mqcore._fast.log import record as fast_record
from mqcore._fast.queues import ext as fast_ext
from mqcore._fast.queues import op_numbers as fast_op_numbers
from mqcore._fast.wire import header as fast_header
from mqcore.errors import BaseMQError, FrameError
from mqcore.protocol import pulled
from mqcore.protocol.frame import decode_frame
from mqcore.protocol.message import MessageQueue
from mqcore.store.column_decoder import ColumnDecoder
from mqcore.store.log import record
from mqcore.store.queues import ext, op_numbers

QUEUE: Final = MessageQueue("T", "broker-a", 2)
PHYSICAL_OFFSET: Final = 4096


class DifferError(AssertionError):
    """The twins do not agree: what the fast one said, and the other."""


def said(function: Callable[..., Any], *given: Any) -> Any:
    """What comes of a call; a refusal by its class and text."""
    try:
        return function(*given)
    except BaseMQError as error:
        return type(error), str(error)


def agree(fast: Any, plain: Any) -> bool:
    if fast != plain:
        raise DifferError(fast, plain)
    return True


def records_agree(data: bytes) -> bool:
    for check_crc in (True, False):
        agree(
            said(fast_record.decode, data, PHYSICAL_OFFSET, check_crc),
            said(record.decode, data, PHYSICAL_OFFSET, check_crc),
        )
    return agree(said(fast_record.scan, data, PHYSICAL_OFFSET), said(record.scan, data, PHYSICAL_OFFSET))


def batches_agree(data: bytes) -> bool:
    return agree(said(fast_record.batch_members, data), said(record.batch_members, data))


def texts_agree(data: bytes) -> bool:
    agree(fast_record.property_value(data, b"TAGS"), record.property_value(data, b"TAGS"))
    agree(fast_op_numbers.numbers_of(data), op_numbers.numbers_of(data))
    return agree(fast_record.string_hash(data), record.string_hash(data))


def ext_units_agree(data: bytes) -> bool:
    agree(said(fast_ext.ext_end, data), said(ext.ext_end, data))
    return agree(said(fast_ext.decode_ext_unit, data), said(ext.decode_ext_unit, data))


def headers_agree(data: bytes) -> bool:
    """The scanner may leave a frame to the Python reader; what it reads is what that reads."""
    try:
        fast = fast_header.scan(data)
    except FrameError:
        fast = FrameError
    if fast is None:
        return True
    try:
        code, opaque, flag, remark, ext_fields, body, _, version, kind = decode_frame(data)
    except BaseMQError:
        # Lengths inside of a binary header are the frame's to the scanner, and the header's to the reader.
        return agree(fast, FrameError)
    wanted = {"code": code, "opaque": opaque, "flag": flag, "remark": remark, "body": body, "version": version}
    wanted |= {"serialize_type": kind, "ext_fields": ext_fields}
    return agree({name: fast[name] for name in wanted if name in fast}, {n: v for n, v in wanted.items() if n in fast})


def shown(messages: list[Any]) -> list[Any]:
    return [(message.topic, message.body, message.queue_offset, message.ext) for message in messages]


def pulled_agree(data: bytes) -> bool:
    def read(twin: Any) -> list[Any]:
        return shown(twin.decode_pulled(twin.RecordFields, data, QUEUE, None, 3, 99, None, None, None))

    return agree(said(read, fast_pulled), said(read, pulled))


def columns_agree(data: bytes) -> bool:
    def read(kind: Any) -> tuple[int, int, Any]:
        decoder = kind()
        return decoder.feed(data), decoder.row_count, decoder.position

    return agree(said(read, FastColumns), said(read, ColumnDecoder))


TWINS: Final[dict[str, Callable[[bytes], bool]]] = {
    "record_twins": records_agree,
    "batch_twins": batches_agree,
    "text_twins": texts_agree,
    "ext_twins": ext_units_agree,
    "header_twins": headers_agree,
    "pulled_twins": pulled_agree,
    "columns_twins": columns_agree,
}
