"""How far groups are, and how fast things go. Source: RocketMQ broker/processor/AdminBrokerProcessor.java."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.broker.statistics import StatsData
from mqcore.codes import ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicConfig,
)
from mqcore.protocol.command import RemotingCommand


class AdminStatsProcessor:
    """Read-only views over offsets and counters."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def consume_stats(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 208."""
        header = headers.decode_request(request.code, request.ext_fields)
        group, topic = header["consumer_group"], (header["topic"] or "").strip()
        total = ConsumeStats()
        topics = [topic] if topic else await self._broker.offsets.topics_of(group)
        for config in self._consumed_topics(group, topics):
            await asyncio.sleep(0)  # there may be thousands, and others have requests too
            stats = self._stats(group, config, config.read_queue_nums)
            total.offset_table |= stats.offset_table
            total.consume_tps += stats.consume_tps
        return request.reply(body=total.encode())

    async def broker_consume_stats(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 317: every group that has a record, with its topics one by one."""
        is_order = headers.decode_request(request.code, request.ext_fields)["is_order"]
        groups: list[dict[str, list[ConsumeStats]]] = []
        total_diff = 0
        topics_by_group = await self._broker.offsets.topics_by_group()
        for group in self._broker.groups.wrapper.subscription_group_table:
            topics = self._consumed_topics(group, topics_by_group.get(group, []))
            rows = []
            for config in topics:
                if config.order or not is_order:
                    await asyncio.sleep(0)
                    rows.append(self._stats(group, config, config.write_queue_nums))
            total_diff += sum(stats.total_diff() for stats in rows)
            groups.append({group: rows})
        body = ConsumeStatsList(self._broker.registration.address, groups, total_diff)
        return request.reply(body=body.encode())

    def _consumed_topics(self, group: str, topics: Iterable[str]) -> list[TopicConfig]:
        """Return the records of *topics*, without those that the group's live members do not subscribe to."""
        members = self._broker.consumers.groups.get(group)
        subscribed = members.subscriptions if members is not None else {}
        configs = [self._broker.topics.find(topic) for topic in topics if not subscribed or topic in subscribed]
        return [config for config in configs if config is not None]

    def _stats(self, group: str, config: TopicConfig, queue_nums: int) -> ConsumeStats:
        topic = config.topic_name
        table = {
            self._broker.queue(topic, queue_id): self._progress(group, topic, queue_id)
            for queue_id in range(queue_nums)
        }
        return ConsumeStats(table, self._broker.statistics.group_get_tps(topic, group))

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        store = self._broker.store
        broker_offset = max(store.max_offset(topic, queue_id), 0)
        consumed = max(self._broker.offsets.query(group, topic, queue_id), 0)
        # As 5.x: who has committed and not pulled, since the broker started or ever, has nothing in flight.
        pulled = max(self._broker.offsets.pulled(group, topic, queue_id), consumed)
        last = store.store_timestamp(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return OffsetWrapper(broker_offset, consumed, max(last, 0), pulled)

    async def consume_time_span(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 303."""
        header = headers.decode_request(request.code, request.ext_fields)
        topic = header["topic"]
        config = self._broker.topics.find(topic)
        if config is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        spans = [self._span(header["group"], topic, queue_id) for queue_id in range(config.write_queue_nums)]
        return request.reply(body=QueryConsumeTimeSpanBody(spans).encode())

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._broker.store
        earliest = store.earliest_timestamp(topic, queue_id)
        max_offset = max(store.max_offset(topic, queue_id), 0)
        latest = store.store_timestamp(topic, queue_id, max_offset - 1)
        consumed = self._broker.offsets.query(group, topic, queue_id)
        consume_time = store.store_timestamp(topic, queue_id, consumed - 1) if consumed > 0 else earliest
        delay = 0
        if consumed < max_offset:
            delay = self._broker.clock() - store.store_timestamp(topic, queue_id, consumed)
        return QueueTimeSpan(self._broker.queue(topic, queue_id), earliest, latest, consume_time, delay)

    async def stats_data(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 315."""
        header = headers.decode_request(request.code, request.ext_fields)
        name, key = header["stats_name"], header["stats_key"]
        spans = self._broker.statistics.view(name, key)
        if spans is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return request.reply(body=BrokerStatsData(*map(_item, spans)).encode())


def _item(data: StatsData) -> BrokerStatsItem:
    return BrokerStatsItem(data.sum, data.tps, data.avgpt)
