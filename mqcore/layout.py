"""Every fixed layout, on disk, on the wire and in shared memory, as tables.

From one table come ``layout.struct`` for Python, ``layout.dtype`` for NumPy scans, the offsets in
``_fast/base/layout.pxd``, the C structs in ``_fast/include/shared_layout.h``, the page LAYOUT.md and test parameters.
``python -m mqcore.layout --check`` fails when a generated file is stale; ``--write`` makes them anew.

On disk and on the wire integers are big-endian and signed, as in Java. In shared memory they are of the machine.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

WIDTHS = {"b": 1, "h": 2, "i": 4, "q": 8}
C_TYPES = {"b": "int8_t", "h": "int16_t", "i": "int32_t", "q": "int64_t"}
CACHE_LINE = 64


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a layout: *code* is the struct code (b=1, h=2, i=4, q=8 bytes), or ``Ns`` for N raw bytes."""

    name: str
    code: str
    doc: str

    @property
    def size(self) -> int:
        return int(self.code[:-1]) if self.code.endswith("s") else WIDTHS[self.code]

    @property
    def c_declaration(self) -> str:
        return f"uint8_t {self.name}[{self.size}]" if self.code.endswith("s") else f"{C_TYPES[self.code]} {self.name}"


@dataclass(frozen=True)
class Layout:
    """A run of fields without padding. *size* is stated by hand on purpose: two witnesses, checked on import."""

    name: str
    size: int
    source: str
    fields: tuple[Field, ...]
    place: Literal["disk", "wire", "shared"] = "disk"
    doc: str = ""
    offsets: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        at = 0
        offsets: dict[str, int] = {}
        for member in self.fields:
            if member.name in offsets:
                raise ValueError(f"layout {self.name}: field {member.name} stands twice")
            if self.place == "shared" and not member.code.endswith("s") and at % member.size != 0:
                raise ValueError(f"layout {self.name}: field {member.name} at {at} is not aligned to {member.size}")
            offsets[member.name] = at
            at += member.size
        if at != self.size:
            raise ValueError(f"layout {self.name}: fields add up to {at} bytes, stated size is {self.size}")
        object.__setattr__(self, "offsets", offsets)

    @property
    def byte_order(self) -> str:
        return "=" if self.place == "shared" else ">"

    @cached_property
    def struct(self) -> struct.Struct:
        return struct.Struct(self.byte_order + "".join(member.code for member in self.fields))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        import numpy  # workers that never scan with NumPy do not pay for its import

        order = "<" if self.place == "shared" and sys.byteorder == "little" else ">"
        return numpy.dtype(
            [(m.name, f"V{m.size}") if m.code.endswith("s") else (m.name, f"{order}i{m.size}") for m in self.fields]
        )


# ---------------------------------------------------------------------------------------------------------------
# On disk
# ---------------------------------------------------------------------------------------------------------------

MESSAGE_MAGIC_V1 = 0xDAA320A7 - (1 << 32)
MESSAGE_MAGIC_V2 = 0xDAA320AB - (1 << 32)
BLANK_MAGIC = 0xCBD43194 - (1 << 32)
FILE_END_MIN_BLANK_SIZE = 8
# Of a record with IPv4 hosts and no body, topic or properties.
RECORD_SIZE_MIN = 91
# Its length is one byte, which Java reads with its sign.
TOPIC_SIZE_MAX = 127
TOPIC_FORM = re.compile(rf"[%|a-zA-Z0-9_-]{{1,{TOPIC_SIZE_MAX}}}")
"""What may become the name of a topic, and so of a directory."""
# The length of a properties text is an int16.
PROPERTIES_SIZE_MAX = 32767
RECORD_OVERHEAD_MAX = 1 << 16
"""By how much a record may be longer than its body."""
BODY_CRC_MASK = 0x7FFFFFFF
PRE_FILL_SIZE = 0x7FFFFFFF

RECORD_HEAD = Layout(
    "record_head",
    size=48,
    source="store/CommitLog.java, MessageDecoder.java",
    doc="The part of a commit log record before the first host; a host is 4 or 16 address bytes and a 4-byte port. "
    "Then follow: born host, RECORD_STORE_TIME, store host, RECORD_MIDDLE, body (i32 length), topic (i8), properties "
    "(i16).",
    fields=(
        Field("total_size", "i", "the whole record, bytes, this field included"),
        Field("magic", "i", "0xDAA320A7 a record; 0xCBD43194 filler to the end of the file"),
        Field("body_crc", "i", "CRC-32 of the stored body & 0x7FFFFFFF; 0 for an empty body"),
        Field("queue_id", "i", "the queue of the topic"),
        Field("flag", "i", "the application's flag, not interpreted"),
        Field("queue_offset", "q", "place in the queue, units; 0 for prepared and rollback messages"),
        Field("physical_offset", "q", "where this record starts in the commit log, bytes"),
        Field("sys_flag", "i", "bits: see SysFlag"),
        Field("born_timestamp", "q", "the producer's clock, ms"),
    ),
)
RECORD_STORE_TIME = Layout(
    "record_store_time",
    size=8,
    source="store/CommitLog.java",
    doc="Follows the born host.",
    fields=(Field("store_timestamp", "q", "the broker's clock under the put lock, ms"),),
)
RECORD_MIDDLE = Layout(
    "record_middle",
    size=12,
    source="store/CommitLog.java",
    doc="Follows the store host.",
    fields=(
        Field("reconsume_times", "i", "how often the message was sent back"),
        Field("prepared_transaction_offset", "q", "physical offset of the half message, else 0"),
    ),
)
BLANK_RECORD = Layout(
    "blank_record",
    size=8,
    source="store/CommitLog.java",
    doc="The filler at the end of a commit log file; what follows it is undefined.",
    fields=(
        Field("total_size", "i", "bytes from here to the end of the file"),
        Field("magic", "i", "0xCBD43194"),
    ),
)
CONSUME_QUEUE_UNIT = Layout(
    "cq_unit",
    size=20,
    source="store/ConsumeQueue.java",
    fields=(
        Field("physical_offset", "q", "where the record starts in the commit log, bytes"),
        Field("record_size", "i", "the whole record, bytes; 0x7FFFFFFF marks pre-fill"),
        Field("tags_code", "q", "Java hashCode of the tag, sign-extended; for delayed messages the delivery time, ms"),
    ),
)
CONSUME_QUEUE_FILE_UNITS = 300_000
CONSUME_QUEUE_EXT_UNIT = Layout(
    "cq_ext_unit",
    size=20,
    source="store/ConsumeQueueExt.java",
    fields=(
        Field("unit_size", "h", "the whole unit, bytes; -1 marks the end of a full file"),
        Field("tags_code", "q", "what the consume queue unit would hold"),
        Field("store_timestamp", "q", "of the message, ms"),
        Field("bitmap_size", "h", "bytes of the filter bitmap that follows; 0 without SQL consumers"),
    ),
    doc="The unit in the consume queue then holds the address: the offset in the stream of these units, plus -2^63.",
)
EXT_FILE_FULL = -1
EXT_FILE_END_MIN_BLANK_SIZE = 4
EXT_FILE_SIZE = 48 << 20

