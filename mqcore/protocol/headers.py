"""The header of every request and response, as tables: which ext fields there are, of what type, and which must be.

A row is written ``wireName`` + type + mark. Types: S text, I int32, L int64, B boolean; the same in lower case is a
Java primitive, which is always written and reads as 0 or false when missing. Marks: ``!`` must be present, ``?`` may
be missing. ``name=wireName`` gives a field another name inside; otherwise the name inside is the wire name in
snake_case.

``REQUEST_HEADERS[code].decode(command.ext_fields)`` gives a dict with every field of the row, None for what is missing;
``encode`` takes such a dict. A code without a row has no header at all (extFields absent); an empty row is ``{}``.
Source: RocketMQ common/protocol/header/*.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from mqcore.codes import RequestCode as Code
from mqcore.errors import HeaderError

INT64_MAX: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


class FieldType(Enum):
    """Type of a header field; on the wire all of them are text."""

    STRING = "S"
    INT = "I"
    LONG = "L"
    BOOLEAN = "B"

    @property
    def wanted(self) -> str:
        """How an error message names the type."""
        return {"S": "a text", "I": "a 32-bit integer", "L": "a 64-bit integer", "B": "true or false"}[self.value]


_LIMITS: Final = {FieldType.INT: 2**31, FieldType.LONG: 2**63}


@dataclass(frozen=True, slots=True)
class HeaderField:
    """One ext field: its name inside, its name on the wire, its type, and whether it must or will be there."""

    name: str
    wire_name: str
    type: FieldType
    is_required: bool
    is_primitive: bool

    @property
    def default(self) -> Any:
        """What the field is when it is missing."""
        if not self.is_primitive:
            return None
        return False if self.type is FieldType.BOOLEAN else 0

    def to_text(self, value: Any, header_name: str) -> str:
        """Return *value* as Java's toString; raise HeaderError if it is not of the field's type."""
        if self.type is FieldType.STRING and isinstance(value, str):
            return value
        if self.type is FieldType.BOOLEAN and isinstance(value, bool):
            return "true" if value else "false"
        limit = _LIMITS.get(self.type, 0)
        if isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit:
            return str(int(value))
        raise HeaderError(self.wire_name, repr(value), self.type.wanted, header_name)

    def from_text(self, text: str, header_name: str) -> Any:
        """Return the value of *text*; raise HeaderError if it is not of the field's type."""
        if self.type is FieldType.STRING:
            return text
        if self.type is FieldType.BOOLEAN:
            return text.lower() == "true"
        limit = _LIMITS[self.type]
        if _INTEGER.fullmatch(text):
            value = int(text)
            if -limit <= value < limit:
                return value
        raise HeaderError(self.wire_name, repr(text), self.type.wanted, header_name)


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of one request or response header."""

    name: str
    fields: tuple[HeaderField, ...]

    def encode(self, values: Mapping[str, Any] | None = None) -> dict[str, str]:
        """Return the ext fields for *values*, in the order of the table; None and missing values are left out.

        Raises HeaderError if a required value is missing, a value has another type, or a name is not in the table.
        """
        given = dict(values or {})
        ext_fields: dict[str, str] = {}
        for field in self.fields:
            value = given.pop(field.name, None)
            if value is None:
                value = field.default
            if value is not None:
                ext_fields[field.wire_name] = field.to_text(value, self.name)
            elif field.is_required:
                raise HeaderError(field.wire_name, "nothing", field.type.wanted, self.name)
        for name in given:
            raise HeaderError(name, repr(given[name]), "a field of this header", self.name)
        return ext_fields

    def decode(self, ext_fields: Mapping[str, str] | None) -> dict[str, Any]:
        """Return the values of all fields by their names inside. Other ext fields are ignored.

        Raises HeaderError if a required field is missing or a field does not read as its type.
        """
        given = ext_fields or {}
        values: dict[str, Any] = {}
        for field in self.fields:
            text = given.get(field.wire_name)
            if text is not None:
                values[field.name] = field.from_text(text, self.name)
            elif field.is_required and not field.is_primitive:
                raise HeaderError(field.wire_name, "nothing", field.type.wanted, self.name)
            else:
                values[field.name] = field.default
        return values


_ROW: Final = re.compile(r"(?:(\w+)=)?(\w+) ([SILBilb])([!?])")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _header(name: str, rows: str) -> Header:
    fields: list[HeaderField] = []
    for row in filter(None, map(str.strip, rows.split(","))):
        match = _ROW.fullmatch(row)
        assert match is not None, row
        inside, wire_name, letter, mark = match.groups()
        if inside is None:
            inside = _HUMP.sub("_", wire_name).lower().strip("_")
        fields.append(HeaderField(inside, wire_name, FieldType(letter.upper()), mark == "!", letter.islower()))
    return Header(name, tuple(fields))


_SEND = """producerGroup S!, topic S!, defaultTopic S!, defaultTopicQueueNums I!, queueId I!, sysFlag I!,
    bornTimestamp L!, flag I!, properties S?, reconsumeTimes I?, unitMode b?, batch b?, maxReconsumeTimes I?,
    bname S?"""
_SEND_V2 = """producer_group=a S!, topic=b S!, default_topic=c S!, default_topic_queue_nums=d I!, queue_id=e I!,
    sys_flag=f I!, born_timestamp=g L!, flag=h I!, properties=i S?, reconsume_times=j I?, unit_mode=k b?,
    max_reconsume_times=l I?, batch=m b?, bname=n S?"""
_PULL = """consumerGroup S!, topic S!, queueId I!, queueOffset L!, maxMsgNums I!, sysFlag I!, commitOffset L!,
    suspendTimeoutMillis L!, subscription S?, subVersion L!, expressionType S?, bname S?, maxMsgBytes I?"""
_QUEUE = "topic S!, queueId I!, bname S?"
_RESET = "topic S!, group S!, timestamp l!, isForce b!, queueId I?, offset L?"
_CONSUMER_STATUS = "topic S!, group S!, clientAddr S?"
_BROKER = "brokerName S!, brokerAddr S!, clusterName S!, brokerId L!"
_KEY = "namespace S!, key S!"

_REQUEST_ROWS: Final[dict[Code, str]] = {
    # 2.2 Sending
    Code.SEND_MESSAGE: _SEND,
    Code.SEND_MESSAGE_V2: _SEND_V2,
    Code.SEND_BATCH_MESSAGE: _SEND_V2,
    Code.SEND_REPLY_MESSAGE: _SEND,
    Code.SEND_REPLY_MESSAGE_V2: _SEND_V2,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: """producerGroup S!, topic S!, defaultTopic S!, defaultTopicQueueNums I!,
        queueId I!, sysFlag I!, bornTimestamp L!, flag I!, properties S?, reconsumeTimes I?, unitMode b?,
        bornHost S!, storeHost S!, storeTimestamp l!""",
    # 2.3, 2.4 Send-back and pull
    Code.CONSUMER_SEND_MSG_BACK: """offset L!, group S!, delayLevel I!, originMsgId S?, originTopic S?, unitMode b?,
        maxReconsumeTimes I?, bname S?""",
    Code.PULL_MESSAGE: _PULL,
    Code.LITE_PULL_MESSAGE: _PULL,
    # Of RocketMQ 5
    Code.RECALL_MESSAGE: "topic S!, recallHandle S!, producerGroup S?, bname S?",
    # 2.5 Heart-beats
    Code.UNREGISTER_CLIENT: "clientID S!, producerGroup S?, consumerGroup S?, bname S?",
    # 2.6 Consumer management
    Code.GET_CONSUMER_LIST_BY_GROUP: "consumerGroup S!, bname S?",
    Code.QUERY_CONSUMER_OFFSET: "consumerGroup S!, topic S!, queueId I!, bname S?, setZeroIfNotFound B?",
    Code.UPDATE_CONSUMER_OFFSET: "consumerGroup S!, topic S!, queueId I!, commitOffset L!, bname S?",
    Code.SEARCH_OFFSET_BY_TIMESTAMP: "topic S!, queueId I!, timestamp L!, bname S?, boundaryType S?",
    Code.GET_MAX_OFFSET: _QUEUE,
    Code.GET_MIN_OFFSET: _QUEUE,
    Code.GET_EARLIEST_MSG_STORETIME: _QUEUE,
    # 2.7 Transactions
    Code.END_TRANSACTION: """producerGroup S!, tranStateTableOffset L!, commitLogOffset L!, commitOrRollback I!,
        fromTransactionCheck B?, msgId S!, transactionId S?, bname S?, topic S?""",
    Code.CHECK_TRANSACTION_STATE: """tranStateTableOffset L!, commitLogOffset L!, msgId S?, transactionId S?,
        offsetMsgId S?, bname S?, topic S?""",
    Code.RESUME_CHECK_HALF_MESSAGE: "msgId S?, bname S?",
    # 2.8 Callbacks and their triggers
    Code.NOTIFY_CONSUMER_IDS_CHANGED: "consumerGroup S!",
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _RESET,
    Code.RESET_CONSUMER_CLIENT_OFFSET: _RESET,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _CONSUMER_STATUS,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: _CONSUMER_STATUS,
    Code.GET_CONSUMER_RUNNING_INFO: "consumerGroup S!, clientId S!, jstackEnable b?",
    Code.CONSUME_MESSAGE_DIRECTLY: """consumerGroup S!, clientId S?, msgId S?, brokerName S?, topic S?,
        topicSysFlag I?, groupSysFlag I?""",
    # 2.9 Queries
    Code.QUERY_MESSAGE: """topic S!, key S!, maxNum I!, beginTimestamp L!, endTimestamp L!, _UNIQUE_KEY_QUERY S?,
        bname S?""",
    Code.VIEW_MESSAGE_BY_ID: "offset L!, bname S?, topic S?",
    # 2.10 Topics, groups, statistics, configuration
    Code.UPDATE_AND_CREATE_TOPIC: """topic S!, defaultTopic S!, readQueueNums I!, writeQueueNums I!, perm I!,
        topicFilterType S!, topicSysFlag I?, order B!, attributes S?, force B?, bname S?""",
    Code.DELETE_TOPIC_IN_BROKER: "topic S!, bname S?",
    Code.DELETE_SUBSCRIPTIONGROUP: "groupName S!, removeOffset b?, cleanOffset B?, bname S?",
    Code.GET_TOPIC_STATS_INFO: "topic S!, bname S?",
    Code.GET_CONSUMER_CONNECTION_LIST: "consumerGroup S!, bname S?",
    Code.GET_PRODUCER_CONNECTION_LIST: "producerGroup S!, bname S?",
    Code.GET_ALL_PRODUCER_INFO: "",
    Code.GET_CONSUME_STATS: "consumerGroup S!, topic S?, topicList S?, bname S?",
    Code.GET_BROKER_CONSUME_STATS: "isOrder b!",
    Code.QUERY_TOPIC_CONSUME_BY_WHO: "topic S!, bname S?",
    Code.QUERY_CONSUME_TIME_SPAN: "topic S!, group S!, bname S?",
    Code.QUERY_CORRECTION_OFFSET: "filterGroups S?, compareGroup S!, topic S!, bname S?",
    Code.CLONE_GROUP_OFFSET: "srcGroup S!, destGroup S!, topic S?, offline b?, bname S?",
    Code.VIEW_BROKER_STATS_DATA: "statsName S!, statsKey S!",
    Code.QUERY_CONSUME_QUEUE: "topic S?, queueId i?, index l?, count i?, consumerGroup S?, bname S?",
    Code.GET_TOPIC_CONFIG: "topic S!, lo B?, bname S?",
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: "group S!, bname S?",
    Code.QUERY_TOPICS_BY_CONSUMER: "group S!, bname S?",
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: "group S!, topic S!, bname S?",
    # 6.4 Access control
    Code.UPDATE_AND_CREATE_ACL_CONFIG: """accessKey S!, secretKey S?, whiteRemoteAddress S?, admin b?,
        defaultTopicPerm S?, defaultGroupPerm S?, topicPerms S?, groupPerms S?""",
    Code.DELETE_ACL_CONFIG: "accessKey S!",
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: "globalWhiteAddrs S!, aclFileFullPath S?",
    # Of mqcore. Texts, where a wrong one must not read as false. RocketMQ's runtime table is asked for without details.
    Code.GET_BROKER_RUNTIME_INFO: "details S?",
    Code.CHANGE_FAILOVER_GROUP: "action S!, member I!, epoch L!, dryRun S!",
    # 3 Name server
    Code.PUT_KV_CONFIG: f"{_KEY}, value S!",
    Code.GET_KV_CONFIG: _KEY,
    Code.DELETE_KV_CONFIG: _KEY,
    Code.GET_KVLIST_BY_NAMESPACE: "namespace S!",
    Code.REGISTER_BROKER: """brokerName S!, brokerAddr S!, clusterName S!, haServerAddr S!, brokerId L!, compressed b?,
        bodyCrc32 I?, heartbeatTimeoutMillis L?, enableActingMaster B?""",
    Code.UNREGISTER_BROKER: _BROKER,
    Code.QUERY_DATA_VERSION: _BROKER,
    Code.GET_ROUTEINFO_BY_TOPIC: "topic S!, acceptStandardJsonOnly B?",
    Code.WIPE_WRITE_PERM_OF_BROKER: "brokerName S!",
    Code.ADD_WRITE_PERM_OF_BROKER: "brokerName S!",
    Code.GET_TOPICS_BY_CLUSTER: "cluster S!",
    Code.DELETE_TOPIC_IN_NAMESRV: "topic S!, clusterName S?",
}

_SEND_RESPONSE = "msgId S!, queueId I!, queueOffset L!, transactionId S?, MSG_REGION S?, TRACE_ON S?"
_PULL_RESPONSE = "suggestWhichBrokerId L!, nextBeginOffset L!, minOffset L!, maxOffset L!"
_OFFSET_RESPONSE = "offset L!"

_RESPONSE_ROWS: Final[dict[Code, str]] = {
    Code.SEND_MESSAGE: _SEND_RESPONSE,
    Code.SEND_MESSAGE_V2: _SEND_RESPONSE,
    Code.SEND_BATCH_MESSAGE: _SEND_RESPONSE,
    Code.SEND_REPLY_MESSAGE: _SEND_RESPONSE,
    Code.SEND_REPLY_MESSAGE_V2: _SEND_RESPONSE,
    Code.PULL_MESSAGE: _PULL_RESPONSE,
    Code.LITE_PULL_MESSAGE: _PULL_RESPONSE,
    Code.UNREGISTER_CLIENT: "",
    Code.GET_CONSUMER_LIST_BY_GROUP: "",
    Code.QUERY_CONSUMER_OFFSET: _OFFSET_RESPONSE,
    Code.UPDATE_CONSUMER_OFFSET: "",
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _OFFSET_RESPONSE,
    Code.GET_MAX_OFFSET: _OFFSET_RESPONSE,
    Code.GET_MIN_OFFSET: _OFFSET_RESPONSE,
    Code.GET_EARLIEST_MSG_STORETIME: "timestamp L!",
    Code.QUERY_MESSAGE: "indexLastUpdateTimestamp L!, indexLastUpdatePhyoffset L!",
    Code.GET_ALL_TOPIC_CONFIG: "",
    Code.GET_BROKER_CONFIG: "version S!",
    Code.GET_BROKER_CLUSTER_ACL_INFO: """version S!, allAclFileVersion S?, brokerName S!, brokerAddr S!,
        clusterName S!""",
    Code.GET_KV_CONFIG: "value S?",
    Code.REGISTER_BROKER: "haServerAddr S?, masterAddr S?",
    Code.QUERY_DATA_VERSION: "changed B!",
    Code.WIPE_WRITE_PERM_OF_BROKER: "wipeTopicCount I!",
    Code.ADD_WRITE_PERM_OF_BROKER: "addTopicCount I!",
}

REQUEST_HEADERS: Final[dict[int, Header]] = {
    code: _header(f"{code.name} request", rows) for code, rows in _REQUEST_ROWS.items()
}
"""By request code. A code that is missing here has no ext fields."""

RESPONSE_HEADERS: Final[dict[int, Header]] = {
    code: _header(f"{code.name} response", rows) for code, rows in _RESPONSE_ROWS.items()
}
"""By the code of the request that is answered."""


def decode_request(code: int, ext_fields: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the values of a request's header, an empty dict if the code has none; see ``Header.decode``."""
    header = REQUEST_HEADERS.get(code)
    return {} if header is None else header.decode(ext_fields)


def encode_request(code: int, **values: Any) -> dict[str, str]:
    """Return the ext fields of a request; see ``Header.encode``."""
    return REQUEST_HEADERS[code].encode(values)


def decode_response(code: int, ext_fields: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the values of the header of the response to a request with *code*; see ``Header.decode``."""
    header = RESPONSE_HEADERS.get(code)
    return {} if header is None else header.decode(ext_fields)


def encode_response(code: int, **values: Any) -> dict[str, str]:
    """Return the ext fields of the response to a request with *code*; see ``Header.encode``."""
    return RESPONSE_HEADERS[code].encode(values)
