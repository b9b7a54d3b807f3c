"""Every metric of ``/metrics``: one row each, which the collector, the page docs/metrics.md and the tests walk.

Names, labels and units of the first two families are RocketMQ's, odd ones included. Source: RocketMQ 5.x
broker/metrics/BrokerMetricsManager.java, store/metrics/DefaultStoreMetricsManager.java; rocketmq-exporter
collector/RMQMetricsCollector.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class SeriesKind(StrEnum):
    """What Prometheus is told of a metric's values; the value is its word for it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricFamily(StrEnum):
    """Whose name it is."""

    NATIVE = "RocketMQ 5"
    EXPORTER = "rocketmq-exporter (4.x)"
    OWN = "mqcore"


class Subject(StrEnum):
    """What a value is of: a metric has a series for each."""

    BROKER = "broker"
    TOPIC = "topic"
    PLAIN_TOPIC = "topic of no group's own"
    RETRY_TOPIC = "retry topic"
    DEAD_TOPIC = "dead letter topic"
    GROUP = "group and topic"
    PLAIN_GROUP = "group that shares queues, and topic of no group's own"
    RETRY_GROUP = "group and its retry topic"
    DEAD_GROUP = "group and its dead letter topic"
    PRODUCERS = "kind of producer"
    CONSUMERS = "group and kind of consumer"
    POOL = "RocketMQ's thread pool"
    RUNTIME = "broker (runtime table)"
    FLAG = "what may be wrong with the store"
    BOUND = "label with a bound"
    PUTS = "puts"
    REQUESTS = "kind of request"
    WORKER = "process of the broker"
    WORKER_MODE = "process and mode"
    SWITCHES = "process and kind of switch"
    SLAVE = "connected slave"
    HOST = "machine"
    HOST_MODE = "mode of the machine's processors"
    PRESSURE = "resource and extent"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric. *key* is the value's name in a thing of *subject*; *labels* are further ones of the same thing."""

    name: str
    kind: SeriesKind
    subject: Subject
    key: str
    labels: tuple[str, ...]
    unit: str
    help: str
    source: str
    family: MetricFamily

    @property
    def base_name(self) -> str:
        """The name without what Prometheus puts behind a counter's."""
        return self.name.removesuffix("_total") if self.kind is SeriesKind.COUNTER else self.name


NODE: Final = ("cluster", "node_type", "node_id")
STORAGE: Final = (*NODE, "storage_type", "storage_medium")
TOPIC: Final = (*NODE, "topic", "message_type", "is_system")
READ: Final = (*NODE, "topic", "consumer_group", "is_retry", "is_system")
CLUSTER_TOPIC: Final = ("cluster", "broker", "topic")
CLUSTER_GROUP: Final = ("cluster", "broker", "topic", "group")
DIFF: Final = ("group", "topic", "countOfOnlineConsumers", "msgModel")
RUNTIME_LABELS: Final = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
OWN: Final = ("cluster", "node_id")
WORKER: Final = (*OWN, "worker", "kind")

COUNTER, GAUGE, HISTOGRAM = SeriesKind.COUNTER, SeriesKind.GAUGE, SeriesKind.HISTOGRAM


def _native(
    name: str, kind: SeriesKind, subject: Subject, key: str, labels: tuple[str, ...], unit: str, text: str, source: str
) -> MetricRow:
    return MetricRow(f"rocketmq_{name}", kind, subject, key, labels, unit, text, source, MetricFamily.NATIVE)


def _exported(
    name: str, subject: Subject, key: str, labels: tuple[str, ...], unit: str, text: str, source: str
) -> MetricRow:
    return MetricRow(f"rocketmq_{name}", GAUGE, subject, key, labels, unit, text, source, MetricFamily.EXPORTER)


def _runtime(name: str, key: str, unit: str) -> MetricRow:
    """A figure of the runtime table; *key* is the key there, and behind a space the place in its value."""
    return _exported(
        f"brokeruntime_{name}", Subject.RUNTIME, key, RUNTIME_LABELS, unit,
        f"{key.split()[0]} of the runtime table", "runtime table",
    )  # fmt: skip