INDEX_HEADER = Layout(
    "index_header",
    size=40,
    source="store/index/IndexHeader.java",
    fields=(
        Field("begin_timestamp", "q", "store time of the first entry, ms"),
        Field("end_timestamp", "q", "store time of the last entry, ms"),
        Field("begin_physical_offset", "q", "record of the first entry, bytes"),
        Field("end_physical_offset", "q", "record of the last entry, bytes"),
        Field("used_slot_count", "i", "hash slots in use"),
        Field("index_count", "i", "number of the next entry; starts at 1"),
    ),
)
INDEX_SLOT = Layout(
    "index_slot",
    size=4,
    source="store/index/IndexFile.java",
    fields=(Field("newest_entry", "i", "number of the newest entry of this slot, 0 = empty"),),
)
INDEX_ENTRY = Layout(
    "index_entry",
    size=20,
    source="store/index/IndexFile.java",
    fields=(
        Field("key_hash", "i", "absolute value of the Java hash of topic#key"),
        Field("physical_offset", "q", "the record, bytes"),
        Field("seconds_since_begin", "i", "store time minus the file's begin timestamp, whole seconds"),
        Field("previous_entry", "i", "number of the previous entry of the same slot, 0 = end"),
    ),
)
CHECKPOINT = Layout(
    "checkpoint",
    size=24,
    source="store/StoreCheckpoint.java",
    doc="The first bytes of a file of 4096.",
    fields=(
        Field("physic_timestamp", "q", "store time of the newest message flushed in the commit log, ms"),
        Field("logics_timestamp", "q", "store time of the newest message flushed in the consume queues, ms"),
        Field("index_timestamp", "q", "end timestamp of the last full index file flushed, ms"),
    ),
)
CHECKPOINT_FILE_SIZE = 4096
# A timer wheel has this many slots whatever their length: seven days of seconds, twice.
TIMER_SLOT_COUNT = 2 * 7 * 24 * 3600
TIMER_SLOT = Layout(
    "timer_slot",
    size=32,
    source="store/timer/Slot.java, TimerWheel.java",
    doc="The file `timerwheel` is 1,209,600 of them. A time has the slot (time / precision) mod their number, and the "
    "slot is that time's only while it says so.",
    fields=(
        Field("time", "q", "the slot's time divided by timerPrecisionMs"),
        Field("first_position", "q", "of its oldest unit in the timer log, bytes"),
        Field("last_position", "q", "of its newest unit, bytes"),
        Field("count", "i", "units, those of deletions taken off"),
        Field("magic", "i", "0"),
    ),
)
TIMER_WHEEL_FILE_SIZE = TIMER_SLOT_COUNT * TIMER_SLOT.size
TIMER_UNIT = Layout(
    "timer_unit",
    size=52,
    source="store/timer/TimerLog.java",
    doc="Files of `timerlog` begin with one, and are named as those of the commit log. A filler ends a file in which "
    "no unit and filler have room: i32 rest of the file, i64 0, i32 0xCBD43194.",
    fields=(
        Field("size", "i", "52"),
        Field("previous_position", "q", "of the unit before it in its slot, bytes; -1 = none"),
        Field("magic", "i", "bits: see TimerMagic"),
        Field("write_time", "q", "when it was written, rounded down to timerPrecisionMs, ms"),
        Field("delay", "i", "from the write time to the slot's time, ms"),
        Field("physical_offset", "q", "of the record that waits"),
        Field("record_size", "i", "bytes"),
        Field("topic_hash", "i", "Java hashCode of the topic that it goes to; 0 = none"),
        Field("deliver_time", "q", "when it is due, ms; RocketMQ writes 0 and does not read it"),
    ),
)
TIMER_FILLER_SIZE = 16
TIMER_CHECK = Layout(
    "timer_check",
    size=56,
    source="store/timer/TimerCheckpoint.java",
    doc="Start of `config/timercheck`, of 4096 bytes, and the body of GET_TIMER_CHECK_POINT.",
    fields=(
        Field("read_time", "q", "everything in the slots before it is delivered, ms"),
        Field("log_position", "q", "end of the timer log that is on disk, bytes"),
        Field("queue_offset", "q", "next unit of the timer topic to be put into the wheel"),
        Field("master_queue_offset", "q", "the same of the master; here always queue_offset"),
        Field("state_version", "q", "0"),
        Field("version_timestamp", "q", "when it was changed, ms"),
        Field("version_counter", "q", "how often it was changed"),
    ),
)
TIMER_STATE = Layout(
    "timer_state",
    size=32,
    source="mqcore",
    doc="`mqcore/timers` has two of them, the one before the newest and the newest, behind an i32 CRC32 of both. One "
    "has the first three words of `timercheck`, unless RocketMQ has been there since.",
    fields=(
        Field("read_time", "q", "as in timercheck"),
        Field("log_position", "q", "as in timercheck"),
        Field("queue_offset", "q", "as in timercheck"),
        Field("scan_offset", "q", "what was delivered of slots from read_time on lies behind it in the commit log"),
    ),
)
BIRTH_HEAD = Layout(
    "birth_head",
    size=54,
    source="mqcore",
    doc="An entry of the file incarnations, which RocketMQ does not know: a queue was dropped, and is born anew. The "
    "topic's name follows. An anchor is a commit log file by which the log is known again: where it starts, and the "
    "store time of its first record; -1 and 0 for none.",
    fields=(
        Field("entry_size", "i", "the whole entry, bytes, the topic included"),
        Field("crc", "i", "CRC-32 of all that follows in the entry"),
        Field("born", "q", "physical offset: records of the queue that start before it are of one that was dropped"),
        Field("queue_id", "i", "the queue of the topic"),
        Field("anchor_start", "q", "the file that holds the byte before *born*, bytes"),
        Field("anchor_timestamp", "q", "store time of its first record, ms"),
        Field("earlier_start", "q", "the file before that one, bytes"),
        Field("earlier_timestamp", "q", "store time of its first record, ms"),
        Field("topic_size", "h", "bytes"),
    ),
)

if RECORD_HEAD.size + RECORD_STORE_TIME.size + RECORD_MIDDLE.size + 2 * 8 + 4 + 1 + 2 != 91:
    raise ValueError("a record without body, topic and properties has 91 bytes with IPv4 hosts")

# ---------------------------------------------------------------------------------------------------------------
# On the wire
# ---------------------------------------------------------------------------------------------------------------

FRAME_HEAD = Layout(
    "frame_head",
    size=8,
    place="wire",
    source="remoting/protocol/RemotingCommand.java",
    fields=(
        Field("length", "i", "bytes that follow this field"),
        Field("header_mark", "i", "top byte: serialize type; low 24 bits: header length"),
    ),
)
BINARY_HEADER = Layout(
    "binary_header",
    size=13,
    place="wire",
    source="remoting/protocol/RocketMQSerializable.java",
    doc="The fixed start of a ROCKETMQ header; then the remark (i32 length) and the extFields (i32 total length).",
    fields=(
        Field("code", "h", "request or response code"),
        Field("language", "b", "LanguageCode"),
        Field("version", "h", "MQVersion ordinal"),
        Field("opaque", "i", "request id"),
        Field("flag", "i", "bit 0 response, bit 1 one-way"),
    ),
)
HA_FRAME_HEAD = Layout(
    "ha_frame_head",
    size=12,
    place="wire",
    source="store/ha/HAConnection.java",
    doc="Master to slave; the bytes of the commit log follow as they are, whole records or not.",
    fields=(
        Field("physical_offset", "q", "where the bytes belong; of a heart-beat: where the next ones will"),
        Field("size", "i", "bytes that follow; 0 = a heart-beat"),
    ),
)
HA_REPORT = Layout(
    "ha_report",
    size=8,
    place="wire",
    source="store/ha/HAClient.java",
    doc="Slave to master: first what it asks to be sent from, then what it has.",
    fields=(Field("end", "q", "end of the slave's commit log, bytes"),),
)
HA_HELLO = Layout(
    "ha_hello",
    size=48,
    place="wire",
    source="mqcore",
    doc="A member of a failover group to its master, once, before its reports; RocketMQ's slaves begin with a report.",
    fields=(
        Field("magic", "q", "HA_HELLO_MAGIC, negative: no report is"),
        Field("term", "q", "epoch of the master that it follows"),
        Field("nonce", "q", "what it has announced itself by, 63 random bits"),
        Field("end", "q", "where it is to be sent from: the end of its commit log, bytes"),
        Field("member", "i", "its id in the group"),
        Field("zero", "i", "0"),
        Field("spare", "q", "0"),
    ),
)
HA_HELLO_MAGIC = -0x4D51434F52453031
HA_GROUP_FRAME_HEAD = Layout(
    "ha_group_frame_head",
    size=32,
    place="wire",
    source="mqcore",
    doc="The master of a failover group to who said hello; the bytes of the commit log follow as they are.",
    fields=(
        Field("physical_offset", "q", "where the bytes belong; of a heart-beat: where the next ones will"),
        Field("size", "i", "bytes that follow; 0 = a heart-beat"),
        Field("zero", "i", "0"),
        Field("term", "q", "epoch that the master leads"),
        Field("confirmed", "q", "what all required members have, bytes"),
    ),
)
BATCH_MEMBER_HEAD = Layout(
    "batch_member_head",
    size=20,
    place="wire",
    source="common/message/MessageDecoder.java",
    doc="Starts each member of a SEND_BATCH_MESSAGE body; then body, properties (i16 length).",
    fields=(
        Field("total_size", "i", "the member, bytes, this field included"),
        Field("magic", "i", "0, not checked"),
        Field("body_crc", "i", "0, not checked"),
        Field("flag", "i", "the application's flag"),
        Field("body_size", "i", "bytes"),
    ),
)
FRAME_LENGTH_MAX = 16 * 1024 * 1024 - 4
HEADER_LENGTH_MAX = (1 << 24) - 1

