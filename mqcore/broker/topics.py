"""The topics of a broker: built in, created by an administrator, or created by their first message.

Source: RocketMQ broker/topic/TopicConfigManager.java.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from mqcore.broker.config_file import ConfigFile
from mqcore.broker.durable_table import Draft, DurableTable
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.ports import Clock, TopicBoard
from mqcore.broker.table_text import TableText
from mqcore.codes import PermName
from mqcore.config.groups import BrokerSettings
from mqcore.protocol import topic_attributes
from mqcore.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper, TopicFilterType
from mqcore.protocol.names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    broker_topics,
    is_dlq_topic,
    is_forbidden_topic,
    is_lmq,
    is_retry_topic,
    is_system_topic,
    reply_topic,
)

logger = logging.getLogger(__name__)

DLQ_QUEUE_COUNT: Final = 1
"""Queues of the topic for the dead letters of a group."""
READ_WRITE: Final = PermName.READ | PermName.WRITE


class TopicConfigManager:
    """The topic table. A change is on disk before it counts; the topic board follows it at once."""

    def __init__(self, settings: LiveSettings, file: ConfigFile, board: TopicBoard, clock: Clock) -> None:
        self.on_created: Callable[[], None] = lambda: None
        """Called after topics were created by use, so that the name servers learn of them soon."""
        self._settings = settings
        self._file = file
        self._board = board
        self._clock = clock
        self._table = DurableTable[TopicConfig](file, TableText("topicConfigTable"), self._committed, clock)
        self._table.records = {topic.topic_name: topic for topic in _built_in(settings)}

    @property
    def table(self) -> DurableTable[TopicConfig]:
        """For who makes the changes of another broker here."""
        return self._table

    @property
    def wrapper(self) -> TopicConfigSerializeWrapper:
        """The table and its version, as GET_ALL_TOPIC_CONFIG and registrations show it."""
        return TopicConfigSerializeWrapper(dict(self._table.records), self._table.version)

    @property
    def version(self) -> DataVersion:
        return self._table.version

    @property
    def names(self) -> list[str]:
        return list(self._table.records)

    @property
    def system_topics(self) -> set[str]:
        """The system topics of this broker by name; others begin with the system prefix."""
        broker = self._settings.broker
        own = {broker.broker_cluster_name, broker.broker_name, reply_topic(broker.broker_cluster_name)}
        return own | {broker.msg_trace_topic_name} if broker.trace_topic_enable else own

    def is_system(self, topic: str) -> bool:
        return is_system_topic(topic, self.system_topics)

    def load(self) -> None:
        """Put the file's topics over the built-in ones, and everything on the topic board."""
        loaded = self._file.load()
        if loaded is not None:
            wrapper = TopicConfigSerializeWrapper.from_json(loaded)
            self._table.records.update(wrapper.topic_config_table)
            self._table.version = wrapper.data_version
        self.publish_all()

    def find(self, topic: str) -> TopicConfig | None:
        """Return the topic if it exists, as every light queue does where such are enabled, with one queue."""
        if self._is_light(topic):
            return TopicConfig(topic, 1, 1, READ_WRITE)
        return self._table.records.get(topic)

    def _is_light(self, topic: str) -> bool:
        return self._settings.store.enable_lmq and is_lmq(topic)

    def is_order(self, topic: str) -> bool:
        """Tell whether the name servers' configuration says that the topic's messages are in order."""
        config = self.find(topic)
        return config is not None and config.order

    async def create_by_template(self, topic: str, template: str, queue_nums: int, sys_flag: int) -> TopicConfig | None:
        """Create *topic* like *template*, with at most *queue_nums* queues, for its first message.

        None if there is no such template or it does not allow that.
        """
        return await self._create(lambda draft: self._from_template(draft, topic, template, queue_nums, sys_flag))

    async def create(self, topic: str, queue_nums: int, perm: int, sys_flag: int) -> TopicConfig:
        """Return *topic*, created exactly so if it is not there: retry topics, dead letters and their like."""
        found = self.find(topic)
        if found is not None:
            return found
        config = TopicConfig(topic, queue_nums, queue_nums, perm, topic_sys_flag=sys_flag)
        created = await self._create(lambda draft: draft.table.get(topic) or _put(draft, config))
        assert created is not None
        return created

    async def _create(self, make: Callable[[Draft[TopicConfig]], TopicConfig | None]) -> TopicConfig | None:
        before = self._table.version
        config = await self._table.change(make)
        if self._table.version != before:
            self.on_created()
        return config

    def _from_template(
        self, draft: Draft[TopicConfig], topic: str, template: str, queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        found = draft.table.get(topic)
        if found is not None:
            return found
        source = draft.table.get(template)
        if source is None:
            logger.warning("topic not created, there is no template topic=%s template=%s", topic, template)
            return None
        if template == AUTO_CREATE_TOPIC_KEY_TOPIC and not self._settings.broker.auto_create_topic_enable:
            # One that an earlier run left in the file must not be inherited from, nor be shown as if it could be.
            source = draft.table[template] = replace(source, perm=READ_WRITE)
        if not PermName.is_inherited(source.perm):
            logger.warning("topic not created, the template forbids it topic=%s template=%s", topic, template)
            return None
        queues = max(min(queue_nums, source.write_queue_nums), 0)
        logger.info("topic created by its first message topic=%s template=%s queues=%d", topic, template, queues)
        return _put(
            draft,
            TopicConfig(
                topic,
                queues,
                queues,
                source.perm & ~PermName.INHERIT,
                source.topic_filter_type,
                sys_flag,
            ),
        )

    async def update(self, *wanted: TopicConfig) -> list[TopicConfig]:
        """Create or replace topics, all or none; a light queue has no configuration to be changed.

        Their ``attributes`` are changes, by signed names, of those that they have. Returns what holds now. Raises
        ProtocolError for attributes that cannot be changed so.
        """
        configs = [config for config in wanted if not self._is_light(config.topic_name)]
        if not configs:
            return []
        done = await self._table.change(lambda draft: _update_all(draft, configs))
        for config in done:
            logger.info("topic updated topic=%s read=%d write=%d perm=%d", config.topic_name, config.read_queue_nums,
                        config.write_queue_nums, config.perm)  # fmt: skip
        return done

    async def delete(self, topic: str) -> bool:
        """Take a topic out; False if it was not there."""
        removed = await self._table.change(lambda draft: draft.remove(topic))
        logger.info("topic deleted topic=%s existed=%s", topic, removed)
        return removed

    async def update_order(self, order_topics: Iterable[str]) -> None:
        """Mark the topics that the name servers say are in order, and no others."""
        ordered = set(order_topics)
        if any(config.order != (name in ordered) for name, config in self._table.records.items()):
            await self._table.change(lambda draft: _mark_order(draft, ordered))

    async def replace(self, wrapper: TopicConfigSerializeWrapper) -> None:
        """Take the table of the master, unless it is the one that is there."""
        if wrapper.data_version != self.version:
            await self._table.change(lambda draft: draft.replace(wrapper.topic_config_table, wrapper.data_version))
            logger.info("topics copied from the master count=%d", len(wrapper.topic_config_table))

    async def bump_version(self) -> None:
        """Give the table a new version, since what a registration says of the topics has changed."""
        await self._table.change(lambda draft: draft.touch())

    async def follow_template(self) -> None:
        """Let the template of topics that are made by their first message be as the settings have it.

        Upstream makes it at the start only: creation that is allowed later finds no template, and creation that was
        forbidden for a while leaves one that nothing is inherited from.
        """
        name = AUTO_CREATE_TOPIC_KEY_TOPIC
        broker = self._settings.broker
        queues = broker.default_topic_queue_nums
        perm = READ_WRITE | PermName.INHERIT if broker.auto_create_topic_enable else READ_WRITE
        if broker.auto_create_topic_enable or name in self._table.records:
            await self._table.change(lambda draft: draft.put(name, TopicConfig(name, queues, queues, perm)))

    async def close(self) -> None:
        await self._table.close()

    def publish_all(self) -> None:
        """Put every topic on the board anew, since a setting has changed: one may make topics sendable or readable."""
        for name in self._table.records:
            self._publish(name)
        self._board.bump_all()

    def follow_settings(self, before: BrokerSettings, after: BrokerSettings) -> None:
        """Go by changed settings: pulls are checked anew, and the board is, if it shows what has changed."""
        if _sending(before) == _sending(after):
            self._board.bump_all()
        else:
            self.publish_all()

    def is_sendable(self, config: TopicConfig) -> bool:
        """Tell whether the send worker may take ordinary messages for the topic without asking."""
        broker = self._settings.broker
        if self._clock() < broker.start_accept_send_request_time_stamp_ms:
            return False
        if config.order and not PermName.is_writeable(broker.broker_permission):
            return False
        name = config.topic_name
        return not (is_forbidden_topic(name) or is_retry_topic(name) or is_dlq_topic(name))

    def _committed(self, names: Iterable[str]) -> None:
        for name in names:
            self._publish(name)
            self._board.bump_topic(name)

    def _publish(self, name: str) -> None:
        config = self._table.records.get(name)
        if config is None:
            self._board.remove(name)
        else:
            is_multi_tag = config.topic_filter_type is TopicFilterType.MULTI_TAG
            self._board.publish(config, self.is_sendable(config), is_multi_tag)


def _sending(broker: BrokerSettings) -> tuple[int, int]:
    """What ``is_sendable`` asks the settings."""
    return broker.start_accept_send_request_time_stamp_ms, broker.broker_permission


def _built_in(settings: LiveSettings) -> Iterable[TopicConfig]:
    broker = settings.broker
    topics = broker_topics(
        broker.broker_cluster_name,
        broker.broker_name,
        default_topic_queue_count=broker.default_topic_queue_nums,
        auto_create_topic_enable=broker.auto_create_topic_enable,
        cluster_topic_enable=broker.cluster_topic_enable,
        broker_topic_enable=broker.broker_topic_enable,
        trace_topic_enable=broker.trace_topic_enable,
        trace_topic=broker.msg_trace_topic_name,
    )
    return [TopicConfig(topic.name, topic.queue_count, topic.queue_count, topic.perm) for topic in topics]


def _update_all(draft: Draft[TopicConfig], wanted: Iterable[TopicConfig]) -> list[TopicConfig]:
    # All of it before the first is put: one that cannot be changed so leaves the others as they were.
    updated = [_updated(draft.table.get(config.topic_name), config) for config in wanted]
    return [_put(draft, config) for config in updated]


def _updated(before: TopicConfig | None, wanted: TopicConfig) -> TopicConfig:
    current = None if before is None else before.attributes or {}
    return replace(wanted, attributes=topic_attributes.changed(current, wanted.attributes or {}))


def _put(draft: Draft[TopicConfig], config: TopicConfig) -> TopicConfig:
    draft.put(config.topic_name, config)
    return config


def _mark_order(draft: Draft[TopicConfig], ordered: set[str]) -> None:
    changed = [name for name, config in draft.table.items() if config.order != (name in ordered)]
    for name in changed:
        draft.table[name] = replace(draft.table[name], order=name in ordered)
    if changed:
        draft.touch(*changed)
