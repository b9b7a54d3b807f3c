"""Names of a namespace: what brokers call topics and groups, and what the application does."""

from __future__ import annotations

import pytest

from mqcore.client import Client
from mqcore.client.model.namespace import Namespace
from mqcore.client.settings.classes import ClientSettings
from mqcore.errors import ConfigError
from mqcore.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from mqcore.protocol.message import MessageQueue

SHOP = Namespace("shop")


@pytest.mark.parametrize(
    ("name", "long_name"),
    [
        ("Orders", "shop%Orders"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("other%Orders", "shop%other%Orders"),
        ("shopping", "shop%shopping"),
        ("shop", "shop%shop"),
    ],
)
def test_names_are_made_long_and_short_again(name: str, long_name: str) -> None:
    assert SHOP.wrap(name) == long_name
    assert SHOP.unwrap(long_name) == name
    assert SHOP.wrap(long_name) == long_name
    assert SHOP.unwrap(name) == name


@pytest.mark.parametrize(
    "name",
    ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER",
     "OFFSET_MOVED_EVENT", "CLIENT_INNER_PRODUCER", ""],
)  # fmt: skip
def test_the_names_of_the_system_are_of_no_namespace(name: str) -> None:
    assert SHOP.wrap(name) == SHOP.unwrap(name) == name


def test_names_of_another_namespace_stay_as_they_are() -> None:
    assert SHOP.unwrap("bank%Orders") == "bank%Orders"
    assert SHOP.unwrap("%RETRY%bank%billing") == "%RETRY%bank%billing"


def test_without_a_namespace_all_names_stay_as_they_are() -> None:
    none = Namespace()
    queue = MessageQueue("shop%Orders", "b", 1)
    assert not none
    assert none.wrap("Orders") == "Orders"
    assert none.unwrap("shop%Orders") == "shop%Orders"
    assert none.wrap_queue(queue) is none.unwrap_queue(queue) is queue


def test_what_all_namespaces_share_is_left_alone() -> None:
    names = Namespace("shop")
    names.leave_alone("Traces")
    assert names.wrap("Traces") == "Traces"


def test_a_heart_beat_says_long_names() -> None:
    member = ConsumerData(
        "billing", subscription_data_set=[SubscriptionData("Orders"), SubscriptionData("%RETRY%billing")]
    )
    beat = SHOP.wrap_heartbeat(HeartbeatData("c", [ProducerData("p"), ProducerData("CLIENT_INNER_PRODUCER")], [member]))
    (consumer,) = beat.consumer_data_set
    assert [producer.group_name for producer in beat.producer_data_set] == ["shop%p", "CLIENT_INNER_PRODUCER"]
    assert consumer.group_name == "shop%billing"
    topics = [subscription.topic for subscription in consumer.subscription_data_set]
    assert topics == ["shop%Orders", "%RETRY%shop%billing"]
    assert member.group_name == "billing"


@pytest.mark.parametrize("name", ["a%b", "a b", "ö", "a\x01"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="setting namespace"):
        ClientSettings(namespace=name)


def test_administration_needs_a_client_without_a_namespace() -> None:
    with Client("127.0.0.1:1", namespace="shop") as mq, pytest.raises(ConfigError, match="names as brokers have them"):
        _ = mq.admin
