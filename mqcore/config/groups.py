"""The typed values, one named tuple per group of the table.

The fields are written by hand so that type checkers see them; that they are the used rows of the table, no more and no
less, in order and with the table's types, is checked where both are known (``agreement``). This module knows no row: a
worker has values, and does not pay for the table that they come from. They are named tuples and no dataclasses, as each
process of a broker makes these classes at its start: a millisecond for the seven, and ten for dataclasses.
"""

from pathlib import Path
from typing import Any, NamedTuple

from mqcore.address import Address
from mqcore.config.choices import BrokerRole, ClientAuth, FlushDiskType, TlsMode
from mqcore.config.texts import parse_affinity, parse_directories, parse_endpoints, parse_hours
from mqcore.delay_levels import parse_delay_levels
from mqcore.process_log import LogFormat


def _said(values: tuple[Any, ...], names: tuple[str, ...], secrets: frozenset[str]) -> str:
    """The representation of a group's *values*, without those that are not to be seen."""
    pairs = zip(names, values, strict=True)
    return f"{type(values).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs if name not in secrets)})"


class BrokerSettings(NamedTuple):
    """The used settings of RocketMQ's BrokerConfig."""

    namesrv_addr: str
    broker_ip1: str
    broker_ip2: str
    broker_name: str
    broker_cluster_name: str
    broker_id: int
    broker_permission: int
    region_id: str
    config_black_list: str
    acl_enable: bool
    inner_client_authentication_credentials: str
    rocketmq_home: str
    default_topic_queue_nums: int
    auto_create_topic_enable: bool
    cluster_topic_enable: bool
    broker_topic_enable: bool
    auto_create_subscription_group: bool
    msg_trace_topic_name: str
    trace_topic_enable: bool
    trace_on: bool
    store_reply_message_enable: bool
    flush_consumer_offset_interval_ms: int
    long_polling_enable: bool
    short_polling_time_ms: int
    notify_consumer_ids_changed_enable: bool
    slave_read_enable: bool
    enable_detail_stat: bool
    start_accept_send_request_time_stamp_ms: int
    recall_message_enable: bool
    allow_recall_when_broker_not_writeable: bool
    enable_property_filter: bool
    filter_support_retry: bool
    enable_calc_filter_bit_map: bool
    expect_consumer_num_use_filter: int
    max_error_rate_of_bloom_filter: int
    filter_data_clean_time_span_ms: int
    reject_transaction_message: bool
    transaction_time_out_ms: int
    transaction_check_max: int
    transaction_check_interval_ms: int
    fetch_namesrv_addr_by_address_server: bool
    rmq_address_server_domain: str
    rmq_address_server_sub_group: str
    register_broker_timeout_ms: int
    register_name_server_period_ms: int
    force_register: bool
    compressed_register: bool
    disable_consume_if_consumer_read_slowly: bool
    consumer_fallbehind_threshold: int
    broker_fast_failure_enable: bool
    wait_time_in_send_queue_ms: int
    wait_time_in_pull_queue_ms: int
    wait_time_in_heartbeat_queue_ms: int
    wait_time_in_transaction_queue_ms: int


