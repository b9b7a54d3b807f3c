"""Where topics live: what name servers tell clients and tools.

Source: RocketMQ common/protocol/route/*.java, common/protocol/body/ClusterInfo.java, TopicList.java.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqcore.codes import MQVersion, PermName
from mqcore.protocol.json_body import JsonBody

MASTER_ID: Final = 0
"""The broker id of a master; slaves have larger ones."""


@dataclass(slots=True)
class QueueData(JsonBody):
    """The queues that one broker name has of a topic."""

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = PermName.READ | PermName.WRITE
    topic_sys_flag: int = 0


@dataclass(slots=True)
class BrokerData(JsonBody):
    """The brokers of one name: broker id -> address."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)

    def master_address(self) -> str | None:
        """Return the master's address, or None while there is no master."""
        return self.broker_addrs.get(MASTER_ID)


@dataclass(slots=True)
class TopicRouteData(JsonBody):
    """Body of the answer to GET_ROUTEINFO_BY_TOPIC. ``order_topic_conf`` reads ``broker-a:4;broker-b:4``."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None

    def encode_for(self, version: int, accept_standard_json_only: bool | None) -> bytes:
        """Return the JSON for a client of *version*: strict from V4_9_4 on or when asked for, else fastjson's own."""
        strict = version >= MQVersion.V4_9_4 or bool(accept_standard_json_only)
        return self.encode(browser_compatible=strict)


@dataclass(slots=True)
class ClusterInfo(JsonBody):
    """Body of the answer to GET_BROKER_CLUSTER_INFO: broker name -> brokers, cluster -> broker names."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class TopicList(JsonBody):
    """A list of topics; ``broker_addr`` is set in the answer to GET_SYSTEM_TOPIC_LIST_FROM_NS only."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None
