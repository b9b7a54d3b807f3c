"""What all administrative calls share: whom to ask, and how answers of several brokers become one.

Source: RocketMQ client/impl/MQClientAPIImpl.java, tools/admin/DefaultMQAdminExtImpl.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.client.session.broker_api import request
from mqcore.client.session.session import Session
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import BrokerError, MQError
from mqcore.protocol.bodies import ClusterInfo, TopicRouteData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import MessageQueue

Outcomes = dict[str, MQError | None]
"""What became of a change at each address: None when it is done, else why it is not."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """One broker that name servers know. The id is 0 for a master."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0


class AdminCalls:
    """Calls over the connections of one client instance."""

    def __init__(self, hub: Session) -> None:
        self._hub = hub

    async def cluster_info(self) -> ClusterInfo:
        """Return which brokers there are, and in which clusters."""
        answer = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body)

    async def brokers(self, cluster: str | None = None) -> list[BrokerPlace]:
        """Return every broker, or those of *cluster*: by cluster, name and id; NotFoundError when there is none."""
        info = await self.cluster_info()
        found = [
            BrokerPlace(in_cluster, name, broker_id, address)
            for in_cluster, names in info.cluster_addr_table.items()
            if cluster is None or in_cluster == cluster
            for name in names
            if name in info.broker_addr_table
            for broker_id, address in info.broker_addr_table[name].broker_addrs.items()
        ]
        if not found:
            raise NotFoundError(_no_broker(cluster, "no broker"))
        return sorted(found, key=lambda place: (place.cluster, place.name, place.broker_id))

    async def master_addresses(self, cluster: str | None = None) -> list[str]:
        """Return the addresses of the masters of *cluster*, or of all; NotFoundError when there is none."""
        try:
            found = sorted(place.address for place in await self.brokers(cluster) if place.is_master)
        except NotFoundError:
            found = []
        if not found:
            raise NotFoundError(_no_broker(cluster, "no broker that is a master"))
        return found

    async def broker_address(self, broker: str) -> str:
        """Return the address of *broker*, which is one already or the name of a broker with a master."""
        if ":" in broker:
            return broker
        data = (await self.cluster_info()).broker_addr_table.get(broker)
        address = None if data is None else data.master_address()
        if address is None:
            raise NotFoundError(f"the name server knows no broker named {broker!r} that is a master")
        return address

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return which brokers have which queues of *topic*; NoRouteError when none has."""
        if not await self._hub.routes.refresh(topic):
            raise NoRouteError(topic)
        route = self._hub.routes.known(topic)
        assert route is not None  # a refresh that found one has stored it
        return route

    # For the calls of the other modules.

    async def _targets(self, cluster: str | None, broker: str | None) -> list[str]:
        """Return where a change goes: to one broker, or to the masters of one cluster or of all."""
        return [await self.broker_address(broker)] if broker is not None else await self.master_addresses(cluster)

    async def _topic_masters(self, topic: str) -> list[str]:
        """Return the addresses of the masters that have *topic*."""
        await self.topic_route(topic)
        return self._hub.routes.master_addresses(topic)

    async def _all_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of *topic* that can be read or written, sorted."""
        route = await self.topic_route(topic)
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            for queue_id in range(max(data.read_queue_nums, data.write_queue_nums))
        )

    async def _ask_name_server(self, code: RequestCode, values: Mapping[str, Any] | None = None) -> RemotingCommand:
        answer = await self._hub.name_servers.invoke(request(code, values), self._hub.settings.admin_timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark or "", self._hub.name_servers.chosen)
        return answer

    async def _tell_name_servers(
        self, code: RequestCode, values: Mapping[str, Any] | None = None, body: bytes = b""
    ) -> Outcomes:
        """Tell every name server, since they do not tell one another."""

        async def tell(address: str) -> None:
            await self._hub.api.call(address, code, values, body)

        return await outcomes_of(sorted(await self._hub.name_servers.all()), tell)

    async def _ask(
        self, broker: str, code: RequestCode, values: Mapping[str, Any] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Ask one broker, by name or address."""
        return await self._hub.api.call(await self.broker_address(broker), code, values, body)


async def outcomes_of(addresses: Iterable[str], change: Callable[[str], Awaitable[object]]) -> Outcomes:
    """Make *change* at each address, at all of them even if some refuse."""

    async def one(address: str) -> tuple[str, MQError | None]:
        try:
            await change(address)
        except MQError as error:
            return address, error
        return address, None

    return dict(await asyncio.gather(*(one(address) for address in addresses)))


async def answers_of(addresses: Iterable[str], ask: Callable[[str], Awaitable[R]]) -> dict[str, R]:
    """Ask at each address; the first failure is raised: part of an answer is not an answer."""
    places = list(addresses)
    return dict(zip(places, await asyncio.gather(*(ask(address) for address in places)), strict=True))


def _no_broker(cluster: str | None, what: str) -> str:
    return f"{'the name server knows' if cluster is None else f'cluster {cluster!r} has'} {what}"
