"""Consumer groups: their configuration, their members, and what these can be asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from mqcore.client.admin.base import AdminCalls, Outcomes, answers_of, outcomes_of
from mqcore.client.errors import NotFoundError
from mqcore.client.model.validators import DEFAULT_CONSUMER_GROUP, check_group
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import BrokerError, MQError
from mqcore.protocol.bodies import (
    ClientConnection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ProducerConnection,
    ProducerTableInfo,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from mqcore.protocol.message import MessageQueue, decode_offset_message_id
from mqcore.protocol.names import BUILT_IN_GROUPS

R = TypeVar("R")

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SYSTEM_GROUPS = frozenset(built_in.name for built_in in BUILT_IN_GROUPS)

FORWARDED_TIMEOUT_S = 15.0
"""A broker waits ten seconds for the client to which it passes a question on."""


class GroupCalls(AdminCalls):
    """What can be asked and changed of groups and their clients."""

    # Configuration.

    async def list_groups(self) -> list[str]:
        """Return the names of all consumer groups that brokers have, the system's too, sorted."""
        return sorted({name for table in (await self._group_tables()).values() for name in table})

    async def group_configs(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Return how each master that has *group* has it, by address; NotFoundError when none has it."""
        tables = await self._group_tables()
        configs = {address: table[group] for address, table in tables.items() if group in table}
        if not configs:
            raise NotFoundError(f"no broker has the group {group}")
        return configs

    async def create_group(
        self,
        group: str,
        *,
        consume_enable: bool = True,
        broadcast_enable: bool = True,
        retry_queues: int = 1,
        retry_max_times: int = 16,
        cluster: str | None = None,
        broker_address: str | None = None,
    ) -> Outcomes:
        """Create *group*, or set all of its configuration, on the masters of *cluster*, at one broker, or on all."""
        check_group(group, DEFAULT_CONSUMER_GROUP)
        config = SubscriptionGroupConfig(
            group,
            consume_enable=consume_enable,
            consume_broadcast_enable=broadcast_enable,
            retry_queue_nums=retry_queues,
            retry_max_times=retry_max_times,
        )
        targets = await self._targets(cluster, broker_address)
        return await outcomes_of(targets, lambda address: self._put_group(address, config))

    async def update_group(
        self,
        group: str,
        *,
        consume_enable: bool | None = None,
        broadcast_enable: bool | None = None,
        retry_queues: int | None = None,
        retry_max_times: int | None = None,
    ) -> Outcomes:
        """Change what is given of *group* where it exists, and leave the rest; NotFoundError when it exists nowhere."""
        given = {
            "consume_enable": consume_enable,
            "consume_broadcast_enable": broadcast_enable,
            "retry_queue_nums": retry_queues,
            "retry_max_times": retry_max_times,
        }
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        configs = await self.group_configs(group)

        async def change(address: str) -> None:
            await self._put_group(address, replace(configs[address], **changes))

        return await outcomes_of(configs, change)

    async def delete_group(self, group: str, *, remove_offsets: bool = False, cluster: str | None = None) -> Outcomes:
        """Delete *group*, and its offsets if so wished; NotFoundError when no broker (of *cluster*) has it.

        Its retry and dead letter topics stay: delete them as topics.
        """
        targets = set(await self.master_addresses(cluster)) & set(await self.group_configs(group))
        if not targets:
            raise NotFoundError(f"no broker of cluster {cluster!r} has the group {group}")
        values = {"group_name": group, "remove_offset": remove_offsets, "clean_offset": remove_offsets}

        async def delete(address: str) -> None:
            await self._hub.api.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, values)

        return await outcomes_of(sorted(targets), delete)

    # Members.

    async def group_connection(self, group: str) -> ConsumerConnection:
        """Return who is in *group* now, and what it subscribes to; NotFoundError when nobody is online."""

        async def ask(address: str) -> ConsumerConnection | None:
            try:
                values = {"consumer_group": group}
                answer = await self._hub.api.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, values)
            except BrokerError as error:
                if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                    return None
                raise
            return ConsumerConnection.decode(answer.body)

        answers = await answers_of(await self.master_addresses(), ask)
        found = [connection for connection in answers.values() if connection is not None]
        if not found:
            raise NotFoundError(f"the group {group} is not online")
        merged = found[0]
        for connection in found[1:]:
            merged.subscription_table |= connection.subscription_table
            merged.connection_set += connection.connection_set
            merged.subscription_conflict = merged.subscription_conflict or connection.subscription_conflict
        clients = {client.client_id: client for client in merged.connection_set}
        merged.connection_set = [clients[name] for name in sorted(clients)]
        return merged

    async def group_members(self, group: str) -> list[ClientConnection]:
        """Return the clients that are in *group* now, by id; none when it is not online."""
        try:
            return (await self.group_connection(group)).connection_set
        except NotFoundError:
            return []

    async def group_subscription(self, group: str) -> dict[str, SubscriptionData]:
        """Return what *group* subscribes to now, by topic; NotFoundError when nobody is online."""
        return dict(sorted((await self.group_connection(group)).subscription_table.items()))

    async def consumer_running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> ConsumerRunningInfo:
        """Return what one member tells of itself: settings, queues and rates, and where its threads stand."""
        values = {"consumer_group": group, "client_id": client_id, "jstack_enable": with_stacks}

        async def ask(address: str) -> ConsumerRunningInfo:
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            answer = await self._hub.api.call(address, code, values, timeout_s=FORWARDED_TIMEOUT_S)
            return ConsumerRunningInfo.decode(answer.body)

        return await self._first_answer(ask)

    async def consumer_status(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Return the offsets that the members of *group*, or one of them, hold of *topic*, by client id.

        Pull consumers of other languages may tell nothing. BrokerError when nobody is online.
        """
        values = {"topic": topic, "group": group, "client_addr": client_id}

        async def ask(address: str) -> dict[str, dict[MessageQueue, int]]:
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            answer = await self._hub.api.call(address, code, values, timeout_s=FORWARDED_TIMEOUT_S)
            return GetConsumerStatusBody.decode(answer.body).consumer_table

        tables = await answers_of(await self._topic_masters(topic), ask)
        merged: dict[str, dict[MessageQueue, int]] = {}
        for table in tables.values():
            for member, offsets in table.items():
                merged.setdefault(member, {}).update(offsets)
        return {member: dict(sorted(merged[member].items())) for member in sorted(merged)}

    async def consume_directly(
        self, group: str, client_id: str, offset_msg_id: str, topic: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Let one member consume one message now, whatever its offset; no offset moves.

        The message is named by its offset id (``offset_msg_id`` of a message): its broker reads it from its store.
        Brokers of version 5 want the topic too.
        """
        address = str(decode_offset_message_id(offset_msg_id).store_host)
        values = {"consumer_group": group, "client_id": client_id, "msg_id": offset_msg_id, "topic": topic}
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await self._hub.api.call(address, code, values, timeout_s=FORWARDED_TIMEOUT_S)
        return ConsumeMessageDirectlyResult.decode(answer.body)

    # Producers.

    async def producer_connection(self, group: str) -> list[ClientConnection]:
        """Return the producers of *group* that are connected now, by id; NotFoundError when there is none."""
        values = {"producer_group": group}

        async def ask(address: str) -> list[ClientConnection]:
            try:
                answer = await self._hub.api.call(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, values)
            except BrokerError as error:
                if error.code == ResponseCode.SYSTEM_ERROR and "not exist" in error.remark:
                    return []
                raise
            return ProducerConnection.decode(answer.body).connection_set

        answers = await answers_of(await self.master_addresses(), ask)
        clients = {client.client_id: client for found in answers.values() for client in found}
        if not clients:
            raise NotFoundError(f"the producer group {group} is not online")
        return [clients[name] for name in sorted(clients)]

    async def producers(self) -> dict[str, list[str]]:
        """Return the producer groups that are online, with their client ids."""

        async def ask(address: str) -> ProducerTableInfo:
            answer = await self._hub.api.call(address, RequestCode.GET_ALL_PRODUCER_INFO)
            return ProducerTableInfo.decode(answer.body)

        found: dict[str, set[str]] = {}
        for info in (await answers_of(await self.master_addresses(), ask)).values():
            for group, clients in info.data.items():
                found.setdefault(group, set()).update(client.client_id for client in clients)
        return {group: sorted(found[group]) for group in sorted(found)}

    # The inside.

    async def _group_tables(self) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        async def ask(address: str) -> dict[str, SubscriptionGroupConfig]:
            answer = await self._hub.api.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            return SubscriptionGroupWrapper.decode(answer.body).subscription_group_table

        return await answers_of(await self.master_addresses(), ask)

    async def _put_group(self, address: str, config: SubscriptionGroupConfig) -> None:
        await self._hub.api.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())

    async def _first_answer(self, ask: Callable[[str], Awaitable[R]]) -> R:
        """Ask the masters one after the other, since a member may be connected to any; raise what the last one says."""
        failure: MQError | None = None
        for address in await self.master_addresses():
            try:
                return await ask(address)
            except MQError as error:
                failure = error
        assert failure is not None  # there is at least one master
        raise failure


def is_system_group(group: str) -> bool:
    """Whether *group* is one that brokers, their tools or their proxies have for themselves."""
    return group.startswith(SYSTEM_GROUP_PREFIX) or group in SYSTEM_GROUPS
