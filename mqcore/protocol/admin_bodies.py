"""Bodies of statistics, offsets, locks and the calls that brokers forward to clients.

Source: RocketMQ common/protocol/body/*.java, common/admin/*.java.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Final

from mqcore.protocol.heartbeat import SubscriptionData
from mqcore.protocol.json_body import JsonBody
from mqcore.protocol.message import MessageQueue


@dataclass(slots=True)
class TopicOffset(JsonBody):
    """What a queue holds: ``[min_offset, max_offset)``; the time is ms since 1970, 0 if unknown."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@dataclass(slots=True)
class TopicStatsTable(JsonBody):
    """Body of the answer to GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)


@dataclass(slots=True)
class OffsetWrapper(JsonBody):
    """How far a group is in a queue, and when the last message it has consumed was stored.

    What lies between *consumer_offset* and *pull_offset* has been handed out and is not committed; 4.9 brokers do not
    say *pull_offset*.
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int | None = None


@dataclass(slots=True)
class ConsumeStats(JsonBody):
    """Body of the answer to GET_CONSUME_STATS."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0

    def total_diff(self) -> int:
        """Return how many messages the group has still to consume."""
        return sum(row.broker_offset - row.consumer_offset for row in self.offset_table.values())


@dataclass(slots=True)
class ConsumeStatsList(JsonBody):
    """Body of the answer to GET_BROKER_CONSUME_STATS: one single-entry map for each group."""

    broker_addr: str = ""
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: int = 0


@dataclass(slots=True)
class GroupList(JsonBody):
    """Body of the answer to QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: list[str] = field(default_factory=list)


@dataclass(slots=True)
class QueueTimeSpan(JsonBody):
    """Store times of a queue: of its first, its last, and the last consumed message, ms since 1970.

    On the wire each time also stands as text, in the local time zone; those members are computed.
    """

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0

    def to_json(self) -> dict[Any, Any]:
        members = JsonBody.to_json(self)
        for name in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp"):
            members[name + "Str"] = readable_time(members[name])
        return dict(sorted(members.items()))


def readable_time(timestamp_ms: int) -> str:
    """Return a time as ``yyyy-MM-dd#HH:mm:ss:SSS`` in the local time zone."""
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(seconds))}:{milliseconds:03d}"


@dataclass(slots=True)
class QueryConsumeTimeSpanBody(JsonBody):
    """Body of the answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


@dataclass(slots=True)
class QueryCorrectionOffsetBody(JsonBody):
    """Body of the answer to QUERY_CORRECTION_OFFSET: queue id -> offset."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerStatsItem(JsonBody):
    """One span of time: sum, per second, and average per call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(slots=True)
class BrokerStatsData(JsonBody):
    """Body of the answer to VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


@dataclass(slots=True)
class ConsumeQueueData(JsonBody):
    """One consume queue unit in the answer to QUERY_CONSUME_QUEUE."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclass(slots=True)
class QueryConsumeQueueResponseBody(JsonBody):
    """Body of the answer to QUERY_CONSUME_QUEUE."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    max_queue_index: int = 0
    min_queue_index: int = 0


# Calls that a broker forwards to a client.


@dataclass(slots=True)
class ResetOffsetBody(JsonBody):
    """Body of RESET_CONSUMER_CLIENT_OFFSET and of the answer to INVOKE_BROKER_TO_RESET_OFFSET."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


@dataclass(slots=True)
class MessageQueueForC(JsonBody):
    """A queue with its offset, for readers that cannot parse objects as member names."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0
    offset: int = 0


@dataclass(slots=True)
class ResetOffsetBodyForC(JsonBody):
    """RESET_CONSUMER_CLIENT_OFFSET's body when the request for it came from a C++ client."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


@dataclass(slots=True)
class GetConsumerStatusBody(JsonBody):
    """Offsets that clients hold: of one client by queue, or of several by client id."""

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


@dataclass(slots=True)
class ProcessQueueInfo(JsonBody):
    """A queue as a consumer holds it; counts of messages, offsets, and times in ms since 1970."""

    JSON_NAMES: ClassVar = {"cached_msg_size_in_mib": "cachedMsgSizeInMiB", "dropped": "droped"}

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = False  # compat: the wire has it so
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclass(slots=True)
class ConsumeStatus(JsonBody):
    """Rates of one topic in a consumer: times in ms, rates a second."""

    JSON_NAMES: ClassVar = {
        "pull_rt": "pullRT",
        "pull_tps": "pullTPS",
        "consume_rt": "consumeRT",
        "consume_ok_tps": "consumeOKTPS",
        "consume_failed_tps": "consumeFailedTPS",
    }

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


PAUSED_QUEUES: Final = "PROP_PAUSED_QUEUES"
"""Of our own, among the properties: queues of which the program has its consumer pull nothing, JSON."""


@dataclass(slots=True)
class ConsumerRunningInfo(JsonBody):
    """Body of the answer to GET_CONSUMER_RUNNING_INFO. The tools need ``PROP_CONSUME_TYPE`` among the properties."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None

    @property
    def paused_queues(self) -> frozenset[MessageQueue] | None:
        """The queues of which the program has it pull nothing; None for a client that does not tell, as Java's."""
        try:
            rows = json.loads(self.properties[PAUSED_QUEUES])
            return frozenset(MessageQueue(str(topic), str(broker), int(number)) for topic, broker, number in rows)
        except (KeyError, TypeError, ValueError):
            return None


def paused_text(queues: Iterable[MessageQueue]) -> str:
    """Return the value of PAUSED_QUEUES that says *queues*."""
    return json.dumps([[queue.topic, queue.broker_name, queue.queue_id] for queue in sorted(queues)])


class CMResult(IntEnum):
    """What a listener made of a message that it was told to consume."""

    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5


@dataclass(slots=True)
class ConsumeMessageDirectlyResult(JsonBody):
    """Body of the answer to CONSUME_MESSAGE_DIRECTLY."""

    JSON_NAMES: ClassVar = {"spent_time_millis": "spentTimeMills"}

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_millis: int = 0


@dataclass(slots=True)
class OffsetMovedEvent(JsonBody):
    """Body of the message that a broker writes to OFFSET_MOVED_EVENT for every answer 21."""

    message_queue: MessageQueue
    consumer_group: str = ""
    offset_request: int = 0
    offset_new: int = 0
