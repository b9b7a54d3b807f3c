"""Stored records to columns: the plain twin of mqcore/_fast/columns/decoder.pyx, and the statement of its rules."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mqcore.codes import SysFlag
from mqcore.errors import CorruptRecordError, ProtocolError
from mqcore.layout import BLANK_RECORD, BODY_CRC_MASK, MESSAGE_MAGIC_V2, RECORD_HEAD, RECORD_SIZE_MIN
from mqcore.protocol.compression import decompress as decompress_body
from mqcore.store.crc32 import checksum
from mqcore.store.log import record as records
from mqcore.store.log.record import DecodeStatus, PackedHost, Record
from mqcore.store.message_columns import (
    BATCH_BYTES_DEFAULT,
    BATCH_ROWS_DEFAULT,
    EVERYTHING,
    MICROSECONDS_PER_MS,
    ColumnBuffers,
    ColumnKind,
    MessageBatch,
    Selection,
    TopicRule,
    bad_body,
    bad_record,
    check_limits,
    columns_of,
    constant_column,
    fixed_column,
    is_between,
    text_column,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

DTYPES: Final[dict[ColumnKind, type[np.signedinteger[Any]]]] = {
    ColumnKind.INT32: np.int32,
    ColumnKind.INT64: np.int64,
    ColumnKind.TIMESTAMP: np.int64,
}
OPTIONAL: Final = ("tags", "keys", "unique_key")
FROM_PROPERTIES: Final = frozenset({"msg_id", "tags", "keys", "unique_key", "properties"})
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
MS_MAX: Final = INT64_MAX // MICROSECONDS_PER_MS
ROW_SLACK: Final = 1024
V2_EXTRA_SIZE: Final = 1


def host_text(address: bytes, port: int) -> str:
    """Return an address and port as text; an IPv6 address in brackets."""
    text = str(ipaddress.ip_address(address))
    return f"[{text}]:{port}" if len(address) == 16 else f"{text}:{port}"


def clean_utf8(text: bytes) -> bytes:
    """Return *text* as UTF-8, each malformed part of it as U+FFFD."""
    return text.decode("utf-8", "replace").encode()


def split_properties(text: bytes) -> dict[bytes, bytes]:
    """Return the properties of a text; the last of duplicate names stays, at its place."""
    pairs: dict[bytes, bytes] = {}
    for segment in text.split(records.PROPERTY_SEPARATOR):
        name, _, value = segment.partition(records.NAME_VALUE_SEPARATOR)
        if name and value:
            pairs.pop(name, None)
            pairs[name] = value
    return pairs


def to_microseconds(ms: int) -> int:
    """Return a time in microseconds; one that 64 bits cannot hold becomes the nearest that they can."""
    return INT64_MAX if ms > MS_MAX else -INT64_MAX if ms < -MS_MAX else ms * MICROSECONDS_PER_MS


def decode_any(data: memoryview, check_crc: bool) -> tuple[DecodeStatus, int, int, Record | None]:
    """Return status, magic, total size and the record, of version 1 or 2, at the start of *data*."""
    status, magic, total_size, record = records._try_decode(data, check_crc)
    if status != DecodeStatus.BAD_MAGIC or magic != MESSAGE_MAGIC_V2:
        return status, magic, total_size, record
    if total_size < RECORD_SIZE_MIN + V2_EXTRA_SIZE:
        return DecodeStatus.BAD_SIZE, magic, total_size, None
    if total_size > len(data):
        return DecodeStatus.SHORT, magic, total_size, None
    try:
        record = records._read_record(data[:total_size], topic_size=records.PROPERTIES_SIZE)
    except records._BadSizeError:
        return DecodeStatus.BAD_SIZE, magic, total_size, None
    if check_crc and record.body and checksum(record.body) & BODY_CRC_MASK != record.body_crc:
        return DecodeStatus.BAD_CRC, magic, total_size, None
    return DecodeStatus.OK, magic, total_size, record


class ColumnDecoder:
    """Collects messages, record by record, into columns.

    *columns* are names of the table in ``message_columns``. Rows gather over any number of ``feed`` calls until a batch
    is full: at *batch_bytes* collected (a batch goes beyond by one row at most) or *batch_rows*; ``take`` gives it
    away. *decompress* gives bodies as the application wrote them, else as stored.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        broker_name: str | None = None,
        selection: Selection | None = EVERYTHING,
        batch_bytes: int = BATCH_BYTES_DEFAULT,
        batch_rows: int = BATCH_ROWS_DEFAULT,
        decompress: bool = True,
        check_crc: bool = False,
    ) -> None:
        check_limits(batch_bytes, batch_rows)
        self._columns = columns_of(columns)
        self._names = frozenset(column.name for column in self._columns)
        self._broker_name = broker_name
        self._selection = EVERYTHING if selection is None else selection
        self._batch_bytes = batch_bytes
        self._batch_rows = batch_rows
        self._decompress = decompress
        self._check_crc = check_crc
        self._needs_properties = bool(self._names & FROM_PROPERTIES) or self._selection.tags is not None
        self._tags = {tag.encode("utf-8", "replace") for tag in self._selection.tags or ()}
        self._fixed_row_size = sum(8 if DTYPES.get(column.kind) is np.int64 else 4 for column in self._columns)
        self._topics: dict[bytes, tuple[bytes, TopicRule | None]] = {}
        self._rows: list[dict[str, Any]] = []
        self.size = 0
        self.position = 0
        self.last_queue_offset = -1
        self.is_full = False

    @property
    def row_count(self) -> int:
        """How many rows are collected."""
        return len(self._rows)

    def feed(self, buffer: Buffer, position: int = 0, physical_offset: int | None = None) -> int:
        """Take the records of *buffer* from *position* on; return where the next one starts.

        That is the end of the buffer, or less when the batch is full: ``is_full`` says so, and nothing more is taken
        before ``take``. With *physical_offset*, where the buffer lies in the commit log, each record must lie where it
        says, and a filler ends the buffer; without, a filler is an error.

        Raises CorruptRecordError at bytes that are no whole record, or at a body that does not decompress; what stood
        before them is collected, and ``position`` says where they are.
        """
        view = memoryview(buffer)
        if not 0 <= position <= len(view):
            raise IndexError(f"position {position} of {len(view)} bytes")
        if physical_offset is not None and physical_offset < 0:
            raise ValueError(f"physical offset {physical_offset}")
        self.position = position
        while self.position < len(view) and not self._reached():
            status, magic, total_size, record = decode_any(view[self.position :], self._check_crc)
            if status == DecodeStatus.BLANK and physical_offset is not None:
                self.position = len(view)
                break
            if record is not None and physical_offset not in (None, record.physical_offset - self.position):
                status = DecodeStatus.MISPLACED
            if status != DecodeStatus.OK or record is None:
                raise self._record_error(view, status, magic, total_size, physical_offset)
            if not self._add(record):
                self.is_full = True
                return self.position
            self.last_queue_offset = record.queue_offset
            self.position += record.total_size
        self.is_full = self._reached()
        return self.position

    def take(self) -> MessageBatch:
        """Return what was collected, which may be nothing, and start anew. The buffers are read-only."""
        rows, self._rows = self._rows, []
        self.size = 0
        self.is_full = False
        columns = {}
        for column in self._columns:
            if column.name == "broker_name":
                columns[column.name] = constant_column(self._broker_name, len(rows))
            else:
                columns[column.name] = to_column(column.kind, [row[column.name] for row in rows], column.name)
        return MessageBatch(row_count=len(rows), columns=columns)

    def _reached(self) -> bool:
        return bool(self._rows) and (self.size >= self._batch_bytes or len(self._rows) >= self._batch_rows)

    def _record_error(
        self, view: memoryview, status: DecodeStatus, magic: int, total_size: int, physical_offset: int | None
    ) -> CorruptRecordError:
        if len(view) - self.position < BLANK_RECORD.size:
            magic = total_size = 0
        place = -1
        if physical_offset is not None:
            place = physical_offset + self.position
        elif len(view) - self.position >= RECORD_HEAD.size:
            place = RECORD_HEAD.struct.unpack_from(view, self.position)[
                list(RECORD_HEAD.offsets).index("physical_offset")
            ]
        return bad_record(status, magic, total_size, place, self.position, len(view))

    def _topic(self, name: bytes) -> tuple[bytes, TopicRule | None]:
        if name not in self._topics:
            text = clean_utf8(name)
            self._topics[name] = text, self._selection.rule_of(text.decode())
        return self._topics[name]

    def _is_wanted(self, record: Record, rule: TopicRule | None) -> bool:
        chosen = self._selection
        if rule is None or not is_between(record.queue_offset, chosen.offset_min, chosen.offset_max):
            return False
        if not is_between(record.store_timestamp, chosen.store_timestamp_min, chosen.store_timestamp_max):
            return False
        if chosen.queue_ids is not None and record.queue_id not in chosen.queue_ids:
            return False
        if any(record.physical_offset < born for queue_id, born in rule.births if queue_id == record.queue_id):
            return False
        for queue_id, start, end in rule.ranges:
            if queue_id == record.queue_id:
                return is_between(record.queue_offset, start, end)
        return not rule.only_ranges

    def _add(self, record: Record) -> bool:
        """Collect *record* if it is wanted; False if the batch has no room for it."""
        topic, rule = self._topic(record.topic)
        if not self._is_wanted(record, rule):
            return True
        pairs: dict[bytes, bytes] = {}
        properties = b""
        if self._needs_properties:
            properties = clean_utf8(record.properties)
            pairs = split_properties(properties)
            if self._selection.tags is not None and pairs.get(b"TAGS") not in self._tags:
                return True
        body = record.body
        if "body" in self._names and self._decompress and record.sys_flag & SysFlag.COMPRESSED:
            try:
                body = decompress_body(body, record.sys_flag)
            except ProtocolError as error:
                raise bad_body(error, record.physical_offset) from error
        if self._rows and self.size > INT32_MAX - (len(body) + 8 * len(properties) + len(topic) + ROW_SLACK):
            return False
        row = {name: value for name, value in row_of(record, topic, pairs, body).items() if name in self._names}
        self._rows.append(row)
        self.size += self._fixed_row_size + sum(map(text_size, row.values()))
        return True


