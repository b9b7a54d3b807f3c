"""Requests that make sense, in an order in which each finds what it needs: all codes that 4.9.8 knows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mqcore.codes import RequestCode as Code
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.message import Message

TOPIC = "Orders"
GROUP = "Billing"
ONLINE = "Online"
CLIENT = "127.0.0.1@differential"
QUEUES = 2
NOWHERE = "Nowhere"
REPLY = "an answer to nobody"
"""Stored, as nobody is there to be given it."""

BORN = 1_700_000_000_000


class Peer(StrEnum):
    """Whom a request is for."""

    BROKER = "broker"
    VIP = "broker, VIP port"
    NAME_SERVER = "name server"


@dataclass(frozen=True, slots=True)
class Request:
    """One request; *awaits* is how many messages queue 0 of the topic must have before it is sent.

    What *is_settled* asks how far that queue is: it is sent when all that was stored there before is in the queue, too.
    What Apache's broker refuses now and then by a remark with *not_yet* is asked again as long as it does.
    """

    name: str
    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    to: Peer = Peer.BROKER
    awaits: int = 0
    is_settled: bool = False
    not_yet: str = ""

    def but(self, name: str, **changes: str | None) -> Request:
        """This request with other fields; None leaves one out."""
        merged = {**self.fields, **changes}
        kept = {key: value for key, value in merged.items() if value is not None}
        return replace(self, name=f"{self.name}, {name}", fields=kept, not_yet="")


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_SEND = Request(
    "a message",
    Code.SEND_MESSAGE,
    {
        "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": str(BORN), "flag": "0", "properties": "TAGS\1A\2KEYS\1k1\2UNIQ_KEY\1u1\2",
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    },
    b"hello",
)  # fmt: skip
_V2 = Request(
    "a message",
    Code.SEND_MESSAGE_V2,
    {
        "a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(BORN), "h": "0",
        "i": "TAGS\1B\2KEYS\1k2\2UNIQ_KEY\1u2\2", "j": "0", "k": "false", "m": "false",
    },
    b"hello again",
)  # fmt: skip
_BATCH = replace(
    _V2.but("several", m="true", i=""),
    code=Code.SEND_BATCH_MESSAGE,
    name="several messages",
    body=encode_batch([Message(TOPIC, b"one"), Message(TOPIC, b"two")]),
)
_PULL = Request(
    "a pull",
    Code.PULL_MESSAGE,
    {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "1",
        "expressionType": "TAG",
    },
    awaits=4,
)  # fmt: skip
_CREATE = Request(
    "a topic",
    Code.UPDATE_AND_CREATE_TOPIC,
    {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    },
)  # fmt: skip
_GROUP = {
    "groupName": GROUP, "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
    "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
}  # fmt: skip
_HEART_BEAT = {
    "clientID": CLIENT,
    "producerDataSet": [{"groupName": "P"}],
    "consumerDataSet": [
        {
            "groupName": ONLINE, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [
                {
                    "classFilterMode": False, "topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [],
                    "subVersion": 1, "expressionType": "TAG",
                }
            ],
        }
    ],
}  # fmt: skip
HEART_BEAT = Request("a heart-beat", Code.HEART_BEAT, body=_json(_HEART_BEAT))
_QUEUE = {"topic": TOPIC, "queueId": "0"}
_PLACE = {"consumerGroup": GROUP, **_QUEUE}
_OF_GROUP = {"consumerGroup": ONLINE}
_LOCK = {
    "consumerGroup": ONLINE,
    "clientId": CLIENT,
    "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
}
_STATISTIC = {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}
_IDENTITY = {
    "brokerName": "broker-z", "brokerAddr": "127.0.0.1:9", "clusterName": "OtherCluster", "brokerId": "0",
}  # fmt: skip
_TOPICS = {
    "topicConfigSerializeWrapper": {
        "topicConfigTable": {
            "OfZ": {
                "topicName": "OfZ", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 3,
                "topicFilterType": "SINGLE_TAG", "order": False,
            }
        },
        "dataVersion": {"timestamp": 1, "counter": 1},
    },
    "filterServerList": [],
}  # fmt: skip


def _set_up() -> Iterator[Request]:
    yield _CREATE
    yield Request("a group", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=_json(_GROUP))
    yield _SEND
    yield _V2
    yield _BATCH
    yield Request("the route", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, to=Peer.NAME_SERVER)


def _messages() -> Iterator[Request]:
    yield _SEND.but("to a queue that is not there", queueId="77")
    yield _SEND.but("to a name that is none", topic="no/topic")
    yield _SEND.but("to a system topic", topic="SCHEDULE_TOPIC_XXXX")
    yield _SEND.but("to a blank topic", topic=" ")
    yield _SEND.but("to a topic that nothing is known of", topic=NOWHERE, defaultTopic="NotThere")
    yield _SEND.but("to a topic with too long a name", topic="T" * 128)
    yield _SEND.but("with too long properties", properties="K\1" + "v" * 33_000 + "\2")
    yield replace(_SEND, name="a body of 5 MB", body=b"x" * (5 << 20))
    yield replace(_SEND, name="an empty body", body=b"").but("of queue 1", queueId="1")
    yield replace(_BATCH, name="half a batch", body=_BATCH.body[:-2])
    yield _PULL
    yield replace(_PULL, to=Peer.VIP)
    yield _PULL.but("by tag", subscription="A")
    yield _PULL.but("by SQL that is none", expressionType="SQL92", subscription="a >")
    yield _PULL.but("behind the end", queueOffset="4000000")
    yield _PULL.but("before the beginning", queueOffset="-1")
    yield _PULL.but("of a queue that is not there", queueId="9")
    yield _PULL.but("of a topic that is not there", topic=NOWHERE)
    yield _PULL.but("of a group that nobody made", consumerGroup="Strangers")
    yield _PULL.but("without a subscription", sysFlag="0", consumerGroup="Strangers")
    yield Request("bounds", Code.GET_MAX_OFFSET, _QUEUE)
    yield Request("bounds of nothing", Code.GET_MAX_OFFSET, {"topic": NOWHERE, "queueId": "3"})
    yield Request("bounds", Code.GET_MIN_OFFSET, _QUEUE)
    yield Request("bounds of nothing", Code.GET_MIN_OFFSET, {"topic": NOWHERE, "queueId": "3"})
    yield Request("the earliest", Code.GET_EARLIEST_MSG_STORETIME, _QUEUE)
    yield Request("the earliest of nothing", Code.GET_EARLIEST_MSG_STORETIME, {"topic": NOWHERE, "queueId": "0"})
    yield Request("by time", Code.SEARCH_OFFSET_BY_TIMESTAMP, {**_QUEUE, "timestamp": "0"})
    yield Request("by a time to come", Code.SEARCH_OFFSET_BY_TIMESTAMP, {**_QUEUE, "timestamp": "4000000000000"})
    asked = {"topic": TOPIC, "key": "k1", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "4000000000000"}
    yield Request("by key", Code.QUERY_MESSAGE, asked)
    yield Request("by a key that none has", Code.QUERY_MESSAGE, {**asked, "key": "k99"})
    yield Request("by place", Code.VIEW_MESSAGE_BY_ID, {"offset": "0"})
    yield Request("by a place where none is", Code.VIEW_MESSAGE_BY_ID, {"offset": "3"})
    yield Request("by a place behind all", Code.VIEW_MESSAGE_BY_ID, {"offset": "99999999"})
    back = {"offset": "0", "group": GROUP, "delayLevel": "3", "originTopic": TOPIC, "originMsgId": "m"}
    yield Request("sent back", Code.CONSUMER_SEND_MSG_BACK, back)
    yield Request("sent back by strangers", Code.CONSUMER_SEND_MSG_BACK, {**back, "group": "Strangers"})
    yield Request("sent back from nowhere", Code.CONSUMER_SEND_MSG_BACK, {**back, "offset": "99999999"})
    asked = "CORRELATION_ID\1c\2REPLY_TO_CLIENT\1nobody\2"
    yield replace(_SEND.but("to nobody", properties=asked), name=REPLY, code=Code.SEND_REPLY_MESSAGE)
    yield replace(_V2.but("to nobody", i=asked), name=REPLY, code=Code.SEND_REPLY_MESSAGE_V2)
    ended = {
        "producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8",
        "msgId": "m",
    }  # fmt: skip
    yield Request("the end of what is none", Code.END_TRANSACTION, ended)
    yield Request("the end of nothing", Code.END_TRANSACTION, {**ended, "commitLogOffset": "99999999"})
    yield Request("resumed", Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": "m"})
    units = {**_QUEUE, "index": "0", "count": "2"}
    yield Request("units", Code.QUERY_CONSUME_QUEUE, units, is_settled=True)
    yield Request("units of nothing", Code.QUERY_CONSUME_QUEUE, {**units, "topic": NOWHERE})


def _consumers() -> Iterator[Request]:
    yield Request("nothing committed", Code.QUERY_CONSUMER_OFFSET, {**_PLACE, "consumerGroup": "Strangers"})
    yield Request("committed", Code.UPDATE_CONSUMER_OFFSET, {**_PLACE, "commitOffset": "2"})
    yield Request("what is committed", Code.QUERY_CONSUMER_OFFSET, _PLACE)
    yield Request("members offline", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP})
    yield Request("connections offline", Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP})
    yield Request("producers offline", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "Q"})
    yield HEART_BEAT
    yield Request("members", Code.GET_CONSUMER_LIST_BY_GROUP, _OF_GROUP)
    yield Request("connections", Code.GET_CONSUMER_CONNECTION_LIST, _OF_GROUP)
    yield Request("producers", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"})
    yield Request("all producers", Code.GET_ALL_PRODUCER_INFO)
    yield Request("locks", Code.LOCK_BATCH_MQ, body=_json(_LOCK))
    yield Request("locks of somebody else", Code.LOCK_BATCH_MQ, body=_json({**_LOCK, "clientId": "other"}))
    yield Request("no locks", Code.UNLOCK_BATCH_MQ, body=_json(_LOCK))
    checked = {"clientId": CLIENT, "group": ONLINE}
    subscription = {"topic": TOPIC, "subString": "a > 1", "expressionType": "SQL92", "subVersion": 1}
    yield Request("a check", Code.CHECK_CLIENT_CONFIG, body=_json({**checked, "subscriptionData": subscription}))
    wrong = {**subscription, "subString": "a >"}
    yield Request(
        "a check of what is wrong", Code.CHECK_CLIENT_CONFIG, body=_json({**checked, "subscriptionData": wrong})
    )
    known = {"consumerGroup": ONLINE, "clientId": CLIENT}
    yield Request("running info", Code.GET_CONSUMER_RUNNING_INFO, {**known, "jstackEnable": "false"})
    yield Request("running info of nobody", Code.GET_CONSUMER_RUNNING_INFO, {**known, "clientId": "nobody"})
    yield Request("directly, what is not there", Code.CONSUME_MESSAGE_DIRECTLY, {**known, "msgId": "nonsense"})
    reset = {"topic": TOPIC, "group": ONLINE, "timestamp": "0", "isForce": "true"}
    yield Request("reset", Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    yield Request("reset of nobody", Code.INVOKE_BROKER_TO_RESET_OFFSET, {**reset, "group": "Strangers"})
    yield Request("reset of nothing", Code.INVOKE_BROKER_TO_RESET_OFFSET, {**reset, "topic": NOWHERE})
    yield Request("status", Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": TOPIC, "group": ONLINE})
    yield Request("status of nobody", Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": TOPIC, "group": "Strangers"})
    yield Request("cloned", Code.CLONE_GROUP_OFFSET, {"srcGroup": GROUP, "destGroup": "Copy", "topic": TOPIC})
    yield Request("corrected", Code.QUERY_CORRECTION_OFFSET, {"compareGroup": GROUP, "topic": TOPIC})
    yield Request("by whom", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": TOPIC})
    yield Request("time span", Code.QUERY_CONSUME_TIME_SPAN, {"topic": TOPIC, "group": GROUP})
    yield Request("statistics", Code.GET_CONSUME_STATS, {"consumerGroup": GROUP, "topic": TOPIC})
    yield Request("statistics of all topics", Code.GET_CONSUME_STATS, {"consumerGroup": GROUP})
    yield Request("statistics of strangers", Code.GET_CONSUME_STATS, {"consumerGroup": "Strangers"})
    yield Request("statistics of all groups", Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    yield Request("a figure that is not there", Code.VIEW_BROKER_STATS_DATA, {**_STATISTIC, "statsKey": NOWHERE})
    yield Request("a figure", Code.VIEW_BROKER_STATS_DATA, _STATISTIC)
    left = {"clientID": CLIENT, "producerGroup": "P", "consumerGroup": ONLINE}
    yield Request("leaves", Code.UNREGISTER_CLIENT, left)
    yield Request("leaves again", Code.UNREGISTER_CLIENT, left)


def _tables() -> Iterator[Request]:
    yield Request("all topics", Code.GET_ALL_TOPIC_CONFIG)
    yield Request("all groups", Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    yield Request("all offsets", Code.GET_ALL_CONSUMER_OFFSET)
    yield Request("all delay offsets", Code.GET_ALL_DELAY_OFFSET)
    yield Request("system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    yield Request("bounds of a topic", Code.GET_TOPIC_STATS_INFO, {"topic": TOPIC})
    yield Request("bounds of no topic", Code.GET_TOPIC_STATS_INFO, {"topic": NOWHERE})
    yield Request("a setting", Code.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=71\n")
    yield Request("a setting that nobody knows", Code.UPDATE_BROKER_CONFIG, body=b"noSuchSetting=1\n")
    yield Request("a black-listed setting", Code.UPDATE_BROKER_CONFIG, body=b"brokerConfigPath=/x\n")
    yield Request("no settings", Code.UPDATE_BROKER_CONFIG)
    yield Request("the settings", Code.GET_BROKER_CONFIG)
    yield Request("the runtime table", Code.GET_BROKER_RUNTIME_INFO)
    yield _CREATE.but("a system topic", topic="TBW102")
    yield _CREATE.but("a name that is none", topic="a b")
    yield Request("a group without a name", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b"{}")
    yield Request("clean queues", Code.CLEAN_EXPIRED_CONSUMEQUEUE)
    yield Request("clean topics", Code.CLEAN_UNUSED_TOPIC)
    yield Request("clean the log", Code.DELETE_EXPIRED_COMMITLOG)
    yield Request("a group goes", Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUP})
    yield Request("a group that is not there goes", Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Strangers"})
    yield Request("a topic goes", Code.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    yield Request("a topic that is not there goes", Code.DELETE_TOPIC_IN_BROKER, {"topic": NOWHERE})
    yield Request("a system topic goes", Code.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"})
    for unknown in (0, 13, 22, 23, 27, 301, 302, 9999):
        yield Request(f"code {unknown}, which no broker serves", unknown)


def _name_server() -> Iterator[Request]:
    pair = {"namespace": "N", "key": "k"}
    register = {**_IDENTITY, "haServerAddr": "127.0.0.1:10", "compressed": "false", "bodyCrc32": "0"}
    requests = (
        Request("kept", Code.PUT_KV_CONFIG, {**pair, "value": "v"}),
        Request("what is kept", Code.GET_KV_CONFIG, pair),
        Request("what is not kept", Code.GET_KV_CONFIG, {**pair, "key": "other"}),
        Request("all that is kept", Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}),
        Request("nothing kept", Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "M"}),
        Request("no longer kept", Code.DELETE_KV_CONFIG, pair),
        Request("a broker", Code.REGISTER_BROKER, register, _json(_TOPICS)),
        Request("its version", Code.QUERY_DATA_VERSION, _IDENTITY, _json({"timestamp": 1, "counter": 1})),
        Request("another version", Code.QUERY_DATA_VERSION, _IDENTITY, _json({"timestamp": 2, "counter": 2})),
        Request("clusters", Code.GET_BROKER_CLUSTER_INFO),
        Request("a route", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "OfZ"}),
        Request("no route", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": NOWHERE}),
        Request("topics of a cluster", Code.GET_TOPICS_BY_CLUSTER, {"cluster": "OtherCluster"}),
        Request("topics of no cluster", Code.GET_TOPICS_BY_CLUSTER, {"cluster": "None"}),
        Request("unit topics", Code.GET_UNIT_TOPIC_LIST),
        Request("unit subscriptions", Code.GET_HAS_UNIT_SUB_TOPIC_LIST),
        Request("unit subscriptions of others", Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        Request("write-protected", Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-z"}),
        Request("no longer", Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-z"}),
        Request("a topic goes", Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "OfZ"}),
        Request("a broker goes", Code.UNREGISTER_BROKER, _IDENTITY),
        Request("all topics", Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        Request("system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        Request("a setting", Code.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n"),
        Request("a black-listed setting", Code.UPDATE_NAMESRV_CONFIG, body=b"kvConfigPath=/x\n"),
        Request("the settings", Code.GET_NAMESRV_CONFIG),
        Request("code 10, which no name server serves", Code.SEND_MESSAGE),
    )
    for request in requests:
        yield replace(request, to=Peer.NAME_SERVER)


SCRIPT: tuple[Request, ...] = (*_set_up(), *_messages(), *_consumers(), *_name_server(), *_tables())
AGAIN: tuple[Request, ...] = (*_set_up(), HEART_BEAT)
"""What makes the requests of the script find again what they need, when all of it has been run."""


def _of_release_5() -> Iterator[Request]:
    typed = {"attributes": "+message.type=FIFO"}
    yield _CREATE.but("with a type", topic="Typed", **typed)
    yield Request("a topic with a type", Code.GET_TOPIC_CONFIG, {"topic": "Typed"})
    yield _CREATE.but("with another type", topic="Typed", attributes="+message.type=DELAY")
    yield _CREATE.but("as it is", topic="Typed", attributes="")
    yield Request("a topic with another type", Code.GET_TOPIC_CONFIG, {"topic": "Typed"})
    yield _CREATE.but("without its type", topic="Typed", attributes="-message.type")
    yield Request("a topic without a type", Code.GET_TOPIC_CONFIG, {"topic": "Typed"})
    yield _CREATE.but("that loses what it has not", topic="Typed", attributes="-message.type")
    yield _CREATE.but("with a type that is none", topic="Odd", attributes="+message.type=ODD")
    yield _CREATE.but("with an attribute that is none", topic="Odd", attributes="+odd=1")
    yield _CREATE.but("with an attribute without a sign", topic="Odd", attributes="message.type=FIFO")
    yield _CREATE.but("that loses something at once", topic="Odd", attributes="-message.type")
    yield _CREATE.but("with the usual queues", topic="Usual", attributes="+queue.type=SimpleCQ")
    yield _CREATE.but("with other queues later", topic="Usual", attributes="+queue.type=SimpleCQ")
    topic = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
    topics = [{**topic, "topicName": "One", "attributes": {"+message.type": "FIFO"}}, {**topic, "topicName": "Two"}]
    yield Request("two topics", Code.UPDATE_AND_CREATE_TOPIC_LIST, body=_json({"topicConfigList": topics}))
    yield Request("the first of two", Code.GET_TOPIC_CONFIG, {"topic": "One"})
    wrong = [{**topic, "topicName": "Three"}, {**topic, "topicName": "T?"}]
    yield Request("a wrong one of two", Code.UPDATE_AND_CREATE_TOPIC_LIST, body=_json({"topicConfigList": wrong}))
    yield Request("none of two", Code.GET_TOPIC_CONFIG, {"topic": "Three"})
    groups = [{**_GROUP, "groupName": name} for name in ("One", "Two")]
    yield Request("two groups", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=_json({"groupConfigList": groups}))
    yield Request("a group", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "Two"})
    yield _CREATE
    yield Request("a group that commits", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=_json(_GROUP))
    yield Request("committed", Code.UPDATE_CONSUMER_OFFSET, {**_PLACE, "commitOffset": "0"})
    yield Request("topics of a group", Code.QUERY_TOPICS_BY_CONSUMER, {"group": GROUP})
    yield Request("topics of nobody", Code.QUERY_TOPICS_BY_CONSUMER, {"group": "Strangers"})
    yield Request("what nobody subscribes to", Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": ONLINE, "topic": TOPIC})
    yield HEART_BEAT
    yield Request("what it subscribes to", Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": ONLINE, "topic": TOPIC})


RELEASE_5: tuple[Request, ...] = tuple(_of_release_5())
"""What tools of release 5 ask that a broker of 4.9 could answer."""
