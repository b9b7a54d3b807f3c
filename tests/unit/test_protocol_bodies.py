"""JSON bodies: what Java wrote reads into values and writes back to the same bytes; damage is refused by name."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import pytest
from protocol_golden import GOLDEN

from mqcore.codes import LanguageCode
from mqcore.errors import ProtocolError
from mqcore.protocol import bodies, fastjson
from mqcore.protocol.bodies import (
    BrokerData,
    ClientConnection,
    ClusterInfo,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeType,
    DataVersion,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    HeartbeatData,
    JsonBody,
    KVTable,
    LockBatchRequestBody,
    MessageModel,
    OffsetWrapper,
    ProcessQueueInfo,
    ProducerData,
    QueryConsumeTimeSpanBody,
    QueueData,
    QueueTimeSpan,
    RegisterBrokerBody,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
    body_crc32,
)
from mqcore.protocol.message import MessageQueue
from tests.rows import walked

QUEUE = MessageQueue("T", "broker-a", 0)
QUEUES = {QUEUE: 5, MessageQueue("T", "broker-a", 1): 6}

EVERY_BODY = [
    body
    for body in vars(bodies).values()
    if isinstance(body, type) and issubclass(body, JsonBody) and body is not JsonBody
]
GOLDEN_BODIES = [
    (name, body)
    for body in EVERY_BODY
    for name in GOLDEN
    if name == body.__name__ or name.startswith(f"{body.__name__}.")
]
JSON_BODIES = [
    pytest.param(name, body, id=name)
    for name, body in GOLDEN_BODIES
    if not name.endswith((".compressed", ".crc32", ".strict", ".pretty"))
]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Times in bodies are spelled in the local zone; Java's were written in UTC."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_every_body_has_bytes_of_java_to_compare_with() -> None:
    parts = {
        "BrokerData", "BrokerStatsItem", "ClientConnection", "ConsumeQueueData", "ConsumeStatus", "ConsumerData",
        "DataVersion", "MessageQueueForC", "OffsetWrapper", "ProcessQueueInfo", "ProducerData", "ProducerInfo",
        "QueueData", "QueueTimeSpan", "SubscriptionData", "TopicConfig", "TopicOffset",
    }  # fmt: skip
    without = {body.__name__ for body in EVERY_BODY} - {name.partition(".")[0] for name in GOLDEN}
    ours = {"SubscriptionConflict"}
    # Compared on the wire, with a broker of that release: tests/compat/test_same_answers.py.
    of_release_5 = {"CreateTopicListRequestBody", "QuerySubscriptionResponseBody", "SubscriptionGroupList"}
    # Parts appear inside others. The delay offsets have the form of the consumer offsets' inner table.
    assert without == parts | ours | of_release_5 | {"DelayOffsetSerializeWrapper"}


@walked("name, body", JSON_BODIES)
def test_bodies_that_java_wrote_read_and_write_back(name: str, body: type[JsonBody]) -> None:
    value = body.decode(GOLDEN[name])
    assert value.encode() == GOLDEN[name]
    assert body.decode(value.encode()) == value


@walked("name, body", JSON_BODIES)
def test_a_body_cut_at_any_byte_is_refused(name: str, body: type[JsonBody]) -> None:
    for cut in range(len(GOLDEN[name])):
        with pytest.raises(ProtocolError):
            body.decode(GOLDEN[name][:cut])


@walked("name, body", JSON_BODIES)
def test_a_body_with_any_changed_byte_is_read_or_refused(name: str, body: type[JsonBody]) -> None:
    for at in range(len(GOLDEN[name])):
        for change in (0x01, 0x80):
            damaged = bytearray(GOLDEN[name])
            damaged[at] ^= change
            try:
                body.decode(damaged)
            except ProtocolError:
                pass


@walked("body", EVERY_BODY)
@walked("text", [b"[]", b"7", b'"x"', b"", b"null"])
def test_a_body_that_is_no_object_is_refused(body: type[JsonBody], text: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"{body.__name__}: got .*, wanted an object"):
        body.decode(text)


@walked("body", EVERY_BODY)
def test_unknown_and_null_members_are_ignored(body: type[JsonBody]) -> None:
    members: dict[str, Any] = {member.name: None for member in body.members()} | {"addedLater": [1]}
    if "messageQueue" in members:
        members["messageQueue"] = QUEUE.to_json()
    empty = {name: value for name, value in members.items() if name == "messageQueue"}
    assert body.from_json(members) == body.from_json(empty)


# Values


SUBSCRIPTION = SubscriptionData.build("TopicT1", "TagA || TagB", sub_version=1795245418616)


def test_a_heartbeat_is_built_as_java_builds_it() -> None:
    consumer = ConsumerData(
        "g_push",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        [SUBSCRIPTION],
    )
    heartbeat = HeartbeatData("192.0.2.2@1#2", [ProducerData("CLIENT_INNER_PRODUCER")], [consumer])
    assert heartbeat.encode() == GOLDEN["HeartbeatData"]
    assert HeartbeatData.decode(GOLDEN["HeartbeatData"]) == heartbeat


def test_a_heartbeat_of_the_cpp_client_is_read() -> None:
    text = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":0,'
        b'"subscriptionDataSet":[{"subString":"*","subVersion":"7","topic":"T"}]}],"heartbeatFingerprint":0}\n'
    )
    consumer = ConsumerData(
        "g",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        [SubscriptionData("T", "*", sub_version=7)],
    )
    assert HeartbeatData.decode(text) == HeartbeatData("c", [], [consumer])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b'{"consumerDataSet":[{"consumeType":"SOMETIMES"}]}', "ConsumerData.consumeType: got 'SOMETIMES'"),
        (b'{"consumerDataSet":[{"messageModel":9}]}', "ConsumerData.messageModel: got 9"),
        (b'{"consumerDataSet":[{"unitMode":[]}]}', r"ConsumerData.unitMode: got \[\]"),
        (b'{"consumerDataSet":{}}', "HeartbeatData.consumerDataSet: got {}, wanted an array"),
        (b'{"consumerDataSet":[7]}', "ConsumerData: got 7, wanted an object"),
        (b'{"consumerDataSet":[{"subscriptionDataSet":[{"subVersion":"x"}]}]}', "SubscriptionData.subVersion: got 'x'"),
        (b'{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":[[]]}]}]}', r"SubscriptionData.codeSet: got \[\]"),
    ],
)
def test_a_wrong_member_is_named(text: bytes, named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        HeartbeatData.decode(text)


def test_an_unknown_language_of_a_connection_is_left_out() -> None:
    text = b'{"clientAddr":"a","clientId":"c","language":"KLINGON","version":1}'
    connection = ClientConnection.decode(text)
    assert connection.language is LanguageCode.UNKNOWN
    assert connection.encode() == b'{"clientAddr":"a","clientId":"c","version":1}'


def test_an_offline_group_has_no_types() -> None:
    assert ConsumerConnection().encode() == b'{"connectionSet":[],"subscriptionTable":{}}'


MQ_KEY = b'{"brokerName":"broker-a","queueId":0,"topic":"T"}'
QUOTED_KEY = fastjson.dumps(MQ_KEY.decode())


@pytest.mark.parametrize("key", [MQ_KEY, QUOTED_KEY], ids=["object", "text"])
def test_tables_by_queue_are_read_with_both_kinds_of_key(key: bytes) -> None:
    assert ResetOffsetBody.decode(b'{"offsetTable":{' + key + b":5}}") == ResetOffsetBody({QUEUE: 5})
    stats = ConsumeStats.decode(b'{"consumeTps":1,"offsetTable":{' + key + b':{"brokerOffset":9}}}')
    assert stats == ConsumeStats({QUEUE: OffsetWrapper(9)}, 1.0)


@pytest.mark.parametrize("key", [b'"T"', b'"[]"', b'"{}"', b'{"topic":"T"}', b"7"])
def test_a_key_that_is_no_queue_is_refused(key: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"ResetOffsetBody.offsetTable: got .*, wanted a message queue"):
        ResetOffsetBody.decode(b'{"offsetTable":{' + key + b":5}}")


@pytest.mark.parametrize("text", [b'{"offsetTable":{0:3,1:6}}', b'{"offsetTable":{"0":3,"1":"6"}}'])
def test_tables_by_number_are_read_with_both_kinds_of_key(text: bytes) -> None:
    table = DelayOffsetSerializeWrapper({0: 3, 1: 6})
    assert DelayOffsetSerializeWrapper.decode(text) == table
    assert table.encode() == b'{"offsetTable":{0:3,1:6}}'


def test_a_key_that_is_no_number_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"DelayOffsetSerializeWrapper.offsetTable: got 'x', wanted an integer"):
        DelayOffsetSerializeWrapper.decode(b'{"offsetTable":{"x":3}}')


def test_offsets_are_pretty_as_in_java_s_file() -> None:
    table = ConsumerOffsetSerializeWrapper({"topic@group": {1: 6, 0: 3}})
    assert table.encode(pretty=True) == GOLDEN["ConsumerOffsetSerializeWrapper.pretty"]


def test_values_of_the_tables_are_those_of_java() -> None:
    assert TopicStatsTable.decode(GOLDEN["TopicStatsTable"]).offset_table == {QUEUE: TopicOffset(1, 9, 1795245418426)}
    stats = ConsumeStats.decode(GOLDEN["ConsumeStats"])
    assert (stats.consume_tps, stats.total_diff()) == (4 / 3, 2)
    assert GetConsumerStatusBody.decode(GOLDEN["GetConsumerStatusBody"]).consumer_table == {"cid": QUEUES}
    info = bodies.ConsumerRunningInfo.decode(GOLDEN["ConsumerRunningInfo"])
    assert info.mq_table == {QUEUE: ProcessQueueInfo()}
    assert info.subscription_set == [SUBSCRIPTION]
    assert info.jstack is None
    assert LockBatchRequestBody.decode(GOLDEN["LockBatchRequestBody"]) == LockBatchRequestBody("g", "c", [QUEUE])


def test_computed_times_are_spelled_as_java_spells_them() -> None:
    span = QueueTimeSpan(QUEUE, 1795245418426, 1795245418999, 1795245418005, 994)
    assert QueryConsumeTimeSpanBody([span]).encode() == GOLDEN["QueryConsumeTimeSpanBody"]


# Subscriptions


def test_tags_of_a_subscription_are_split_and_hashed() -> None:
    assert SUBSCRIPTION.tags_set == {"TagA", "TagB"}
    assert SUBSCRIPTION.code_set == {2598919, 2598920}
    assert SUBSCRIPTION.sub_string == "TagA || TagB"


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_means_everything(expression: str | None) -> None:
    assert SubscriptionData.build("T", expression) == SubscriptionData("T", "*")


def test_a_sql_expression_is_kept() -> None:
    assert SubscriptionData.build("T", "a > 1", "SQL92") == SubscriptionData("T", "a > 1", expression_type="SQL92")


@pytest.mark.parametrize(("expression", "kind"), [("||", None), (" || ", "TAG"), ("", "SQL92"), (None, "SQL92")])
def test_an_expression_that_says_nothing_is_refused(expression: str | None, kind: str | None) -> None:
    with pytest.raises(ProtocolError):
        SubscriptionData.build("T", expression, kind)


# Registration


TOPICS = TopicConfigSerializeWrapper({"T": TopicConfig("T", 8, 8)}, DataVersion(1795245418426, 2))
REGISTRATION = RegisterBrokerBody(TOPICS)


def test_a_registration_is_written_as_java_writes_it() -> None:
    assert REGISTRATION.encode_body(compressed=False) == GOLDEN["RegisterBrokerBody"]
    assert TOPICS.encode(pretty=True) == GOLDEN["TopicConfigSerializeWrapper.pretty"]
    assert body_crc32(GOLDEN["RegisterBrokerBody"]) == int(GOLDEN["RegisterBrokerBody.crc32"])


def test_a_compressed_registration_holds_what_java_s_holds() -> None:
    ours = REGISTRATION.encode_body(compressed=True)
    assert zlib.decompress(ours) == zlib.decompress(GOLDEN["RegisterBrokerBody.compressed"])
    assert RegisterBrokerBody.decode_body(GOLDEN["RegisterBrokerBody.compressed"], compressed=True) == REGISTRATION


def registration_pieces(*topics: str, tail: bytes = b"") -> bytes:
    def sized(text: bytes) -> bytes:
        return len(text).to_bytes(4, "big") + text

    pieces = sized(b'{"counter":2,"timestamp":1795245418426}') + len(topics).to_bytes(4, "big")
    pieces += b"".join(sized(topic.encode()) for topic in topics) + sized(b'["10.0.0.1:1"]') + tail
    return zlib.compress(pieces)


def test_a_compressed_registration_of_5_x_is_read() -> None:
    body = registration_pieces("T 8 8 6 SINGLE_TAG {}", 'U 1 2 4 MULTI_TAG {"a": "b c"}', tail=b"\0\0\0\x02{}")
    found = RegisterBrokerBody.decode_body(body, compressed=True)
    assert found.topic_config_serialize_wrapper.topic_config_table == {
        "T": TopicConfig("T", 8, 8),
        "U": TopicConfig("U", 1, 2, 4, TopicFilterType.MULTI_TAG),
    }
    assert found.filter_server_list == ["10.0.0.1:1"]


def test_a_compressed_registration_that_says_it_is_plain_is_read() -> None:
    body = GOLDEN["RegisterBrokerBody.compressed"]
    assert RegisterBrokerBody.decode_body(body, compressed=False) == REGISTRATION


def test_a_plain_registration_of_5_x_is_read() -> None:
    text = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":'
        b'1795245418426},"mappingDataVersion":{},"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,'
        b'"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}},'
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
    )
    topic = RegisterBrokerBody.decode(text).topic_config_serialize_wrapper.topic_config_table["T"]
    assert topic == dataclasses.replace(TOPICS.topic_config_table["T"], attributes={})


@pytest.mark.parametrize("words", ["", "T", "T 8 8 6", "T 8 8 x SINGLE_TAG", "T 8 8 6 NO_TAG"])
def test_a_registered_topic_of_too_few_words_is_refused(words: str) -> None:
    with pytest.raises(ProtocolError, match="wanted five words"):
        RegisterBrokerBody.decode_body(registration_pieces(words), compressed=True)


def test_a_compressed_registration_cut_at_any_byte_is_refused() -> None:
    whole = GOLDEN["RegisterBrokerBody.compressed"]
    for cut in range(len(whole)):
        with pytest.raises(ProtocolError):
            RegisterBrokerBody.decode_body(whole[:cut], compressed=True)
    pieces = zlib.decompress(whole)
    for cut in range(len(pieces)):
        with pytest.raises(ProtocolError):
            RegisterBrokerBody.decode_body(zlib.compress(pieces[:cut]), compressed=True)


def test_a_compressed_registration_with_any_changed_byte_is_read_or_refused() -> None:
    pieces = zlib.decompress(GOLDEN["RegisterBrokerBody.compressed"])
    for at in range(len(pieces)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(pieces)
            damaged[at] ^= change
            try:
                RegisterBrokerBody.decode_body(zlib.compress(damaged), compressed=True)
            except ProtocolError:
                pass


# Routes


ROUTE = TopicRouteData(
    [QueueData("broker-a", 8, 8)],
    [BrokerData("DefaultCluster", "broker-a", {1: "127.0.0.1:30911", 0: "127.0.0.1:10911"})],
)


@pytest.mark.parametrize(
    ("version", "asks", "name"),
    [
        (317, None, "TopicRouteData"),
        (400, False, "TopicRouteData"),
        (401, None, "TopicRouteData.strict"),
        (479, False, "TopicRouteData.strict"),
        (0, True, "TopicRouteData.strict"),
    ],
)
def test_a_route_has_the_json_that_the_client_can_read(version: int, asks: bool | None, name: str) -> None:
    assert ROUTE.encode_for(version, asks) == GOLDEN[name]
    assert TopicRouteData.decode(GOLDEN[name]) == ROUTE


def test_the_order_of_a_topic_stands_in_its_route() -> None:
    assert dataclasses.replace(ROUTE, order_topic_conf="broker-a:4").encode() == GOLDEN["TopicRouteData.order"]


def test_a_strict_route_is_ascii() -> None:
    route = TopicRouteData(broker_datas=[BrokerData("集群", "a/b", {0: "x", 10: "y", 9: "z"})])
    assert route.encode(browser_compatible=True) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"x","9":"z","10":"y"},"brokerName":"a\\/b","cluster":"\\u96C6\\u7FA4"}],'
        b'"filterServerTable":{},"queueDatas":[]}'
    )


def test_master_is_the_broker_with_id_0() -> None:
    assert ROUTE.broker_datas[0].master_address() == "127.0.0.1:10911"
    assert BrokerData("C", "b", {1: "x"}).master_address() is None


def test_cluster_info_is_as_java_s() -> None:
    info = ClusterInfo({"broker-a": ROUTE.broker_datas[0]}, {"DefaultCluster": ["broker-a"]})
    assert info.encode() == GOLDEN["ClusterInfo"]


def test_small_bodies_are_as_java_s() -> None:
    assert TopicList(["T"]).encode() == GOLDEN["TopicList"]
    assert TopicList(["T"], "127.0.0.1:10911").encode() == GOLDEN["TopicList.address"]
    assert KVTable({"k": "v"}).encode() == GOLDEN["KVTable"]
    assert SubscriptionGroupConfig("g").encode() == GOLDEN["SubscriptionGroupConfig"]


def test_a_data_version_counts_changes() -> None:
    version = DataVersion(5, 1)
    version.next_version(9)
    assert version == DataVersion(9, 2)
    assert version != DataVersion(9, 1)
    assert version != DataVersion(8, 2)