def text_size(value: object) -> int:
    """Return what a text adds to a batch, bytes; 0 for a number."""
    if isinstance(value, dict):
        return sum(len(name) + len(text) + 8 for name, text in value.items())
    return len(value) if isinstance(value, bytes) else 0


def row_of(record: Record, topic: bytes, pairs: dict[bytes, bytes], body: bytes) -> dict[str, Any]:
    """Return every column of one message but the broker's name."""
    offset_id = host_id(record.store_host, record.physical_offset)
    return {
        "topic": topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "msg_id": pairs.get(b"UNIQ_KEY", offset_id),
        "tags": pairs.get(b"TAGS"),
        "keys": pairs.get(b"KEYS"),
        "body": body,
        "properties": pairs,
        "born_timestamp": to_microseconds(record.born_timestamp),
        "store_timestamp": to_microseconds(record.store_timestamp),
        "born_host": host_text(record.born_host.address, record.born_host.port).encode(),
        "reconsume_times": record.reconsume_times,
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "physical_offset": record.physical_offset,
        "store_size": record.total_size,
        "body_size": len(record.body),
        "body_crc": record.body_crc,
        "computed_body_crc": checksum(record.body) & BODY_CRC_MASK,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "store_host": host_text(record.store_host.address, record.store_host.port).encode(),
        "offset_msg_id": offset_id,
        "unique_key": pairs.get(b"UNIQ_KEY"),
    }


