"""What mqadmin 5.3.3 is told: the script of 4.9.8 in its words, and the commands that it has on top."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.interop.mqadmin_script import BROKER, CHANGES, CLUSTER, LOOKS, OFFLINE_GROUP, PULLS, SENDS, TOPIC, Step, step

_WITH_TOPIC: Final = ("queryMsgById",)


def _for_release_5(told: Step) -> Step:
    """The step in the words of release 5.3.3, which wants a topic with an id."""
    return replace(told, words=(*told.words, "-t", TOPIC)) if told.command in _WITH_TOPIC else told


_OF_RELEASE_5: Final = (
    step("updateTopic with a type", "updateTopic", *BROKER, "-t", "Typed", "-a", "+message.type=FIFO"),
    step("updateTopic with a type that is none", "updateTopic", *BROKER, "-t", "Typed", "-a", "+message.type=ODD"),
    step("topicRoute of what has a type", "topicRoute", "-t", "Typed"),
    step("exportMetadata with a type", "exportMetadata", *BROKER, "-t", "-f", "{directory}", writes="topic.json"),
    step("updateTopicList", "updateTopicList", *BROKER, "-f", "{directory}/topics.json"),
    step("updateTopicList of no file", "updateTopicList", *BROKER, "-f", "{directory}/nothing.json"),
    step("topicRoute of one of a list", "topicRoute", "-t", "Second"),
    step("deleteTopic of one of a list", "deleteTopic", *CLUSTER, "-t", "First"),
    step("deleteTopic of another of a list", "deleteTopic", *CLUSTER, "-t", "Second"),
    step("updateSubGroupList", "updateSubGroupList", *BROKER, "-f", "{directory}/groups.json"),
    step("getConsumerConfig of one of a list", "getConsumerConfig", "-g", "SecondGroup"),
    step("haStatus", "haStatus", *BROKER),
    step("getBrokerEpoch", "getBrokerEpoch", "-b", "broker-a"),
    step("setCommitLogReadAheadMode", "setCommitLogReadAheadMode", *BROKER, "-m", "0"),
    step("getColdDataFlowCtrInfo", "getColdDataFlowCtrInfo", *BROKER),
    step("updateColdDataFlowCtrGroupConfig", "updateColdDataFlowCtrGroupConfig", *BROKER, "-g", "Cold", "-v", "1000"),
    step("removeColdDataFlowCtrGroupConfig", "removeColdDataFlowCtrGroupConfig", *BROKER, "-g", "Cold"),
    step("resetMasterFlushOffset", "resetMasterFlushOffset", *BROKER, "-o", "0"),
    step(
        "setConsumeMode", "setConsumeMode", *BROKER, "-t", TOPIC, "-g", OFFLINE_GROUP, "-m", "POP", "-q", "1",
    ),
    step("exportPopRecord", "exportPopRecord", *BROKER, "-d", "true"),
    step("checkRocksdbCqWriteProgress", "checkRocksdbCqWriteProgress", *CLUSTER, "-t", TOPIC),
    step("createUser", "createUser", *BROKER, "-u", "user", "-p", "secret"),
    step("updateUser", "updateUser", *BROKER, "-u", "user", "-p", "another"),
    step("getUser", "getUser", *BROKER, "-u", "user"),
    step("listUser", "listUser", *BROKER),
    step("deleteUser", "deleteUser", *BROKER, "-u", "user"),
    step("createAcl", "createAcl", *BROKER, "-s", "User:user", "-r", "Topic:*", "-a", "Pub", "-d", "Allow"),
    step("updateAcl", "updateAcl", *BROKER, "-s", "User:user", "-r", "Topic:*", "-a", "Pub", "-d", "Allow"),
    step("getAcl", "getAcl", *BROKER, "-s", "User:user"),
    step("listAcl", "listAcl", *BROKER),
    step("deleteAcl", "deleteAcl", *BROKER, "-s", "User:user"),
)  # fmt: skip
LACKING_IN_5: Final = ("updateAclConfig", "deleteAclConfig", "updateGlobalWhiteAddr")

RELEASE_5: Final = tuple(
    _for_release_5(told)
    for told in (*LOOKS, *PULLS, *SENDS, *_OF_RELEASE_5, *CHANGES)
    if told.command not in LACKING_IN_5 and not told.awaits_statistics
)
FILES: Final = {
    "topics.json": '[{"topicName":"First","readQueueNums":1,"writeQueueNums":1,"perm":6},'
    '{"topicName":"Second","readQueueNums":2,"writeQueueNums":2,"perm":6}]',
    "groups.json": '[{"groupName":"FirstGroup"},{"groupName":"SecondGroup","retryMaxTimes":3}]',
}
"""What lies in ``{directory}``."""

_CONTROLLER: Final = "asks a controller, which a broker of 4.9 has not"
_CONTAINER: Final = "is for brokers in a container, which 4.9 has not"
_AUTH: Final = "copies what createUser and createAcl make, which 4.9 refuses"
_FILES: Final = "reads files of RocksDB or of a compacted log, and asks no broker"
_STATIC: Final = "static topics are refused by name (513)"
ELSEWHERE_5: Final = {
    "addBroker": _CONTAINER,
    "cleanBrokerMetadata": _CONTROLLER,
    "copyAcl": _AUTH,
    "copyUser": _AUTH,
    "dumpCompactionLog": _FILES,
    "electMaster": _CONTROLLER,
    "exportMetadataInRocksDB": _FILES,
    "getControllerConfig": _CONTROLLER,
    "getControllerMetaData": _CONTROLLER,
    "getSyncStateSet": _CONTROLLER,
    "remappingStaticTopic": _STATIC,
    "removeBroker": _CONTAINER,
    "rocksDBConfigToJson": _FILES,
    "updateControllerConfig": _CONTROLLER,
    "updateStaticTopic": _STATIC,
}
"""Commands that are not compared, and why."""
REFUSED_5: Final = frozenset(
    (
        *("setCommitLogReadAheadMode", "getColdDataFlowCtrInfo", "updateColdDataFlowCtrGroupConfig"),
        *("removeColdDataFlowCtrGroupConfig", "resetMasterFlushOffset", "setConsumeMode", "exportPopRecord"),
        *("checkRocksdbCqWriteProgress", "createUser", "updateUser", "getUser", "listUser", "deleteUser"),
        *("createAcl", "updateAcl", "getAcl", "listAcl", "deleteAcl"),
    )
)
"""Commands of which both, Apache's 4.9 broker and ours, say that they do not know the request."""
