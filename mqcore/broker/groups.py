"""The consumer groups that a broker knows, whether a member is connected or not.

Source: RocketMQ broker/subscription/SubscriptionGroupManager.java.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from mqcore.broker.config_file import ConfigFile
from mqcore.broker.durable_table import Draft, DurableTable
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.ports import Clock
from mqcore.broker.table_text import TableText
from mqcore.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from mqcore.protocol.names import BUILT_IN_GROUPS, CID_RMQ_SYS_PREFIX, GROUP_LENGTH_MAX, is_lmq

logger = logging.getLogger(__name__)

_GROUP_CHARACTERS: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_legal_group(group: str) -> bool:
    """Tell whether a group may have this name; Apache's clients apply the same rule to themselves."""
    return len(group) <= GROUP_LENGTH_MAX and _GROUP_CHARACTERS.fullmatch(group) is not None


class SubscriptionGroupManager:
    """The group table. A change is on disk before it counts."""

    def __init__(self, settings: LiveSettings, file: ConfigFile, bump: Callable[[str], None], clock: Clock) -> None:
        """*bump* is called when a group's pull checks may have another answer."""
        self._settings = settings
        self._file = file
        self._bump = bump
        self._table = DurableTable[SubscriptionGroupConfig](
            file, TableText("subscriptionGroupTable"), self._committed, clock
        )
        for group in BUILT_IN_GROUPS:
            self._table.records[group.name] = SubscriptionGroupConfig(
                group_name=group.name, consume_broadcast_enable=group.consume_broadcast_enable
            )

    @property
    def table(self) -> DurableTable[SubscriptionGroupConfig]:
        """For who makes the changes of another broker here."""
        return self._table

    @property
    def wrapper(self) -> SubscriptionGroupWrapper:
        """The table as GET_ALL_SUBSCRIPTIONGROUP_CONFIG shows it."""
        return SubscriptionGroupWrapper(dict(self._table.records), self._table.version)

    def load(self) -> None:
        """Put the file's groups over the built-in ones."""
        loaded = self._file.load()
        if loaded is not None:
            wrapper = SubscriptionGroupWrapper.from_json(loaded)
            self._table.records.update(wrapper.subscription_group_table)
            self._table.version = wrapper.data_version

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group if it exists, as every one named like a light queue does where such are enabled."""
        if self._is_light(group):
            return SubscriptionGroupConfig(group_name=group)
        return self._table.records.get(group)

    def _is_light(self, group: str) -> bool:
        return self._settings.store.enable_lmq and is_lmq(group)

    async def find_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group, made with the defaults if the settings, or its name, allow it."""
        config = self.find(group)
        if config is not None:
            return config
        may_create = self._settings.broker.auto_create_subscription_group or group.startswith(CID_RMQ_SYS_PREFIX)
        if not may_create or not is_legal_group(group):
            return None
        return await self._table.change(lambda draft: _ensure(draft, group))

    async def update(self, *wanted: SubscriptionGroupConfig) -> None:
        """Create or replace groups, all or none; one named like a light queue has no configuration to be changed."""
        configs = [config for config in wanted if not self._is_light(config.group_name)]
        if not configs:
            return
        await self._table.change(lambda draft: _put_all(draft, configs))
        for config in configs:
            logger.info("consumer group updated group=%s", config.group_name)

    async def switch_off(self, group: str) -> bool:
        """Let nobody of *group* consume, until it is configured anew; False if that is so already, or it is not there.

        The table is not written for it, as in RocketMQ.
        """
        return await self._table.change(lambda draft: _switch_off(draft, group))

    async def delete(self, group: str) -> bool:
        """Take a group out; False if it was not there."""
        removed = await self._table.change(lambda draft: draft.remove(group))
        logger.info("consumer group deleted group=%s existed=%s", group, removed)
        return removed

    async def replace(self, wrapper: SubscriptionGroupWrapper) -> None:
        """Take the table of the master, unless it is the one that is there."""
        if wrapper.data_version != self._table.version:
            table = wrapper.subscription_group_table
            await self._table.change(lambda draft: draft.replace(table, wrapper.data_version))
            logger.info("groups copied from the master count=%d", len(table))

    async def close(self) -> None:
        await self._table.close()

    def _committed(self, names: Iterable[str]) -> None:
        for name in names:
            self._bump(name)


def _put_all(draft: Draft[SubscriptionGroupConfig], configs: Iterable[SubscriptionGroupConfig]) -> None:
    for config in configs:
        draft.put(config.group_name, config)


def _switch_off(draft: Draft[SubscriptionGroupConfig], group: str) -> bool:
    config = draft.table.get(group)
    if config is None or not config.consume_enable:
        return False
    draft.show(group, replace(config, consume_enable=False))
    return True


def _ensure(draft: Draft[SubscriptionGroupConfig], group: str) -> SubscriptionGroupConfig:
    config = draft.table.get(group)
    if config is None:
        config = SubscriptionGroupConfig(group_name=group)
        draft.put(group, config)
        logger.info("consumer group created by use group=%s", group)
    return config
