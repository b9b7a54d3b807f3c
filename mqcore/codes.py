"""Every number that the remoting protocol gives a name: codes, languages, versions and flag bits.

Values are RocketMQ 4.9.8's; the numbers that only 5.x peers use stand apart, so that a log line can name them. Nothing
here depends on anything else in the package.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class SerializeType(IntEnum):
    """How the header of one frame is written: the top byte of the header mark."""

    JSON = 0
    ROCKETMQ = 1


class RequestCode(IntEnum):
    """What a request asks for. Source: RocketMQ common/protocol/RequestCode.java (4.9.8), remoting/protocol (5.3.3)."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_BROKER_OFFSET = 13
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    GET_TOPIC_CONFIG_LIST = 22
    GET_TOPIC_NAME_LIST = 23
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    TRIGGER_DELETE_FILES = 27
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_BROKER_CLUSTER_ACL_CONFIG = 54
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    SUSPEND_CONSUMER = 209
    RESUME_CONSUMER = 210
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211
    RESET_CONSUMER_OFFSET_IN_BROKER = 212
    ADJUST_CONSUMER_THREAD_POOL = 213
    WHO_CONSUME_THE_MESSAGE = 214
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    REGISTER_FILTER_SERVER = 301
    REGISTER_MESSAGE_FILTER_CLASS = 302
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329

    # 5.x only. Some are served (broker/processors/table.py); the rest are named so that a refusal can say what it was.
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_CLIENT_CONFIG = 47
    GET_TIMER_CHECK_POINT = 60
    GET_TIMER_METRICS = 61
    REGISTER_TOPIC_IN_NAMESRV = 217
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    UPDATE_AND_CREATE_STATIC_TOPIC = 513
    GET_BROKER_MEMBER_GROUP = 901
    ADD_BROKER = 902
    REMOVE_BROKER = 903
    BROKER_HEARTBEAT = 904
    NOTIFY_MIN_BROKER_ID_CHANGE = 905
    EXCHANGE_BROKER_HA_INFO = 906
    GET_BROKER_HA_STATUS = 907
    RESET_MASTER_FLUSH_OFFSET = 908
    CONTROLLER_ALTER_SYNC_STATE_SET = 1001
    CONTROLLER_ELECT_MASTER = 1002
    CONTROLLER_REGISTER_BROKER = 1003
    CONTROLLER_GET_REPLICA_INFO = 1004
    CONTROLLER_GET_METADATA_INFO = 1005
    CONTROLLER_GET_SYNC_STATE_DATA = 1006
    GET_BROKER_EPOCH_CACHE = 1007
    NOTIFY_BROKER_ROLE_CHANGED = 1008
    UPDATE_CONTROLLER_CONFIG = 1009
    GET_CONTROLLER_CONFIG = 1010
    CLEAN_BROKER_DATA = 1011
    CONTROLLER_GET_NEXT_BROKER_ID = 1012
    CONTROLLER_APPLY_BROKER_ID = 1013
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002
    GET_COLD_DATA_FLOW_CTR_INFO = 2003
    SET_COMMITLOG_READ_MODE = 2004
    AUTH_CREATE_USER = 3001
    AUTH_UPDATE_USER = 3002
    AUTH_DELETE_USER = 3003
    AUTH_GET_USER = 3004
    AUTH_LIST_USER = 3005
    AUTH_CREATE_ACL = 3006
    AUTH_UPDATE_ACL = 3007
    AUTH_DELETE_ACL = 3008
    AUTH_GET_ACL = 3009
    AUTH_LIST_ACL = 3010
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    POP_ROLLBACK = 200056
    BATCH_ACK_MESSAGE = 200151

    # Of mqcore alone: a number that no release of RocketMQ has, and that fits into the 16 bits of a binary header.
    CHANGE_FAILOVER_GROUP = 29001


class ResponseCode(IntEnum):
    """What a response says. Source: RocketMQ RemotingSysResponseCode.java and ResponseCode.java."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209
    DELETE_ACL_CONFIG_FAILED = 210
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    FLOW_CONTROL = 215

    # 5.x. The first three share their numbers with the ACL codes above, so IntEnum makes them aliases.
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    INVALID_PARAMETER = 29
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500
    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002


STORED_CODES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
"""Answers to a send that mean a place in the queue."""

PULL_CODES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Answers to a pull that say where to go on."""


class ClientErrorCode(IntEnum):
    """Codes that a client gives its own failures; they never travel. Source: RocketMQ ClientErrorCode.java."""

    CONNECT_BROKER_EXCEPTION = 10001
    ACCESS_BROKER_TIMEOUT = 10002
    BROKER_NOT_EXIST_EXCEPTION = 10003
    NO_NAME_SERVER_EXCEPTION = 10004
    NOT_FOUND_TOPIC_EXCEPTION = 10005
    REQUEST_TIMEOUT_EXCEPTION = 10006
    CREATE_REPLY_MESSAGE_EXCEPTION = 10007


class LanguageCode(IntEnum):
    """The sender's language. UNKNOWN stands for Java's null: a name or number that 4.9.8 does not know."""

    UNKNOWN = -1
    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13

    @classmethod
    def _missing_(cls, value: object) -> LanguageCode:
        return cls.UNKNOWN


