"""The tables of request and response headers: the same fields as Java's classes, and strict about what they hold."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_golden import GOLDEN, rows

from mqcore.codes import RequestCode
from mqcore.errors import HeaderError
from mqcore.protocol.headers import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    FieldType,
    Header,
    HeaderField,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tests.rows import walked

SEND = "SendMessageRequestHeader"
SEND_V2 = "SendMessageRequestHeaderV2"
PULL = "PullMessageRequestHeader"
RESET = "ResetOffsetRequestHeader"
STATUS = "GetConsumerStatusRequestHeader"

REQUEST_CLASSES = {
    RequestCode.SEND_MESSAGE: SEND,
    RequestCode.SEND_MESSAGE_V2: SEND_V2,
    RequestCode.SEND_BATCH_MESSAGE: SEND_V2,
    RequestCode.SEND_REPLY_MESSAGE: SEND,
    RequestCode.SEND_REPLY_MESSAGE_V2: SEND_V2,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: "ReplyMessageRequestHeader",
    RequestCode.CONSUMER_SEND_MSG_BACK: "ConsumerSendMsgBackRequestHeader",
    RequestCode.PULL_MESSAGE: PULL,
    RequestCode.LITE_PULL_MESSAGE: PULL,
    RequestCode.UNREGISTER_CLIENT: "UnregisterClientRequestHeader",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "GetConsumerListByGroupRequestHeader",
    RequestCode.QUERY_CONSUMER_OFFSET: "QueryConsumerOffsetRequestHeader",
    RequestCode.UPDATE_CONSUMER_OFFSET: "UpdateConsumerOffsetRequestHeader",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "SearchOffsetRequestHeader",
    RequestCode.GET_MAX_OFFSET: "GetMaxOffsetRequestHeader",
    RequestCode.GET_MIN_OFFSET: "GetMinOffsetRequestHeader",
    RequestCode.GET_EARLIEST_MSG_STORETIME: "GetEarliestMsgStoretimeRequestHeader",
    RequestCode.END_TRANSACTION: "EndTransactionRequestHeader",
    RequestCode.CHECK_TRANSACTION_STATE: "CheckTransactionStateRequestHeader",
    RequestCode.RESUME_CHECK_HALF_MESSAGE: "ResumeCheckHalfMessageRequestHeader",
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: "NotifyConsumerIdsChangedRequestHeader",
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: RESET,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: RESET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: STATUS,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: STATUS,
    RequestCode.GET_CONSUMER_RUNNING_INFO: "GetConsumerRunningInfoRequestHeader",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "ConsumeMessageDirectlyResultRequestHeader",
    RequestCode.QUERY_MESSAGE: "QueryMessageRequestHeader",
    RequestCode.VIEW_MESSAGE_BY_ID: "ViewMessageRequestHeader",
    RequestCode.UPDATE_AND_CREATE_TOPIC: "CreateTopicRequestHeader",
    RequestCode.DELETE_TOPIC_IN_BROKER: "DeleteTopicRequestHeader",
    RequestCode.DELETE_SUBSCRIPTIONGROUP: "DeleteSubscriptionGroupRequestHeader",
    RequestCode.GET_TOPIC_STATS_INFO: "GetTopicStatsInfoRequestHeader",
    RequestCode.GET_CONSUMER_CONNECTION_LIST: "GetConsumerConnectionListRequestHeader",
    RequestCode.GET_PRODUCER_CONNECTION_LIST: "GetProducerConnectionListRequestHeader",
    RequestCode.GET_ALL_PRODUCER_INFO: "GetAllProducerInfoRequestHeader",
    RequestCode.GET_CONSUME_STATS: "GetConsumeStatsRequestHeader",
    RequestCode.GET_BROKER_CONSUME_STATS: "GetConsumeStatsInBrokerHeader",
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: "QueryTopicConsumeByWhoRequestHeader",
    RequestCode.QUERY_CONSUME_TIME_SPAN: "QueryConsumeTimeSpanRequestHeader",
    RequestCode.QUERY_CORRECTION_OFFSET: "QueryCorrectionOffsetHeader",
    RequestCode.CLONE_GROUP_OFFSET: "CloneGroupOffsetRequestHeader",
    RequestCode.VIEW_BROKER_STATS_DATA: "ViewBrokerStatsDataRequestHeader",
    RequestCode.QUERY_CONSUME_QUEUE: "QueryConsumeQueueRequestHeader",
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: "CreateAccessConfigRequestHeader",
    RequestCode.DELETE_ACL_CONFIG: "DeleteAccessConfigRequestHeader",
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: "UpdateGlobalWhiteAddrsConfigRequestHeader",
    RequestCode.PUT_KV_CONFIG: "PutKVConfigRequestHeader",
    RequestCode.GET_KV_CONFIG: "GetKVConfigRequestHeader",
    RequestCode.DELETE_KV_CONFIG: "DeleteKVConfigRequestHeader",
    RequestCode.GET_KVLIST_BY_NAMESPACE: "GetKVListByNamespaceRequestHeader",
    RequestCode.REGISTER_BROKER: "RegisterBrokerRequestHeader",
    RequestCode.UNREGISTER_BROKER: "UnRegisterBrokerRequestHeader",
    RequestCode.QUERY_DATA_VERSION: "QueryDataVersionRequestHeader",
    RequestCode.GET_ROUTEINFO_BY_TOPIC: "GetRouteInfoRequestHeader",
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: "WipeWritePermOfBrokerRequestHeader",
    RequestCode.ADD_WRITE_PERM_OF_BROKER: "AddWritePermOfBrokerRequestHeader",
    RequestCode.GET_TOPICS_BY_CLUSTER: "GetTopicsByClusterRequestHeader",
    RequestCode.DELETE_TOPIC_IN_NAMESRV: "DeleteTopicFromNamesrvRequestHeader",
}
RESPONSE_CLASSES = {
    RequestCode.SEND_MESSAGE: "SendMessageResponseHeader",
    RequestCode.SEND_MESSAGE_V2: "SendMessageResponseHeader",
    RequestCode.SEND_BATCH_MESSAGE: "SendMessageResponseHeader",
    RequestCode.SEND_REPLY_MESSAGE: "SendMessageResponseHeader",
    RequestCode.SEND_REPLY_MESSAGE_V2: "SendMessageResponseHeader",
    RequestCode.PULL_MESSAGE: "PullMessageResponseHeader",
    RequestCode.LITE_PULL_MESSAGE: "PullMessageResponseHeader",
    RequestCode.UNREGISTER_CLIENT: "UnregisterClientResponseHeader",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "GetConsumerListByGroupResponseHeader",
    RequestCode.QUERY_CONSUMER_OFFSET: "QueryConsumerOffsetResponseHeader",
    RequestCode.UPDATE_CONSUMER_OFFSET: "UpdateConsumerOffsetResponseHeader",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "SearchOffsetResponseHeader",
    RequestCode.GET_MAX_OFFSET: "GetMaxOffsetResponseHeader",
    RequestCode.GET_MIN_OFFSET: "GetMinOffsetResponseHeader",
    RequestCode.GET_EARLIEST_MSG_STORETIME: "GetEarliestMsgStoretimeResponseHeader",
    RequestCode.QUERY_MESSAGE: "QueryMessageResponseHeader",
    RequestCode.GET_ALL_TOPIC_CONFIG: "GetAllTopicConfigResponseHeader",
    RequestCode.GET_BROKER_CONFIG: "GetBrokerConfigResponseHeader",
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: "GetBrokerAclConfigResponseHeader",
    RequestCode.GET_KV_CONFIG: "GetKVConfigResponseHeader",
    RequestCode.REGISTER_BROKER: "RegisterBrokerResponseHeader",
    RequestCode.QUERY_DATA_VERSION: "QueryDataVersionResponseHeader",
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: "WipeWritePermOfBrokerResponseHeader",
    RequestCode.ADD_WRITE_PERM_OF_BROKER: "AddWritePermOfBrokerResponseHeader",
}
JAVA_TYPES = {
    "String": ("S", False),
    "Integer": ("I", False),
    "int": ("I", True),
    "Long": ("L", False),
    "long": ("L", True),
    "Boolean": ("B", False),
    "boolean": ("B", True),
}
# What our tables have beyond the 4.9.8 classes: fields of 5.x, and loose entries that no class declares.
LATER = {
    "maxMsgBytes", "setZeroIfNotFound", "boundaryType", "topic", "topicSysFlag", "groupSysFlag", "queueId", "offset",
    "attributes", "force", "cleanOffset", "topicList", "heartbeatTimeoutMillis", "enableActingMaster",
    "_UNIQUE_KEY_QUERY", "bname", "MSG_REGION", "TRACE_ON",
}  # fmt: skip
ALL = [
    *((REQUEST_HEADERS[code], REQUEST_CLASSES.get(code)) for code in REQUEST_HEADERS),
    *((RESPONSE_HEADERS[code], RESPONSE_CLASSES.get(code)) for code in RESPONSE_HEADERS),
]
EVERY_HEADER = [pytest.param(header, id=header.name) for header, _ in ALL]
JAVA_CASES = [pytest.param(header, java, id=header.name) for header, java in ALL if java is not None]


def java_fields(name: str) -> dict[str, tuple[str, bool, bool]]:
    """Field name -> type letter, is primitive, is required, as the Java class declares them."""
    fields: dict[str, tuple[str, bool, bool]] = {}
    for field in filter(None, GOLDEN[f"header.{name}"].decode().split(",")):
        wire_name, kind, mark = re.fullmatch(r"(\w+) (\w+)([!?])", field).groups()  # type: ignore[union-attr]
        fields[wire_name] = (*JAVA_TYPES[kind], mark == "!")
    return fields


def test_every_header_but_those_of_release_5_and_ours_has_a_java_class() -> None:
    of_release_5 = {
        RequestCode.GET_TOPIC_CONFIG, RequestCode.RECALL_MESSAGE, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.QUERY_TOPICS_BY_CONSUMER, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    }  # fmt: skip
    ours = {RequestCode.CHANGE_FAILOVER_GROUP, RequestCode.GET_BROKER_RUNTIME_INFO}
    assert set(REQUEST_HEADERS) - set(REQUEST_CLASSES) == of_release_5 | ours
    assert set(RESPONSE_HEADERS) == set(RESPONSE_CLASSES)
    named = {f"header.{name}" for name in (*REQUEST_CLASSES.values(), *RESPONSE_CLASSES.values())}
    assert named == set(rows("header."))


@walked("header, java", JAVA_CASES)
def test_header_has_the_fields_of_its_java_class(header: Header, java: str) -> None:
    ours = {field.wire_name: (field.type.value, field.is_primitive, field.is_required) for field in header.fields}
    theirs = java_fields(java)
    for name, (letter, is_primitive, is_required) in theirs.items():
        if name == "bname" and name not in ours:
            continue  # the short-named send header carries it as n
        if (java, name) == ("UpdateGlobalWhiteAddrsConfigRequestHeader", "aclFileFullPath"):
            is_required = False  # senders leave it out, and the broker takes its default file
        if (java, name) == ("QueryCorrectionOffsetHeader", "filterGroups"):
            is_required = False
        assert ours.get(name) == (letter, is_primitive, is_required), name
    assert set(ours) - set(theirs) <= LATER


def values_of(field: HeaderField) -> st.SearchStrategy[Any]:
    strategy: st.SearchStrategy[Any] = {
        FieldType.STRING: st.text(max_size=10),
        FieldType.INT: st.integers(-(2**31), 2**31 - 1),
        FieldType.LONG: st.integers(-(2**63), 2**63 - 1),
        FieldType.BOOLEAN: st.booleans(),
    }[field.type]
    return strategy if field.is_required or field.is_primitive else st.none() | strategy


def header_values(header: Header) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: values_of(field) for field in header.fields})


@given(st.data())
def test_headers_read_back(data: st.DataObject) -> None:
    header = data.draw(st.sampled_from([header for header, _ in ALL]))
    values = data.draw(header_values(header))
    ext_fields = header.encode(values)
    assert header.decode(ext_fields) == values
    assert set(ext_fields) == {field.wire_name for field in header.fields if values[field.name] is not None}


def sample(field: HeaderField) -> Any:
    return {FieldType.STRING: "x", FieldType.INT: 1, FieldType.LONG: 2**40, FieldType.BOOLEAN: True}[field.type]


@walked("header", EVERY_HEADER)
def test_each_missing_required_field_is_named(header: Header) -> None:
    complete = {field.name: sample(field) for field in header.fields}
    ext_fields = header.encode(complete)
    for field in header.fields:
        without = {name: text for name, text in ext_fields.items() if name != field.wire_name}
        values = {name: value for name, value in complete.items() if name != field.name}
        if field.is_required and not field.is_primitive:
            with pytest.raises(HeaderError, match=f"header field {field.wire_name}: got nothing, wanted"):
                header.decode(without)
            with pytest.raises(HeaderError, match=f"header field {field.wire_name}: got nothing, wanted"):
                header.encode(values)
        else:
            assert header.decode(without)[field.name] == field.default
            assert header.decode(header.encode(values))[field.name] == field.default


@walked("header", EVERY_HEADER)
def test_each_number_must_be_one_and_fit(header: Header) -> None:
    ext_fields = header.encode({field.name: sample(field) for field in header.fields})
    for field in header.fields:
        if field.type not in (FieldType.INT, FieldType.LONG):
            continue
        limit = 2**31 if field.type is FieldType.INT else 2**63
        for text in ("", "x", "1.0", "1_0", " 1", "٣", "--1", str(limit), str(-limit - 1), "9" * 30):
            with pytest.raises(HeaderError, match=f"header field {field.wire_name}: got .*, wanted a .*-bit integer"):
                header.decode(ext_fields | {field.wire_name: text})
        for number in (limit - 1, -limit):
            assert header.decode(ext_fields | {field.wire_name: str(number)})[field.name] == number
        assert header.decode(ext_fields | {field.wire_name: "+7"})[field.name] == 7


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("1", False), ("", False)]
)
def test_booleans_read_as_java_reads_them(text: str, value: bool) -> None:
    ext_fields = {"topic": "T", "acceptStandardJsonOnly": text}
    assert decode_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields)["accept_standard_json_only"] is value


@pytest.mark.parametrize(
    ("name", "value"), [("topic", 5), ("queue_id", "5"), ("queue_id", True), ("queue_id", 2**31), ("queue_id", 1.0)]
)
def test_values_of_the_wrong_type_are_not_written(name: str, value: Any) -> None:
    values = {"topic": "T", "queue_id": 0} | {name: value}
    with pytest.raises(HeaderError, match="wanted a"):
        encode_request(RequestCode.GET_MAX_OFFSET, **values)


def test_a_value_without_a_field_is_not_written() -> None:
    with pytest.raises(HeaderError, match="queueId"):
        encode_request(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0)
    with pytest.raises(HeaderError, match="typo"):
        encode_request(RequestCode.GET_MAX_OFFSET, topic="T", queue_id=0, typo=1)


def test_long_and_short_names_of_a_send_mean_the_same() -> None:
    long_names = REQUEST_HEADERS[RequestCode.SEND_MESSAGE]
    short_names = REQUEST_HEADERS[RequestCode.SEND_MESSAGE_V2]
    assert {field.name for field in long_names.fields} == {field.name for field in short_names.fields}
    values = {field.name: sample(field) for field in long_names.fields}
    assert short_names.decode(short_names.encode(values)) == long_names.decode(long_names.encode(values))
    assert "".join(short_names.encode(values)) == "abcdefghijklmn"


def test_java_primitives_are_always_written() -> None:
    assert encode_request(RequestCode.CLONE_GROUP_OFFSET, src_group="a", dest_group="b")["offline"] == "false"


def test_unknown_ext_fields_are_ignored() -> None:
    ext_fields = {"offset": "7", "AccessKey": "k", "ReqT": "0"}
    assert decode_response(RequestCode.GET_MAX_OFFSET, ext_fields) == {"offset": 7}


def test_a_header_object_without_values_is_empty_and_not_absent() -> None:
    assert encode_response(RequestCode.UNREGISTER_CLIENT) == {}
    assert RequestCode.HEART_BEAT not in RESPONSE_HEADERS
    assert decode_request(RequestCode.HEART_BEAT, None) == {}


def test_a_header_without_ext_fields_lacks_its_required_fields() -> None:
    with pytest.raises(HeaderError, match="consumerGroup"):
        decode_request(RequestCode.PULL_MESSAGE, None)
