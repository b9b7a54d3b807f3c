"""The bodies that say how a broker's log is copied, and who wrote which part of it.

Source: RocketMQ 5.x remoting/protocol/body/HARuntimeInfo.java, EpochEntryCache.java; what they do not have is None for
brokers of RocketMQ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqcore.protocol.group_bodies import GroupFacts
from mqcore.protocol.json_body import JsonBody


@dataclass(slots=True)
class HAConnectionRuntimeInfo(JsonBody):
    """A slave, as its master sees it. Offsets and *diff*, what the slave lacks, in bytes."""

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    state: str | None = None
    behind_ms: int | None = None


@dataclass(slots=True)
class HAClientRuntimeInfo(JsonBody):
    """The way from a slave to its master. Times are ms since 1970."""

    master_addr: str = ""
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    activated: bool = False


@dataclass(slots=True)
class HARuntimeInfo(JsonBody):
    """Body of the answer to GET_BROKER_HA_STATUS."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo | None = None
    replicated_offset: int | None = None
    role: str | None = None
    refusal: str | None = None
    """Why a slave does not copy; empty: nothing is wrong."""
    failover_group: GroupFacts | None = None
    """Of a broker in a failover group."""


@dataclass(slots=True)
class EpochStart(JsonBody):
    """A mastership, and the physical offset from which on the log is of it."""

    epoch: int = 0
    start_offset: int = 0


@dataclass(slots=True)
class EpochCache(JsonBody):
    """Body of the answer to GET_BROKER_EPOCH_CACHE. Offsets are physical ones."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    epoch_list: list[EpochStart] = field(default_factory=list)
    max_offset: int = 0
    min_offset: int | None = None
    """The start of its first file."""
    term: int | None = None
    """The epoch that it leads, 0 if it does not lead."""
    role: str | None = None
    ha_address: str | None = None
    """Where it listens for those that copy it."""
    doubts_ms: int = 0
    """How long it doubts yet where clients stand, since its log may lack what was given out before it led."""