# ---------------------------------------------------------------------------------------------------------------
# In shared memory (native byte order; who writes what: workers/SHARING.md)
# ---------------------------------------------------------------------------------------------------------------

SHARED_MAGIC = 0x4D51434F52450001


def line(*members: Field) -> tuple[Field, ...]:
    """*members* and a pad up to the next cache line, so that two writers never share one."""
    used = sum(member.size for member in members)
    pad = -used % CACHE_LINE
    return members if pad == 0 else (*members, Field(f"pad_{members[0].name}", f"{pad}s", "to the next cache line"))


LATENCY_OCTAVES = 19
LATENCY_BOUNDS_US = (
    *(bound for octave in range(LATENCY_OCTAVES) for bound in (16 << octave, 24 << octave)),
    16 << LATENCY_OCTAVES,
)
"""Upper bounds, exclusive, of the latencies that are counted together: two for each power of two, 16 us to 8.4 s."""

PUT_TALLY_BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
"""Upper bounds, exclusive, of the times by which puts are counted: RocketMQ's distribution of put times."""

STORE_BOARD = Layout(
    "store_board",
    size=29 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="One row: watermarks, locks, flags and totals of the store.",
    fields=(
        *line(
            Field("magic", "q", "SHARED_MAGIC, written last when the segment is ready"),
            Field("boot_timestamp", "q", "when the broker process made the segment, ms"),
            Field("commit_log_file_size", "q", "bytes"),
            Field("store_host_port", "i", "the broker's port"),
            Field("store_host_size", "i", "4 or 16 address bytes"),
            Field("store_host", "16s", "the broker's address bytes"),
        ),
        *line(
            Field("wrote_offset", "q", "end of the last complete record, bytes"),
            Field("wrote_timestamp", "q", "its store time, ms"),
            Field("readable_offset", "q", "how far the log may be read, by whomsoever, bytes"),
            Field("read_gates", "q", "bits: see ReadGate; 0 = what is written may be read"),
        ),
        *line(
            Field("flushed_offset", "q", "everything before it survives a power cut, bytes"),
            Field("flushed_timestamp", "q", "store time of the newest record known to be flushed, ms"),
        ),
        *line(
            Field("dispatched_offset", "q", "everything before it is in consume queues and index, bytes"),
            Field("dispatched_timestamp", "q", "store time of the newest dispatched record, ms"),
            Field("index_timestamp", "q", "end timestamp of the last full index file, ms"),
        ),
        *line(Field("min_offset", "q", "start of the oldest commit log file that is kept, bytes")),
        *line(
            Field("prepared_end", "q", "files exist, with all blocks reserved, up to here, bytes"),
            Field("warmed_end", "q", "pages are in memory up to here, bytes"),
            Field("cold_end", "q", "everybody lets go of the pages before it, bytes"),
        ),
        *line(
            Field("config_epoch", "q", "grows when the answer of any pull check may have changed; see epoch_row"),
            Field("settings_version", "q", "version of the settings on the sheet; 0 = those of the start"),
            Field("acl_version", "q", "version of the rules of access that hold; 0 = none have been read"),
        ),
        *line(
            Field("store_flags", "q", "bits: see StoreFlag"),
            Field("error_number", "i", "errno of the failure that made the store read-only"),
            Field("error_where", "i", "WorkerKind that met it"),
            Field("error_offset", "q", "physical offset where it was met, bytes"),
        ),
        *line(Field("locked_since", "q", "when the put lock was taken, ms; 0 when free")),
        *line(Field("put_lock", "64s", "pthread mutex, robust and process-shared: guards appends")),
        *line(Field("board_lock", "64s", "pthread mutex, robust and process-shared: guards new rows")),
        *line(
            Field("intent_end", "q", "an append is under way and will publish this wrote_offset; 0 = none"),
            Field("intent_next_offset", "q", "the queue's next_offset once it is published"),
            Field("intent_queue_row", "i", "the queue it belongs to"),
            Field("intent_topic_row", "i", "the topic it belongs to"),
            Field("intent_count", "q", "how many messages"),
            Field("intent_size", "q", "how many bytes"),
            Field("intent_second_next_offset", "q", "next_offset of the second queue that a pair of messages goes to"),
            Field("intent_second_queue", "i", "its queue row plus one; 0 = the append has no second queue"),
        ),
        *line(
            Field("put_times", "q", "messages appended since start"),
            Field("put_bytes", "q", "bytes appended since start"),
            Field("put_failed", "q", "appends refused since start"),
            Field("put_ms_max", "q", "longest append, the wait for the put lock included, ms"),
        ),
        *line(
            *(
                Field(f"put_tally_{number}", "q", f"puts that took less than {bound} ms, and no less than those before")
                for number, bound in enumerate(PUT_TALLY_BOUNDS_MS)
            ),
            Field(f"put_tally_{len(PUT_TALLY_BOUNDS_MS)}", "q", "puts that took longer"),
        ),
        *line(
            Field("topic_rows", "i", "rows in use"),
            Field("queue_rows", "i", "rows in use"),
            Field("group_rows", "i", "rows in use"),
            Field("offset_rows", "i", "rows in use"),
        ),
        *line(
            Field("get_times", "q", "messages handed to consumers since start"),
            Field("get_bytes", "q", "bytes handed to consumers since start"),
            Field("get_found", "q", "pulls that found messages"),
            Field("get_missed", "q", "pulls that found nothing"),
        ),
        *line(
            Field("put_repairs", "q", "put locks taken over from a dead owner"),
            Field("file_rolls", "q", "commit log files begun since start"),
        ),
        *line(
            Field("delete_orders", "q", "how often an administrator asked for expired files to be deleted"),
            Field("drops", "q", "how often queues were dropped"),
        ),
        *line(
            Field("timer_row", "q", "row + 1 of the timer topic's queue; 0 = this store has no timers"),
        ),
        *line(
            Field("keeps_metadata", "q", "1 = of a failover group: what changes in tables is told in the log"),
            Field("drops_applied", "q", "queues are dropped that records before this offset name, bytes"),
        ),
        *line(
            Field("drops_met", "q", "end of the newest record that drops queues and was met in dispatch, bytes"),
        ),
        *line(
            Field("timer_keeps", "q", "records from it on may be waited for; 0 = none is"),
            Field("timer_read_time", "q", "everything in the slots before it is delivered, ms"),
            Field("timer_queue_offset", "q", "next unit of the timer topic to be put into the wheel"),
            Field("timer_pending", "q", "messages that wait, those of deletions taken off"),
            Field("timer_enqueued", "q", "messages put into the wheel since start"),
            Field("timer_delivered", "q", "messages delivered since start"),
            Field("timer_rolled", "q", "messages put into the timer topic again since start"),
            Field("timer_recalled", "q", "messages not delivered since start because they were recalled"),
        ),
        *line(
            Field("replicated_offset", "q", "greatest end that a slave has reported, never above the log's, bytes"),
            Field("slave_count", "q", "slaves that copy the log now"),
            Field("ha_wanted", "q", "the log is kept from here on for them, bytes, at least 1; 0 = they need nothing"),
        ),
        *line(
            Field("received_offset", "q", "of a slave: bytes of its master may lie behind wrote_offset up to here"),
            Field("master_seen", "q", "of a slave: when its master was last heard, ms; 0 = not connected"),
            Field("master_end", "q", "of a slave: end of the newest frame that its master sent, bytes"),
            Field("master_state", "q", "of a slave: see MasterState"),
            Field("followed_version", "q", "of a slave: the master_version it goes by; those before are closed"),
            Field("master_heard", "q", "of a slave: its master's last frame, ms of the monotonic clock; 0 = none yet"),
        ),
        *line(
            Field("master_version", "q", "of a slave: grows when the address of its master has changed"),
            Field("master_port", "i", "where the master listens for slaves; 0 = not known"),
            Field("master_host_size", "i", "4 or 16 address bytes"),
            Field("master_host", "16s", "its address bytes"),
            Field("master_start", "q", "where an empty log begins: 0 = with all; -1 = where the master begins, bytes"),
        ),
        *line(
            Field("ha_role", "q", "of a broker in a failover group: see HaRole"),
            Field("ha_term", "q", "the epoch that it leads or follows; 0 = none yet"),
            Field("ha_member", "q", "its id in the group"),
            Field("ha_nonce", "q", "of its life: what it announces itself by"),
            Field("epoch_start", "q", "of a master: where the epoch that it leads begins, bytes"),
            Field("required_version", "q", "grows before and behind each change of the next two: odd = under way"),
            Field("required_generation", "q", "number of the required set; 0 = there is none, nothing is confirmed"),
            Field("required_members", "q", "who must have what is confirmed: bit by id"),
        ),
        *line(
            Field("confirmed_offset", "q", "all required members have the log up to here, bytes"),
            Field("required_seen", "q", "generation that confirmed_offset goes by, from here on"),
        ),
        *line(
            Field("doubts_until", "q", "how long offsets of clients are doubted, coarse ms; 0 = not at all"),
        ),
    ),
)
SLAVE_ROW = Layout(
    "slave_row",
    size=2 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="A connection of a slave to this master; the ha worker writes all of it.",
    fields=(
        Field("state", "q", "SlaveState"),
        Field("port", "i", "of the slave's end of the connection"),
        Field("host_size", "i", "4 or 16 address bytes"),
        Field("host", "16s", "its address bytes"),
        Field("connected_at", "q", "when it connected, ms"),
        Field("acked", "q", "the end that it has reported, bytes; -1 = none yet"),
        Field("acked_at", "q", "when it did so, ms"),
        Field("sent", "q", "end of what was sent to it, bytes"),
        Field("caught_up_at", "q", "when it last had all that the log had, ms; 0 = never"),
        Field("sent_bytes", "q", "bytes of the log sent over this connection"),
        Field("member", "q", "id in the failover group; -1 = of none"),
        Field("pad", "40s", "to the next cache line"),
    ),
)
TOPIC_ROW = Layout(
    "topic_row",
    size=3 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="A row belongs to its topic for the life of the segment.",
    fields=(
        Field("config", "q", "one word: see TopicWord"),
        Field("put_nums", "q", "messages appended since start"),
        Field("put_bytes", "q", "bytes appended since start"),
        Field("name_size", "i", "bytes"),
        Field("spare", "i", "0"),
        Field("name", "128s", "UTF-8; never changes once published"),
        Field("pad", "32s", "to the next cache line"),
    ),
)
QUEUE_ROW = Layout(
    "queue_row",
    size=2 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="First line: the put lock's holder. Second line: the reput worker, but for what is said. A bound counts only "
    "while its birth is the queue's.",
    fields=(
        *line(
            Field("topic_row", "i", "the topic"),
            Field("queue_id", "i", "the queue's number"),
            Field("next_offset", "q", "queue offset of the next message; its complement while the queue is dropped"),
            Field("born", "q", "physical offset: records that start before it are of a queue that was dropped"),
            Field("epoch_offset", "q", "of a master in a failover group: next_offset when its epoch began"),
            Field("doubt_offset", "q", "while clients are doubted: what is behind it; -1 = what is not committed"),
        ),
        *line(
            Field("max_offset", "q", "consume queue units readable, as an absolute queue offset"),
            Field("max_physical", "q", "end of the newest record in the consume queue, bytes"),
            Field("max_born", "q", "the birth of the queue that these two and the files are of"),
            Field("min_offset", "q", "oldest queue offset that is kept; the flush worker writes it"),
            Field("flushed_units", "q", "units known to be on disk; the flush worker writes it"),
            Field("min_born", "q", "the birth of the queue that these two are of; the flush worker writes it"),
            Field("waiters", "q", "pulls held for this queue; the pull workers write it"),
            Field("cradle", "q", "all its units lie in a cradle: serial << 16 | number + 1; 0 = in files"),
        ),
    ),
)
CRADLE_ROW = Layout(
    "cradle_row",
    size=CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="A cradle has the first units of a new queue until its first file is there. The reput worker writes all of it, "
    "and the units, which lie in a region of their own.",
    fields=(
        *line(
            Field("queue_row", "q", "the queue, plus one; 0 = free"),
            Field("serial", "q", "how often the cradle was taken"),
            Field("count", "q", "units that are whole"),
        ),
    ),
)
GROUP_ROW = Layout(
    "group_row",
    size=5 * CACHE_LINE,
    place="shared",
    source="mqcore",
    fields=(
        Field("name_size", "i", "bytes"),
        Field("spare", "i", "0"),
        Field("name", "256s", "UTF-8; never changes once published"),
        Field("pad", "56s", "to the next cache line"),
    ),
)
OFFSET_ROW = Layout(
    "offset_row",
    size=CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="One per (group, topic, queue). committed: the last store wins, as in RocketMQ's table.",
    fields=(
        Field("group_row", "i", "the group"),
        Field("queue_row", "i", "the queue"),
        Field("committed", "q", "next queue offset to consume; -1 = none"),
        Field("get_nums", "q", "messages handed out since start"),
        Field("get_bytes", "q", "bytes handed out since start"),
        Field("get_timestamp", "q", "when messages were last handed out, ms"),
        Field("behind_bytes", "q", "commit log bytes behind at the last pull"),
        Field("pulls", "q", "pulls answered with messages since start"),
        Field("pull_offset", "q", "queue offset that the last pull was told to go on at; 0 = none yet"),
    ),
)
EPOCH_ROW = Layout(
    "epoch_row",
    size=8,
    place="shared",
    source="mqcore",
    doc="What a pull check's answer rests on: a topic and a group have the rows that their names hash to. The sum "
    "of both and config_epoch is the answer's epoch: each only grows, so the sum stays while all three do.",
    fields=(Field("epoch", "q", "grows when something changes about a topic, or a group, whose name hashes here"),),
)
WORKER_ROW = Layout(
    "worker_row",
    size=5 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="The broker process writes the first line, the worker the rest; sleeping is read by whoever may wake it.",
    fields=(
        *line(
            Field("kind", "i", "WorkerKind"),
            Field("number", "i", "from 0 within its kind"),
            Field("pid", "q", "0 = not running"),
            Field("generation", "q", "how often it has died; what a dead one held is given up when this changes"),
            Field("command", "q", "WorkerCommand"),
        ),
        *line(
            Field("sleeping", "q", "1 = wants a wake through its eventfd"),
            Field("settings_version", "q", "version of the settings that it goes by"),
        ),
        *line(
            Field("state", "q", "WorkerState"),
            Field("heartbeat", "q", "last turn of its loop, ms"),
            Field("turns", "q", "turns of its loop since start"),
            Field("wakes", "q", "wakes it sent since start"),
            Field("units", "q", "what it exists for, done since start: frames, pulls, records, syncs"),
            Field("bytes", "q", "bytes it handled since start"),
            Field("refused", "q", "requests it refused since start"),
            Field("backlog", "q", "work it knows of and has not done"),
        ),
        *line(
            Field("connections", "q", "open connections"),
            Field("accepted", "q", "connections accepted since start"),
            Field("parked", "q", "answers or pulls that wait"),
            Field("buffered", "q", "bytes in connection buffers"),
            Field("protocol_errors", "q", "connections closed for bad frames"),
            Field("slow_readers", "q", "connections closed for not reading"),
            Field("released", "q", "it has let go of the commit log's pages before it, bytes"),
            Field("read_ms_max", "q", "pull workers: longest reading of what a pull found, ms"),
        ),
        *line(
            Field("handshakes", "q", "TLS connections made since start"),
            Field("handshakes_failed", "q", "connections closed in their TLS handshake, or for being late with it"),
            Field("transport_refused", "q", "connections closed for coming plain or with TLS where they may not"),
            Field("timed_out", "q", "requests refused because they had waited too long"),
            Field("page_cache_busy", "q", "sends refused because somebody appended for too long"),
            Field("quota_delayed", "q", "requests that waited for a quota"),
            Field("quota_refused", "q", "requests that a quota has refused"),
            Field("connections_refused", "q", "connections closed at once because there were too many"),
        ),
    ),
)
LATENCY_ROW = Layout(
    "latency_row",
    size=6 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="How long a send worker's answers of one LatencyKind took, counted by LATENCY_BOUNDS_US.",
    fields=(
        *line(
            Field("sum_us", "q", "of all of them, us"),
            *(
                Field(f"count_{number}", "q", f"answers that took less than {bound} us, and no less than those before")
                for number, bound in enumerate(LATENCY_BOUNDS_US)
            ),
            Field(f"count_{len(LATENCY_BOUNDS_US)}", "q", "answers that took longer"),
        ),
    ),
)
QUOTA_ROW = Layout(
    "quota_row",
    size=32,
    place="shared",
    source="mqcore",
    doc="What a topic, group or client has used of its quota. One that is idle says nothing, and its row may be taken "
    "by another. A time ahead of now is what must pass before all that was let through fits the rate.",
    fields=(
        Field("key", "q", "hash of what is limited; 0 = free"),
        Field("messages_until", "q", "the messages let through fit their rate then, coarse time in ns"),
        Field("bytes_until", "q", "the same of bytes"),
        Field("spare", "q", "0"),
    ),
)
SETTINGS_HEAD = Layout(
    "settings_head",
    size=16,
    place="shared",
    source="mqcore",
    doc="Start of the settings sheet, a memory file of its own. Behind it: the text of SettingValues.to_json.",
    fields=(
        Field("version", "q", "grows with each change; 0 = nothing is written yet"),
        Field("size", "i", "bytes of the text"),
        Field("crc", "i", "CRC32 of version and text: a sheet that is being written is read again"),
    ),
)
RING_HEAD = Layout(
    "ring_head",
    size=3 * CACHE_LINE,
    place="shared",
    source="mqcore",
    doc="One producer, one consumer. Entries start on 8 bytes; an entry never wraps.",
    fields=(
        *line(Field("capacity", "q", "bytes of data, a power of two")),
        *line(
            Field("tail", "q", "bytes produced since start; the producer writes it"),
            Field("refused", "q", "entries that did not fit; the producer writes it"),
        ),
        *line(Field("head", "q", "bytes consumed since start; the consumer writes it")),
    ),
)
RING_ENTRY = Layout(
    "ring_entry",
    size=8,
    place="shared",
    source="mqcore",
    fields=(
        Field("size", "i", "bytes of payload; -1 = skip to the start of the ring"),
        Field("kind", "i", "what the payload is"),
    ),
)
PULL_REQUEST = Layout(
    "pull_request",
    size=112,
    place="shared",
    source="mqcore",
    doc="Send worker to pull worker. Behind it: topic, group, subscription, expression type.",
    fields=(
        Field("connection_id", "q", "names the connection for the life of the broker"),
        Field("queue_offset", "q", "wanted"),
        Field("commit_offset", "q", "to be stored when COMMIT_OFFSET is set"),
        Field("suspend_timeout_ms", "q", "how long the client lets the pull be held"),
        Field("sub_version", "q", "the client's subscription version"),
        Field("ticket", "i", "the send worker's slot for this pull, and above its 16 bits which use of the slot it is"),
        Field("opaque", "i", "request id"),
        Field("serialize_type", "i", "of the request"),
        Field("code", "i", "PULL_MESSAGE or LITE_PULL_MESSAGE"),
        Field("queue_id", "i", "queue"),
        Field("sys_flag", "i", "PullSysFlag"),
        Field("max_msg_nums", "i", "at most so many messages"),
        Field("version", "i", "of the client"),
        Field("topic_size", "i", "bytes"),
        Field("group_size", "i", "bytes"),
        Field("subscription_size", "i", "bytes; -1 = absent"),
        Field("expression_type_size", "i", "bytes; -1 = absent"),
        Field("principal", "q", "who asks, as the broker process counts them; 0 = nobody known"),
        Field("since", "q", "when it came, coarse ms"),
        Field("client_key", "q", "of the client in the quotas; 0 = none is set for clients"),
    ),
)
PULL_REPLY = Layout(
    "pull_reply",
    size=80,
    place="shared",
    source="mqcore",
    doc="Pull worker to send worker. Behind it: range_count PULL_RANGEs. With the status WAITED_TOO_LONG max_offset "
    "says how long, ms.",
    fields=(
        Field("connection_id", "q", "from the request"),
        Field("next_begin_offset", "q", "where to pull next"),
        Field("min_offset", "q", "of the queue"),
        Field("max_offset", "q", "of the queue"),
        Field("suggest_broker_id", "q", "where to pull next"),
        Field("woken", "q", "when its hold ended, ns since the machine started; 0 = it was not held"),
        Field("ticket", "i", "from the request"),
        Field("code", "i", "ResponseCode"),
        Field("status", "i", "GetStatus: its name is the remark"),
        Field("range_count", "i", "ranges that follow"),
        Field("total_size", "i", "bytes over all ranges"),
        Field("was_held", "i", "1 = answered after a hold, in the server's own header type"),
        Field("message_count", "i", "messages over all ranges"),
        Field("refused", "i", "1 = the broker process answered the client itself; only free the ticket"),
    ),
)
PULL_RANGE = Layout(
    "pull_range",
    size=16,
    place="shared",
    source="mqcore",
    fields=(
        Field("physical_offset", "q", "start in the commit log"),
        Field("size", "q", "bytes"),
    ),
)
RESOLVE = Layout(
    "resolve",
    size=8,
    place="shared",
    source="mqcore",
    doc="Pull worker to broker process, over the link: may this pull be served, and how? Behind it: the PULL_REQUEST.",
    fields=(Field("resolve_id", "q", "comes back in the binding"),),
)
BINDING = Layout(
    "binding",
    size=72,
    place="shared",
    source="mqcore",
    doc="Broker process to pull worker: every check is passed, until its epoch changes. Behind it: i32 tag codes, "
    "sorted; i32 bits of the group in filter bitmaps; the compiled filter.",
    fields=(
        Field("resolve_id", "q", "from the question"),
        Field("epoch", "q", "that of topic and group before the checks were made, see epoch_row; -1 = good for once"),
        Field("suspend_limit_ms", "q", "how long a pull may be held; -1 = as long as the client asks"),
        Field("broker_id", "i", "to suggest in general"),
        Field("slow_broker_id", "i", "to suggest to a group that reads far behind"),
        Field("match_all", "i", "1 = every message"),
        Field("tag_count", "i", "tag codes that follow"),
        Field("refused", "i", "1 = the client has been answered; nothing else of this is set"),
        Field("suspend_max_ms", "i", "how long a pull may be held at most, if the client decides it"),
        Field("bitmap_from", "q", "bitmaps of messages from this physical offset on have the group's bits; -1 = none"),
        Field("filter_size", "i", "bytes of the compiled filter; 0 = tags decide alone"),
        Field("bitmap_bits", "i", "how many bits such a bitmap has"),
        Field("bit_count", "i", "bits of the group that follow"),
        Field("queue_count", "i", "queues of the topic that may be read, all in this same way"),
    ),
)
FILTER_HEAD = Layout(
    "filter_head",
    size=16,
    place="shared",
    source="mqcore",
    doc="An SQL92 expression, compiled (mqcore/filter/program.py). Behind it: filter_step, filter_name, texts.",
    fields=(
        Field("step_count", "i", "steps that follow"),
        Field("name_count", "i", "names of properties that follow the steps, FILTER_NAMES_MAX at most"),
        Field("depth", "i", "values on the stack at a time, FILTER_DEPTH_MAX at most"),
        Field("text_size", "i", "bytes of texts behind the names"),
    ),
)
FILTER_STEP = Layout(
    "filter_step",
    size=16,
    place="shared",
    source="mqcore",
    doc="What each does with *size* and *value* stands beside FilterOp.",
    fields=(
        Field("op", "i", "FilterOp"),
        Field("size", "i", "bytes of a text, number of a name, count of texts, or part of a text"),
        Field("value", "q", "where a text begins, a number, the bits of a double, a step to go on at, or 1 for NOT"),
    ),
)
FILTER_NAME = Layout(
    "filter_name",
    size=8,
    place="shared",
    source="mqcore",
    fields=(Field("at", "i", "where it begins in the texts"), Field("size", "i", "bytes")),
)
TOPIC_FILTERS = Layout(
    "topic_filters",
    size=24,
    place="shared",
    source="mqcore",
    doc="Broker process to reput worker, over the link: make the bitmaps of a topic's messages by these filters, and "
    "no others. Behind it: topic; for each filter i32 bytes of it, i32 bits, the compiled filter.",
    fields=(
        Field("request_id", "q", "comes back in filters_taken"),
        Field("topic_size", "i", "bytes"),
        Field("filter_count", "i", "filters that follow; 0 = no bitmaps any more"),
        Field("bitmap_bits", "i", "bits of a bitmap"),
        Field("bit_count", "i", "bits of each filter"),
    ),
)
ACL_TABLE = Layout(
    "acl_table",
    size=16,
    place="shared",
    source="mqcore",
    doc="Broker process to send worker, over the link: the accounts that there are now. Behind it: acl_account "
    "for each, with key, secret, and acl_rule with its name for each of its rules.",
    fields=(
        Field("version", "q", "of the rules of access; see acl_version of the board"),
        Field("account_count", "i", "accounts that follow"),
        Field("rule_count", "i", "rules of all accounts together"),
    ),
)
ACL_ACCOUNT = Layout(
    "acl_account",
    size=24,
    place="shared",
    source="mqcore",
    doc="One account in an acl_table.",
    fields=(
        Field("key_size", "i", "bytes"),
        Field("secret_size", "i", "bytes"),
        Field("rule_count", "i", "rules that follow"),
        Field("default_topic_perm", "i", "bits: see AclPerm"),
        Field("default_group_perm", "i", "bits: see AclPerm"),
        Field("may_do_all", "i", "1 = it is not asked for permissions"),
    ),
)
ACL_RULE = Layout(
    "acl_rule",
    size=8,
    place="shared",
    source="mqcore",
    doc="What an account may do with one topic, or with one group, which stands for its retry topic.",
    fields=(Field("name_size", "i", "bytes"), Field("perm", "i", "bits: see AclPerm")),
)
ACL_GRANT = Layout(
    "acl_grant",
    size=16,
    place="shared",
    source="mqcore",
    doc="Broker process to send worker, over the link: who the connection's requests are from.",
    fields=(
        Field("version", "q", "of the rules of access that it was decided by; with others it is nothing"),
        Field("account", "i", "number of the account in acl_table; -1 = its address lets everybody in"),
        Field("trust", "i", "bits: see AclTrust"),
    ),
)
FILTERS_TAKEN = Layout(
    "filters_taken",
    size=16,
    place="shared",
    source="mqcore",
    doc="Reput worker to broker process: bitmaps have the bits of those filters.",
    fields=(
        Field("request_id", "q", "from topic_filters"),
        Field("from_offset", "q", "of messages from this physical offset on; -1 = the filters could not be taken"),
    ),
)
OFFSET_MOVED = Layout(
    "offset_moved",
    size=24,
    place="shared",
    source="mqcore",
    doc="Pull worker to broker process, over the link: a pull asked out of range. Behind it: topic, group.",
    fields=(
        Field("requested", "q", "queue offset"),
        Field("corrected", "q", "queue offset"),
        Field("queue_id", "i", "the queue"),
        Field("topic_size", "h", "bytes"),
        Field("group_size", "h", "bytes"),
    ),
)
LATE_PULL = Layout(
    "late_pull",
    size=16,
    place="shared",
    source="mqcore",
    doc="Pull worker to broker process, over the link: reading what a pull found took a millisecond or more.",
    fields=(
        Field("offset_row", "i", "whose pull it was"),
        Field("spare", "i", "0"),
        Field("took_ms", "q", "how long the reading took, ms"),
    ),
)
ARRIVAL = Layout(
    "arrival",
    size=32,
    place="shared",
    source="mqcore",
    doc="Reput worker to pull worker: a message is readable in a queue that has waiters.",
    fields=(
        Field("queue_row", "i", "the queue"),
        Field("spare", "i", "0"),
        Field("max_offset", "q", "queue offset after the message"),
        Field("tags_code", "q", "of the message"),
        Field("store_timestamp", "q", "of the message, ms"),
    ),
)
LINK_HEAD = Layout(
    "link_head",
    size=16,
    place="shared",
    source="mqcore",
    doc="Between a worker and the broker process, over a socket pair: this head, then the payload.",
    fields=(
        Field("size", "i", "bytes that follow this head"),
        Field("kind", "i", "LinkKind"),
        Field("connection_id", "q", "which connection; 0 = none"),
    ),
)
REQUEST_HEAD = Layout(
    "request_head",
    size=16,
    place="shared",
    source="mqcore",
    doc="Start of the payload of LinkKind REQUEST; behind it the request's frame as it came, without its length.",
    fields=(
        Field("since", "q", "when it came, coarse ms"),
        Field("charged", "i", "1 = the quotas have been asked"),
        Field("spare", "i", "0"),
    ),
)


