"""Brokers: how they are, and their settings."""

from __future__ import annotations

from collections.abc import Mapping

from mqcore.client.admin.accounts import AccountCalls
from mqcore.client.admin.name_servers import NameServerCalls, read_settings
from mqcore.codes import RequestCode
from mqcore.java_properties import format_properties
from mqcore.protocol.bodies import BrokerStatsData, ConsumeStatsList, KVTable, OffsetWrapper
from mqcore.protocol.group_bodies import GroupChange
from mqcore.protocol.ha_bodies import EpochCache, HARuntimeInfo
from mqcore.protocol.headers import decode_response
from mqcore.protocol.message import MessageQueue


class BrokerCalls(NameServerCalls, AccountCalls):
    """What can be asked and changed of brokers. A broker is given by name or by address."""

    async def broker_runtime(self, broker: str, *, details: bool = False) -> dict[str, str]:
        """Return how *broker* is: names and values as it gives them, sorted by name.

        With *details* a broker of mqcore adds ``process_...`` and ``latency_...``; RocketMQ's have none.
        """
        values = {"details": "processes"} if details else None
        answer = await self._ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO, values)
        return dict(sorted(KVTable.decode(answer.body).table.items()))

    async def ha_status(self, broker: str) -> HARuntimeInfo:
        """Return how the log of *broker* is copied."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_HA_STATUS)
        return HARuntimeInfo.decode(answer.body)

    async def epoch_cache(self, broker: str) -> EpochCache:
        """Return who wrote which part of the log of *broker*, one of a failover group."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_EPOCH_CACHE)
        return EpochCache.decode(answer.body)

    async def change_failover_group(
        self, broker: str, change: GroupChange, member: int, epoch: int, *, dry_run: bool = False
    ) -> None:
        """Have *broker* begin a change of its group, or with *dry_run* only say whether it can be.

        *epoch* is the one that the caller has seen: in a later one nothing is changed.
        """
        values = {"action": change.value, "member": member, "epoch": epoch, "dry_run": "true" if dry_run else "false"}
        await self._ask(broker, RequestCode.CHANGE_FAILOVER_GROUP, values)

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Return the settings of *broker*, sorted by name."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_CONFIG)
        return read_settings(answer.body)

    async def update_broker_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker. It ignores names that it does not know; ask again to see what is."""
        body = format_properties(changes).encode()
        await self._ask(broker, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def broker_consume_stats(self, broker: str) -> dict[str, dict[MessageQueue, OffsetWrapper]]:
        """Return where all groups are in the queues of *broker* that they read, by group."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_CONSUME_STATS, {"is_order": False})
        found: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
        for entry in ConsumeStatsList.decode(answer.body).consume_stats_list:
            for group, topics in entry.items():
                for stats in topics:
                    found.setdefault(group, {}).update(stats.offset_table)
        return found

    async def broker_stats(self, broker: str, name: str, key: str) -> BrokerStatsData:
        """Return one of the broker's counters, such as ``TOPIC_PUT_NUMS`` of a topic, over minute, hour and day."""
        values = {"stats_name": name, "stats_key": key}
        answer = await self._ask(broker, RequestCode.VIEW_BROKER_STATS_DATA, values)
        return BrokerStatsData.decode(answer.body)

    async def clean_consume_queues(self, broker: str) -> None:
        """Let *broker* delete consume queue files whose messages are gone."""
        await self._ask(broker, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def delete_expired_commit_log(self, broker: str) -> None:
        """Let *broker* delete commit log files that are older than it keeps them."""
        await self._ask(broker, RequestCode.DELETE_EXPIRED_COMMITLOG)

    # What name servers say about brokers.

    async def wipe_write_perm(self, broker_name: str) -> int:
        """Let name servers hide all topics of *broker_name* from producers; return how many topics that changed."""
        return await self._change_perm(RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipe_topic_count", broker_name)

    async def add_write_perm(self, broker_name: str) -> int:
        """Undo ``wipe_write_perm``; return how many topics that changed."""
        return await self._change_perm(RequestCode.ADD_WRITE_PERM_OF_BROKER, "add_topic_count", broker_name)

    async def _change_perm(self, code: RequestCode, field: str, broker_name: str) -> int:
        changed = 0
        for address in sorted(await self._hub.name_servers.all()):
            answer = await self._hub.api.call(address, code, {"broker_name": broker_name})
            changed = max(changed, int(decode_response(code, answer.ext_fields)[field]))
        return changed