class StoreSettings(NamedTuple):
    """The used settings of RocketMQ's MessageStoreConfig, and the places that hang off the root directory."""

    store_path_root_dir: str
    store_path_commit_log: str
    read_only_commit_log_store_paths: str
    multi_path_splitter: str
    mapped_file_size_commit_log: int
    mapped_file_size_consume_queue: int
    enable_consume_queue_ext: bool
    mapped_file_size_consume_queue_ext: int
    warm_mapped_file_enable: bool
    max_message_size: int
    check_crc_on_recover: bool
    flush_disk_type: FlushDiskType
    flush_interval_commit_log_ms: int
    flush_commit_log_timed: bool
    flush_commit_log_least_pages: int
    flush_commit_log_thorough_interval_ms: int
    flush_interval_consume_queue_ms: int
    flush_consume_queue_least_pages: int
    flush_consume_queue_thorough_interval_ms: int
    flush_least_pages_when_warm_mapped_file: int
    flush_delay_offset_interval_ms: int
    sync_flush_timeout_ms: int
    os_page_cache_busy_time_out_ms: int
    delete_when: str
    file_reserved_time_hours: int
    disk_max_used_space_ratio_percent: int
    clean_file_forcibly_enable: bool
    clean_resource_interval_ms: int
    delete_commit_log_files_interval_ms: int
    max_transfer_bytes_on_message_in_memory: int
    max_transfer_count_on_message_in_memory: int
    max_transfer_bytes_on_message_in_disk: int
    max_transfer_count_on_message_in_disk: int
    access_message_in_memory_max_ratio_percent: int
    message_delay_level: str
    message_index_enable: bool
    message_index_safe: bool
    max_hash_slot_num: int
    max_index_num: int
    max_msgs_num_batch: int
    default_query_max_num: int
    enable_lmq: bool
    enable_multi_dispatch: bool
    max_lmq_consume_queue_num: int
    timer_wheel_enable: bool
    timer_precision_ms: int
    timer_max_delay_sec: int
    timer_roll_window_slot: int
    timer_congest_num_each_slot: int
    timer_flush_interval_ms: int
    timer_stop_enqueue: bool
    timer_stop_dequeue: bool
    mapped_file_size_timer_log: int
    ha_master_address: str
    ha_slave_fallbehind_max: int
    slave_timeout_ms: int
    offset_check_in_slave: bool
    ha_send_heartbeat_interval_ms: int
    ha_housekeeping_interval_ms: int
    ha_transfer_batch_size: int
    ha_flow_control_enable: bool
    max_ha_transfer_byte_in_second: int
    broker_role: BrokerRole

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delay of each level; entry 0 is level 1."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of the day, local time, at which old files go."""
        return parse_hours(self.delete_when)

    @property
    def root_dir(self) -> Path:
        return Path(self.store_path_root_dir)

    @property
    def commit_log_dirs(self) -> tuple[Path, ...]:
        """The directories of the commit log, in the order in which they are given."""
        return tuple(map(Path, parse_directories(self.store_path_commit_log, self.multi_path_splitter)))

    @property
    def read_only_commit_log_dirs(self) -> tuple[Path, ...]:
        """Directories of the commit log in which no file is made."""
        return tuple(map(Path, parse_directories(self.read_only_commit_log_store_paths, self.multi_path_splitter)))


class ServerSettings(NamedTuple):
    """The used settings of RocketMQ's NettyServerConfig."""

    listen_port: int
    server_channel_max_idle_time_seconds: int
    server_socket_backlog: int


class MqcoreSettings(NamedTuple):
    """The settings that RocketMQ does not have."""

    bind_address: str
    log_format: LogFormat
    log_levels: str
    acl_plain_file: str
    acl_changes_need_admin: bool
    acl_account_by_certificate: bool
    namesrv_listen_port: int
    send_worker_nums: int
    pull_worker_nums: int
    worker_cpu_affinity: str
    worker_restart_backoff_ms: int
    worker_restart_backoff_max_ms: int
    pull_hold_max_ms: int
    subscription_conflict_ms: int
    commit_log_hot_bytes: int
    ha_sync_from_first_file: bool
    connection_write_buffer_bytes: int
    frame_max_length: int
    connections_max: int
    connections_per_host_max: int
    quotas: str
    quota_delay_max_ms: int
    metrics_port: int
    metrics_host: str
    metrics_topics_max: int
    metrics_groups_max: int
    console_port: int
    console_host: str
    console_password_file: str
    console_write_enable: bool

    @property
    def cpu_affinity(self) -> dict[str, frozenset[int]]:
        """Worker kind to the processors that it may run on; a kind that is missing may run on any."""
        return parse_affinity(self.worker_cpu_affinity)


class NamesrvSettings(NamedTuple):
    """The used settings of RocketMQ's NamesrvConfig."""

    kv_config_path: str
    config_store_path: str
    order_message_enable: bool


class TlsSettings(NamedTuple):
    """The settings of RocketMQ's TlsSystemConfig, for the ports and for calls to other servers."""

    config_file: str
    server_mode: TlsMode
    test_mode_enable: bool
    server_need_client_auth: ClientAuth
    server_key_path: str
    server_key_password: str
    server_cert_path: str
    server_auth_client: bool
    server_trust_cert_path: str
    client_key_path: str
    client_key_password: str
    client_cert_path: str
    client_auth_server: bool
    client_trust_cert_path: str
    handshake_timeout_ms: int
    use_tls: bool

    def __repr__(self) -> str:
        return _said(self, self._fields, frozenset({"server_key_password", "client_key_password"}))


class FailoverSettings(NamedTuple):
    """The settings of a group that elects its master; without etcd's addresses there is none."""

    etcd: str
    etcd_user: str
    etcd_password: str
    etcd_tls: bool
    etcd_ca_file: str
    etcd_cert_file: str
    etcd_key_file: str
    lease_seconds: int
    min_in_sync_replicas: int
    ha_max_time_slave_not_catchup_ms: int
    ha_ack_flushed: bool
    enable_elect_unclean_master: bool
    priority: int

    @property
    def is_group(self) -> bool:
        """Whether the broker is one of a group."""
        return bool(self.etcd)

    @property
    def etcd_addresses(self) -> tuple[Address, ...]:
        return parse_endpoints(self.etcd)

    def __repr__(self) -> str:
        return _said(self, self._fields, frozenset({"etcd_password"}))