def _own(
    name: str, kind: SeriesKind, subject: Subject, key: str, labels: tuple[str, ...], unit: str, text: str, source: str
) -> MetricRow:
    return MetricRow(f"mqcore_{name}", kind, subject, key, labels, unit, text, source, MetricFamily.OWN)


NATIVE_ROWS: Final = (
    _native("messages_in_total", COUNTER, Subject.TOPIC, "put_nums", TOPIC, "messages",
            "Messages stored since the start", "topic_row.put_nums"),
    _native("throughput_in_total", COUNTER, Subject.TOPIC, "put_bytes", TOPIC, "bytes",
            "Bytes of the log that they took", "topic_row.put_bytes"),
    _native("messages_out_total", COUNTER, Subject.GROUP, "get_nums", READ, "messages",
            "Messages given to consumers since the start", "offset_row.get_nums"),
    _native("throughput_out_total", COUNTER, Subject.GROUP, "get_bytes", READ, "bytes",
            "Bytes of the log given to consumers since the start", "offset_row.get_bytes"),
    _native("consumer_lag_messages", GAUGE, Subject.GROUP, "lag", READ, "messages",
            "Messages behind the group's committed offsets", "offset_row.committed, queue_row.max_offset"),
    _native("consumer_lag_latency", GAUGE, Subject.GROUP, "lag_ms", READ, "ms",
            "Age of the oldest message that the group has not consumed; 0 = there is none",
            "store time of that message"),
    _native("consumer_inflight_messages", GAUGE, Subject.GROUP, "in_flight", READ, "messages",
            "Messages given out whose offsets are not committed", "offset_row.pull_offset, .committed"),
    _native("consumer_ready_messages", GAUGE, Subject.GROUP, "ready", READ, "messages",
            "Messages that wait to be pulled", "queue_row.max_offset, offset_row.pull_offset"),
    _native("send_to_dlq_messages_total", COUNTER, Subject.DEAD_TOPIC, "put_nums",
            (*NODE, "topic", "consumer_group", "is_system"), "messages",
            "Messages given up since the start", "topic_row.put_nums of %DLQ% topics"),
    _native("producer_connections", GAUGE, Subject.PRODUCERS, "count",
            (*NODE, "language", "version", "protocol_type"), "connections",
            "Memberships of producers in producer groups", "heart-beats"),
    _native("consumer_connections", GAUGE, Subject.CONSUMERS, "count",
            (*NODE, "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
            "connections", "Members of consumer groups", "heart-beats"),
    _native("topic_number", GAUGE, Subject.BROKER, "topic_number", NODE, "topics", "Topics that this broker has",
            "topics table"),
    _native("consumer_group_number", GAUGE, Subject.BROKER, "group_number", NODE, "groups",
            "Consumer groups that this broker knows", "groups table"),
    _native("broker_permission", GAUGE, Subject.BROKER, "permission", NODE, "bits", "brokerPermission: 4 read, 2 write",
            "settings"),
    _native("processor_watermark", GAUGE, Subject.POOL, "queue_size", (*NODE, "processor"), "requests",
            "Requests that wait in front of the workers of a pool", "worker_row.backlog"),
    _native("rpc_latency", HISTOGRAM, Subject.REQUESTS, "latency",
            (*NODE, "protocol_type", "request_code", "response_code", "is_long_polling"), "ms",
            "How long sends and pulls with messages took, from when they could be read to when they were answered, "
            "without the time that a pull was held; other bounds than RocketMQ's", "latency_row"),
    _native("storage_size", GAUGE, Subject.BROKER, "storage_size", STORAGE, "bytes",
            "Bytes used on the disk of the store", "statvfs"),
    _native("storage_flush_behind_bytes", GAUGE, Subject.BROKER, "flush_behind", STORAGE, "bytes",
            "Bytes of the log that are not on disk yet", "store_board.wrote_offset, .flushed_offset"),
    _native("storage_dispatch_behind_bytes", GAUGE, Subject.BROKER, "dispatch_behind", STORAGE, "bytes",
            "Bytes of the log that are not in consume queues yet", "store_board.wrote_offset, .dispatched_offset"),
    _native("storage_message_reserve_time", GAUGE, Subject.BROKER, "reserve_ms", STORAGE, "ms",
            "Age of the oldest message", "store time of that message"),
    _native("timing_messages", GAUGE, Subject.BROKER, "timer_pending", STORAGE, "messages",
            "Messages that wait for their time; of all topics together", "store_board.timer_pending"),
    _native("timer_enqueue_lag", GAUGE, Subject.BROKER, "timer_behind", STORAGE, "messages",
            "Messages with timers that are not in the wheel yet", "store_board.timer_queue_offset"),
    _native("timer_dequeue_latency", GAUGE, Subject.BROKER, "timer_late_ms", STORAGE, "ms",
            "How far delivery is behind the clock", "store_board.timer_read_time"),
    _native("timer_enqueue_total", COUNTER, Subject.BROKER, "timer_enqueued", STORAGE, "messages",
            "Messages put into the wheel since the start", "store_board.timer_enqueued"),
    _native("timer_dequeue_total", COUNTER, Subject.BROKER, "timer_delivered", STORAGE, "messages",
            "Messages delivered since the start", "store_board.timer_delivered"),
)  # fmt: skip

EXPORTER_ROWS: Final = (
    _exported("broker_tps", Subject.BROKER, "put_rate", ("cluster", "brokerIP", "broker"), "messages/s",
              "Messages stored a second", "store_board.put_times"),
    _exported("broker_qps", Subject.BROKER, "get_rate", ("cluster", "brokerIP", "broker"), "messages/s",
              "Messages given to consumers a second", "store_board.get_times"),
    _exported("producer_tps", Subject.PLAIN_TOPIC, "put_rate", CLUSTER_TOPIC, "messages/s", "Messages stored a second",
              "topic_row.put_nums"),
    _exported("producer_message_size", Subject.PLAIN_TOPIC, "put_bytes_rate", CLUSTER_TOPIC, "bytes/s",
              "Bytes stored a second", "topic_row.put_bytes"),
    _exported("producer_offset", Subject.PLAIN_TOPIC, "max_offset", CLUSTER_TOPIC, "messages", "Max offsets, summed",
              "queue_row.max_offset"),
    _exported("topic_retry_offset", Subject.RETRY_TOPIC, "max_offset", CLUSTER_TOPIC, "messages",
              "Max offsets of a retry topic, summed", "queue_row.max_offset"),
    _exported("topic_dlq_offset", Subject.DEAD_TOPIC, "max_offset", ("cluster", "broker", "group"), "messages",
              "Max offsets of a dead letter topic, summed", "queue_row.max_offset"),
    _exported("consumer_tps", Subject.GROUP, "get_rate", CLUSTER_GROUP, "messages/s",
              "Messages given out a second", "offset_row.get_nums"),
    _exported("group_consume_tps", Subject.GROUP, "get_rate", CLUSTER_GROUP, "messages/s",
              "Messages given out a second", "offset_row.get_nums"),
    _exported("consumer_message_size", Subject.GROUP, "get_bytes_rate", CLUSTER_GROUP, "bytes/s",
              "Bytes given out a second", "offset_row.get_bytes"),
    _exported("consumer_offset", Subject.GROUP, "committed", CLUSTER_GROUP, "messages",
              "Committed offsets, summed", "offset_row.committed"),
    _exported("group_get_latency_by_storetime", Subject.GROUP, "lag_ms", CLUSTER_GROUP, "ms",
              "Age of the oldest message that the group has not consumed; 0 = there is none",
              "store time of that message"),
    _exported("send_back_nums", Subject.RETRY_GROUP, "put_rate", CLUSTER_GROUP, "messages/s",
              "Messages sent back a second, by retry topic", "topic_row.put_nums of %RETRY% topics"),
    _exported("group_diff", Subject.PLAIN_GROUP, "lag", DIFF, "messages",
              "Messages behind the group's committed offsets", "offset_row.committed, queue_row.max_offset"),
    _exported("group_retrydiff", Subject.RETRY_GROUP, "lag", DIFF, "messages", "The same of its retry topic",
              "offset_row.committed, queue_row.max_offset"),
    _exported("group_dlqdiff", Subject.DEAD_GROUP, "lag", DIFF, "messages", "The same of its dead letter topic",
              "offset_row.committed, queue_row.max_offset"),
    _runtime("pmdt_0ms", "putMessageDistributeTime 0", "messages"),
    _runtime("pmdt_0to10ms", "putMessageDistributeTime 1", "messages"),
    _runtime("pmdt_10to50ms", "putMessageDistributeTime 2", "messages"),
    _runtime("pmdt_50to100ms", "putMessageDistributeTime 3", "messages"),
    _runtime("pmdt_100to200ms", "putMessageDistributeTime 4", "messages"),
    _runtime("pmdt_200to500ms", "putMessageDistributeTime 5", "messages"),
    _runtime("pmdt_500to1s", "putMessageDistributeTime 6", "messages"),
    _runtime("pmdt_1to2s", "putMessageDistributeTime 7", "messages"),
    _runtime("pmdt_2to3s", "putMessageDistributeTime 8", "messages"),
    _runtime("pmdt_3to4s", "putMessageDistributeTime 9", "messages"),
    _runtime("pmdt_4to5s", "putMessageDistributeTime 10", "messages"),
    _runtime("pmdt_5to10s", "putMessageDistributeTime 11", "messages"),
    _runtime("pmdt_10stomore", "putMessageDistributeTime 12", "messages"),
    _runtime("msg_put_total_today_now", "msgPutTotalTodayNow", "messages"),
    _runtime("msg_gettotal_today_now", "msgGetTotalTodayNow", "messages"),
    _runtime("msg_puttotal_todaymorning", "msgPutTotalTodayMorning", "messages"),
    _runtime("msg_gettotal_todaymorning", "msgGetTotalTodayMorning", "messages"),
    _runtime("msg_puttotal_yesterdaymorning", "msgPutTotalYesterdayMorning", "messages"),
    _runtime("msg_gettotal_yesterdaymorning", "msgGetTotalYesterdayMorning", "messages"),
    _runtime("dispatch_behind_bytes", "dispatchBehindBytes", "bytes"),
    _runtime("dispatch_maxbuffer", "dispatchMaxBuffer", "bytes"),
    _runtime("put_message_size_total", "putMessageSizeTotal", "bytes"),
    _runtime("put_message_average_size", "putMessageAverageSize", "bytes"),
    _runtime("putmessage_times_total", "putMessageTimesTotal", "messages"),
    _runtime("putmessage_entire_time_max", "putMessageEntireTimeMax", "ms"),
    _runtime("getmessage_entire_time_max", "getMessageEntireTimeMax", "ms"),
    _runtime("put_latency_99", "putLatency99", "ms"),
    _runtime("put_latency_999", "putLatency999", "ms"),
    _runtime("put_tps10", "putTps 0", "messages/s"),
    _runtime("put_tps60", "putTps 1", "messages/s"),
    _runtime("put_tps600", "putTps 2", "messages/s"),
    _runtime("getfound_tps10", "getFoundTps 0", "pulls/s"),
    _runtime("getfound_tps60", "getFoundTps 1", "pulls/s"),
    _runtime("getfound_tps600", "getFoundTps 2", "pulls/s"),
    _runtime("getmiss_tps10", "getMissTps 0", "pulls/s"),
    _runtime("getmiss_tps60", "getMissTps 1", "pulls/s"),
    _runtime("getmiss_tps600", "getMissTps 2", "pulls/s"),
    _runtime("gettotal_tps10", "getTotalTps 0", "pulls/s"),
    _runtime("gettotal_tps60", "getTotalTps 1", "pulls/s"),
    _runtime("gettotal_tps600", "getTotalTps 2", "pulls/s"),
    _runtime("gettransfered_tps10", "getTransferedTps 0", "messages/s"),
    _runtime("gettransfered_tps60", "getTransferedTps 1", "messages/s"),
    _runtime("gettransfered_tps600", "getTransferedTps 2", "messages/s"),
    _runtime("send_threadpool_queue_size", "sendThreadPoolQueueSize", "requests"),
    _runtime("send_threadpoolqueue_capacity", "sendThreadPoolQueueCapacity", "requests"),
    _runtime("send_threadpoolqueue_headwait_timemills", "sendThreadPoolQueueHeadWaitTimeMills", "ms"),
    _runtime("pull_threadpoolqueue_size", "pullThreadPoolQueueSize", "requests"),
    _runtime("pull_threadpoolqueue_capacity", "pullThreadPoolQueueCapacity", "requests"),
    _runtime("pull_threadpoolqueue_headwait_timemills", "pullThreadPoolQueueHeadWaitTimeMills", "ms"),
    _runtime("query_threadpoolqueue_size", "queryThreadPoolQueueSize", "requests"),
    _runtime("query_threadpool_queue_capacity", "queryThreadPoolQueueCapacity", "requests"),
    _runtime("query_threadpoolqueue_headwait_timemills", "queryThreadPoolQueueHeadWaitTimeMills", "ms"),
    _runtime("commitlog_disk_ratio", "commitLogDiskRatio", "0 to 1"),
    _runtime("consumequeue_disk_ratio", "consumeQueueDiskRatio", "0 to 1"),
    _runtime("commitlogdir_capacity_total", "commitLogDirCapacity 0", "bytes"),
    _runtime("commitlogdir_capacity_free", "commitLogDirCapacity 1", "bytes"),
    _runtime("commitlog_maxoffset", "commitLogMaxOffset", "bytes"),
    _runtime("commitlog_minoffset", "commitLogMinOffset", "bytes"),
    _runtime("remain_howmanydata_toflush", "remainHowManyDataToFlush", "bytes"),
    _runtime("remain_transientstore_buffer_numbs", "remainTransientStoreBufferNumbs", "buffers"),
    _runtime("pagecache_lock_time_mills", "pageCacheLockTimeMills", "ms"),
    _runtime("earliest_message_timestamp", "earliestMessageTimeStamp", "ms since 1970"),
    _runtime("start_accept_sendrequest_time", "startAcceptSendRequestTimeStamp", "ms since 1970"),
)  # fmt: skip

OWN_ROWS: Final = (
    _own("build_info", GAUGE, Subject.BROKER, "one", (*OWN, "version", "protocol_version"), "1",
         "Always 1: what runs here", "mqcore.version"),
    _own("start_time_seconds", GAUGE, Subject.BROKER, "start_s", OWN, "s since 1970", "When the broker started",
         "store_board.boot_timestamp"),
    _own("ready", GAUGE, Subject.BROKER, "is_ready", OWN, "1 or 0", "Whether /readyz says that it is ready", "/readyz"),
    _own("registered", GAUGE, Subject.BROKER, "is_registered", OWN, "1 or 0",
         "Whether a name server has taken what this broker has", "registration"),
    _own("is_master", GAUGE, Subject.BROKER, "is_master", OWN, "1 or 0",
         "Whether it takes messages: it is no slave just now", "role"),
    _own("failover_epoch", GAUGE, Subject.BROKER, "epoch", OWN, "epoch",
         "Of a broker in a failover group: the newest epoch that it has heard of", "failover group"),
    _own("store_flag", GAUGE, Subject.FLAG, "is_set", (*OWN, "flag"), "1 or 0",
         "What is wrong with the store, or keeps it from taking messages", "store_board.store_flags"),
    _own("put_messages_total", COUNTER, Subject.BROKER, "put_nums", OWN, "messages",
         "Messages stored since the start", "store_board.put_times"),
    _own("put_bytes_total", COUNTER, Subject.BROKER, "put_bytes", OWN, "bytes", "Bytes of the log that they took",
         "store_board.put_bytes"),
    _own("put_failed_total", COUNTER, Subject.BROKER, "put_failed", OWN, "appends", "Appends refused since the start",
         "store_board.put_failed"),
    _own("get_messages_total", COUNTER, Subject.BROKER, "get_nums", OWN, "messages",
         "Messages given to consumers since the start", "store_board.get_times"),
    _own("get_bytes_total", COUNTER, Subject.BROKER, "get_bytes", OWN, "bytes",
         "Bytes given to consumers since the start", "store_board.get_bytes"),
    _own("pulls_found_total", COUNTER, Subject.BROKER, "get_found", OWN, "pulls", "Pulls that found messages",
         "store_board.get_found"),
    _own("pulls_missed_total", COUNTER, Subject.BROKER, "get_miss", OWN, "pulls", "Pulls that found nothing",
         "store_board.get_missed"),
    _own("waiting_pulls", GAUGE, Subject.BROKER, "waiting_pulls", OWN, "pulls", "Pulls that are held",
         "worker_row.parked of the pull workers"),
    _own("commit_log_min_offset_bytes", GAUGE, Subject.BROKER, "log_min", OWN, "bytes", "Where the log begins",
         "store_board.min_offset"),
    _own("commit_log_max_offset_bytes", GAUGE, Subject.BROKER, "log_max", OWN, "bytes",
         "How far the log may be read", "store_board.readable_offset"),
    _own("commit_log_files_begun_total", COUNTER, Subject.BROKER, "file_rolls", OWN, "files",
         "Commit log files begun since the start", "store_board.file_rolls"),
    _own("put_lock_repairs_total", COUNTER, Subject.BROKER, "put_repairs", OWN, "locks",
         "Put locks taken over from a dead owner", "store_board.put_repairs"),
    _own("disk_free_bytes", GAUGE, Subject.BROKER, "disk_free", OWN, "bytes",
         "Bytes that the broker can still have on the disk of the store", "statvfs"),
    _own("disk_used_ratio", GAUGE, Subject.BROKER, "disk_ratio", OWN, "0 to 1",
         "Used share of that disk, in whole percents, rounded up", "statvfs"),
    _own("subscription_conflicts_total", COUNTER, Subject.BROKER, "conflicts", OWN, "groups",
         "Groups whose members were found to subscribe to different things", "heart-beats"),
    _own("subscription_conflict_groups", GAUGE, Subject.BROKER, "conflict_groups", OWN, "groups",
         "Groups of which that is so now", "heart-beats"),
    _own("flush_behind_seconds", GAUGE, Subject.BROKER, "flush_behind_s", OWN, "s",
         "Time between the newest message and the newest that is on disk; 0 = all are",
         "store_board.wrote_timestamp, .flushed_timestamp"),
    _own("dispatch_behind_seconds", GAUGE, Subject.BROKER, "dispatch_behind_s", OWN, "s",
         "Time between the newest message and the newest that is in a consume queue; 0 = all are",
         "store_board.wrote_timestamp, .dispatched_timestamp"),
    _own("put_latency_seconds", HISTOGRAM, Subject.PUTS, "latency", OWN, "s",
         "How long puts took, the wait for the put lock, and with SYNC_FLUSH for the disk, included; without a sum",
         "store_board.put_tally_0"),
    _own("slaves", GAUGE, Subject.BROKER, "slaves", OWN, "slaves", "Slaves that copy the log now",
         "store_board.slave_count"),
    _own("replicated_behind_bytes", GAUGE, Subject.BROKER, "replicated_behind", OWN, "bytes",
         "Of a master that has slaves: bytes of the log that no slave has",
         "store_board.wrote_offset, .replicated_offset"),
    _own("confirmed_behind_bytes", GAUGE, Subject.BROKER, "confirmed_behind", OWN, "bytes",
         "Of the master of a failover group: bytes of the log that a required member lacks",
         "store_board.wrote_offset, .confirmed_offset"),
    _own("slave_behind_bytes", GAUGE, Subject.SLAVE, "behind_bytes", (*OWN, "slave"), "bytes",
         "Bytes of the log that a slave has not acknowledged", "slave_row.acked"),
    _own("slave_behind_seconds", GAUGE, Subject.SLAVE, "behind_s", (*OWN, "slave"), "s",
         "For how long it has not had all; 0 = it has", "slave_row.caught_up_at"),
    _own("slave_sent_bytes_total", COUNTER, Subject.SLAVE, "sent_bytes", (*OWN, "slave"), "bytes",
         "Bytes of the log sent over its connection", "slave_row.sent_bytes"),
    _own("master_connected", GAUGE, Subject.BROKER, "is_copying", OWN, "1 or 0",
         "Of a slave: whether it copies its master's log", "store_board.master_state"),
    _own("master_behind_bytes", GAUGE, Subject.BROKER, "master_behind", OWN, "bytes",
         "Of a slave: bytes that its master has said to have more", "store_board.master_end, .wrote_offset"),
    _own("master_silent_seconds", GAUGE, Subject.BROKER, "master_silent_s", OWN, "s",
         "Of a slave that is connected: how long ago its master was heard", "store_board.master_seen"),
    _own("series_left_out", GAUGE, Subject.BOUND, "left_out", (*OWN, "label"), "series",
         "Topics, groups with topics, and kinds of members, that are summed up as (others)",
         "metricsTopicsMax, metricsGroupsMax"),
    _own("scrape_seconds", GAUGE, Subject.BROKER, "survey_s", OWN, "s", "How long it took to look at all this",
         "this scrape"),
    _own("worker_up", GAUGE, Subject.WORKER, "is_alive", WORKER, "1 or 0", "Whether it runs",
         "worker_row.state, and its process"),
    _own("worker_restarts_total", COUNTER, Subject.WORKER, "restarts", WORKER, "deaths", "How often it has died",
         "worker_row.generation"),
    _own("worker_heartbeat_age_seconds", GAUGE, Subject.WORKER, "heartbeat_age_s", WORKER, "s",
         "How long ago its loop last turned; not of the flush worker, which has none", "worker_row.heartbeat"),
    _own("worker_turns_total", COUNTER, Subject.WORKER, "turns", WORKER, "turns", "Turns of its loop",
         "worker_row.turns"),
    _own("worker_wakes_total", COUNTER, Subject.WORKER, "wakes", WORKER, "wakes", "Others that it woke",
         "worker_row.wakes"),
    _own("worker_units_total", COUNTER, Subject.WORKER, "units", WORKER, "frames, pulls, records, syncs",
         "What it exists for", "worker_row.units"),
    _own("worker_bytes_total", COUNTER, Subject.WORKER, "bytes", WORKER, "bytes", "Bytes it handled",
         "worker_row.bytes"),
    _own("worker_refused_total", COUNTER, Subject.WORKER, "refused", WORKER, "requests", "Requests it refused",
         "worker_row.refused"),
    _own("worker_backlog", GAUGE, Subject.WORKER, "backlog", WORKER, "units", "Work it knows of and has not done",
         "worker_row.backlog"),
    _own("worker_parked", GAUGE, Subject.WORKER, "parked", WORKER, "answers, pulls", "What waits there",
         "worker_row.parked"),
    _own("worker_connections", GAUGE, Subject.WORKER, "connections", WORKER, "connections", "Open connections",
         "worker_row.connections"),
    _own("worker_accepted_total", COUNTER, Subject.WORKER, "accepted", WORKER, "connections", "Connections accepted",
         "worker_row.accepted"),
    _own("worker_buffered_bytes", GAUGE, Subject.WORKER, "buffered", WORKER, "bytes", "Bytes in connection buffers",
         "worker_row.buffered"),
    _own("worker_protocol_errors_total", COUNTER, Subject.WORKER, "protocol_errors", WORKER, "connections",
         "Connections closed for bad frames", "worker_row.protocol_errors"),
    _own("worker_slow_readers_total", COUNTER, Subject.WORKER, "slow_readers", WORKER, "connections",
         "Connections closed for not reading", "worker_row.slow_readers"),
    _own("worker_handshakes_total", COUNTER, Subject.WORKER, "handshakes", WORKER, "connections",
         "TLS connections made", "worker_row.handshakes"),
    _own("worker_handshakes_failed_total", COUNTER, Subject.WORKER, "handshakes_failed", WORKER, "connections",
         "Connections closed in their TLS handshake", "worker_row.handshakes_failed"),
    _own("worker_transport_refused_total", COUNTER, Subject.WORKER, "transport_refused", WORKER, "connections",
         "Connections closed for coming plain or with TLS where they may not", "worker_row.transport_refused"),
    _own("worker_timed_out_total", COUNTER, Subject.WORKER, "timed_out", WORKER, "requests",
         "Requests refused because they had waited too long", "worker_row.timed_out"),
    _own("worker_page_cache_busy_total", COUNTER, Subject.WORKER, "page_cache_busy", WORKER, "requests",
         "Sends refused because somebody appended for too long", "worker_row.page_cache_busy"),
    _own("worker_quota_delayed_total", COUNTER, Subject.WORKER, "quota_delayed", WORKER, "requests",
         "Requests that waited for a quota", "worker_row.quota_delayed"),
    _own("worker_quota_refused_total", COUNTER, Subject.WORKER, "quota_refused", WORKER, "requests",
         "Requests that a quota has refused", "worker_row.quota_refused"),
    _own("worker_connections_refused_total", COUNTER, Subject.WORKER, "connections_refused", WORKER, "connections",
         "Connections closed at once because there were too many", "worker_row.connections_refused"),
    _own("worker_read_max_seconds", GAUGE, Subject.WORKER, "read_max_s", WORKER, "s",
         "Longest reading of what a pull found, since the start", "worker_row.read_ms_max"),
    _own("worker_cpu_seconds_total", COUNTER, Subject.WORKER_MODE, "cpu_s", (*WORKER, "mode"), "s",
         "Processor time", "psutil"),
    _own("worker_runqueue_wait_seconds_total", COUNTER, Subject.WORKER, "runqueue_wait_s", WORKER, "s",
         "Time that its threads could run and had no processor", "/proc/PID/task/TID/schedstat"),
    _own("worker_block_wait_seconds_total", COUNTER, Subject.WORKER, "block_wait_s", WORKER, "s",
         "Time waited for disks, where the kernel accounts for it (task_delayacct)", "psutil"),
    _own("worker_context_switches_total", COUNTER, Subject.SWITCHES, "switches", (*WORKER, "switch"), "switches",
         "Processors given away (voluntary) and lost (involuntary) by its threads", "/proc/PID/task/TID/status"),
    _own("worker_resident_bytes", GAUGE, Subject.WORKER, "resident", WORKER, "bytes",
         "Memory, pages of mapped files that others have, too, included", "psutil"),
    _own("worker_threads", GAUGE, Subject.WORKER, "threads", WORKER, "threads", "Threads", "psutil"),
    _own("worker_open_descriptors", GAUGE, Subject.WORKER, "descriptors", WORKER, "descriptors", "Open descriptors",
         "psutil"),
    _own("host_load1", GAUGE, Subject.HOST, "load1", OWN, "tasks", "Tasks that run, want to or wait for a disk; 1 min",
         "getloadavg"),
    _own("host_load5", GAUGE, Subject.HOST, "load5", OWN, "tasks", "The same over 5 min", "getloadavg"),
    _own("host_load15", GAUGE, Subject.HOST, "load15", OWN, "tasks", "The same over 15 min", "getloadavg"),
    _own("host_processors", GAUGE, Subject.HOST, "processors", OWN, "processors", "Processors that the broker may use",
         "sched_getaffinity"),
    _own("host_memory_bytes", GAUGE, Subject.HOST, "memory_total", OWN, "bytes", "Memory of the machine", "psutil"),
    _own("host_memory_available_bytes", GAUGE, Subject.HOST, "memory_available", OWN, "bytes",
         "What of it can be had without swapping", "psutil"),
    _own("host_cpu_seconds_total", COUNTER, Subject.HOST_MODE, "cpu_s", (*OWN, "mode"), "s",
         "What the processors of the machine did; iowait: nothing, while a task waited for a disk", "psutil"),
    _own("host_pressure_seconds_total", COUNTER, Subject.PRESSURE, "waited_s", (*OWN, "resource", "extent"), "s",
         "Time in which some or all (full) tasks waited for a resource", "/proc/pressure"),
)  # fmt: skip

ROWS: Final = (*NATIVE_ROWS, *EXPORTER_ROWS, *OWN_ROWS)

NOT_SERVED: Final = {
    "rocketmq_message_size": "needs a tally of each message's size",
    "rocketmq_consumer_queueing_latency": "needs a second look into the log for each queue",
    "rocketmq_commit_messages_total": "ends of transactions are not counted by topic",
    "rocketmq_rollback_messages_total": "the same",
    "rocketmq_finish_message_latency": "the same",
    "rocketmq_half_messages": "the same",
    "rocketmq_timer_enqueue_latency": "the wheel is filled as messages come",
    "rocketmq_timer_dequeue_lag": "what is due is delivered in one go",
    "rocketmq_delay_message_latency": "needs a tally of each message's delay",
    "rocketmq_pop_*": "there is no pop consumption",
    "rocketmq_group_count": "has a label for each client's address",
    "rocketmq_client_*": "asks each client, and has a label for its address",
}
"""Names of RocketMQ that are not given, and why."""

assert len({row.name for row in ROWS}) == len(ROWS), "a name is given once"