@dataclass(frozen=True, slots=True)
class Region:
    """A run of equal rows in the shared segment."""

    name: str
    row: Layout | None
    count: int
    row_size: int

    @property
    def size(self) -> int:
        return self.count * self.row_size


PAGE_SIZE = 4096
TOPIC_CAPACITY = 1 << 16
QUEUE_CAPACITY = 1 << 20
GROUP_CAPACITY = 1 << 16
OFFSET_CAPACITY = 1 << 20
WORD_BITS = 64
METADATA_FLAG = 0x4D514D45
"""Record_head.flag of the records by which a failover group tells of its tables, by which they are found quickly."""
METADATA_DROP_FLAG = 0x4D514D44
"""The same of a record that drops queues."""
CRADLE_CAPACITY = 1 << 10
CRADLE_SIZE = 1 << 14
CRADLE_UNITS = CRADLE_SIZE // CONSUME_QUEUE_UNIT.size
SEND_WORKERS_MAX = 4
PULL_WORKERS_MAX = 4
LATENCY_KINDS = 4
"""Rows of latencies that each send worker has: one for each LatencyKind."""
WORKER_CAPACITY = 16
SLAVE_CAPACITY = 8
GROUP_MEMBERS_MAX = 63
"""Ids in a failover group are below: each has a bit of a positive word."""

