"""Every command of mqadmin with useful words, in an order in which each finds what it needs.

``{address}`` is the broker's, ``{offset_id}`` and ``{unique_id}`` are the ids of one message, ``{client}`` is the
consumer that is online, ``{directory}`` takes what is exported; what a step ``learns`` is such a word for later ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

TOPIC: Final = "Orders"
ONLINE_GROUP: Final = "Billing"
OFFLINE_GROUP: Final = "Archive"
SENDERS: Final = "Senders"
CLUSTER: Final = ("-c", "DefaultCluster")
BROKER: Final = ("-b", "{address}")
LATER: Final = "Ledger"
AUDITORS: Final = "Auditors"


@dataclass(frozen=True, slots=True)
class Step:
    """One call of mqadmin. *within_s* is for a command that never ends by itself."""

    name: str
    words: tuple[str, ...]
    within_s: float | None = None
    writes: str = ""
    """A file in ``{directory}`` whose text belongs to what was printed."""
    learns: tuple[str, str] | None = None
    """A word that later steps may name, and a pattern for it in what was printed."""
    passes_over: str = r"(?!)"
    """Lines that are there or not, as it happens."""
    awaits_statistics: bool = False
    """Not before all that was sent is in the statistics, which a broker makes up each ten seconds."""

    @property
    def command(self) -> str:
        return self.words[0]


def step(name: str, *words: str, **more: Any) -> Step:
    """The step *name*; without words the name is all that mqadmin is told."""
    return Step(name, words or (name,), **more)


LOOKS: Final = (
    step("clusterList"),
    step("brokerStatus", "brokerStatus", *BROKER),
    step("topicStatus", "topicStatus", "-t", TOPIC),
    step("topicStatus of an unknown topic", "topicStatus", "-t", "Nowhere"),
    step("topicRoute", "topicRoute", "-t", TOPIC),
    step("topicRoute as a list", "topicRoute", "-t", TOPIC, "-l"),
    step("topicRoute of an unknown topic", "topicRoute", "-t", "Nowhere"),
    step("topicList"),
    step("topicList of the clusters", "topicList", "-c"),
    step("topicClusterList", "topicClusterList", "-t", TOPIC),
    step("topicClusterList of an unknown topic", "topicClusterList", "-t", "Nowhere"),
    step("consumerProgress of an online group", "consumerProgress", "-g", ONLINE_GROUP),
    step("consumerProgress with clients", "consumerProgress", "-g", ONLINE_GROUP, "-s", "true"),
    step("consumerProgress of an offline group", "consumerProgress", "-g", OFFLINE_GROUP),
    step("consumerProgress of an unknown group", "consumerProgress", "-g", "Strangers"),
    step("consumerProgress of all groups", "consumerProgress"),
    step(
        "consumerConnection", "consumerConnection", "-g", ONLINE_GROUP,
        learns=("client", r"^(\d[\d.]+@\S+)"),
    ),
    step("consumerConnection at one broker", "consumerConnection", "-g", ONLINE_GROUP, *BROKER),
    step("consumerConnection of an offline group", "consumerConnection", "-g", OFFLINE_GROUP),
    step("producerConnection", "producerConnection", "-g", SENDERS, "-t", TOPIC),
    step("producerConnection of an offline group", "producerConnection", "-g", "Strangers", "-t", TOPIC),
    step("producer", "producer", *BROKER),
    step("consumerStatus", "consumerStatus", "-g", ONLINE_GROUP),
    step("consumerStatus of one client", "consumerStatus", "-g", ONLINE_GROUP, "-i", "{client}"),
    step("consumerStatus of an unknown client", "consumerStatus", "-g", ONLINE_GROUP, "-i", "nobody"),
    step("consumerStatus of an offline group", "consumerStatus", "-g", OFFLINE_GROUP),
    step("brokerConsumeStats", "brokerConsumeStats", *BROKER),
    step("brokerConsumeStats of orderly groups", "brokerConsumeStats", *BROKER, "-o", "true"),
    step("brokerConsumeStats of who is behind", "brokerConsumeStats", *BROKER, "-l", "3"),
    step("queryMsgByKey", "queryMsgByKey", "-t", TOPIC, "-k", "L5"),
    step("queryMsgByKey of none", "queryMsgByKey", "-t", TOPIC, "-k", "none"),
    step("statsAll", "statsAll", "-t", TOPIC),
    step("statsAll of all topics", "statsAll"),
    step("getConsumerConfig", "getConsumerConfig", "-g", ONLINE_GROUP),
    step("getConsumerConfig of an unknown group", "getConsumerConfig", "-g", "Strangers"),
    step("queryMsgById", "queryMsgById", "-i", "{offset_id}"),
    step("queryMsgByUniqueKey", "queryMsgByUniqueKey", "-t", TOPIC, "-i", "{unique_id}"),
    step("queryMsgByUniqueKey of all", "queryMsgByUniqueKey", "-t", TOPIC, "-i", "{unique_id}", "-a"),
    step("queryCq", "queryCq", "-t", TOPIC, "-q", "1", "-i", "0", "-c", "2", "-g", ONLINE_GROUP),
    step("queryCq at one broker", "queryCq", "-t", TOPIC, "-q", "0", "-i", "3", "-c", "9", *BROKER),
    step("allocateMQ", "allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2,10.0.0.3"),
    step("exportMetadata of topics", "exportMetadata", *BROKER, "-t", "-f", "{directory}", writes="topic.json"),
    step(
        "exportMetadata of groups", "exportMetadata", *BROKER, "-g", "-f", "{directory}",
        writes="subscriptionGroup.json",
    ),
    step("exportMetadata", "exportMetadata", *CLUSTER, "-f", "{directory}", writes="metadata.json"),
    step("exportMetadata with retries", "exportMetadata", *CLUSTER, "-s", "-f", "{directory}", writes="metadata.json"),
    step("exportConfigs", "exportConfigs", *CLUSTER, "-f", "{directory}", writes="configs.json"),
    step("exportMetrics", "exportMetrics", *CLUSTER, "-f", "{directory}", writes="metrics.json"),
    step("getNamesrvConfig"),
    step("getBrokerConfig", "getBrokerConfig", *BROKER),
    step("getBrokerConfig of a cluster", "getBrokerConfig", *CLUSTER),
)  # fmt: skip
"""On a broker that has been given a little workload; they change nothing."""

PULLS: Final = (
    step("queryMsgByOffset", "queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "2"),
    step("queryMsgByOffset behind the end", "queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "99"),
    step("printMsg", "printMsg", "-t", TOPIC, "-d", "true"),
    step("printMsg by tag", "printMsg", "-t", TOPIC, "-s", "TagA"),
    step("printMsg of times to come", "printMsg", "-t", TOPIC, "-b", "4000000000000"),
    step(
        "printMsgByQueue", "printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "2", "-p", "true", "-d", "true",
        "-f", "true",
    ),
    step("consumeMessage", "consumeMessage", "-t", TOPIC, "-c", "3"),
    step("consumeMessage of a queue", "consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-c", "3"),
    step(
        "consumeMessage from an offset", "consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "2",
        "-g", "Tools",
    ),
    step("consumeMessage of a time", "consumeMessage", "-t", TOPIC, "-s", "0", "-e", "1000"),
    step(
        "queryMsgById to a client", "queryMsgById", "-i", "{offset_id}", "-g", ONLINE_GROUP, "-d", "{client}",
    ),
    step(
        "queryMsgByUniqueKey to a client", "queryMsgByUniqueKey", "-t", TOPIC, "-i", "{unique_id}", "-g", ONLINE_GROUP,
        "-d", "{client}",
    ),
)  # fmt: skip
"""Who pulls is counted."""

SENDS: Final = (
    step("updateTopic", "updateTopic", *BROKER, "-t", LATER, "-r", "2", "-w", "2"),
    step(
        "updateTopic of a cluster", "updateTopic", *CLUSTER, "-t", "Ordered", "-r", "3", "-w", "3", "-p", "4",
        "-o", "true",
    ),
    step("updateTopic with units", "updateTopic", *BROKER, "-t", "Units", "-u", "true", "-s", "true"),
    step("updateTopic with a name that is none", "updateTopic", *BROKER, "-t", "no/topic"),
    step("updateTopic with a name of the system", "updateTopic", *BROKER, "-t", "TBW102"),
    step("topicRoute of what was made", "topicRoute", "-t", LATER),
    step("topicRoute of what is ordered", "topicRoute", "-t", "Ordered"),
    step(
        "sendMessage", "sendMessage", "-t", LATER, "-p", "hello", "-k", "k1", "-c", "TagC", "-b", "broker-a", "-i", "1",
    ),
    step("sendMessage to a new topic", "sendMessage", "-t", "Wished", "-p", "hello", "-b", "broker-a", "-i", "0"),
    step(
        "sendMessage with a trace", "sendMessage", "-t", LATER, "-p", "traced", "-m", "true", "-b", "broker-a",
        "-i", "0", learns=("traced", r"([0-9A-F]{32})\s*$"),
    ),
    step("sendMessage to where none may", "sendMessage", "-t", "Ordered", "-p", "hello", "-b", "broker-a", "-i", "0"),
    step("queryMsgByKey of what was sent", "queryMsgByKey", "-t", LATER, "-k", "k1"),
    step("queryMsgTraceById", "queryMsgTraceById", "-i", "{traced}"),
    step("queryMsgTraceById of none", "queryMsgTraceById", "-i", "none"),
    step("checkMsgSendRT", "checkMsgSendRT", "-t", LATER, "-a", "4", "-s", "16"),
    step("sendMsgStatus", "sendMsgStatus", "-b", "broker-a", "-s", "16", "-c", "2"),
    step("topicStatus of what was sent", "topicStatus", "-t", LATER),
    step("clusterRT", "clusterRT", "-a", "2", "-s", "16", "-i", "1", within_s=0.9),
)  # fmt: skip

CHANGES: Final = (
    step("updateTopicPerm", "updateTopicPerm", *BROKER, "-t", LATER, "-p", "4"),
    step("updateTopicPerm to the same", "updateTopicPerm", *BROKER, "-t", LATER, "-p", "4"),
    step("updateTopicPerm of a cluster", "updateTopicPerm", *CLUSTER, "-t", LATER, "-p", "6"),
    step("updateTopicPerm of an unknown topic", "updateTopicPerm", *BROKER, "-t", "Nowhere", "-p", "6"),
    step("wipeWritePerm", "wipeWritePerm", "-b", "broker-a"),
    step("topicRoute without permission to write", "topicRoute", "-t", LATER),
    step("addWritePerm", "addWritePerm", "-b", "broker-a"),
    step("topicRoute with permission to write", "topicRoute", "-t", LATER),
    step("wipeWritePerm of an unknown broker", "wipeWritePerm", "-b", "broker-z"),
    step("addWritePerm of an unknown broker", "addWritePerm", "-b", "broker-z"),
    step(
        "updateSubGroup", "updateSubGroup", *BROKER, "-g", AUDITORS, "-s", "false", "-m", "true", "-d", "false",
        "-q", "2", "-r", "5", "-i", "0", "-w", "1", "-a", "true",
    ),
    step("getConsumerConfig of what was made", "getConsumerConfig", "-g", AUDITORS),
    step("updateSubGroup of a cluster", "updateSubGroup", *CLUSTER, "-g", AUDITORS),
    step("getConsumerConfig of what was changed", "getConsumerConfig", "-g", AUDITORS),
    step("cloneGroupOffset", "cloneGroupOffset", "-s", OFFLINE_GROUP, "-d", AUDITORS, "-t", TOPIC, "-o", "true"),
    step("consumerProgress of what was cloned", "consumerProgress", "-g", AUDITORS),
    step(
        "resetOffsetByTime of an offline group", "resetOffsetByTime", "-g", OFFLINE_GROUP, "-t", TOPIC, "-s", "0",
        "-f", "true",
    ),
    step("consumerProgress of what was reset", "consumerProgress", "-g", OFFLINE_GROUP),
    step("resetOffsetByTime", "resetOffsetByTime", "-g", ONLINE_GROUP, "-t", TOPIC, "-s", "4000000000000"),
    step("resetOffsetByTime of nobody", "resetOffsetByTime", "-g", "Strangers", "-t", TOPIC, "-s", "0"),
    step("resetOffsetByTime of an unknown topic", "resetOffsetByTime", "-g", ONLINE_GROUP, "-t", "Nowhere", "-s", "0"),
    step("skipAccumulatedMessage of an offline group", "skipAccumulatedMessage", "-g", OFFLINE_GROUP, "-t", TOPIC),
    step("consumerProgress of what was skipped", "consumerProgress", "-g", OFFLINE_GROUP),
    step("skipAccumulatedMessage", "skipAccumulatedMessage", "-g", ONLINE_GROUP, "-t", TOPIC, "-f", "true"),
    step("updateOrderConf", "updateOrderConf", "-t", LATER, "-m", "put", "-v", "broker-a:2"),
    step("updateOrderConf that is asked for", "updateOrderConf", "-t", LATER, "-m", "get"),
    step("updateOrderConf that goes", "updateOrderConf", "-t", LATER, "-m", "delete"),
    step("updateOrderConf that is gone", "updateOrderConf", "-t", LATER, "-m", "get"),
    step("updateKvConfig", "updateKvConfig", "-s", "Names", "-k", "key", "-v", "value"),
    step("deleteKvConfig", "deleteKvConfig", "-s", "Names", "-k", "key"),
    step("updateBrokerConfig", "updateBrokerConfig", *BROKER, "-k", "fileReservedTime", "-v", "71"),
    step("updateBrokerConfig of a cluster", "updateBrokerConfig", *CLUSTER, "-k", "fileReservedTime", "-v", "72"),
    step("updateBrokerConfig of an unknown setting", "updateBrokerConfig", *BROKER, "-k", "noSuchSetting", "-v", "1"),
    step("updateBrokerConfig with no number", "updateBrokerConfig", *BROKER, "-k", "fileReservedTime", "-v", "x"),
    step("updateBrokerConfig of a path", "updateBrokerConfig", *BROKER, "-k", "brokerConfigPath", "-v", "/x"),
    step("updateNamesrvConfig", "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"),
    step("updateNamesrvConfig of a path", "updateNamesrvConfig", "-k", "kvConfigPath", "-v", "/x"),
    step("getNamesrvConfig of what was changed", "getNamesrvConfig"),
    step("updateAclConfig", "updateAclConfig", *BROKER, "-a", "newcomer", "-s", "newcomer-secret", "-i", "PUB"),
    step("updateGlobalWhiteAddr", "updateGlobalWhiteAddr", *BROKER, "-g", "10.10.10.*"),
    step("deleteAclConfig", "deleteAclConfig", *BROKER, "-a", "newcomer"),
    step("cleanExpiredCQ", "cleanExpiredCQ", *BROKER),
    step("cleanExpiredCQ of a cluster", "cleanExpiredCQ", *CLUSTER),
    step("deleteExpiredCommitLog", "deleteExpiredCommitLog", *BROKER),
    step("cleanUnusedTopic", "cleanUnusedTopic", *BROKER),
    step("cleanUnusedTopic of a cluster", "cleanUnusedTopic", *CLUSTER),
    step("deleteSubGroup", "deleteSubGroup", *BROKER, "-g", AUDITORS, "-r", "true"),
    step("deleteSubGroup of a cluster", "deleteSubGroup", *CLUSTER, "-g", OFFLINE_GROUP),
    step("deleteSubGroup of an unknown group", "deleteSubGroup", *BROKER, "-g", "Strangers"),
    step("deleteTopic", "deleteTopic", *CLUSTER, "-t", LATER),
    step("deleteTopic of an unknown topic", "deleteTopic", *CLUSTER, "-t", "Nowhere"),
    step("topicList of what is left", "topicList"),
    step("statsAll of what is left", "statsAll"),
    # Traces are sent when their clients come to it.
    step("statsAll of active topics", "statsAll", "-a", awaits_statistics=True, passes_over="RMQ_SYS_TRACE_TOPIC .*"),
    # It goes on behind the scenes, and would say if it could not begin.
    step("startMonitoring"),
)  # fmt: skip

EVERYDAY: Final = (*LOOKS, *PULLS, *SENDS, *CHANGES)
ELSEWHERE: Final = {
    "clusterAclConfigVersion": "with access control (`tests/interop/test_mqadmin_acl.py`)",
}
"""Commands that are not compared here, and where they are, or why they are not."""