class RemotingFlag(IntFlag):
    """Bits of the header's ``flag``."""

    RESPONSE = 1
    ONEWAY = 2


class SysFlag(IntFlag):
    """Bits of a message's sysFlag. Source: RocketMQ common/sysflag/MessageSysFlag.java."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORNHOST_V6 = 0x10
    STOREHOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300


TRANSACTION_MASK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
"""The two bits that hold the transaction state."""

COMPRESSION_TYPE_MASK: Final = 0x700
"""The three bits that hold the compression type."""


class PullSysFlag(IntFlag):
    """Bits of a pull request's sysFlag. Source: RocketMQ common/sysflag/PullSysFlag.java."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class TopicSysFlag(IntFlag):
    """Bits of a topic's topicSysFlag. Source: RocketMQ common/sysflag/TopicSysFlag.java."""

    UNIT = 1
    UNIT_SUB = 2


class PermName:
    """Permission bits of a topic or a broker. Source: RocketMQ common/constant/PermName.java."""

    INHERIT: Final = 1
    WRITE: Final = 2
    READ: Final = 4
    PRIORITY: Final = 8

    @staticmethod
    def is_readable(perm: int) -> bool:
        return perm & PermName.READ == PermName.READ

    @staticmethod
    def is_writeable(perm: int) -> bool:
        return perm & PermName.WRITE == PermName.WRITE

    @staticmethod
    def is_inherited(perm: int) -> bool:
        return perm & PermName.INHERIT == PermName.INHERIT

    @staticmethod
    def to_text(perm: int) -> str:
        """Return the three letters that the tools print, such as ``RW-``. The priority bit has no letter."""
        letters = ((PermName.READ, "R"), (PermName.WRITE, "W"), (PermName.INHERIT, "X"))
        return "".join(letter if perm & bit else "-" for bit, letter in letters)


def _version_names() -> tuple[str, ...]:
    """Spell MQVersion's enum: sixteen irregular names, then a snapshot and a release for every patch."""
    betas = ("V3_0_0_BETA6", "V3_0_0_BETA7", "V3_0_0_BETA8", "V3_0_0_BETA9")
    names = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", *(f"V3_0_0_BETA{number}" for number in range(1, 6))]
    names += [text for beta in betas for text in (f"{beta}_SNAPSHOT", beta)]
    names.append("V3_0_0_FINAL")
    lines = [("3_0", 1, 15), ("3_1", 0, 9), ("3_2", 0, 9)]
    lines += [(f"3_{minor}", 1, 9) for minor in range(3, 10)]
    lines += [(f"{major}_{minor}", 0, 9) for major in (4, 5) for minor in range(10)]
    for line, first, last in lines:
        for patch in range(first, last + 1):
            names += [f"V{line}_{patch}_SNAPSHOT", f"V{line}_{patch}"]
    names.append("HIGHER_VERSION")
    return tuple(names)


VERSION_NAMES: Final = _version_names()
"""MQVersion's names; the position of a name is its value on the wire."""

VERSION_ORDINALS: Final = {name: ordinal for ordinal, name in enumerate(VERSION_NAMES)}


def version_name(ordinal: int) -> str:
    """Return MQVersion's name of *ordinal*; one past the list reads HIGHER_VERSION, a negative one V3_0_0_SNAPSHOT."""
    return VERSION_NAMES[max(0, min(ordinal, len(VERSION_NAMES) - 1))]


class MQVersion:
    """The ordinals at which peers change their behaviour. Source: RocketMQ common/MQVersion.java."""

    V3_0_7_SNAPSHOT: Final = VERSION_ORDINALS["V3_0_7_SNAPSHOT"]  # a client can take a reset-offset push
    V3_0_11: Final = VERSION_ORDINALS["V3_0_11"]  # registration carries a data version
    V3_1_8_SNAPSHOT: Final = VERSION_ORDINALS["V3_1_8_SNAPSHOT"]  # a client can report its running info
    V3_4_9: Final = VERSION_ORDINALS["V3_4_9"]  # maxReconsumeTimes of the send header is honoured
    V4_1_0_SNAPSHOT: Final = VERSION_ORDINALS["V4_1_0_SNAPSHOT"]  # a broker can filter by SQL92
    V4_9_3: Final = VERSION_ORDINALS["V4_9_3"]
    V4_9_4: Final = VERSION_ORDINALS["V4_9_4"]  # a client reads strict route JSON
    V4_9_8: Final = VERSION_ORDINALS["V4_9_8"]
    V5_0_0: Final = VERSION_ORDINALS["V5_0_0"]  # a registration may carry queue mappings
    HIGHER_VERSION: Final = VERSION_ORDINALS["HIGHER_VERSION"]


CURRENT_VERSION: Final = MQVersion.V4_9_8
"""The version that every frame of ours carries."""

# The list above is spelled by rule; these two pin its ends to the values seen on the wire.
assert CURRENT_VERSION == 409
assert MQVersion.HIGHER_VERSION == 612
