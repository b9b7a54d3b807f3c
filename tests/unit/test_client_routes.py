"""Which queues a route gives to producers and consumers, and how routes are kept."""

from __future__ import annotations

import asyncio

import pytest

from mqcore.client.errors import NoRouteError
from mqcore.client.session.routes import RouteTable, publish_queues, subscribe_queues
from mqcore.codes import PermName, ResponseCode
from mqcore.errors import BrokerError, RemotingConnectError
from mqcore.protocol.bodies import BrokerData, QueueData, TopicRouteData

READ_WRITE = PermName.READ | PermName.WRITE


def broker(name: str, *broker_ids: int) -> BrokerData:
    return BrokerData("C", name, {broker_id: f"{name}:{broker_id}" for broker_id in broker_ids})


def queues(name: str, read: int, write: int, perm: int = READ_WRITE) -> QueueData:
    return QueueData(name, read, write, perm)


class NameServer:
    """Answers with the routes that a test gives it, and counts questions."""

    def __init__(self, **routes: TopicRouteData) -> None:
        self.routes: dict[str, TopicRouteData] = routes
        self.questions: list[str] = []
        self.is_down = False

    async def ask(self, topic: str) -> TopicRouteData:
        self.questions.append(topic)
        await asyncio.sleep(0)
        if self.is_down:
            raise RemotingConnectError("down")
        if topic not in self.routes:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, "no route")
        return self.routes[topic]


def test_publish_order_is_by_broker_name_and_needs_a_master_that_may_be_written() -> None:
    route = TopicRouteData(
        [queues("b", 1, 2), queues("a", 4, 1), queues("slave-only", 1, 1), queues("closed", 1, 1, PermName.READ)],
        [broker("a", 0, 1), broker("b", 0), broker("slave-only", 1), broker("closed", 0)],
    )
    assert [(q.broker_name, q.queue_id) for q in publish_queues("T", route)] == [("a", 0), ("b", 0), ("b", 1)]


def test_an_order_topic_lists_its_queues_itself() -> None:
    route = TopicRouteData([queues("a", 8, 8)], [broker("a", 0)], order_topic_conf="b:1;a:2")
    assert [(q.broker_name, q.queue_id) for q in publish_queues("T", route)] == [("b", 0), ("a", 0), ("a", 1)]


def test_subscribers_read_where_they_may_also_from_slaves_alone() -> None:
    route = TopicRouteData(
        [queues("a", 2, 1), queues("b", 1, 1, PermName.WRITE), queues("c", 1, 0)], [broker("a", 1), broker("c", 0)]
    )
    assert [(q.broker_name, q.queue_id) for q in subscribe_queues("T", route)] == [("a", 0), ("a", 1), ("c", 0)]


async def test_an_unknown_topic_gets_the_default_topic_s_queues_up_to_a_limit() -> None:
    server = NameServer(TBW102=TopicRouteData([queues("a", 8, 8)], [broker("a", 0)]))
    table = RouteTable(server.ask)
    rotation = await table.rotation("New", "TBW102", 4)
    assert [queue.queue_id for queue in rotation.queues] == [0, 1, 2, 3]
    assert {queue.topic for queue in rotation.queues} == {"New"}


async def test_a_topic_that_may_not_be_created_has_no_route() -> None:
    table = RouteTable(NameServer().ask)
    with pytest.raises(NoRouteError, match="No route info of this topic: New; create the topic"):
        await table.rotation("New", "TBW102", 4)


async def test_many_callers_of_an_unknown_topic_ask_once() -> None:
    server = NameServer(T=TopicRouteData([queues("a", 4, 4)], [broker("a", 0)]))
    table = RouteTable(server.ask)
    found = await asyncio.gather(*(table.rotation("T", "TBW102", 4) for _ in range(10)))
    assert server.questions == ["T"]
    assert len(set(map(id, found))) == 1


async def test_an_unchanged_route_keeps_its_rotation_and_a_changed_one_gets_a_new_one() -> None:
    server = NameServer(T=TopicRouteData([queues("b", 1, 1), queues("a", 1, 1)], [broker("a", 0), broker("b", 0)]))
    table = RouteTable(server.ask)
    before = await table.rotation("T", "TBW102", 4)
    server.routes["T"] = TopicRouteData([queues("a", 1, 1), queues("b", 1, 1)], [broker("b", 0), broker("a", 0)])
    await table.refresh("T")
    assert await table.rotation("T", "TBW102", 4) is before
    server.routes["T"] = TopicRouteData([queues("a", 1, 2)], [broker("a", 0)])
    await table.refresh("T")
    assert len((await table.rotation("T", "TBW102", 4)).queues) == 2


async def test_a_route_is_kept_when_the_name_server_is_down_or_has_forgotten_it() -> None:
    server = NameServer(T=TopicRouteData([queues("a", 4, 4)], [broker("a", 0)]))
    table = RouteTable(server.ask)
    assert await table.refresh("T")
    server.is_down = True
    with pytest.raises(RemotingConnectError):
        await table.refresh("T")
    server.is_down = False
    del server.routes["T"]
    assert not await table.refresh("T")
    assert len(await table.subscribe_queues("T")) == 4


async def test_addresses_are_chosen_by_broker_id() -> None:
    server = NameServer(T=TopicRouteData([queues("a", 1, 1), queues("b", 1, 1)], [broker("a", 0, 2), broker("b", 1)]))
    table = RouteTable(server.ask)
    await table.refresh("T")
    assert table.master_address("a") == "a:0"
    assert table.master_address("b") is None
    assert table.any_address("b") == "b:1"
    assert table.subscribe_address("a", 0) == ("a:0", False)
    assert table.subscribe_address("a", 2) == ("a:2", True)
    assert table.subscribe_address("a", 1) == ("a:2", True)  # the slave after the one that was advised
    assert table.subscribe_address("b", 0) == ("b:1", True)
    assert table.subscribe_address("c", 0) is None
    assert set(table.addresses(with_slaves=False)) == {"a:0"}
    assert set(table.addresses(with_slaves=True)) == {"a:0", "a:2", "b:1"}


async def test_a_broker_that_no_route_mentions_is_forgotten() -> None:
    server = NameServer(T=TopicRouteData([queues("a", 1, 1), queues("b", 1, 1)], [broker("a", 0, 1), broker("b", 0)]))
    table = RouteTable(server.ask)
    await table.refresh("T")
    server.routes["T"] = TopicRouteData([queues("a", 1, 1)], [broker("a", 0)])
    await table.refresh("T")
    table.forget_unused_brokers()
    assert set(table.addresses(with_slaves=True)) == {"a:0"}
