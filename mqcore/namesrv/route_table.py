"""What the name server knows: five tables, changed by registrations and by brokers that go.

    topic -> broker name -> queues          broker name -> cluster, id -> address          cluster -> broker names
    broker address -> when it was last heard of, its data version, its connection          address -> filter servers

and the newest mastership of each broker name, which outlives its brokers for a while.

There is no lock, because only the event loop touches it. Times are monotonic ms.
Source: RocketMQ namesrv/routeinfo/RouteInfoManager.java.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from mqcore.clock import monotonic_ms
from mqcore.codes import PermName, TopicSysFlag
from mqcore.protocol.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRouteData
from mqcore.protocol.topic_config import DataVersion, RegisterBrokerBody, TopicConfig
from mqcore.transport.connection import Connection

logger = logging.getLogger(__name__)

BROKER_EXPIRY_MS: Final = 120_000
"""A broker that has not registered for so long counts as dead."""

MASTERSHIP_KEPT_MS: Final = 3_600_000
"""For how long the newest mastership of a broker name counts after it was last heard of, whoever lives.

Much longer than a deposed master may go on without learning of it, but not for ever: a group that was founded anew
counts from one again.
"""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who a broker says it is when it registers or leaves."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str


@dataclass(slots=True)
class LiveBroker:
    """A broker that has been heard of. ``connection`` is the one that it registered by."""

    heard_ms: int
    data_version: DataVersion
    connection: Connection | None
    ha_address: str


@dataclass(slots=True)
class Mastership:
    """The highest state version that a broker name has registered, by whichever of its brokers."""

    version: int
    heard_ms: int


@dataclass(frozen=True, slots=True)
class MasterAddresses:
    """What a slave learns when it registers."""

    address: str
    ha_address: str


class RouteTable:
    """The tables and the rules by which they change. Reads give copies that may be kept."""

    def __init__(self, expiry_ms: int = BROKER_EXPIRY_MS, clock: Callable[[], int] = monotonic_ms) -> None:
        self._expiry_ms = expiry_ms
        self._clock = clock
        self._topic_queues: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}  # a dict as an ordered set
        self._live: dict[str, LiveBroker] = {}
        self._filter_servers: dict[str, list[str]] = {}
        self._masterships: dict[str, Mastership] = {}

    # Brokers come and go.

    def register_broker(
        self, broker: BrokerIdentity, ha_address: str, body: RegisterBrokerBody, connection: Connection | None
    ) -> MasterAddresses | None:
        """Take a registration; return the live master if the broker is its slave.

        Topics are taken from a master only, and only if its data version has changed or the broker is new. Topics that
        the registration does not name stay. A registration that is older than the mastership which is known changes
        neither who is master nor what else is known of its sender.
        """
        if self._is_outdated(broker, body.topic_config_serialize_wrapper.data_version):
            self._forget_unlisted(broker.address)
            return None
        self._clusters.setdefault(broker.cluster_name, {})[broker.broker_name] = None
        data = self._brokers.setdefault(broker.broker_name, BrokerData(broker.cluster_name, broker.broker_name))
        # A slave that became master comes with its old address under a new id: one address has one id.
        for other_id in [id_ for id_, at in data.broker_addrs.items() if at == broker.address]:
            if other_id != broker.broker_id:
                del data.broker_addrs[other_id]
        is_new = data.broker_addrs.get(broker.broker_id) != broker.address
        data.broker_addrs[broker.broker_id] = broker.address
        wrapper = body.topic_config_serialize_wrapper
        if broker.broker_id == MASTER_ID and (is_new or self.is_changed(broker.address, wrapper.data_version)):
            self._take_topics(broker.broker_name, wrapper.topic_config_table.values())
        if broker.address not in self._live:
            logger.info("broker registered %s ha_address=%s", broker, ha_address)
        self._live[broker.address] = LiveBroker(self._clock(), wrapper.data_version, connection, ha_address)
        if body.filter_server_list:
            self._filter_servers[broker.address] = list(body.filter_server_list)
        else:
            self._filter_servers.pop(broker.address, None)
        return None if broker.broker_id == MASTER_ID else self._live_master(data)

    def _is_outdated(self, broker: BrokerIdentity, version: DataVersion) -> bool:
        """Whether a registration is of a mastership that has ended, and would change who is master.

        What counts is the newest mastership that anybody of the broker name has told of, although its master may be
        gone: its connection may be lost for a moment, and who was deposed may not know it yet. The master that is known
        may come again with a lower version. Brokers that count no masterships are compared with who lives only, as in
        RocketMQ 5.
        """
        offered = version.state_version or 0
        newest = self._newest_mastership(broker.broker_name, offered)
        data = self._brokers.get(broker.broker_name)
        master = data.master_address() if data is not None else None
        if (broker.broker_id == MASTER_ID) == (broker.address == master):
            return False
        live = self._live.get(master) if master is not None else None
        held = 0 if live is None else live.data_version.state_version or 0
        wanted = max(held, newest) if offered else held
        if offered < wanted:
            logger.warning(
                "broker passed over %s state_version=%d newest=%d master=%s", broker, offered, wanted, master
            )
        return offered < wanted

    def _newest_mastership(self, broker_name: str, offered: int) -> int:
        """Return the highest state version of *broker_name*, 0 for none, and note that *offered* was heard of."""
        known = self._masterships.get(broker_name)
        if offered and (known is None or offered >= known.version):
            known = self._masterships[broker_name] = Mastership(offered, self._clock())
        return 0 if known is None else known.version

    def _take_topics(self, broker_name: str, topics: Iterable[TopicConfig]) -> None:
        for topic in topics:
            self._topic_queues.setdefault(topic.topic_name, {})[broker_name] = QueueData(
                broker_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag
            )

    def _live_master(self, data: BrokerData) -> MasterAddresses | None:
        address = data.master_address()
        live = None if address is None else self._live.get(address)
        return None if address is None or live is None else MasterAddresses(address, live.ha_address)

    def unregister_broker(self, broker: BrokerIdentity) -> None:
        """Forget a broker that says goodbye. The id of another address, which has taken its place, stays."""
        data = self._brokers.get(broker.broker_name)
        if data is not None and data.broker_addrs.get(broker.broker_id) == broker.address:
            self._drop_id(data, broker.broker_id)
            logger.info("broker unregistered %s", broker)
        self._forget_unlisted(broker.address)

    def _forget_unlisted(self, address: str) -> None:
        """Forget an address unless a broker name has it, be it under another id than the one that it left."""
        if not any(address in data.broker_addrs.values() for data in self._brokers.values()):
            self._live.pop(address, None)
            self._filter_servers.pop(address, None)

    def connection_closed(self, connection: Connection) -> None:
        """Forget at once the brokers that had registered by *connection*."""
        for address in [address for address, live in self._live.items() if live.connection is connection]:
            self._forget_address(address, "its connection was closed")

    def drop_silent_brokers(self) -> list[Connection]:
        """Forget the brokers that have not been heard of for too long; return their connections, to be closed."""
        now_ms = self._clock()
        oldest_ms = now_ms - self._expiry_ms
        silent = {address: live for address, live in self._live.items() if live.heard_ms < oldest_ms}
        for address in silent:
            self._forget_address(address, f"it was silent for {self._expiry_ms} ms")
        for name, mastership in list(self._masterships.items()):
            if mastership.heard_ms < now_ms - MASTERSHIP_KEPT_MS:
                del self._masterships[name]
        return [live.connection for live in silent.values() if live.connection is not None]

    def _forget_address(self, address: str, reason: str) -> None:
        logger.warning("broker removed address=%s because %s", address, reason)
        self._live.pop(address, None)
        self._filter_servers.pop(address, None)
        for data in list(self._brokers.values()):
            for broker_id in [id_ for id_, at in data.broker_addrs.items() if at == address]:
                self._drop_id(data, broker_id)

    def _drop_id(self, data: BrokerData, broker_id: int) -> None:
        """Take one address from a broker name, and with the last one the name, its topics, and an empty cluster."""
        del data.broker_addrs[broker_id]
        if data.broker_addrs:
            return
        del self._brokers[data.broker_name]
        for cluster_name, names in list(self._clusters.items()):
            names.pop(data.broker_name, None)
            if not names:
                del self._clusters[cluster_name]
        for topic, queues in list(self._topic_queues.items()):
            queues.pop(data.broker_name, None)
            if not queues:
                del self._topic_queues[topic]

    # Versions and liveness.

    def data_version_of(self, address: str) -> DataVersion | None:
        """Return the data version that the broker at *address* has registered, or None."""
        live = self._live.get(address)
        return None if live is None else live.data_version

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """Whether *version* differs from the one that the broker at *address* has registered."""
        return self.data_version_of(address) != version

    def touch(self, address: str) -> None:
        """Note that the broker at *address* lives."""
        live = self._live.get(address)
        if live is not None:
            live.heard_ms = self._clock()

    # Topics.

    def route(self, topic: str) -> TopicRouteData | None:
        """Return where *topic* lives, or None if no live broker has it."""
        queues = self._topic_queues.get(topic, {})
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        addresses = [address for broker in brokers for address in broker.broker_addrs.values()]
        return TopicRouteData(
            [dataclasses.replace(queue) for queue in queues.values()],
            [_copy(broker) for broker in brokers],
            {address: self._filter_servers[address] for address in addresses if address in self._filter_servers},
        )

    def change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Apply *change* to the permission of every topic of a broker name; return how many topics it has."""
        queues = [queues[broker_name] for queues in self._topic_queues.values() if broker_name in queues]
        for queue in queues:
            queue.perm = change(queue.perm)
        return len(queues)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Make every topic of a broker name read-only, until the broker registers a change; return how many."""
        return self.change_perm(broker_name, lambda perm: perm & ~PermName.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make every topic of a broker name readable and writable; return how many."""
        return self.change_perm(broker_name, lambda _: PermName.READ | PermName.WRITE)

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Forget *topic*, in all clusters or in one."""
        queues = self._topic_queues.get(topic, {})
        names = list(queues) if cluster_name is None else list(self._clusters.get(cluster_name, {}))
        for name in names:
            queues.pop(name, None)
        if not queues:
            self._topic_queues.pop(topic, None)

    # Lists.

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._topic_queues)

    def topics_of_cluster(self, cluster_name: str) -> list[str]:
        """Return the topics that brokers of a cluster have; an unknown cluster has none."""
        names = self._clusters.get(cluster_name, {})
        return [topic for topic, queues in self._topic_queues.items() if not names.keys().isdisjoint(queues)]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the names of clusters and brokers, which are topics too, and the address of some broker."""
        names: dict[str, None] = {}
        for cluster_name, broker_names in self._clusters.items():
            names[cluster_name] = None
            names.update(broker_names)
        for data in self._brokers.values():
            return list(names), data.broker_addrs[min(data.broker_addrs)]
        return list(names), None

    def unit_topics(self, is_wanted: Callable[[TopicSysFlag], bool]) -> list[str]:
        """Return the topics whose sysFlag, as one of their brokers has it, is wanted."""
        first = {topic: next(iter(queues.values())) for topic, queues in self._topic_queues.items() if queues}
        return [topic for topic, queue in first.items() if is_wanted(TopicSysFlag(queue.topic_sys_flag & 3))]

    def cluster_info(self) -> ClusterInfo:
        """Return every broker and every cluster."""
        return ClusterInfo(
            {name: _copy(data) for name, data in self._brokers.items()},
            {cluster_name: list(names) for cluster_name, names in self._clusters.items()},
        )


def _copy(data: BrokerData) -> BrokerData:
    return dataclasses.replace(data, broker_addrs=dict(data.broker_addrs))