def host_id(host: PackedHost, physical_offset: int) -> bytes:
    """Return the offset message id, in upper-case hexadecimal."""
    return (host.encode() + physical_offset.to_bytes(8, "big", signed=True)).hex().upper().encode()


def to_column(kind: ColumnKind, values: list[Any], name: str) -> ColumnBuffers:
    """Return one column of plain values: numbers, bytes or None, or dictionaries of bytes."""
    if kind in DTYPES:
        return fixed_column(kind, read_only(np.array(values, dtype=DTYPES[kind])))
    if kind is ColumnKind.MAP:
        return ColumnBuffers(
            kind=kind,
            values=np.empty(0, dtype=np.uint8),
            offsets=offsets_of([len(value) for value in values]),
            map_keys=to_column(ColumnKind.STRING, [key for value in values for key in value], name),
            map_values=to_column(ColumnKind.STRING, [text for value in values for text in value.values()], name),
        )
    texts = [b"" if value is None else value for value in values]
    is_valid = np.array([value is not None for value in values], dtype=np.uint8) if name in OPTIONAL else None
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    return text_column(kind, data, offsets_of([len(text) for text in texts]), is_valid)


def offsets_of(sizes: list[int]) -> NDArray[np.int32]:
    """Return where values of these sizes start, and where the last one ends."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return read_only(offsets)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return *array*, which nobody else has, made read-only."""
    array.flags.writeable = False
    return array
