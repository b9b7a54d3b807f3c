"""What operators ask of name servers and brokers, as typed calls.

Source: RocketMQ client/impl/MQAdminImpl.java, tools/admin/DefaultMQAdminExtImpl.java.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mqcore.client.asynchronous import Client
from mqcore.client.broker_api import request
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.client.instance import ClientInstance
from mqcore.client.validators import check_topic
from mqcore.codes import PermName, RequestCode, ResponseCode
from mqcore.errors import BrokerError, ClientError, MQError, ProtocolError
from mqcore.protocol.bodies import ClusterInfo, TopicFilterType, TopicList, TopicOffset, TopicRouteData, TopicStatsTable
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import INT64_MAX
from mqcore.protocol.message import MessageExt, MessageQueue, decode_offset_message_id
from mqcore.protocol.message_decoder import decode_message, decode_messages
from mqcore.protocol.message_id import unique_id_time_ms
from mqcore.protocol.names import AUTO_CREATE_TOPIC_KEY_TOPIC, is_system_topic
from mqcore.protocol.properties import KEY_SEPARATOR

logger = logging.getLogger(__name__)

QUERY_MAX = 64
UNIQUE_QUERY_MAX = 32
CLOCK_MARGIN_MS = 1000
"""A message may be stored by a clock that is a little behind the one that made its id."""


class Admin:
    """Administrative calls over the connections of *client*."""

    def __init__(self, client: Client) -> None:
        self._hub: ClientInstance = client.instance

    # Clusters and topics.

    async def cluster_info(self) -> ClusterInfo:
        """Return which brokers there are, and in which clusters."""
        answer = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body)

    async def list_topics(self) -> list[str]:
        """Return the names of all topics, those of the system too, sorted."""
        answer = await self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(TopicList.decode(answer.body).topic_list)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return which brokers have which queues of *topic*; NoRouteError when none has."""
        if not await self._hub.routes.refresh(topic):
            raise NoRouteError(topic)
        route = self._hub.routes.known(topic)
        assert route is not None  # a refresh that found one has stored it
        return route

    async def create_topic(
        self,
        topic: str,
        *,
        read_queues: int = 8,
        write_queues: int | None = None,
        perm: int = PermName.READ | PermName.WRITE,
        cluster: str | None = None,
        broker_address: str | None = None,
    ) -> dict[str, MQError | None]:
        """Create *topic*, or change it, on the masters of *cluster*, or at *broker_address*, or on all masters.

        Returns what happened by broker address: None, or why not. The brokers have told their name servers by then.
        """
        check_topic(topic)
        if is_system_topic(topic):
            raise ClientError(f"The topic[{topic}] is conflict with system topic.")
        addresses = [broker_address] if broker_address else await self.master_addresses(cluster)
        values = {
            "topic": topic,
            "default_topic": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "read_queue_nums": read_queues,
            "write_queue_nums": read_queues if write_queues is None else write_queues,
            "perm": int(perm),
            "topic_filter_type": TopicFilterType.SINGLE_TAG.name,
            "topic_sys_flag": 0,
            "order": False,
        }
        outcomes: dict[str, MQError | None] = {}
        for address in addresses:
            try:
                await self._hub.api.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, values)
                outcomes[address] = None
            except MQError as error:
                outcomes[address] = error
        return outcomes

    async def master_addresses(self, cluster: str | None = None) -> list[str]:
        """Return the addresses of the masters of *cluster*, or of all; NotFoundError when there is none."""
        info = await self.cluster_info()
        names = info.broker_addr_table if cluster is None else info.cluster_addr_table.get(cluster, [])
        brokers = [info.broker_addr_table[name] for name in names if name in info.broker_addr_table]
        addresses = sorted(address for broker in brokers if (address := broker.master_address()) is not None)
        if not addresses:
            where = "the name server knows" if cluster is None else f"cluster {cluster!r} has"
            raise NotFoundError(f"{where} no broker that is a master")
        return addresses

    async def offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return what each queue of *topic* holds."""
        await self.topic_route(topic)
        found: dict[MessageQueue, TopicOffset] = {}
        for address in self._hub.routes.master_addresses(topic):
            answer = await self._hub.api.call(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            found |= TopicStatsTable.decode(answer.body).offset_table
        return dict(sorted(found.items()))

    # Messages.

    async def view_message(self, topic: str, msg_id: str) -> MessageExt:
        """Return the message with *msg_id*, an offset id or a unique id; NotFoundError when there is none."""
        try:
            found = await self._view_by_offset_id(msg_id)
        except (ProtocolError, BrokerError) as error:
            logger.debug("not an offset id, or not there: %s", error)
            found = None
        if found is not None and found.topic == topic:
            return found
        return await self._view_by_unique_id(topic, msg_id)

    async def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = QUERY_MAX,
        begin: datetime | float = 0,
        end: datetime | float | None = None,
    ) -> list[MessageExt]:
        """Return the messages of *topic* that have *key* among their keys, in the order of storing.

        Brokers find by hash and answer at most 64 each; what does not really have the key is left out.
        """
        begin_ms, end_ms = _milliseconds(begin), INT64_MAX if end is None else _milliseconds(end)
        found = await self._query(topic, key, max_messages, begin_ms, end_ms, unique=False)
        return [ext for ext in found if key in (ext.keys or "").split(KEY_SEPARATOR)]

    async def _view_by_offset_id(self, msg_id: str) -> MessageExt | None:
        place = decode_offset_message_id(msg_id)
        masters = set(self._hub.routes.addresses(with_slaves=True)) or set(await self.master_addresses())
        address = str(place.store_host)
        if address not in masters:  # a unique id looks alike, and names some client's address
            return None
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = await self._hub.api.call(address, code, {"offset": place.physical_offset})
        return decode_message(answer.body)

    async def _view_by_unique_id(self, topic: str, msg_id: str) -> MessageExt:
        now_ms = time.time_ns() // 1_000_000
        try:
            begin_ms = unique_id_time_ms(msg_id, now_ms) - CLOCK_MARGIN_MS
        except ProtocolError as error:
            raise NotFoundError(f"no message with id {msg_id} in topic {topic}: {error}") from error
        found = await self._query(topic, msg_id, UNIQUE_QUERY_MAX, begin_ms, INT64_MAX, unique=True)
        exact = [ext for ext in found if ext.msg_id == msg_id]
        if not exact:
            raise NotFoundError(f"no message with id {msg_id} in topic {topic}")
        return exact[0]

    async def _query(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[MessageExt]:
        """Ask one broker of each name; a refusal is an error, only "not found" is an empty answer."""
        await self.topic_route(topic)
        values = {
            "topic": topic,
            "key": key,
            "max_num": max_messages,
            "begin_timestamp": begin_ms,
            "end_timestamp": end_ms,
            "unique_key_query": "true" if unique else "false",
        }

        async def ask(address: str) -> list[MessageExt]:
            accepted = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
            answer = await self._hub.api.call(address, RequestCode.QUERY_MESSAGE, values, accepted=accepted)
            return decode_messages(answer.body) if answer.code == ResponseCode.SUCCESS else []

        answers = await asyncio.gather(*(ask(address) for address in self._hub.routes.master_addresses(topic)))
        found = [ext for messages in answers for ext in messages if ext.topic == topic]
        return sorted(found, key=lambda ext: ext.store_timestamp)

    async def _ask_name_server(self, code: RequestCode, values: Mapping[str, Any] | None = None) -> RemotingCommand:
        answer = await self._hub.name_servers.invoke(request(code, values), self._hub.settings.admin_timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark or "", self._hub.name_servers.chosen)
        return answer


def _milliseconds(when: datetime | float) -> int:
    return int((when if isinstance(when, int | float) else when.timestamp()) * 1000)
