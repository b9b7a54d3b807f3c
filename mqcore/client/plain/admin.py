"""The plain face of administration: the calls of ``mqcore.aio.Admin``, without ``async``."""

from __future__ import annotations

from mqcore.client.admin.api import Admin as AsyncAdmin
from mqcore.client.plain.calls import PlainFace, plain


class Admin(PlainFace[AsyncAdmin]):
    """Administrative calls of an open ``mqcore.client.Client``, which has it as its ``admin``."""

    # Clusters.

    cluster_info = plain(AsyncAdmin.cluster_info)
    brokers = plain(AsyncAdmin.brokers)
    master_addresses = plain(AsyncAdmin.master_addresses)
    broker_address = plain(AsyncAdmin.broker_address)
    topic_route = plain(AsyncAdmin.topic_route)

    # Topics.

    list_topics = plain(AsyncAdmin.list_topics)
    system_topics = plain(AsyncAdmin.system_topics)
    topic_configs = plain(AsyncAdmin.topic_configs)
    create_topic = plain(AsyncAdmin.create_topic)
    update_topic = plain(AsyncAdmin.update_topic)
    delete_topic = plain(AsyncAdmin.delete_topic)
    offsets = plain(AsyncAdmin.offsets)
    topic_groups = plain(AsyncAdmin.topic_groups)
    clean_unused_topics = plain(AsyncAdmin.clean_unused_topics)

    # Groups and clients.

    list_groups = plain(AsyncAdmin.list_groups)
    group_configs = plain(AsyncAdmin.group_configs)
    create_group = plain(AsyncAdmin.create_group)
    update_group = plain(AsyncAdmin.update_group)
    delete_group = plain(AsyncAdmin.delete_group)
    group_connection = plain(AsyncAdmin.group_connection)
    group_members = plain(AsyncAdmin.group_members)
    group_subscription = plain(AsyncAdmin.group_subscription)
    consumer_running_info = plain(AsyncAdmin.consumer_running_info)
    consumer_status = plain(AsyncAdmin.consumer_status)
    consume_directly = plain(AsyncAdmin.consume_directly)
    producer_connection = plain(AsyncAdmin.producer_connection)
    producers = plain(AsyncAdmin.producers)

    # Offsets.

    group_offsets = plain(AsyncAdmin.group_offsets)
    group_topics = plain(AsyncAdmin.group_topics)
    lag = plain(AsyncAdmin.lag)
    reset_offsets = plain(AsyncAdmin.reset_offsets)
    skip_accumulated = plain(AsyncAdmin.skip_accumulated)
    set_offset = plain(AsyncAdmin.set_offset)
    clone_offsets = plain(AsyncAdmin.clone_offsets)

    # Brokers and name servers.

    broker_runtime = plain(AsyncAdmin.broker_runtime)
    broker_config = plain(AsyncAdmin.broker_config)
    update_broker_config = plain(AsyncAdmin.update_broker_config)
    broker_stats = plain(AsyncAdmin.broker_stats)
    broker_consume_stats = plain(AsyncAdmin.broker_consume_stats)
    clean_consume_queues = plain(AsyncAdmin.clean_consume_queues)
    delete_expired_commit_log = plain(AsyncAdmin.delete_expired_commit_log)
    wipe_write_perm = plain(AsyncAdmin.wipe_write_perm)
    ha_status = plain(AsyncAdmin.ha_status)
    epoch_cache = plain(AsyncAdmin.epoch_cache)
    change_failover_group = plain(AsyncAdmin.change_failover_group)
    access_rules = plain(AsyncAdmin.access_rules)
    add_write_perm = plain(AsyncAdmin.add_write_perm)
    name_server_config = plain(AsyncAdmin.name_server_config)
    update_name_server_config = plain(AsyncAdmin.update_name_server_config)
    get_kv = plain(AsyncAdmin.get_kv)
    list_kv = plain(AsyncAdmin.list_kv)
    put_kv = plain(AsyncAdmin.put_kv)
    delete_kv = plain(AsyncAdmin.delete_kv)

    # Messages.

    view_message = plain(AsyncAdmin.view_message)
    copies_of = plain(AsyncAdmin.copies_of)
    message_at = plain(AsyncAdmin.message_at)
    query_by_key = plain(AsyncAdmin.query_by_key)

    # Dead letters.

    dead_letters = plain(AsyncAdmin.dead_letters)
    dead_letter = plain(AsyncAdmin.dead_letter)
    resend_dead_letters = plain(AsyncAdmin.resend_dead_letters)
