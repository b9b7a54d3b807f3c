"""Where groups are in their queues, how far behind, and putting them elsewhere.

Source: RocketMQ tools/admin/DefaultMQAdminExtImpl.java, tools/command/offset/*.java.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mqcore.client.admin.base import AdminCalls, Outcomes, answers_of, outcomes_of
from mqcore.client.consume.polled.offsets import timestamp_ms
from mqcore.client.errors import NotFoundError
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import BrokerError, ClientError, MQError
from mqcore.protocol.bodies import (
    ConsumerConnection,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    OffsetWrapper,
    ResetOffsetBody,
)
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_retry_topic

TOPIC_GROUP_SEPARATOR = "@"
TO_LATEST_MS = -1
"""The timestamp that means the end of the queue to the brokers' reset."""


class ResetTo(StrEnum):
    """The two places to put a group to that need no number."""

    EARLIEST = "earliest"
    LATEST = "latest"


Target = ResetTo | datetime | int
"""Where a reset goes: the begin or the end of each queue, the messages stored at a time, or an offset."""


@dataclass(frozen=True, slots=True)
class QueueReset:
    """One queue of a reset: the offset before it (None: there was none), and after it."""

    queue: MessageQueue
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class ResetReport:
    """What a reset did, or would do. *by_members* says that the members were told, who commit it themselves.

    *failed* are the queues whose brokers did not take it, and why.
    """

    group: str
    topic: str
    dry_run: bool
    by_members: bool
    queues: list[QueueReset]
    failed: dict[MessageQueue, MQError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far behind a group is in one queue. *last_consumed_ms* is when the last consumed message was stored, or 0."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_consumed_ms: int

    @property
    def lag(self) -> int:
        return self.broker_offset - self.consumer_offset

    def delay_ms(self, now_ms: int) -> int:
        """Return how old the last consumed message is, if others wait behind it; 0 when none do."""
        return max(0, now_ms - self.last_consumed_ms) if self.lag > 0 and self.last_consumed_ms > 0 else 0


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far behind a group is: *queues* in order, and their sums."""

    group: str
    consume_tps: float
    queues: list[QueueLag]
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def total(self) -> int:
        return sum(row.lag for row in self.queues)

    @property
    def delay_ms(self) -> int:
        return max((row.delay_ms(self.now_ms) for row in self.queues), default=0)

    @property
    def last_consumed_ms(self) -> int:
        return max((row.last_consumed_ms for row in self.queues), default=0)

    def by_topic(self) -> dict[str, GroupLag]:
        """Return the same, divided by topic."""
        topics = sorted({row.queue.topic for row in self.queues})
        return {
            topic: GroupLag(
                self.group, self.consume_tps, [row for row in self.queues if row.queue.topic == topic], self.now_ms
            )
            for topic in topics
        }


class OffsetCalls(AdminCalls):
    """What can be asked and changed of consumer offsets."""

    async def group_offsets(self, group: str, topic: str | None = None) -> dict[MessageQueue, OffsetWrapper]:
        """Return where *group* is in each queue (of *topic*); what it has never touched is not there."""
        return dict(sorted((await self._consume_stats(group, topic)).offset_table.items()))

    async def group_topics(self, group: str) -> list[str]:
        """Return the topics in which *group* has offsets, sorted."""

        async def ask(address: str) -> set[str]:
            answer = await self._hub.api.call(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
            table = ConsumerOffsetSerializeWrapper.decode(answer.body).offset_table
            names = (key.rpartition(TOPIC_GROUP_SEPARATOR) for key in table)
            return {topic for topic, _, found in names if found == group}

        answers = await answers_of(await self.master_addresses(), ask)
        return sorted(set().union(*answers.values()))

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """Return how far behind *group* is, per queue and in all; NotFoundError when it has no offsets there."""
        stats = await self._consume_stats(group, topic)
        if not stats.offset_table:
            where = "" if topic is None else f" in topic {topic}"
            raise NotFoundError(f"the group {group} has no offsets{where}")
        rows = [
            QueueLag(queue, row.broker_offset, row.consumer_offset, row.last_timestamp)
            for queue, row in sorted(stats.offset_table.items())
        ]
        return GroupLag(group, stats.consume_tps, rows)

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: Target,
        *,
        queues: Iterable[MessageQueue] | None = None,
        force: bool = True,
        dry_run: bool = False,
    ) -> ResetReport:
        """Put *group* elsewhere in the queues of *topic*, or in some of them, and tell what was and what is.

        A group that is online is reset by its members: only whole topics, and not to an offset, for that is all that
        the protocol has; ClientError otherwise. (Java's pull consumers take no notice.) Without *force* a queue only
        goes backwards. *dry_run* changes nothing.
        """
        chosen = await self._queues_to_reset(topic, queues)
        is_online = await self._subscribes(group, topic)
        if is_online and (queues is not None or _is_offset(to)):
            raise ClientError(
                f"the group {group} is online: a whole topic can be reset to a time, to its begin or to its end; "
                "for single queues and offsets stop the members first"
            )
        stored = await self._stored(group, chosen)
        rows = []
        for queue in chosen:
            before, after = stored[queue], await self._target(queue, to)
            if not force and before is not None and after >= before:
                after = before
            rows.append(QueueReset(queue, before, after))
        if dry_run:
            return ResetReport(group, topic, True, is_online, rows)
        if is_online:
            return ResetReport(group, topic, False, True, await self._reset_by_members(group, topic, to, force, rows))
        failed: dict[MessageQueue, MQError] = {}
        for row in rows:
            try:
                await self.set_offset(group, row.queue, row.after)
            except MQError as error:
                failed[row.queue] = error
        return ResetReport(group, topic, False, False, rows, failed)

    async def skip_accumulated(self, group: str, topic: str, *, dry_run: bool = False) -> ResetReport:
        """Let *group* pass over everything in *topic* that it has not consumed."""
        return await self.reset_offsets(group, topic, ResetTo.LATEST, dry_run=dry_run)

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store one offset of *group* at the queue's broker. Members that are online will overwrite it."""
        address = await self._hub.master_address(queue)
        await self._hub.api.update_consumer_offset(address, group, queue, offset)

    async def clone_offsets(self, source: str, target: str, topic: str | None = None) -> Outcomes:
        """Give the group *target* the offsets of *source* in *topic*, or in all topics where it has any."""
        topics = [topic] if topic is not None else await self.group_topics(source)
        if not topics:
            raise NotFoundError(f"the group {source} has no offsets")
        outcomes: Outcomes = {}
        for name in topics:
            if topic is None and is_retry_topic(name):
                continue
            values = {"src_group": source, "dest_group": target, "topic": name, "offline": True}

            async def clone(address: str, values: Mapping[str, object] = values) -> None:
                await self._hub.api.call(address, RequestCode.CLONE_GROUP_OFFSET, values)

            for address, error in (await outcomes_of(await self._topic_masters(name), clone)).items():
                outcomes[address] = outcomes.get(address) or error
        return outcomes

    # The inside.

    async def _consume_stats(self, group: str, topic: str | None) -> ConsumeStats:
        """Ask for all topics, and choose here: asked for one, brokers make up offsets that the group does not have."""

        async def ask(address: str) -> ConsumeStats:
            answer = await self._hub.api.call(address, RequestCode.GET_CONSUME_STATS, {"consumer_group": group})
            return ConsumeStats.decode(answer.body)

        merged = ConsumeStats()
        places = await (self.master_addresses() if topic is None else self._topic_masters(topic))
        for stats in (await answers_of(places, ask)).values():
            table = stats.offset_table
            merged.offset_table |= {queue: row for queue, row in table.items() if topic in (None, queue.topic)}
            merged.consume_tps += stats.consume_tps
        return merged

    async def _queues_to_reset(self, topic: str, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        known = await self._all_queues(topic)
        chosen = known if queues is None else sorted(set(queues))
        for queue in chosen:
            if queue not in known:
                raise NotFoundError(f"the topic {topic} has no queue {queue.broker_name}/{queue.queue_id}")
        return chosen

    async def _subscribes(self, group: str, topic: str) -> bool:
        """Return whether members of *group* that are online subscribe to *topic*."""
        for address in await self._topic_masters(topic):
            try:
                values = {"consumer_group": group}
                answer = await self._hub.api.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, values)
            except BrokerError as error:
                if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                    continue
                raise
            if topic in ConsumerConnection.decode(answer.body).subscription_table:
                return True
        return False

    async def _stored(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        found: dict[MessageQueue, int | None] = {}
        for queue in queues:
            address = await self._hub.master_address(queue)
            found[queue] = await self._hub.api.query_consumer_offset(address, group, queue)
        return found

    async def _target(self, queue: MessageQueue, to: Target) -> int:
        address = await self._hub.master_address(queue)
        first = await self._hub.api.min_offset(address, queue)
        if to == ResetTo.EARLIEST:
            return first
        end = await self._hub.api.max_offset(address, queue)
        if to == ResetTo.LATEST:
            return end
        if isinstance(to, datetime):
            return await self._hub.api.search_offset(address, queue, timestamp_ms(to))
        assert isinstance(to, int)
        if not first <= to <= end:
            raise ClientError(f"offset {to} is not in {queue}: it has {first} to {end}")
        return to

    async def _reset_by_members(
        self, group: str, topic: str, to: Target, force: bool, rows: list[QueueReset]
    ) -> list[QueueReset]:
        """Let the brokers tell the members; return what they were told."""
        if isinstance(to, datetime):
            time_ms = timestamp_ms(to)
        else:
            time_ms = TO_LATEST_MS if to == ResetTo.LATEST else 0
        values = {"topic": topic, "group": group, "timestamp": time_ms, "is_force": force}

        async def ask(address: str) -> dict[MessageQueue, int]:
            answer = await self._hub.api.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, values)
            return ResetOffsetBody.decode(answer.body).offset_table

        told: dict[MessageQueue, int] = {}
        for table in (await answers_of(await self._topic_masters(topic), ask)).values():
            told |= table
        return [QueueReset(row.queue, row.before, told.get(row.queue, row.after)) for row in rows]


def _is_offset(to: Target) -> bool:
    return isinstance(to, int)
