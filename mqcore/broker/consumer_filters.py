"""What groups filter by: topic -> group -> expression, from heart-beats, kept over restarts in consumerFilter.json.

A group that goes away leaves its filter behind, dead, for a day: when it comes back with the same subscription, the
bits that it has in filter bitmaps are still its own.
Source: RocketMQ broker/filter/ConsumerFilterManager.java, ConsumerFilterData.java.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from mqcore.bloom import BloomFilter
from mqcore.broker.config_file import ConfigFile
from mqcore.broker.filter_compiler import Answers, FilterCompiler, compile_filter
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.ports import Clock
from mqcore.errors import FilterSyntaxError
from mqcore.filter.expressions import AmongTexts, Comparison, Constant, Expression, Junction, Property, Relation
from mqcore.filter.sql import CompiledFilter
from mqcore.protocol.bodies import SubscriptionData
from mqcore.protocol.heartbeat import is_tag_type
from mqcore.protocol.properties import PROPERTY_RETRY_TOPIC

logger = logging.getLogger(__name__)

LOADED_AGO_MS: Final = 30_000
"""A filter that was alive when the broker stopped counts as dead for so long when it starts."""


@dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """What one group wants of one topic. Times are ms since 1970; ``dead_time`` is 0 while a member is there."""

    group: str
    topic: str
    expression: str
    expression_type: str
    born_time: int
    client_version: int
    bits: tuple[int, ...]
    bit_count: int
    compiled: CompiledFilter | None
    dead_time: int = 0
    bitmap_from: int = -1
    """Bitmaps of messages from this physical offset on have the group's bits, if it wants them; -1: none does."""

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time

    def rules_out(self, physical_offset: int, bitmap: bytes) -> bool:
        """Tell whether the bitmap of the message there says that the group does not want it."""
        if not 0 <= self.bitmap_from <= physical_offset or 8 * len(bitmap) != self.bit_count:
            return False
        return not all(bitmap[bit >> 3] & 1 << (bit & 7) for bit in self.bits)


