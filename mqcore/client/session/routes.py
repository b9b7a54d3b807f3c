"""Which brokers have which queues of a topic, and where they live. Source: RocketMQ MQClientInstance.java.

Routes are asked for when first needed, refreshed by the client every 30 s, and kept when a refresh fails: an old
address is better than none while a name server restarts.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from mqcore.client.errors import NoRouteError
from mqcore.client.model.rebalance import java_order
from mqcore.client.model.selectors import Rotation
from mqcore.codes import PermName, ResponseCode
from mqcore.errors import BrokerError
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.route import MASTER_ID, QueueData, TopicRouteData

logger = logging.getLogger(__name__)

AskRoute = Callable[[str], Awaitable[TopicRouteData]]
"""Asks a name server for the route of a topic; BrokerError TOPIC_NOT_EXIST when it has none."""


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues that may be written to, in the order in which a rotation takes them.

    An order topic lists its queues itself, as ``broker-a:4;broker-b:4``. Otherwise: brokers by name, writable, with a
    master, each with its write queues.
    """
    if route.order_topic_conf:
        pairs = (part.split(":") for part in route.order_topic_conf.split(";") if part)
        return [MessageQueue(topic, name, queue_id) for name, count in pairs for queue_id in range(int(count))]
    with_master = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: java_order(data.broker_name))
        if PermName.is_writeable(data.perm) and data.broker_name in with_master
        for queue_id in range(data.write_queue_nums)
    ]


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues that may be read; a slave is enough."""
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if PermName.is_readable(data.perm)
        for queue_id in range(data.read_queue_nums)
    ]


def capped(data: QueueData, queue_nums_max: int) -> QueueData:
    """Limit the default topic's queues to what a new topic will get."""
    nums = min(queue_nums_max, data.read_queue_nums)
    return replace(data, read_queue_nums=nums, write_queue_nums=nums)


def normal(route: TopicRouteData) -> TopicRouteData:
    """Sort what a name server lists in any order, so that equal routes compare equal."""
    return replace(
        route,
        queue_datas=sorted(route.queue_datas, key=lambda data: data.broker_name),
        broker_datas=sorted(route.broker_datas, key=lambda data: data.broker_name),
    )


