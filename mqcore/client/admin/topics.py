"""Topics: which there are, where, with what in them, and changing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mqcore.client.admin.base import Outcomes, answers_of, outcomes_of
from mqcore.client.admin.name_servers import NameServerCalls
from mqcore.client.errors import NotFoundError
from mqcore.client.model.validators import check_new_topic, check_topic
from mqcore.codes import PermName, RequestCode
from mqcore.protocol.bodies import (
    GroupList,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import AUTO_CREATE_TOPIC_KEY_TOPIC, ORDER_TOPIC_CONFIG

READ_WRITE = PermName.READ | PermName.WRITE


class TopicCalls(NameServerCalls):
    """What can be asked and changed of topics."""

    async def list_topics(self, cluster: str | None = None) -> list[str]:
        """Return the names of all topics, or of those of *cluster*, those of the system too, sorted."""
        if cluster is None:
            answer = await self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            await self.brokers(cluster)
            answer = await self._ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
        return sorted(set(TopicList.decode(answer.body).topic_list))

    async def system_topics(self) -> list[str]:
        """Return the topics that clusters and brokers have for themselves, sorted."""
        found: set[str] = set()

        async def ask(address: str) -> list[str]:
            answer = await self._hub.api.call(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            return TopicList.decode(answer.body).topic_list

        for topics in (await answers_of(await self.master_addresses(), ask)).values():
            found.update(topics)
        return sorted(found)

    async def topic_configs(self, topic: str) -> dict[str, TopicConfig]:
        """Return how each master that has *topic* has it, by address; NotFoundError when none has it."""

        async def ask(address: str) -> TopicConfig | None:
            answer = await self._hub.api.call(address, RequestCode.GET_ALL_TOPIC_CONFIG)
            return TopicConfigSerializeWrapper.decode(answer.body).topic_config_table.get(topic)

        found = await answers_of(await self.master_addresses(), ask)
        configs = {address: config for address, config in found.items() if config is not None}
        if not configs:
            raise NotFoundError(f"no broker has the topic {topic}")
        return configs

    async def create_topic(
        self,
        topic: str,
        *,
        read_queues: int = 8,
        write_queues: int | None = None,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker_address: str | None = None,
    ) -> Outcomes:
        """Create *topic*, or set all of its configuration, on the masters of *cluster*, at one broker, or on all.

        Returns what happened by broker address: None, or why not. The brokers have told their name servers by then.
        *order* also tells the name servers, which let producers see all queues while a broker is down, if they are set
        so. *attributes* are for brokers of version 5, such as ``{"message.type": "FIFO"}``.
        """
        check_new_topic(topic)
        config = TopicConfig(
            topic, read_queues, read_queues if write_queues is None else write_queues, int(perm), order=order
        )
        if attributes is not None:
            config.attributes = dict(attributes)
        targets = await self._targets(cluster, broker_address)
        outcomes = await outcomes_of(targets, lambda address: self._put_topic(address, config))
        if order:
            done = {address: config for address, error in outcomes.items() if error is None}
            outcomes |= await self._put_order(topic, await self._order_of(topic), done)
        return outcomes

    async def update_topic(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        cluster: str | None = None,
        broker_address: str | None = None,
    ) -> Outcomes:
        """Change what is given of *topic* where it exists, and leave the rest; NotFoundError when it exists nowhere."""
        wanted = set(await self._targets(cluster, broker_address))
        configs = {place: config for place, config in (await self.topic_configs(topic)).items() if place in wanted}
        if not configs:
            raise NotFoundError(f"no broker among {', '.join(sorted(wanted))} has the topic {topic}")
        given = {"read_queue_nums": read_queues, "write_queue_nums": write_queues, "perm": perm, "order": order}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}

        async def change(address: str) -> None:
            # What is not said of attributes, brokers of version 5 keep.
            await self._put_topic(address, replace(configs[address], attributes=None, **changes))

        outcomes = await outcomes_of(configs, change)
        known = await self._order_of(topic)
        if order is False and known:
            outcomes |= await self.delete_kv(ORDER_TOPIC_CONFIG, topic)
        elif order or known:
            done = {address: replace(configs[address], **changes) for address in configs if outcomes[address] is None}
            outcomes |= await self._put_order(topic, known, done)
        return outcomes

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> Outcomes:
        """Delete *topic* with its messages from the brokers (of *cluster*), and then from the name servers.

        Name servers go on knowing it while a broker has not deleted it. NotFoundError when no broker has it.
        """
        check_topic(topic)
        targets = set(await self.master_addresses(cluster)) & set(await self.topic_configs(topic))
        if not targets:
            raise NotFoundError(f"no broker of cluster {cluster!r} has the topic {topic}")

        async def delete(address: str) -> None:
            await self._hub.api.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})

        outcomes = await outcomes_of(sorted(targets), delete)
        if not any(outcomes.values()):
            values = {"topic": topic, "cluster_name": cluster}
            outcomes |= await self._tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, values)
            if await self._order_of(topic):
                outcomes |= await self.delete_kv(ORDER_TOPIC_CONFIG, topic)
        return outcomes

    async def offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return what each queue of *topic* holds."""

        async def ask(address: str) -> dict[MessageQueue, TopicOffset]:
            answer = await self._hub.api.call(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            return TopicStatsTable.decode(answer.body).offset_table

        found: dict[MessageQueue, TopicOffset] = {}
        for table in (await answers_of(await self._topic_masters(topic), ask)).values():
            found |= table
        return dict(sorted(found.items()))

    async def topic_groups(self, topic: str) -> list[str]:
        """Return the groups that consume *topic*, now or ever, sorted."""

        async def ask(address: str) -> list[str]:
            answer = await self._hub.api.call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
            return GroupList.decode(answer.body).group_list

        answers = await answers_of(await self._topic_masters(topic), ask)
        return sorted({group for groups in answers.values() for group in groups})

    async def clean_unused_topics(self, cluster: str | None = None) -> Outcomes:
        """Let brokers drop the queues of topics that they do not have any more."""

        async def clean(address: str) -> None:
            await self._hub.api.call(address, RequestCode.CLEAN_UNUSED_TOPIC)

        return await outcomes_of(await self.master_addresses(cluster), clean)

    async def _order_of(self, topic: str) -> dict[str, int]:
        """Return the queues that name servers keep for an ordered topic, by broker name; none for any other."""
        try:
            text = await self.get_kv(ORDER_TOPIC_CONFIG, topic)
        except NotFoundError:
            return {}
        pairs = (part.rpartition(":") for part in text.split(";") if part)
        return {name: int(count) for name, _, count in pairs if count.isdecimal()}

    async def _put_order(self, topic: str, known: Mapping[str, int], configs: Mapping[str, TopicConfig]) -> Outcomes:
        """Let name servers keep the write queues of *configs* (by address) beside those of other brokers."""
        names = {place.address: place.name for place in await self.brokers()}
        changed = {names[address]: config.write_queue_nums for address, config in configs.items() if address in names}
        if not changed:
            return {}
        text = ";".join(f"{name}:{count}" for name, count in sorted({**known, **changed}.items()))
        return await self.put_kv(ORDER_TOPIC_CONFIG, topic, text)

    async def _put_topic(self, address: str, config: TopicConfig) -> None:
        attributes = None
        if config.attributes:
            attributes = ",".join(f"+{name.lstrip('+')}={value}" for name, value in config.attributes.items())
        values = {
            "topic": config.topic_name,
            "default_topic": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "read_queue_nums": config.read_queue_nums,
            "write_queue_nums": config.write_queue_nums,
            "perm": config.perm,
            "topic_filter_type": TopicFilterType(config.topic_filter_type).name,
            "topic_sys_flag": config.topic_sys_flag,
            "order": config.order,
            "attributes": attributes,
        }
        await self._hub.api.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, values)
