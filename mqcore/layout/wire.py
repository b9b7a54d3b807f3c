"""Layouts on the wire: frames, headers, replication; integers are big-endian and signed, as in Java."""

from __future__ import annotations

from mqcore.layout.tables import Field, Layout

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