"""Slaves that may be connected to a master at a time."""
EPOCH_ROWS = 1 << 16
"""Names that share a row go stale together, which is rare and costs a question; no number of names is too many."""
FILTER_NAMES_MAX = 64
FILTER_DEPTH_MAX = 160
QUOTA_ROWS = 1 << 16
"""Topics, groups and clients that may use their quotas at a time; beyond it some share."""
QUOTA_PROBES = 8
"""Rows that one of them may have."""
QUOTA_RULES_MAX = 1024
"""Entries of the setting quotas."""
ADDRESS_COUNTS = 1 << 14
"""Counters of connections by address; where two addresses meet in both that each has, they count together."""
TICKETS_MAX = 1 << 16
"""Pulls of one send worker that may be under way at a time."""
PUSHES_MAX = 1 << 14
"""Answers of request-reply that a send worker may have pushed and no asker has taken yet."""
PUSH_NUMBER_BIT = 1 << 30
"""Of the opaques of a send worker's own requests; those of the broker process are below."""
PUSH_TIMEOUT_MS = 10_000
"""For so long an asker may take to say that it has its answer."""
ASKER_SIZE_MAX = 255
"""Bytes of a client id by which a send worker knows an asker; who has a longer one is known to the broker process."""
PULL_RING_BYTES = 1 << 20
ARRIVAL_RING_BYTES = 1 << 20
PULL_STRINGS_MAX = 1 << 15
"""Bytes of a pull's topic, group, subscription and expression type together; a longer one is refused."""
PULL_RANGES_MAX = 1023
"""Messages of one pull reply: one writev takes 1024 parts (IOV_MAX), of which the first is the frame's head."""
LOG_PLACES_MAX = 32
"""Directories that one commit log may lie in; the kernels have a bit for each in a word of 32."""
CONNECTION_SLOT_BITS = 24
"""The lowest bits of a connection's id: its slot in the send worker."""
CONNECTION_GENERATION_BITS = 32
"""Those above: how many connections that worker had before. Then comes the worker's number."""
CONNECTION_LIFE_BITS = 8
"""The highest of the generation's bits: deaths of the worker, so that ids of an earlier life do not come back soon."""