class RouteTable:
    """The routes of the topics in use. A lookup that misses asks a name server once, however many callers wait."""

    def __init__(self, ask: AskRoute) -> None:
        self._ask = ask
        self._routes: dict[str, TopicRouteData] = {}
        self._rotations: dict[str, Rotation] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    # Topics.

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._routes)

    def known(self, topic: str) -> TopicRouteData | None:
        return self._routes.get(topic)

    def known_rotation(self, topic: str) -> Rotation | None:
        """Return the publish queues of *topic* with their turn, if they are known; asks nobody. For any thread."""
        return self._rotations.get(topic)

    async def rotation(self, topic: str, default_topic: str, default_queue_nums: int) -> Rotation:
        """Return the publish queues of *topic* with their turn.

        An unknown topic gets the queues of *default_topic*, because the broker will make the topic from it on the first
        send. Raises NoRouteError when there is nothing to publish to.
        """
        if topic not in self._rotations:
            async with self._locks[topic]:
                if topic not in self._rotations and not await self._refresh(topic):
                    await self._refresh_from_default(topic, default_topic, default_queue_nums)
        rotation = self._rotations.get(topic)
        if rotation is None:
            raise NoRouteError(topic)
        return rotation

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of *topic*; an empty list when it has no route."""
        if topic not in self._routes:
            await self.refresh(topic)
        route = self._routes.get(topic)
        return [] if route is None else subscribe_queues(topic, route)

    async def refresh(self, topic: str) -> bool:
        """Ask a name server for the route of *topic* and take it over; return whether it has one.

        Raises RemotingError when no name server answers.
        """
        async with self._locks[topic]:
            return await self._refresh(topic)

    async def _refresh(self, topic: str) -> bool:
        try:
            route = await self._ask(topic)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return False
            raise
        self._take_over(topic, route)
        return True

    async def _refresh_from_default(self, topic: str, default_topic: str, queue_nums_max: int) -> None:
        try:
            route = await self._ask(default_topic)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise NoRouteError(topic) from error
            raise
        self._take_over(topic, replace(route, queue_datas=[capped(data, queue_nums_max) for data in route.queue_datas]))

    def _take_over(self, topic: str, route: TopicRouteData) -> None:
        route = normal(route)
        for broker in route.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        if route == self._routes.get(topic):
            return
        self._routes[topic] = route
        queues = publish_queues(topic, route)
        if queues:
            self._rotations[topic] = Rotation(queues)
        else:
            self._rotations.pop(topic, None)
        logger.info("route changed topic=%s brokers=%s", topic, [data.broker_name for data in route.broker_datas])

    # Brokers.

    def name_of(self, address: str) -> str | None:
        """The name of the broker at *address*, or None when no route has told of it."""
        return next((name for name, addresses in self._brokers.items() if address in addresses.values()), None)

    def topics_of(self, broker_name: str) -> list[str]:
        """The topics whose route, as it is known, names a broker."""
        return [
            topic
            for topic, route in self._routes.items()
            if any(data.broker_name == broker_name for data in route.broker_datas)
        ]

    def masterless_broker(self, topic: str) -> str | None:
        """A broker to which *topic* could be sent if it had a master, or None."""
        route = self._routes.get(topic)
        queues = [] if route is None else route.queue_datas
        for data in queues:
            if PermName.is_writeable(data.perm) and self.master_address(data.broker_name) is None:
                return data.broker_name
        return None

    def master_address(self, broker_name: str) -> str | None:
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def any_address(self, broker_name: str) -> str | None:
        """The master's address, or any slave's."""
        addresses = self._brokers.get(broker_name, {})
        return addresses.get(MASTER_ID) or next(iter(addresses.values()), None)

    def subscribe_address(self, broker_name: str, broker_id: int) -> tuple[str, bool] | None:
        """Where to pull from: the broker with *broker_id*, the slave after it, or any; and whether that is a slave."""
        addresses = self._brokers.get(broker_name, {})
        chosen = broker_id
        if chosen not in addresses and broker_id != MASTER_ID:
            chosen = broker_id + 1
        if chosen not in addresses:
            chosen = next(iter(addresses), MASTER_ID)
        address = addresses.get(chosen)
        return None if address is None else (address, chosen != MASTER_ID)

    def random_broker_address(self, topic: str) -> str | None:
        """An address of any broker that has *topic*: who is asked for the members of a group."""
        route = self._routes.get(topic)
        if route is None or not route.broker_datas:
            return None
        return self.any_address(random.choice(route.broker_datas).broker_name)

    def addresses(self, *, with_slaves: bool) -> Iterable[str]:
        """All known broker addresses."""
        for addresses in self._brokers.values():
            for broker_id, address in addresses.items():
                if with_slaves or broker_id == MASTER_ID:
                    yield address

    def master_addresses(self, topic: str) -> list[str]:
        """The masters in the route of *topic*, as far as it is known."""
        route = self._routes.get(topic)
        names = [] if route is None else [data.broker_name for data in route.broker_datas]
        return [address for name in names if (address := self.master_address(name)) is not None]

    def forget_unused_brokers(self) -> None:
        """Drop addresses that no route mentions any more."""
        used = {
            (data.broker_name, address)
            for route in self._routes.values()
            for data in route.broker_datas
            for address in data.broker_addrs.values()
        }
        for name, addresses in list(self._brokers.items()):
            kept = {broker_id: address for broker_id, address in addresses.items() if (name, address) in used}
            if kept:
                self._brokers[name] = kept
            else:
                del self._brokers[name]
