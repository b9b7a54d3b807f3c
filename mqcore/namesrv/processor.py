"""What the name server answers to each request code.

Every code but the ones in ``Processor.handlers`` is answered REQUEST_CODE_NOT_SUPPORTED. (A 4.9 name server leaves
unknown codes without an answer, so that a newer peer waits for its timeout; 5.x answers as this one does.)
Source: RocketMQ namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from mqcore.codes import MQVersion, ResponseCode, TopicSysFlag
from mqcore.codes import RequestCode as Code
from mqcore.config import decode_properties, parse_properties
from mqcore.namesrv.kv_config import KVConfig
from mqcore.namesrv.live_settings import NameServerLiveSettings
from mqcore.namesrv.route_table import BrokerIdentity, RouteTable
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import decode_request, encode_response
from mqcore.protocol.names import ORDER_TOPIC_CONFIG
from mqcore.protocol.route import TopicList
from mqcore.protocol.topic_config import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from mqcore.protocol.unsupported import not_supported_by_name_server
from mqcore.refusals import help_on
from mqcore.transport.connection import Connection

NO_ROUTE_HELP: Final = help_on("topic-does-not-exist")

PATHS: Final = {"kvConfigPath", "configStorePath", "kvConfigPathName", "configStorePathName"}
"""Refused in words of their own; all other paths are as well."""

Answer = RemotingCommand | Awaitable[RemotingCommand]
Values = dict[str, Any]


class Processor:
    """Answers requests from the route table, the key-value table and the settings."""

    def __init__(self, routes: RouteTable, kv_config: KVConfig, settings: NameServerLiveSettings) -> None:
        self._routes = routes
        self._kv_config = kv_config
        self._settings = settings
        self.handlers: Final[dict[int, Callable[[Connection, RemotingCommand, Values], Answer]]] = {
            Code.PUT_KV_CONFIG: self._put_kv,
            Code.GET_KV_CONFIG: self._get_kv,
            Code.DELETE_KV_CONFIG: self._delete_kv,
            Code.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            Code.REGISTER_BROKER: self._register_broker,
            Code.UNREGISTER_BROKER: self._unregister_broker,
            Code.QUERY_DATA_VERSION: self._query_data_version,
            Code.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            Code.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            Code.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            Code.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._list_topics,
            Code.GET_TOPICS_BY_CLUSTER: self._list_topics_of_cluster,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._list_system_topics,
            Code.GET_UNIT_TOPIC_LIST: self._list_unit_topics,
            Code.GET_HAS_UNIT_SUB_TOPIC_LIST: self._list_unit_sub_topics,
            Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._list_unit_sub_ununit_topics,
            Code.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            Code.UPDATE_NAMESRV_CONFIG: self._update_settings,
            Code.GET_NAMESRV_CONFIG: self._get_settings,
        }

    async def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer one request; what goes wrong is raised, and becomes an answer in the connection."""
        handler = self.handlers.get(request.code)
        if handler is None:
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported_by_name_server(request.code))
        answer = handler(connection, request, decode_request(request.code, request.ext_fields))
        return answer if isinstance(answer, RemotingCommand) else await answer

    # Key-value tables.

    async def _put_kv(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        await self._kv_config.put(header["namespace"], header["key"], header["value"])
        return request.reply()

    def _get_kv(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        namespace, key = header["namespace"], header["key"]
        value = self._kv_config.get(namespace, key)
        ext_fields = encode_response(request.code, value=value)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, ext_fields)
        return request.reply(ext_fields=ext_fields)

    async def _delete_kv(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        await self._kv_config.delete(header["namespace"], header["key"])
        return request.reply()

    def _list_kv(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        values = self._kv_config.namespace(header["namespace"])
        if values is None:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header['namespace']}")
        return request.reply(body=KVTable(values).encode())

    # Brokers.

    def _register_broker(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        if header["body_crc32"] and header["body_crc32"] != body_crc32(request.body):
            return request.reply(ResponseCode.SYSTEM_ERROR, "crc32 not match", encode_response(request.code))
        body = _registration(request, compressed=header["compressed"])
        master = self._routes.register_broker(_identity(header), header["ha_server_addr"], body, connection)
        ext_fields = encode_response(
            request.code,
            ha_server_addr=None if master is None else master.ha_address,
            master_addr=None if master is None else master.address,
        )
        order_topics = self._kv_config.namespace(ORDER_TOPIC_CONFIG)
        return request.reply(
            ext_fields=ext_fields, body=b"" if order_topics is None else KVTable(order_topics).encode()
        )

    def _unregister_broker(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        self._routes.unregister_broker(_identity(header))
        return request.reply()

    def _query_data_version(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        address = header["broker_addr"]
        changed = self._routes.is_changed(address, DataVersion.decode(request.body))
        if not changed:
            self._routes.touch(address)
        known = self._routes.data_version_of(address)
        return request.reply(
            ext_fields=encode_response(request.code, changed=changed), body=b"" if known is None else known.encode()
        )

    def _get_cluster_info(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        return request.reply(body=self._routes.cluster_info().encode())

    def _wipe_write_perm(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        count = self._routes.wipe_write_perm(header["broker_name"])
        return request.reply(ext_fields=encode_response(request.code, wipe_topic_count=count))

    def _add_write_perm(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        count = self._routes.add_write_perm(header["broker_name"])
        return request.reply(ext_fields=encode_response(request.code, add_topic_count=count))

    # Topics.

    def _get_route(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        topic = header["topic"]
        route = self._routes.route(topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic}{NO_ROUTE_HELP}"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._settings.current.namesrv.order_message_enable:
            route.order_topic_conf = self._kv_config.get(ORDER_TOPIC_CONFIG, topic)
        return request.reply(body=route.encode_for(request.version, header["accept_standard_json_only"]))

    def _delete_topic(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        self._routes.delete_topic(header["topic"], header["cluster_name"] or None)
        return request.reply()

    def _list_topics(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        return request.reply(body=TopicList(self._routes.topics()).encode())

    def _list_topics_of_cluster(
        self, connection: Connection, request: RemotingCommand, header: Values
    ) -> RemotingCommand:
        return request.reply(body=TopicList(self._routes.topics_of_cluster(header["cluster"])).encode())

    def _list_system_topics(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        return request.reply(body=TopicList(*self._routes.system_topics()).encode())

    def _list_unit_topics(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        topics = self._routes.unit_topics(lambda flag: TopicSysFlag.UNIT in flag)
        return request.reply(body=TopicList(topics).encode())

    def _list_unit_sub_topics(
        self, connection: Connection, request: RemotingCommand, header: Values
    ) -> RemotingCommand:
        topics = self._routes.unit_topics(lambda flag: TopicSysFlag.UNIT_SUB in flag)
        return request.reply(body=TopicList(topics).encode())

    def _list_unit_sub_ununit_topics(
        self, connection: Connection, request: RemotingCommand, header: Values
    ) -> RemotingCommand:
        topics = self._routes.unit_topics(lambda flag: flag == TopicSysFlag.UNIT_SUB)
        return request.reply(body=TopicList(topics).encode())

    # Settings.

    async def _update_settings(
        self, connection: Connection, request: RemotingCommand, header: Values
    ) -> RemotingCommand:
        changes = parse_properties(decode_properties(request.body), "request body")
        if PATHS & changes.keys():
            return request.reply(ResponseCode.NO_PERMISSION, "Can not update config path")
        if self._settings.forbidden_among(changes):
            return request.reply(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        await self._settings.update(changes)
        return request.reply()

    def _get_settings(self, connection: Connection, request: RemotingCommand, header: Values) -> RemotingCommand:
        return request.reply(body=self._settings.current.as_properties().encode())


def _identity(header: Values) -> BrokerIdentity:
    return BrokerIdentity(header["cluster_name"], header["broker_name"], header["broker_id"], header["broker_addr"])


def _registration(request: RemotingCommand, *, compressed: bool) -> RegisterBrokerBody:
    """Read a registration's body. Brokers before V3_0_11 send the bare topic table, and some send nothing."""
    if not request.body:
        return RegisterBrokerBody()
    if request.version >= MQVersion.V3_0_11:
        return RegisterBrokerBody.decode_body(request.body, compressed=compressed)
    return RegisterBrokerBody(TopicConfigSerializeWrapper.decode(request.body))