REGIONS: tuple[Region, ...] = (
    Region("board", STORE_BOARD, 1, STORE_BOARD.size),
    Region("workers", WORKER_ROW, WORKER_CAPACITY, WORKER_ROW.size),
    Region("topics", TOPIC_ROW, TOPIC_CAPACITY, TOPIC_ROW.size),
    Region("topic_index", None, 2 * TOPIC_CAPACITY, 4),
    Region("queues", QUEUE_ROW, QUEUE_CAPACITY, QUEUE_ROW.size),
    Region("queue_index", None, 2 * QUEUE_CAPACITY, 4),
    Region("groups", GROUP_ROW, GROUP_CAPACITY, GROUP_ROW.size),
    Region("group_index", None, 2 * GROUP_CAPACITY, 4),
    Region("offsets", OFFSET_ROW, OFFSET_CAPACITY, OFFSET_ROW.size),
    Region("offset_index", None, 2 * OFFSET_CAPACITY, 4),
    Region("offset_changes", None, OFFSET_CAPACITY // WORD_BITS, WORD_BITS // 8),
    Region("offset_change_words", None, OFFSET_CAPACITY // WORD_BITS**2, WORD_BITS // 8),
    Region("cradles", CRADLE_ROW, CRADLE_CAPACITY, CRADLE_ROW.size),
    Region("cradle_units", None, CRADLE_CAPACITY, CRADLE_SIZE),
    Region("topic_epochs", EPOCH_ROW, EPOCH_ROWS, EPOCH_ROW.size),
    Region("group_epochs", EPOCH_ROW, EPOCH_ROWS, EPOCH_ROW.size),
    Region("pull_request_rings", None, SEND_WORKERS_MAX * PULL_WORKERS_MAX, RING_HEAD.size + PULL_RING_BYTES),
    Region("pull_reply_rings", None, SEND_WORKERS_MAX * PULL_WORKERS_MAX, RING_HEAD.size + PULL_RING_BYTES),
    Region("arrival_rings", None, PULL_WORKERS_MAX, RING_HEAD.size + ARRIVAL_RING_BYTES),
    Region("slaves", SLAVE_ROW, SLAVE_CAPACITY, SLAVE_ROW.size),
    Region("quotas", QUOTA_ROW, QUOTA_ROWS, QUOTA_ROW.size),
    Region("address_counts", None, SEND_WORKERS_MAX * ADDRESS_COUNTS, 4),
    Region("group_nonces", None, GROUP_MEMBERS_MAX, 8),
    Region("latencies", LATENCY_ROW, SEND_WORKERS_MAX * LATENCY_KINDS, LATENCY_ROW.size),
)


def region_offsets() -> dict[str, int]:
    """Where each region starts in the segment, bytes; every region starts on a page."""
    at = 0
    offsets: dict[str, int] = {}
    for region in REGIONS:
        offsets[region.name] = at
        at += -(-region.size // PAGE_SIZE) * PAGE_SIZE
    offsets["end"] = at
    return offsets


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


# A record without body, topic and properties has both hosts of IPv4 (4 bytes and a port of 4), and the three lengths.
assert RECORD_HEAD.size + 8 + RECORD_STORE_TIME.size + 8 + RECORD_MIDDLE.size + 4 + 1 + 2 == RECORD_SIZE_MIN
assert BLANK_RECORD.size == FILE_END_MIN_BLANK_SIZE
# The same with both hosts of IPv6, 12 bytes longer each, and topic and properties as long as their lengths can say.
assert RECORD_SIZE_MIN + 2 * 12 + TOPIC_SIZE_MAX + PROPERTIES_SIZE_MAX <= RECORD_OVERHEAD_MAX
# A store that RocketMQ made with its defaults has 300,000 units in a file.
assert CONSUME_QUEUE_FILE_UNITS * CONSUME_QUEUE_UNIT.size == 6_000_000
# Places are found by masking: hash indexes (twice as long as their rows), epochs, tickets, rings.
assert all(map(is_power_of_two, (TOPIC_CAPACITY, QUEUE_CAPACITY, GROUP_CAPACITY, OFFSET_CAPACITY)))
assert all(map(is_power_of_two, (EPOCH_ROWS, TICKETS_MAX, PUSHES_MAX, PULL_RING_BYTES, ARRIVAL_RING_BYTES)))
assert all(map(is_power_of_two, (QUOTA_ROWS, ADDRESS_COUNTS)))
# Words are stored and loaded whole, so each lies on a boundary of 8 bytes: rows, and what is behind a ring's heads.
assert all(region.row_size % 8 == 0 for region in REGIONS if region.row is not None)
assert all(size % 8 == 0 for size in (RING_HEAD.size, RING_ENTRY.size, PULL_RING_BYTES, ARRIVAL_RING_BYTES, PAGE_SIZE))
# The broker process, send and pull workers, reput and flush.
assert 1 + SEND_WORKERS_MAX + PULL_WORKERS_MAX + 2 <= WORKER_CAPACITY
# An entry goes into an empty ring wherever its tail stands: it may have to leave out nearly its own length at the end.
assert 2 * (RING_ENTRY.size + PULL_REPLY.size + PULL_RANGES_MAX * PULL_RANGE.size) <= PULL_RING_BYTES
assert 2 * (RING_ENTRY.size + PULL_REQUEST.size + PULL_STRINGS_MAX) <= PULL_RING_BYTES
# Linux' IOV_MAX.
assert PULL_RANGES_MAX + 1 <= 1024
assert LOG_PLACES_MAX <= 32
assert TOPIC_ROW.size - TOPIC_ROW.offsets["name"] >= TOPIC_SIZE_MAX
# An id is positive.
assert (SEND_WORKERS_MAX - 1).bit_length() + CONNECTION_GENERATION_BITS + CONNECTION_SLOT_BITS < 64
assert len([name for name in LATENCY_ROW.offsets if name.startswith("count_")]) == len(LATENCY_BOUNDS_US) + 1
assert len([name for name in STORE_BOARD.offsets if name.startswith("put_tally_")]) == len(PUT_TALLY_BOUNDS_MS) + 1


@dataclass(frozen=True, slots=True)
class Constants:
    """A named set of integers that both sides use; becomes a ``cdef enum`` with the name as prefix."""

    name: str
    doc: str
    values: dict[str, int]


CONSTANTS: tuple[Constants, ...] = (
    Constants(
        "StoreFlag",
        "bits of store_board.store_flags",
        {
            "NOT_READABLE": 1,
            "NOT_WRITABLE": 2,
            "CONSUME_QUEUE_ERROR": 4,
            "INDEX_ERROR": 8,
            "DISK_FULL": 16,
            "SYNC_FAILED": 32,
            "SHUTTING_DOWN": 64,
            "BROKER_UNWRITABLE": 128,
            "NO_NEXT_FILE": 256,
            "WORKER_MISSING": 1024,
            "PULL_CLOSED": 2048,
            "SLAVE": 4096,
            "NOT_ENOUGH_REPLICAS": 8192,
        },
    ),
    Constants(
        "ReadGate",
        "bits of store_board.read_gates: what must have happened to what is read",
        {"FLUSHED": 1, "CONFIRMED": 2},
    ),
    Constants(
        "TopicWord",
        "topic_row.config: flags, permission and queue counts in one word, so that a reader sees all or nothing",
        {"EXISTS": 1, "SENDABLE": 2, "MULTI_TAG": 4, "PERM_SHIFT": 8, "READ_SHIFT": 16, "WRITE_SHIFT": 32},
    ),
    Constants(
        "WorkerKind",
        "what a worker is",
        {"BROKER": 0, "SEND": 1, "PULL": 2, "REPUT": 3, "FLUSH": 4, "HA": 5, "SCHEDULE": 6, "TIMER": 7},
    ),
    Constants(
        "SlaveState",
        "slave_row.state: REFUSED_AHEAD and BEFORE_FIRST_FILE count for nothing",
        {"FREE": 0, "CONNECTED": 1, "COPYING": 2, "BEFORE_FIRST_FILE": 3, "REFUSED_AHEAD": 4},
    ),
    Constants(
        "HaRole",
        "store_board.ha_role: NONE follows nobody and is followed by nobody",
        {"NONE": 0, "SLAVE": 1, "MASTER": 2},
    ),
    Constants(
        "MasterState",
        "store_board.master_state: what a slave is doing about its master",
        {"UNKNOWN": 0, "CONNECTING": 1, "COPYING": 2, "REFUSED": 3},
    ),
    Constants(
        "LatencyKind",
        "what a latency_row counts: answers to sends that are stored as they should be, and to such that lack disk or "
        "slave; answers with messages to pulls that found some at once, and to such that were held",
        {"SEND": 0, "UNCONFIRMED": 1, "PULL": 2, "HELD": 3},
    ),
    Constants("WorkerCommand", "what the broker process wants of a worker", {"RUN": 0, "DRAIN": 1, "STOP": 2}),
    Constants(
        "WorkerState", "where a worker is in its life", {"STARTING": 0, "RUNNING": 1, "DRAINED": 2, "STOPPED": 3}
    ),
    Constants(
        "LinkKind",
        "what travels between a worker and the broker process",
        {
            "CONNECTED": 1,
            "REQUEST": 2,
            "CLOSED": 3,
            "RESOLVE": 4,
            "OFFSET_MOVED": 5,
            "FILTERS_TAKEN": 6,
            "LATE_PULL": 7,
            "FRAME": 10,
            "CLOSE": 11,
            "BINDING": 12,
            "INJECT": 13,
            "TOPIC_FILTERS": 14,
            "ACL_TABLE": 15,
            "ACL_GRANT": 16,
            "ASKER": 17,
        },
    ),
    Constants(
        "AclTrust",
        "why an account needs no signature: its address is enough for everything, or its certificate to know who it is",
        {"ADDRESS": 1, "CERTIFICATE": 2},
    ),
    Constants(
        "AclPerm",
        "what an account may do with a topic or group; DENY beats the others",
        {"DENY": 1, "PUB": 4, "SUB": 8},
    ),
    Constants(
        "GetStatus",
        "result of reading a queue; the name is the remark of the pull's reply; from 9 on mqcore's own",
        {
            "FOUND": 0,
            "NO_MATCHED_MESSAGE": 1,
            "MESSAGE_WAS_REMOVING": 2,
            "OFFSET_FOUND_NULL": 3,
            "OFFSET_OVERFLOW_BADLY": 4,
            "OFFSET_OVERFLOW_ONE": 5,
            "OFFSET_TOO_SMALL": 6,
            "NO_MATCHED_LOGIC_QUEUE": 7,
            "NO_MESSAGE_IN_QUEUE": 8,
            "CONSUME_QUEUE_NOT_READABLE": 9,
            "COMMIT_LOG_NOT_READABLE": 10,
            "WAITED_TOO_LONG": 11,
            "QUOTA_EXCEEDED": 12,
        },
    ),
    Constants(
        "PutStatus",
        "result of an append",
        {
            "PUT_OK": 0,
            "FLUSH_DISK_TIMEOUT": 1,
            "FLUSH_SLAVE_TIMEOUT": 2,
            "SLAVE_NOT_AVAILABLE": 3,
            "SERVICE_NOT_AVAILABLE": 4,
            "CREATE_MAPEDFILE_FAILED": 5,
            "MESSAGE_ILLEGAL": 6,
            "PROPERTIES_SIZE_EXCEEDED": 7,
            "OS_PAGECACHE_BUSY": 8,
            "UNKNOWN_ERROR": 9,
            "IN_SYNC_REPLICAS_NOT_ENOUGH": 10,
        },
    ),
    Constants("TimerMagic", "bits of timer_unit.magic", {"DEFAULT": 1, "ROLL": 2, "DELETE": 4}),
    Constants(
        "FilterOp",
        "steps of a compiled filter, which work on a stack; TEXT behind IN and SEARCH is part of them. LEAVE goes on "
        "at step *value* and lets the top value stand; SEARCH has 0 anywhere, 1 at the start, 2 at the end",
        {
            "PROPERTY": 0,
            "INTEGER": 1,
            "LONG": 2,
            "DOUBLE": 3,
            "TEXT": 4,
            "TRUTH": 5,
            "NULL": 6,
            "NEGATE": 7,
            "CONDITION": 8,
            "NOT": 9,
            "EQUAL": 10,
            "GREATER": 11,
            "GREATER_OR_EQUAL": 12,
            "LESS": 13,
            "LESS_OR_EQUAL": 14,
            "AND": 15,
            "OR": 16,
            "LEAVE_IF_FALSE": 17,
            "LEAVE_IF_TRUE": 18,
            "LEAVE_IF_NULL": 19,
            "IN": 20,
            "SEARCH": 21,
        },
    ),
    Constants(
        "RingKind",
        "kind of a ring entry; PULLS_ENDED has the i32 tickets of pulls that nobody waits for; none: of all before it",
        {"PULL_REQUEST": 1, "PULL_REPLY": 2, "ARRIVAL": 3, "RESCAN": 4, "PULLS_ENDED": 5},
    ),
)


def constants(name: str) -> dict[str, int]:
    """The values of the set *name*. Raises KeyError for an unknown name."""
    return {entry.name: entry.values for entry in CONSTANTS}[name]


# With one of these, the store takes no message.
REFUSING_FLAGS = sum(
    constants("StoreFlag")[name]
    for name in (
        "NOT_WRITABLE", "CONSUME_QUEUE_ERROR", "INDEX_ERROR", "DISK_FULL", "SYNC_FAILED", "SHUTTING_DOWN",
        "WORKER_MISSING", "SLAVE", "NOT_ENOUGH_REPLICAS",
    )
)  # fmt: skip


assert len(constants("LatencyKind")) == LATENCY_KINDS


def layouts() -> Iterator[Layout]:
    """Every layout of this module, in the order of their definition."""
    for value in list(globals().values()):
        if isinstance(value, Layout):
            yield value


if __name__ == "__main__":
    from mqcore.layout_files import main

    main(Path(__file__).resolve().parents[1], sys.argv[1:])
