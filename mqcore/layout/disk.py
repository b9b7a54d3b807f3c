"""Layouts on disk, as RocketMQ has them; integers are big-endian and signed, as in Java."""

from __future__ import annotations

import re

from mqcore.layout.tables import Field, Layout

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