class ConsumerFilters:
    """The filter table. One event loop."""

    def __init__(self, settings: LiveSettings, file: ConfigFile, bump: Callable[[str], None], clock: Clock) -> None:
        """*bump*: a group's pull checks may have another answer."""
        broker = settings.broker
        self.bloom = BloomFilter.sized(broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter)
        self.by_topic: dict[str, dict[str, ConsumerFilter]] = {}
        self.compiler = FilterCompiler()
        self.on_change: Callable[[str], None] = lambda topic: None
        """Called with a topic whose filters, or their bits, are others now."""
        self._settings = settings
        self._makes_bitmaps = broker.enable_calc_filter_bit_map and settings.store.enable_consume_queue_ext
        self._file = file
        self._bump = bump
        self._clock = clock

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        return self.by_topic.get(topic, {}).get(group)

    # What heart-beats say.

    async def compile_new(self, group: str, subscriptions: Iterable[SubscriptionData]) -> Answers:
        """Compile what a member says that its group filters by, where it is not what is known."""
        return await self.compiler.compile_all(
            subscription for subscription in subscriptions if not self._is_known(group, subscription)
        )

    def _is_known(self, group: str, subscription: SubscriptionData) -> bool:
        known = self.find(subscription.topic, group)
        wanted = (subscription.expression_type, subscription.sub_string)
        return known is not None and (known.expression_type, known.expression) == wanted

    def register(self, group: str, subscriptions: Iterable[SubscriptionData], answers: Answers) -> None:
        """Take over what a member says that its group filters by; what it does not name is dead from now on.

        *answers* is of ``compile_new`` for the same subscriptions.
        """
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription, answers)
        for topic, groups in self.by_topic.items():
            known = groups.get(group)
            if topic not in topics and known is not None and not known.is_dead:
                logger.info("filter dead, not subscribed any more group=%s topic=%s", group, topic)
                groups[group] = replace(known, dead_time=self._clock())

    def _register(self, group: str, subscription: SubscriptionData, answers: Answers) -> None:
        topic, version = subscription.topic, subscription.sub_version
        known = self.find(topic, group)
        is_same = self._is_known(group, subscription)
        if known is not None and version <= known.client_version:
            if not is_same:
                logger.warning(
                    "filter ignored, its version is not newer group=%s topic=%s version=%d", group, topic, version
                )
            if version == known.client_version and known.is_dead:
                self._put(replace(known, dead_time=0))
            return
        if known is not None and is_same:
            self._put(replace(known, client_version=version, dead_time=0))
            return
        made = self._make(group, subscription, answers)
        if made is not None:
            logger.info("filter registered group=%s topic=%s expression=%s", group, topic, subscription.sub_string)
            self._put(made)
        elif known is not None:
            # The old one is not what it asks for any more.
            del self.by_topic[topic][group]
        else:
            return
        self.on_change(topic)

    def _make(self, group: str, subscription: SubscriptionData, answers: Answers) -> ConsumerFilter | None:
        topic, kind, expression = subscription.topic, subscription.expression_type, subscription.sub_string
        try:
            compiled = answers.get(kind, expression)
        except FilterSyntaxError as error:
            logger.error("filter not understood group=%s topic=%s expression=%s error=%s", group, topic, expression,
                         error)  # fmt: skip
            return None
        return ConsumerFilter(
            group, topic, expression, kind, self._clock(), subscription.sub_version,
            self.bloom.bits_of(f"{group}#{topic}"), self.bloom.bit_count, compiled,
        )  # fmt: skip

    def _put(self, entry: ConsumerFilter) -> None:
        self.by_topic.setdefault(entry.topic, {})[entry.group] = entry
        self._bump(entry.group)

    def group_left(self, group: str) -> None:
        """The group has no member any more."""
        for topic, groups in self.by_topic.items():
            known = groups.get(group)
            if known is not None and not known.is_dead:
                logger.info("filter dead, its group is gone group=%s topic=%s", group, topic)
                groups[group] = replace(known, dead_time=self._clock())

    # Bitmaps.

    def bits_known_from(self, topic: str, groups: Iterable[ConsumerFilter], physical_offset: int) -> None:
        """From *physical_offset* on the bitmaps of *topic* are made with *groups*, as they were when that was asked."""
        table = self.by_topic.get(topic, {})
        for asked in groups:
            known = table.get(asked.group)
            if known is not None and known.bitmap_from < 0 and known.born_time == asked.born_time:
                # Apache's broker goes by store times instead: it may believe bitmaps of messages that come now.
                born = max(known.born_time, self._clock())
                dead = max(known.dead_time, born) if known.is_dead else 0
                table[asked.group] = replace(known, bitmap_from=physical_offset, born_time=born, dead_time=dead)
                self._bump(asked.group)

    # Retries.

    async def program_of_retries(self, group: str) -> bytes:
        """Return the program of a group's retry topic: each message by the group's filter for the topic it is from."""
        return await self.compiler.encode(self._tree_of_retries(group))

    def _tree_of_retries(self, group: str) -> Expression:
        origin = Property(PROPERTY_RETRY_TOPIC)
        alternatives: list[Expression] = []
        topics: list[str] = []
        for topic, groups in self.by_topic.items():
            known = groups.get(group)
            if known is not None and known.compiled is not None:
                topics.append(topic)
                is_from = AmongTexts(origin, (topic,), False)
                alternatives.append(Junction((is_from, known.compiled.tree), False))
        alternatives.append(Comparison(Relation.EQUAL, origin, Constant(None)))
        if topics:
            alternatives.append(AmongTexts(origin, tuple(topics), True))
        return Junction(tuple(alternatives), True)

    # The file.

    def load(self) -> None:
        """Read the file. Filters that were made for another size of bitmap make it count for nothing."""
        loaded = self._file.load()
        table: dict[str, dict[str, ConsumerFilter]] = {}
        for topic, entries in ((loaded or {}).get("filterDataByTopic") or {}).items():
            for group, entry in ((entries or {}).get("groupFilterData") or {}).items():
                read = self._read(topic, group, entry)
                if read is None:
                    logger.warning("filters of another bitmap size, all are ignored topic=%s group=%s", topic, group)
                    return
                table.setdefault(topic, {})[group] = read
        self.by_topic = table

    def _read(self, topic: str, group: str, entry: dict[str, Any]) -> ConsumerFilter | None:
        bloom = entry.get("bloomFilterData") or {}
        bits = tuple(bloom.get("bitPos") or ())
        if bloom.get("bitNum") != self.bloom.bit_count or len(bits) != self.bloom.hash_count:
            return None
        kind, expression, born = entry["expressionType"], entry["expression"], entry["bornTime"]
        try:
            compiled = compile_filter(kind, expression)
        except FilterSyntaxError as error:
            logger.error("stored filter not understood group=%s topic=%s error=%s", group, topic, error)
            compiled = None
        dead = entry.get("deadTime") or max(born, self._clock() - LOADED_AGO_MS)
        return ConsumerFilter(
            group,
            topic,
            expression,
            kind,
            born,
            entry.get("clientVersion", 0),
            bits,
            self.bloom.bit_count,
            compiled,
            dead,
        )

    async def persist(self) -> None:
        """Write the table, without what has been dead for long."""
        self._clean()
        table = {
            topic: {"groupFilterData": {name: self.rendered(entry) for name, entry in groups.items()}, "topic": topic}
            for topic, groups in self.by_topic.items()
        }
        await self._file.write({"filterDataByTopic": table})

    def rendered(self, entry: ConsumerFilter) -> dict[str, Any]:
        """Return *entry* as it stands in the file, and as operators see it."""
        born = entry.born_time
        if self._makes_bitmaps and entry.bitmap_from < 0 and not entry.is_dead:
            # Apache's broker may believe bitmaps of messages stored later, which these have no bits in yet.
            born = self._clock()
        return {
            "bloomFilterData": {"bitNum": entry.bit_count, "bitPos": list(entry.bits)},
            "bornTime": born,
            "clientVersion": entry.client_version,
            "consumerGroup": entry.group,
            "dead": entry.is_dead,
            "deadTime": entry.dead_time,
            "expression": entry.expression,
            "expressionType": entry.expression_type,
            "topic": entry.topic,
        }

    def _clean(self) -> None:
        oldest = self._clock() - self._settings.broker.filter_data_clean_time_span_ms
        for topic, groups in list(self.by_topic.items()):
            for group, entry in list(groups.items()):
                if entry.is_dead and entry.dead_time <= oldest:
                    logger.info("filter removed, dead for long group=%s topic=%s", group, topic)
                    del groups[group]
                    self._bump(group)
                    self.on_change(topic)
            if not groups:
                del self.by_topic[topic]
