"""What only the broker process knows, as the endpoint is told it: gathered in its event loop, a little at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqcore.broker.context import BrokerContext
from mqcore.broker.pools import POOLS
from mqcore.broker.ports import ReplicationFacts, StoreFacts
from mqcore.broker.ports.figures import FigureView
from mqcore.codes import LanguageCode, version_name
from mqcore.protocol.bodies import ConsumeType, MessageModel

PORTION: Final = 500
"""Connections that are counted before others have their turn: less than a millisecond."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A broker that may be looked at, from its start on, while it lives."""

    broker: BrokerContext
    figures: FigureView
    is_serving: bool
    """Whether its start is over, and its stop has not begun."""


class ProducerKind(NamedTuple):
    """What producers are told apart by."""

    language: str
    version: str


class ConsumerKind(NamedTuple):
    """What consumers are told apart by."""

    group: str
    language: str
    version: str
    consume_mode: str


@dataclass(frozen=True, slots=True)
class MemberCount:
    """How many members of a group are connected, and whether they share queues."""

    count: int
    shares_queues: bool


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What the event loop has said."""

    runtime: Mapping[str, str]
    store: StoreFacts
    topic_count: int
    groups: frozenset[str]
    system_topics: frozenset[str]
    permission: int
    is_registered: bool
    is_master: bool
    epoch: int | None
    """None: it is in no failover group."""
    earliest_ms: int
    """Store time of the oldest message; -1 = there is none, or not enough of them to tell."""
    pools: Mapping[str, int]
    members: Mapping[str, MemberCount]
    producers: Mapping[ProducerKind, int]
    consumers: Mapping[ConsumerKind, int]
    replication: ReplicationFacts | None
    conflict_count: int
    conflict_groups: int


async def gather_facts(broker: BrokerContext) -> BrokerFacts:
    """Ask the parts of *broker*; others have their turn in between."""
    runtime = broker.runtime_info.table()
    await asyncio.sleep(0)
    groups = frozenset(broker.groups.wrapper.subscription_group_table)
    await asyncio.sleep(0)
    consumers, members = await _consumers(broker)
    return BrokerFacts(
        runtime=runtime,
        store=broker.store.facts(),
        topic_count=len(broker.topics.table.records),
        groups=groups,
        system_topics=frozenset(broker.topics.system_topics),
        permission=broker.settings.broker.broker_permission,
        is_registered=broker.registration.is_known,
        is_master=not broker.is_slave,
        epoch=None if broker.group is None else broker.group.epoch,
        earliest_ms=broker.store.earliest_timestamp(),
        pools={pool: int(runtime.get(f"{pool}ThreadPoolQueueSize", 0)) for pool in POOLS},
        members=members,
        producers=await _producers(broker),
        consumers=consumers,
        replication=None if broker.replication is None else broker.replication.facts(),
        conflict_count=broker.consumers.conflicts.total,
        conflict_groups=len(broker.consumers.conflicts.groups),
    )


async def _consumers(broker: BrokerContext) -> tuple[Counter[ConsumerKind], dict[str, MemberCount]]:
    counts: Counter[ConsumerKind] = Counter()
    members: dict[str, MemberCount] = {}
    seen = 0
    for group, info in list(broker.consumers.groups.items()):
        members[group] = MemberCount(len(info.channels), info.message_model is not MessageModel.BROADCASTING)
        mode = "pull" if info.consume_type is ConsumeType.CONSUME_ACTIVELY else "push"
        for client in list(info.channels.values()):
            counts[ConsumerKind(group, _language(client.language), version_name(client.version).lower(), mode)] += 1
            seen += 1
            if seen % PORTION == 0:
                await asyncio.sleep(0)
    return counts, members


async def _producers(broker: BrokerContext) -> Counter[ProducerKind]:
    counts: Counter[ProducerKind] = Counter()
    seen = 0
    for channels in list(broker.producers.groups.values()):
        for client in list(channels.values()):
            counts[ProducerKind(_language(client.language), version_name(client.version).lower())] += 1
            seen += 1
            if seen % PORTION == 0:
                await asyncio.sleep(0)
    return counts


def _language(number: int) -> str:
    return LanguageCode(number).name.lower()
