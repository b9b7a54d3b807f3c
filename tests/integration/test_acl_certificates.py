"""Clients whose certificates say who they are: served and refused as their accounts, with nothing signed."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from mqcore.client import Client, Message
from mqcore.errors import MQError
from tests.integration.acl_clients import received, refusal_of
from tests.rigs.certificates import NO_OPENSSL, OPENSSL, Authority
from tests.rigs.mqcore_broker import MqcoreBroker

pytestmark = pytest.mark.skipif(OPENSSL is None, reason=NO_OPENSSL)

ACCOUNTS = [
    {"accessKey": "operator", "secretKey": "operator-secret", "admin": True},
    {
        "accessKey": "publisher",
        "secretKey": "publisher-secret",
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["Open=PUB|SUB"],
    },
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certified(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    directory = tmp_path_factory.mktemp("certified")
    (directory / "conf").mkdir()
    (directory / "conf" / "plain_acl.yml").write_text(yaml.safe_dump({"accounts": ACCOUNTS}))
    pair = authority.sign()
    settings = pair.server_settings(
        need_client_auth="optional", authClient="true", trustCertPath=str(authority.certificate)
    )
    properties = {
        **settings,
        "tls.server.mode": "enforcing",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.certificate),
        "aclEnable": "true",
        "aclAccountByCertificate": "true",
        "rocketmqHome": str(directory),
    }
    with MqcoreBroker(directory / "store", properties, tls=authority.client()) as broker:
        with client(broker, shown(authority, "operator")) as mq:
            for topic in ("Open", "Closed"):
                assert all(error is None for error in mq.admin.create_topic(topic, read_queues=1).values())
        yield broker


def shown(authority: Authority, name: str) -> ssl.SSLContext:
    """The context of a client that shows a certificate of *name*."""
    return authority.client(authority.sign(f"/O=Books, Inc./CN={name}"))


def client(broker: MqcoreBroker, tls: ssl.SSLContext, keys: str = "") -> Client:
    return Client(f"rmq://{keys}{broker.name_server}", tls=tls)


def test_a_certified_client_sends_and_receives(certified: MqcoreBroker, authority: Authority) -> None:
    with client(certified, shown(authority, "publisher")) as mq:
        with mq.producer("producers") as producer:
            for number in range(20):
                producer.send(Message("Open", b"%d" % number))
        got = received(mq, "readers", "Open", 20)
    assert sorted(got) == sorted(b"%d" % number for number in range(20))


def test_it_is_asked_for_the_permissions_of_its_account(certified: MqcoreBroker, authority: Authority) -> None:
    with client(certified, shown(authority, "publisher")) as mq:
        assert "No default permission for topic:Closed" in refusal_of(mq, "Closed")
        outcomes = mq.admin.create_topic("Wished", read_queues=1)
        assert "accessKey=publisher is not" in str(list(outcomes.values()))


def test_who_has_no_account_or_shows_nothing_is_refused(certified: MqcoreBroker, authority: Authority) -> None:
    with client(certified, shown(authority, "stranger")) as mq:
        assert "no acl config for the certificate of stranger" in refusal_of(mq, "Open")
    with client(certified, authority.client()) as mq:
        assert "No accessKey is configured" in refusal_of(mq, "Open")


def test_a_key_counts_for_more_than_the_certificate(certified: MqcoreBroker, authority: Authority) -> None:
    with (
        client(certified, shown(authority, "stranger"), "publisher:publisher-secret@") as mq,
        mq.producer("p") as producer,
    ):
        producer.send(Message("Open", b"signed"))
    with client(certified, shown(authority, "publisher"), "operator:another-secret@") as mq:
        assert "Check signature failed for accessKey=operator" in refusal_of(mq, "Open")


def test_the_send_worker_serves_it_without_the_broker_process(certified: MqcoreBroker, authority: Authority) -> None:
    with client(certified, shown(authority, "publisher")) as mq, mq.producer("sleepless", retries=0) as producer:
        queue = producer.queues("Open")[0]
        producer.send(Message("Open", b"first"), queue=queue)
        broker = psutil.Process(certified.pid)
        broker.suspend()
        try:
            for _ in range(20):
                producer.send(Message("Open", b"more"), queue=queue)
        finally:
            broker.resume()


def test_a_certificate_of_another_authority_or_that_is_over_lets_nobody_in(
    certified: MqcoreBroker, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other").sign("/CN=operator")
    over = authority.sign("/CN=operator", days=-1)
    for pair in (other, over):
        with (
            pytest.raises(MQError),
            client(certified, authority.client(pair)) as mq,
            mq.producer("p", retries=0) as producer,
        ):
            producer.send(Message("Open", b"x"))
