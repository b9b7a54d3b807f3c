"""The name server's tables: who may register what, and what goes when a broker goes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from mqcore.codes import PermName, TopicSysFlag
from mqcore.namesrv.route_table import MASTERSHIP_KEPT_MS, BrokerIdentity, MasterAddresses, RouteTable
from mqcore.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from mqcore.transport.connection import Connection

MASTER = BrokerIdentity("C", "broker-a", 0, "10.0.0.1:10911")
SLAVE = BrokerIdentity("C", "broker-a", 1, "10.0.0.2:10911")
OTHER = BrokerIdentity("C", "broker-b", 0, "10.0.0.3:10911")
HA = "10.0.0.1:10912"


class FakeClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def routes(clock: FakeClock) -> RouteTable:
    return RouteTable(120_000, clock)


def connection() -> Connection:
    """Return something with the identity of a connection; the table looks at nothing else of it."""
    return cast(Connection, object())


def body(
    *topics: TopicConfig, version: int = 1, state: int | None = None, filter_servers: list[str] | None = None
) -> RegisterBrokerBody:
    table = {topic.topic_name: topic for topic in topics}
    return RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(1, version, state)), filter_servers or [])


def topic(name: str = "T", **changes: Any) -> TopicConfig:
    return TopicConfig(name, 8, 8, **changes)


def register(
    routes: RouteTable, broker: BrokerIdentity, *topics: TopicConfig, **options: Any
) -> MasterAddresses | None:
    by = options.pop("by", None)
    return routes.register_broker(broker, HA, body(*topics, **options), by)


def test_a_registered_topic_has_a_route(routes: RouteTable) -> None:
    assert routes.route("T") is None
    assert register(routes, MASTER, topic(topic_sys_flag=2)) is None
    assert routes.route("T") == TopicRouteData(
        [QueueData("broker-a", 8, 8, 6, 2)], [BrokerData("C", "broker-a", {0: MASTER.address})]
    )


def test_a_slave_learns_its_master_and_adds_its_address(routes: RouteTable) -> None:
    assert register(routes, SLAVE, topic()) is None
    register(routes, MASTER, topic())
    assert register(routes, SLAVE, topic()) == MasterAddresses(MASTER.address, HA)
    route = routes.route("T")
    assert route is not None
    assert route.broker_datas == [BrokerData("C", "broker-a", {1: SLAVE.address, 0: MASTER.address})]


def test_topics_of_a_slave_are_not_taken(routes: RouteTable) -> None:
    register(routes, SLAVE, topic())
    assert routes.topics() == []


def test_topics_are_taken_when_the_version_has_changed(routes: RouteTable) -> None:
    register(routes, MASTER, topic(), version=1)
    register(routes, MASTER, topic(perm=4), version=1)
    assert routes.route("T").queue_datas[0].perm == 6  # type: ignore[union-attr]
    register(routes, MASTER, topic(perm=4), version=2)
    assert routes.route("T").queue_datas[0].perm == 4  # type: ignore[union-attr]


def test_topics_are_taken_when_a_master_is_new_under_a_known_version(routes: RouteTable) -> None:
    register(routes, SLAVE, version=1)
    promoted = BrokerIdentity("C", "broker-a", 0, SLAVE.address)
    register(routes, promoted, topic(), version=1)
    assert routes.topics() == ["T"]


def test_topics_that_a_later_registration_leaves_out_stay(routes: RouteTable) -> None:
    register(routes, MASTER, topic("A"), topic("B"), version=1)
    register(routes, MASTER, topic("B"), version=2)
    assert routes.topics() == ["A", "B"]


def test_a_slave_that_became_master_has_one_id(routes: RouteTable) -> None:
    register(routes, MASTER, topic())
    register(routes, SLAVE)
    routes.unregister_broker(MASTER)
    register(routes, BrokerIdentity("C", "broker-a", 0, SLAVE.address), topic())
    assert routes.route("T").broker_datas[0].broker_addrs == {0: SLAVE.address}  # type: ignore[union-attr]


def addresses(routes: RouteTable) -> dict[int, str]:
    (data,) = routes.cluster_info().broker_addr_table.values()
    return data.broker_addrs


@pytest.mark.parametrize(("state", "is_taken"), [(6, False), (None, False), (7, True), (8, True)])
def test_a_lower_state_version_cannot_take_the_id_of_a_master_that_lives(
    routes: RouteTable, state: int | None, is_taken: bool
) -> None:
    register(routes, MASTER, topic(), state=7)
    other = BrokerIdentity("C", "broker-a", 0, "10.0.0.9:10911")
    register(routes, other, topic("Other"), state=state)
    assert addresses(routes) == {0: other.address if is_taken else MASTER.address}
    assert ("Other" in routes.topics()) == is_taken


@pytest.fixture(params=["goodbye", "closed", "silent"])
def leave(request: pytest.FixtureRequest, routes: RouteTable, clock: FakeClock) -> Callable[[BrokerIdentity], None]:
    """Return what takes a broker away, by each of the ways to go."""

    def go(broker: BrokerIdentity) -> None:
        if request.param == "goodbye":
            routes.unregister_broker(broker)
        elif request.param == "closed":
            live = routes._live[broker.address]
            live.connection = connection()
            routes.connection_closed(live.connection)
        else:
            clock.now_ms += 120_001
            routes.drop_silent_brokers()

    return go


def test_a_deposed_master_cannot_take_its_id_back_while_nobody_has_it(
    routes: RouteTable, clock: FakeClock, leave: Callable[[BrokerIdentity], None]
) -> None:
    deposed = BrokerIdentity("C", "broker-a", 0, "10.0.0.9:10911")
    register(routes, deposed, topic(), state=6)
    register(routes, MASTER, topic(), state=7)
    leave(MASTER)
    register(routes, deposed, topic(), state=6)
    assert routes.route("T") is None
    clock.now_ms += MASTERSHIP_KEPT_MS - 200_000
    routes.drop_silent_brokers()
    register(routes, deposed, topic(), state=6)
    assert routes.route("T") is None
    register(routes, MASTER, topic(), state=7)
    assert addresses(routes) == {0: MASTER.address}


def test_what_a_slave_tells_of_a_newer_master_counts_before_that_one_registers(routes: RouteTable) -> None:
    register(routes, MASTER, topic(), state=6)
    register(routes, SLAVE, state=7)
    deposed = BrokerIdentity("C", "broker-a", 0, "10.0.0.9:10911")
    routes.unregister_broker(MASTER)
    register(routes, deposed, topic(), state=6)
    assert addresses(routes) == {1: SLAVE.address}


def test_an_old_word_of_the_master_does_not_take_its_id_from_it(routes: RouteTable) -> None:
    register(routes, MASTER, topic(), state=7)
    register(routes, BrokerIdentity("C", "broker-a", 1, MASTER.address), state=6)
    assert addresses(routes) == {0: MASTER.address}
    routes.unregister_broker(BrokerIdentity("C", "broker-a", 1, MASTER.address))
    assert routes.data_version_of(MASTER.address) == DataVersion(1, 1, 7)


def test_a_group_that_was_founded_anew_is_taken_when_the_old_one_is_long_silent(
    routes: RouteTable, clock: FakeClock
) -> None:
    register(routes, MASTER, topic(), state=7)
    clock.now_ms += MASTERSHIP_KEPT_MS + 1
    routes.drop_silent_brokers()
    other = BrokerIdentity("C", "broker-a", 0, "10.0.0.9:10911")
    register(routes, other, topic(), state=1)
    assert addresses(routes) == {0: other.address}


def test_a_broker_without_masterships_takes_the_id_of_a_group_that_is_gone(routes: RouteTable) -> None:
    register(routes, MASTER, topic(), state=7)
    routes.unregister_broker(MASTER)
    other = BrokerIdentity("C", "broker-a", 0, "10.0.0.9:10911")
    register(routes, other, topic())
    assert addresses(routes) == {0: other.address}


def test_whatever_comes_in_whatever_order_no_older_mastership_has_the_id_of_the_master(
    routes: RouteTable, clock: FakeClock, chance: random.Random
) -> None:
    hosts = [f"10.0.0.{number}:10911" for number in range(1, 5)]
    connections = {host: connection() for host in hosts}
    newest = 0
    for _ in range(3_000):
        host, version = chance.choice(hosts), max(1, newest - chance.randrange(4) + (chance.random() < 0.1))
        who = BrokerIdentity("C", "broker-a", chance.choice([0, 0, 1, 2, 3]), host)
        held = {} if routes.route("T") is None else addresses(routes)
        match chance.randrange(8):
            case 0:
                routes.unregister_broker(who)
            case 1:
                routes.connection_closed(connections[host])
                connections[host] = connection()
            case 2:
                clock.now_ms += chance.choice([10, 130_000])
                routes.drop_silent_brokers()
            case _:
                newest = max(newest, version)
                register(routes, who, topic(), state=version, by=connections[host])
                now_held = {} if routes.route("T") is None else addresses(routes)
                if now_held.get(0) != held.get(0):
                    assert version == newest
        listed = [at for data in routes.cluster_info().broker_addr_table.values() for at in data.broker_addrs.values()]
        assert len(listed) == len(set(listed))
        assert all(routes.data_version_of(at) is not None for at in listed)


def test_a_broker_may_come_again_with_a_lower_state_version(routes: RouteTable) -> None:
    register(routes, MASTER, topic(), state=7)
    register(routes, MASTER, topic("Later"), state=6)
    assert sorted(routes.topics()) == ["Later", "T"]


def test_goodbye_of_the_master_leaves_its_slave_and_that_of_a_slave_its_master(routes: RouteTable) -> None:
    for leaving, stays in ((MASTER, {1: SLAVE.address}), (SLAVE, {0: MASTER.address})):
        register(routes, MASTER, topic())
        register(routes, SLAVE)
        routes.unregister_broker(leaving)
        assert addresses(routes) == stays
        register(routes, leaving, topic())


def test_the_slave_s_address_keeps_a_route_that_can_be_read(routes: RouteTable) -> None:
    register(routes, MASTER, topic())
    register(routes, SLAVE)
    routes.unregister_broker(MASTER)
    assert routes.route("T").broker_datas[0].broker_addrs == {1: SLAVE.address}  # type: ignore[union-attr]
    routes.unregister_broker(SLAVE)
    assert routes.route("T") is None
    assert routes.topics() == []
    assert routes.cluster_info() == ClusterInfo()


def test_goodbye_of_a_broker_that_was_replaced_removes_nothing(routes: RouteTable) -> None:
    register(routes, MASTER, topic())
    replacement = BrokerIdentity("C", "broker-a", 0, "10.0.0.9:10911")
    register(routes, replacement, topic())
    routes.unregister_broker(MASTER)
    assert routes.route("T").broker_datas[0].broker_addrs == {0: replacement.address}  # type: ignore[union-attr]


def test_goodbye_of_an_unknown_broker_is_ignored(routes: RouteTable) -> None:
    register(routes, MASTER, topic())
    routes.unregister_broker(OTHER)
    routes.unregister_broker(SLAVE)
    assert routes.topics() == ["T"]


def test_a_closed_connection_removes_its_brokers_only(routes: RouteTable) -> None:
    gone, other = connection(), connection()
    register(routes, MASTER, topic("A"), by=gone)
    register(routes, OTHER, topic("B"), by=other)
    routes.connection_closed(gone)
    assert routes.topics() == ["B"]
    assert routes.data_version_of(MASTER.address) is None
    routes.connection_closed(gone)
    assert routes.topics() == ["B"]


def test_an_old_connection_does_not_remove_a_broker_that_came_back_by_a_new_one(routes: RouteTable) -> None:
    old, new = connection(), connection()
    register(routes, MASTER, topic(), by=old)
    register(routes, MASTER, topic(), by=new)
    routes.connection_closed(old)
    assert routes.topics() == ["T"]
    routes.connection_closed(new)
    assert routes.topics() == []


def test_a_silent_broker_is_dropped_after_its_time(routes: RouteTable, clock: FakeClock) -> None:
    by = connection()
    register(routes, MASTER, topic("A"), by=by)
    clock.now_ms += 60_000
    register(routes, OTHER, topic("B"), by=connection())
    clock.now_ms += 60_000
    assert routes.drop_silent_brokers() == []
    clock.now_ms += 1
    assert routes.drop_silent_brokers() == [by]
    assert routes.topics() == ["B"]
    assert routes.drop_silent_brokers() == []


def test_a_broker_that_asks_for_its_version_lives(routes: RouteTable, clock: FakeClock) -> None:
    register(routes, MASTER, topic(), version=3)
    clock.now_ms += 119_000
    assert routes.is_changed(MASTER.address, DataVersion(1, 2))
    assert not routes.is_changed(MASTER.address, DataVersion(1, 3))
    routes.touch(MASTER.address)
    routes.touch("10.9.9.9:1")
    clock.now_ms += 119_000
    assert routes.drop_silent_brokers() == []
    assert routes.data_version_of(MASTER.address) == DataVersion(1, 3)
    assert routes.is_changed("10.9.9.9:1", DataVersion(1, 3))


def test_write_permission_is_wiped_and_added(routes: RouteTable) -> None:
    register(routes, MASTER, topic("A", perm=7), topic("B", perm=6))
    register(routes, OTHER, topic("A"))
    assert routes.wipe_write_perm("broker-a") == 2
    queues = {queue.broker_name: queue.perm for queue in routes.route("A").queue_datas}  # type: ignore[union-attr]
    assert queues == {"broker-a": PermName.READ | PermName.INHERIT, "broker-b": 6}
    assert routes.add_write_perm("broker-a") == 2
    assert routes.route("A").queue_datas[0].perm == 6  # type: ignore[union-attr]
    assert routes.wipe_write_perm("unknown") == 0
    assert routes.add_write_perm("unknown") == 0


def test_a_changed_registration_restores_the_permission(routes: RouteTable) -> None:
    register(routes, MASTER, topic(), version=1)
    routes.wipe_write_perm("broker-a")
    register(routes, MASTER, topic(), version=1)
    assert routes.route("T").queue_datas[0].perm == 4  # type: ignore[union-attr]
    register(routes, MASTER, topic(), version=2)
    assert routes.route("T").queue_datas[0].perm == 6  # type: ignore[union-attr]


def test_a_topic_is_deleted_everywhere_or_in_a_cluster(routes: RouteTable) -> None:
    elsewhere = BrokerIdentity("D", "broker-d", 0, "10.0.0.4:10911")
    register(routes, MASTER, topic("A"), topic("B"))
    register(routes, elsewhere, topic("A"))
    routes.delete_topic("A", "C")
    assert [queue.broker_name for queue in routes.route("A").queue_datas] == ["broker-d"]  # type: ignore[union-attr]
    routes.delete_topic("A", "unknown cluster")
    assert routes.route("A") is not None
    routes.delete_topic("A", "D")
    routes.delete_topic("B")
    routes.delete_topic("never was")
    assert routes.topics() == []


def test_lists_of_topics(routes: RouteTable) -> None:
    elsewhere = BrokerIdentity("D", "broker-d", 0, "10.0.0.4:10911")
    assert routes.system_topics() == ([], None)
    register(routes, SLAVE)
    register(routes, MASTER, topic("A"), topic("B"))
    register(routes, elsewhere, topic("B"), topic("E"))
    assert routes.topics_of_cluster("C") == ["A", "B"]
    assert routes.topics_of_cluster("D") == ["B", "E"]
    assert routes.topics_of_cluster("unknown") == []
    assert routes.system_topics() == (["C", "broker-a", "D", "broker-d"], MASTER.address)
    assert routes.cluster_info().cluster_addr_table == {"C": ["broker-a"], "D": ["broker-d"]}


def test_lists_by_unit_flags(routes: RouteTable) -> None:
    register(routes, MASTER, *(topic(f"flag{flag}", topic_sys_flag=flag) for flag in range(4)))
    assert routes.unit_topics(lambda flag: TopicSysFlag.UNIT in flag) == ["flag1", "flag3"]
    assert routes.unit_topics(lambda flag: TopicSysFlag.UNIT_SUB in flag) == ["flag2", "flag3"]
    assert routes.unit_topics(lambda flag: flag == TopicSysFlag.UNIT_SUB) == ["flag2"]


def test_filter_servers_stand_in_the_route_until_their_broker_goes(routes: RouteTable) -> None:
    register(routes, MASTER, topic(), filter_servers=["10.0.0.1:1"])
    assert routes.route("T").filter_server_table == {MASTER.address: ["10.0.0.1:1"]}  # type: ignore[union-attr]
    register(routes, MASTER)
    assert routes.route("T").filter_server_table == {}  # type: ignore[union-attr]


def test_routes_are_copies(routes: RouteTable) -> None:
    register(routes, MASTER, topic())
    route = routes.route("T")
    info = routes.cluster_info()
    assert route is not None
    route.queue_datas[0].perm = 0
    route.broker_datas[0].broker_addrs.clear()
    info.broker_addr_table["broker-a"].broker_addrs.clear()
    info.cluster_addr_table.clear()
    assert routes.route("T").queue_datas[0].perm == 6  # type: ignore[union-attr]
    assert routes.cluster_info().broker_addr_table["broker-a"].broker_addrs == {0: MASTER.address}
