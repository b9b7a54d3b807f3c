"""The one table that says which request code belongs to which pool, handler and port.

Send and pull workers answer the ordinary sends and pulls by themselves; whatever they do not understand, and all else,
comes to ``BrokerCore.handle`` and runs the row's handler. ``handler`` is ``module.method`` below
``mqcore.broker.processors``. Unlisted codes go to the default processor, which refuses them.

Source: RocketMQ broker/BrokerController.java, registerProcessor.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mqcore.broker.pools import POOLS
from mqcore.codes import RequestCode as Code


class Port(StrEnum):
    """The two listeners: the listen port, and the fast (VIP) one two below it."""

    MAIN = "main"
    FAST = "fast"


BOTH: Final = frozenset({Port.MAIN, Port.FAST})
MAIN_ONLY: Final = frozenset({Port.MAIN})


@dataclass(frozen=True, slots=True)
class RequestRow:
    """Where one request code is answered."""

    code: int
    pool: str
    handler: str
    ports: frozenset[Port] = BOTH
    needs_master: bool = False
    """In a failover group only the master does it; from others a client hears that it is to look for that one."""


def _admin(code: Code, handler: str) -> RequestRow:
    return RequestRow(code, "admin", handler)


def _of_master(code: Code, pool: str, handler: str) -> RequestRow:
    return RequestRow(code, pool, handler, needs_master=True)


_ROWS: Final = (
    _of_master(Code.SEND_MESSAGE, "send", "send.send_message"),
    _of_master(Code.SEND_MESSAGE_V2, "send", "send.send_message"),
    _of_master(Code.SEND_BATCH_MESSAGE, "send", "send.send_message"),
    _of_master(Code.RECALL_MESSAGE, "send", "timers.recall"),
    _of_master(Code.CONSUMER_SEND_MSG_BACK, "send", "send_back.send_back"),
    RequestRow(Code.SEND_REPLY_MESSAGE, "reply", "reply.send_reply"),
    RequestRow(Code.SEND_REPLY_MESSAGE_V2, "reply", "reply.send_reply"),
    RequestRow(Code.PULL_MESSAGE, "pull", "pull.pull_message", MAIN_ONLY),
    RequestRow(Code.LITE_PULL_MESSAGE, "pull", "pull.pull_message", MAIN_ONLY),
    RequestRow(Code.QUERY_MESSAGE, "query", "query.query_message"),
    RequestRow(Code.VIEW_MESSAGE_BY_ID, "query", "query.view_message"),
    RequestRow(Code.HEART_BEAT, "heartbeat", "client_manage.heart_beat"),
    RequestRow(Code.UNREGISTER_CLIENT, "client_manage", "client_manage.unregister_client"),
    RequestRow(Code.CHECK_CLIENT_CONFIG, "client_manage", "client_manage.check_client_config"),
    RequestRow(Code.GET_CONSUMER_LIST_BY_GROUP, "consumer_manage", "consumer_manage.consumer_list"),
    RequestRow(Code.QUERY_CONSUMER_OFFSET, "consumer_manage", "consumer_manage.query_offset"),
    _of_master(Code.UPDATE_CONSUMER_OFFSET, "consumer_manage", "consumer_manage.update_offset"),
    # The default processor.
    _admin(Code.UPDATE_AND_CREATE_TOPIC, "admin_topic.update_topic"),
    _admin(Code.UPDATE_AND_CREATE_TOPIC_LIST, "admin_topic.update_topics"),
    _admin(Code.DELETE_TOPIC_IN_BROKER, "admin_topic.delete_topic"),
    _admin(Code.GET_ALL_TOPIC_CONFIG, "admin_topic.all_topics"),
    _admin(Code.GET_TOPIC_CONFIG, "admin_topic.one_topic"),
    _admin(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "admin_topic.system_topics"),
    _admin(Code.GET_TOPIC_STATS_INFO, "admin_topic.topic_stats"),
    _admin(Code.QUERY_TOPIC_CONSUME_BY_WHO, "admin_topic.consumed_by"),
    _admin(Code.QUERY_TOPICS_BY_CONSUMER, "admin_topic.consumed_of"),
    _admin(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "admin_group.update_group"),
    _admin(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "admin_group.update_groups"),
    _admin(Code.GET_SUBSCRIPTIONGROUP_CONFIG, "admin_group.one_group"),
    _admin(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, "admin_group.subscription"),
    _admin(Code.DELETE_SUBSCRIPTIONGROUP, "admin_group.delete_group"),
    _admin(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "admin_group.all_groups"),
    _admin(Code.GET_CONSUMER_CONNECTION_LIST, "admin_group.consumer_connections"),
    _admin(Code.GET_PRODUCER_CONNECTION_LIST, "admin_group.producer_connections"),
    _admin(Code.GET_ALL_PRODUCER_INFO, "admin_group.all_producers"),
    _admin(Code.LOCK_BATCH_MQ, "admin_consumer.lock_queues"),
    _admin(Code.UNLOCK_BATCH_MQ, "admin_consumer.unlock_queues"),
    _admin(Code.INVOKE_BROKER_TO_RESET_OFFSET, "admin_consumer.reset_offset"),
    _admin(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, "admin_consumer.consumer_status"),
    _admin(Code.GET_CONSUMER_RUNNING_INFO, "admin_consumer.running_info"),
    _admin(Code.CONSUME_MESSAGE_DIRECTLY, "admin_consumer.consume_directly"),
    _admin(Code.CLONE_GROUP_OFFSET, "admin_offset.clone_offset"),
    _admin(Code.QUERY_CORRECTION_OFFSET, "admin_offset.correction_offset"),
    _admin(Code.GET_ALL_CONSUMER_OFFSET, "admin_offset.all_offsets"),
    _admin(Code.GET_ALL_DELAY_OFFSET, "admin_offset.delay_offsets"),
    _admin(Code.GET_TIMER_CHECK_POINT, "timers.check_point"),
    _admin(Code.GET_TIMER_METRICS, "timers.metrics"),
    _admin(Code.GET_CONSUME_STATS, "admin_stats.consume_stats"),
    _admin(Code.GET_BROKER_CONSUME_STATS, "admin_stats.broker_consume_stats"),
    _admin(Code.QUERY_CONSUME_TIME_SPAN, "admin_stats.consume_time_span"),
    _admin(Code.VIEW_BROKER_STATS_DATA, "admin_stats.stats_data"),
    _admin(Code.UPDATE_BROKER_CONFIG, "admin_config.update_config"),
    _admin(Code.GET_BROKER_CONFIG, "admin_config.get_config"),
    _admin(Code.GET_BROKER_RUNTIME_INFO, "admin_config.runtime_info"),
    _admin(Code.SEARCH_OFFSET_BY_TIMESTAMP, "admin_store.offset_by_time"),
    _admin(Code.GET_MAX_OFFSET, "admin_store.max_offset"),
    _admin(Code.GET_MIN_OFFSET, "admin_store.min_offset"),
    _admin(Code.GET_EARLIEST_MSG_STORETIME, "admin_store.earliest_time"),
    _admin(Code.QUERY_CONSUME_QUEUE, "admin_store.query_consume_queue"),
    _admin(Code.GET_BROKER_HA_STATUS, "admin_ha.ha_status"),
    _admin(Code.GET_BROKER_EPOCH_CACHE, "admin_ha.epoch_cache"),
    _admin(Code.CHANGE_FAILOVER_GROUP, "admin_ha.change_group"),
    _admin(Code.CLEAN_EXPIRED_CONSUMEQUEUE, "admin_store.clean_consume_queues"),
    _admin(Code.CLEAN_UNUSED_TOPIC, "admin_store.clean_unused_topics"),
    _admin(Code.DELETE_EXPIRED_COMMITLOG, "admin_store.delete_expired_commit_log"),
    _of_master(Code.END_TRANSACTION, "end_transaction", "transaction.end_transaction"),
    _admin(Code.RESUME_CHECK_HALF_MESSAGE, "transaction.resume_check"),
    _admin(Code.UPDATE_AND_CREATE_ACL_CONFIG, "admin_acl.update_account"),
    _admin(Code.DELETE_ACL_CONFIG, "admin_acl.delete_account"),
    _admin(Code.GET_BROKER_CLUSTER_ACL_INFO, "admin_acl.versions"),
    _admin(Code.GET_BROKER_CLUSTER_ACL_CONFIG, "admin_acl.accounts"),
    _admin(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, "admin_acl.update_white_addresses"),
)

TABLE: Final = {row.code: row for row in _ROWS}
assert len(TABLE) == len(_ROWS), "a request code stands twice in the table"
assert all(row.pool in POOLS for row in _ROWS), "a row names an unknown pool"


def row_for(code: int, is_vip: bool) -> RequestRow | None:
    """Return the row that answers *code* on that port; None leaves it to the default processor, which refuses it."""
    row = TABLE.get(code)
    if row is None or (Port.FAST if is_vip else Port.MAIN) not in row.ports:
        return None
    return row
