"""What rocketmq-exporter (0.0.2, 0.0.3) and RocketMQ Dashboard (1.0.0, 2.0.0) ask a cluster, call by call.

They are on no registry of packages, so their programs cannot be started here; what they ask, they ask by Apache's
admin client, whose jars are. ``{address}`` is the broker's, ``{client}`` a consumer's id, ``{offset_id}`` and
``{unique_id}`` are a message's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.interop.mqadmin_differences import LineDifference
from tests.interop.mqadmin_script import OFFLINE_GROUP, ONLINE_GROUP, SENDERS, TOPIC

NOWHERE: Final = "Nowhere"
STRANGERS: Final = "Strangers"
ADMIN: Final = "admin"
PULLER: Final = "puller"
PULL: Final = "pull(MessageQueue,String,long,int)"
FAR_MS: Final = 4_000_000_000_000
TRACES: Final = "RMQ_SYS_TRACE_TOPIC"
MADE: Final = "MadeByDashboard"
MADE_GROUP: Final = "MadeByDashboardToo"


@dataclass(frozen=True, slots=True)
class Call:
    """One call, and which of their pages or metrics needs it."""

    page: str
    method: str
    arguments: tuple[object, ...] = ()
    target: str = ADMIN

    @property
    def name(self) -> str:
        return f"{self.method} {list(self.arguments)}"


def queue(queue_id: int, topic: str = TOPIC) -> dict[str, object]:
    return {"topic": topic, "brokerName": "broker-a", "queueId": queue_id}


def stats(*names_and_keys: tuple[str, str]) -> tuple[Call, ...]:
    return tuple(
        Call("exporter: rates of topics, groups and brokers", "viewBrokerStatsData", ("{address}", name, key))
        for name, key in names_and_keys
    )


OF_GROUP: Final = f"{TOPIC}@{ONLINE_GROUP}"

EXPORTER: Final = (
    Call("exporter: clusters and brokers", "examineBrokerClusterInfo"),
    Call("exporter: topics", "fetchAllTopicList"),
    Call("exporter: topic offsets", "examineTopicStats", (TOPIC,)),
    Call("exporter: topic offsets", "examineTopicStats", (f"%RETRY%{ONLINE_GROUP}",)),
    Call("exporter: topic offsets", "examineTopicStats", (NOWHERE,)),
    Call("exporter: routes", "examineTopicRouteInfo", (TOPIC,)),
    Call("exporter: routes", "examineTopicRouteInfo", (NOWHERE,)),
    Call("exporter: producers", "getAllProducerInfo", ("{address}",)),
    Call("exporter: groups of a topic", "queryTopicConsumeByWho", (TOPIC,)),
    Call("exporter: groups of a topic", "queryTopicConsumeByWho", (NOWHERE,)),
    Call("exporter: members", "examineConsumerConnectionInfo", (ONLINE_GROUP,)),
    Call("exporter: members", "examineConsumerConnectionInfo", (OFFLINE_GROUP,)),
    Call("exporter: a member's rates", "getConsumerRunningInfo", (ONLINE_GROUP, "{client}", False)),
    Call("exporter: lag", "examineConsumeStats", (ONLINE_GROUP, TOPIC)),
    Call("exporter: lag", "examineConsumeStats", (OFFLINE_GROUP, TOPIC)),
    Call("exporter: lag", "examineConsumeStats", (STRANGERS, TOPIC)),
    Call("exporter: latency by a message's time", PULL, (queue(1), "*", 2, 1), PULLER),
    Call("exporter: latency by a message's time", PULL, (queue(1), "*", 999, 1), PULLER),
    *stats(
        ("TOPIC_PUT_NUMS", TOPIC), ("TOPIC_PUT_SIZE", TOPIC), ("TOPIC_PUT_NUMS", NOWHERE),
        ("GROUP_GET_NUMS", OF_GROUP), ("GROUP_GET_SIZE", OF_GROUP), ("SNDBCK_PUT_NUMS", OF_GROUP),
        ("BROKER_PUT_NUMS", "DefaultCluster"), ("BROKER_GET_NUMS", "DefaultCluster"),
    ),
    Call("exporter: the runtime table", "fetchBrokerRuntimeStats", ("{address}",)),
)  # fmt: skip

DASHBOARD: Final = (
    Call("cluster: config", "getBrokerConfig", ("{address}",)),
    Call("ops: name servers", "getNameServerAddressList"),
    Call("topics: config", "examineTopicConfig", ("{address}", TOPIC)),
    Call("topics: config", "examineTopicConfig", ("{address}", NOWHERE)),
    Call("topics: config of all", "getAllTopicConfig", ("{address}", 30_000)),
    Call("topics: config of the users'", "getUserTopicConfig", ("{address}", True, 30_000)),
    Call("topics: clusters", "getTopicClusterList", (TOPIC,)),
    Call("topics: of a cluster", "fetchTopicsByCLuster", ("DefaultCluster",)),
    Call("consumers: groups", "getAllSubscriptionGroup", ("{address}", 30_000)),
    Call("consumers: the users' groups", "getUserSubscriptionGroup", ("{address}", 30_000)),
    Call("consumers: config", "examineSubscriptionGroupConfig", ("{address}", ONLINE_GROUP)),
    Call("consumers: config", "examineSubscriptionGroupConfig", ("{address}", STRANGERS)),
    Call("consumers: progress", "examineConsumeStats", (ONLINE_GROUP,)),
    Call("consumers: progress", "examineConsumeStats", (STRANGERS,)),
    Call("consumers: a client's stacks", "getConsumerRunningInfo", (ONLINE_GROUP, "nobody", True)),
    Call("consumers: time spans", "queryConsumeTimeSpan", (TOPIC, ONLINE_GROUP)),
    Call("producers: clients", "examineProducerConnectionInfo", (SENDERS, TOPIC)),
    Call("producers: clients", "examineProducerConnectionInfo", (STRANGERS, TOPIC)),
    Call("messages: by key", "queryMessage", (TOPIC, "L5", 64, 0, FAR_MS)),
    Call("messages: by key", "queryMessage", (TOPIC, "none", 64, 0, FAR_MS)),
    Call("messages: by id", "viewMessage", (TOPIC, "{unique_id}")),
    Call("messages: by id", "viewMessage", (TOPIC, "{offset_id}")),
    Call("messages: track", "messageTrackDetail", (TOPIC, "{unique_id}")),
    Call("messages: consume again", "consumeMessageDirectly", (OFFLINE_GROUP, "nobody", TOPIC, "{offset_id}")),
    Call("messages: by topic", "fetchSubscribeMessageQueues", (TOPIC,), PULLER),
    Call("messages: by topic", "searchOffset", (queue(1), 0), PULLER),
    Call("messages: by topic", "searchOffset", (queue(1), FAR_MS), PULLER),
    Call("messages: by topic", "minOffset", (queue(1),), PULLER),
    Call("messages: by topic", "maxOffset", (queue(1),), PULLER),
    Call("messages: by topic", PULL, (queue(1), "*", 0, 32), PULLER),
    Call("messages: queues", "queryConsumeQueue", ("{address}", TOPIC, 1, 0, 2, ONLINE_GROUP)),
    Call("traces", "queryMessage", (TRACES, "{unique_id}", 64, 0, FAR_MS)),
    Call("dead letters", "queryMessage", (f"%DLQ%{ONLINE_GROUP}", "L5", 64, 0, FAR_MS)),
    # What it changes.
    Call("topics: add", "createAndUpdateTopicConfig", ("{address}", {
        "topicName": MADE, "readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "order": False,
    })),
    Call("topics: config", "examineTopicConfig", ("{address}", MADE)),
    Call("consumers: add", "createAndUpdateSubscriptionGroupConfig", ("{address}", {
        "groupName": MADE_GROUP, "retryQueueNums": 2, "retryMaxTimes": 3, "consumeEnable": True, "brokerId": 0,
    })),
    Call("consumers: config", "examineSubscriptionGroupConfig", ("{address}", MADE_GROUP)),
    Call("consumers: reset", "resetOffsetByTimestamp", (TOPIC, ONLINE_GROUP, 0, True)),
    Call("consumers: reset", "resetOffsetByTimestamp", (TOPIC, OFFLINE_GROUP, 0, True)),
    Call("consumers: reset of who is offline", "resetOffsetByTimestampOld", (OFFLINE_GROUP, TOPIC, 0, True)),
    Call("consumers: progress", "examineConsumeStats", (OFFLINE_GROUP, TOPIC)),
    Call("topics: delete", "deleteTopicInBroker", (["{address}"], MADE)),
    Call("topics: delete", "deleteTopicInNameServer", (["{name_server}"], "DefaultCluster", MADE)),
    Call("topics: config", "examineTopicConfig", ("{address}", MADE)),
    Call("consumers: delete", "deleteSubscriptionGroup", ("{address}", MADE_GROUP, True)),
    Call("consumers: config", "examineSubscriptionGroupConfig", ("{address}", MADE_GROUP)),
    Call("topics: what is left", "fetchAllTopicList"),
)  # fmt: skip

CALLS: Final = (*EXPORTER, *DASHBOARD)

OF_RELEASE_5: Final = (
    LineDifference(
        "messageTrackDetail.*",
        "Whether a group has consumed a message is told, as by a broker of release 5: ours answers request 351. That "
        "one has a group besides that is none.",
        ours=r"\[\]\.trackType = CONSUMED", apaches=r"\[\]\.trackType = UNKNOWN",
    ),
)  # fmt: skip
"""What a client of release 5 is answered by ours, and by neither of Apache's brokers. A row that is not met goes."""
