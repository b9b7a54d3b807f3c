"""What ``mqcore explain`` asks a cluster about a consumer group, before anything is judged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from mqcore import clock
from mqcore.client.admin import Admin
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.codes import PermName
from mqcore.errors import MQError
from mqcore.protocol.admin_bodies import ConsumerRunningInfo, OffsetWrapper, TopicOffset
from mqcore.protocol.connection_bodies import ConsumerConnection
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import dlq_topic, is_retry_topic, retry_topic
from mqcore.protocol.topic_config import SubscriptionGroupConfig, TopicConfig

BROKER_PERMISSION: Final = "brokerPermission"

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Standing:
    """Where members say they are: the offset of each queue that one of them holds. *at_ms* is when they were asked."""

    at_ms: int
    offsets: dict[MessageQueue, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ConsumptionFacts:
    """What brokers and members say of *group* in *topics*; tables are by broker name, by topic, or by client id."""

    group: str
    topics: tuple[str, ...]
    now_ms: int
    configs: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    permissions: dict[str, int] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, TopicConfig]] = field(default_factory=dict)
    bounds: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    positions: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    connection: ConsumerConnection | None = None
    members: dict[str, ConsumerRunningInfo | MQError] = field(default_factory=dict)
    retry_times: int = 0
    """How often the next message of the retry topic has failed; 0 when none waits there."""
    before: Standing | None = None
    """A look at the members some time before this one."""

    def queues(self, topic: str) -> list[MessageQueue]:
        return sorted(queue for queue in self.bounds if queue.topic == topic)

    def lag(self, topic: str) -> int:
        """How many messages of *topic* the group has still to consume, where it has an offset."""
        return sum(
            max(0, self.bounds[queue].max_offset - self.positions[queue].consumer_offset)
            for queue in self.queues(topic)
            if queue in self.positions
        )

    @property
    def answers(self) -> dict[str, ConsumerRunningInfo]:
        """What the members say that have answered."""
        return {name: info for name, info in self.members.items() if isinstance(info, ConsumerRunningInfo)}

    @property
    def standing(self) -> Standing:
        held = {queue: row for info in self.answers.values() for queue, row in info.mq_table.items()}
        return Standing(at_ms=self.now_ms, offsets={queue: row.commit_offset for queue, row in held.items()})


async def gather_facts(admin: Admin, group: str, topic: str | None = None) -> ConsumptionFacts:
    """Ask about *group*, in *topic* or in all that it subscribes to or has offsets in.

    What does not exist is not there; a broker that does not answer raises, as half of the facts would mislead.
    """
    names = {place.address: place.name for place in await admin.brokers() if place.is_master}
    configs, connection, positions = await asyncio.gather(
        _or_none(admin.group_configs(group)),
        _or_none(admin.group_connection(group)),
        admin.group_offsets(group),
    )
    topics = _topics(group, topic, connection, positions)
    facts = ConsumptionFacts(group=group, topics=topics, now_ms=clock.now_ms(), connection=connection)
    facts.configs = {names.get(address, address): config for address, config in (configs or {}).items()}
    facts.positions = positions
    await asyncio.gather(
        _ask_topics(admin, facts, names), _ask_members(admin, facts), _ask_permissions(admin, facts, names)
    )
    await _ask_retries(admin, facts)
    return facts


def _topics(
    group: str, topic: str | None, connection: ConsumerConnection | None, positions: Iterable[MessageQueue]
) -> tuple[str, ...]:
    if topic is not None:
        return (topic,)
    found = {queue.topic for queue in positions} | set(connection.subscription_table if connection is not None else ())
    return tuple(sorted(name for name in found if not is_retry_topic(name)))


async def _or_none(asked: Awaitable[T]) -> T | None:
    """What does not exist is None."""
    try:
        return await asked
    except (NotFoundError, NoRouteError):
        return None


async def _ask_topics(admin: Admin, facts: ConsumptionFacts, names: dict[str, str]) -> None:
    for topic in facts.topics:
        configs = await _or_none(admin.topic_configs(topic)) or {}
        facts.topic_configs[topic] = {names.get(address, address): config for address, config in configs.items()}
    for topic in (*facts.topics, retry_topic(facts.group), dlq_topic(facts.group)):
        facts.bounds |= await _or_none(admin.offsets(topic)) or {}


async def _ask_members(admin: Admin, facts: ConsumptionFacts) -> None:
    async def ask(client_id: str) -> ConsumerRunningInfo | MQError:
        try:
            return await admin.consumer_running_info(facts.group, client_id)
        except MQError as error:
            return error

    clients = [] if facts.connection is None else [client.client_id for client in facts.connection.connection_set]
    facts.members = dict(zip(clients, await asyncio.gather(*map(ask, clients)), strict=True))
    facts.now_ms = clock.now_ms()


async def _ask_permissions(admin: Admin, facts: ConsumptionFacts, names: dict[str, str]) -> None:
    for address, name in names.items():
        text = (await admin.broker_config(address)).get(BROKER_PERMISSION, "")
        facts.permissions[name] = int(text) if text.isdecimal() else PermName.READ | PermName.WRITE


async def _ask_retries(admin: Admin, facts: ConsumptionFacts) -> None:
    for queue in facts.queues(retry_topic(facts.group)):
        position = facts.positions.get(queue)
        first = facts.bounds[queue].min_offset if position is None else position.consumer_offset
        if first < facts.bounds[queue].max_offset:
            found = await _or_none(admin.message_at(queue, first))
            facts.retry_times = max(facts.retry_times, 0 if found is None else found.reconsume_times)


async def look_again(admin: Admin, facts: ConsumptionFacts, topic: str | None, after_s: float) -> ConsumptionFacts:
    """Return the facts as they are *after_s* later, with where the members stood before."""
    await asyncio.sleep(after_s)
    later = await gather_facts(admin, facts.group, topic)
    later.before = facts.standing
    return later
