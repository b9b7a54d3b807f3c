"""A client with keys, at a broker of Apache's that checks them: each way of sending and receiving is signed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqcore.client import Client, Message
from mqcore.client.errors import BrokerError
from mqcore.compat import AclClientRPCHook, DefaultMQProducer, SessionCredentials
from mqcore.compat import Message as JavaMessage
from mqcore.testing import assert_received
from tests.rigs import maven
from tests.rigs.apache import ApacheServer

pytestmark = pytest.mark.slow

KEYS = """
globalWhiteRemoteAddresses:
accounts:
- accessKey: python-client
  secretKey: s3cret/with:signs
  whiteRemoteAddress:
  admin: true
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
URL_KEYS = "python-client:s3cret%2Fwith%3Asigns"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    if missing := maven.missing_tools():
        pytest.skip(missing)
    store = tmp_path_factory.mktemp("acl") / "store"
    conf = store.with_name(store.name + ".apache") / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(KEYS)
    with ApacheServer("4.9.8", store, {"aclEnable": "true"}) as server:
        yield server


@pytest.fixture
def url(server: ApacheServer) -> str:
    return f"rmq://{URL_KEYS}@{server.name_server}"


def test_every_way_of_sending_and_receiving_is_signed(url: str) -> None:
    with Client(url) as mq:
        outcomes = mq.admin.create_topic("Signed", read_queues=1)
        assert all(error is None for error in outcomes.values())
        with mq.producer("signed") as producer:
            producer.send(Message("Signed", b"plain"))
            producer.send(Message("Signed", b"by key"), shard_key="a")
            producer.send_soon(Message("Signed", b"soon")).result(60)
            producer.send_batch([Message("Signed", b"batch 1"), Message("Signed", b"batch 2")])
            producer.send_oneway(Message("Signed", b"oneway"))
        bodies = ["plain", "by key", "soon", "batch 1", "batch 2", "oneway"]
        with mq.consumer("signed_readers", "Signed", from_where="earliest") as consumer:
            got = []
            while len(got) < len(bodies):
                for message in consumer.receive(timeout_s=60):
                    got.append(message.body.decode())
                    message.ack()
        assert sorted(got) == sorted(bodies)
    assert_received(url, "Signed", bodies)


def test_javas_hook_signs_too(server: ApacheServer, url: str) -> None:
    with Client(url) as mq:
        mq.admin.create_topic("Hooked", read_queues=1)
    hook = AclClientRPCHook(SessionCredentials("python-client", "s3cret/with:signs"))
    producer = DefaultMQProducer("hooked", hook)
    producer.set_namesrv_addr(server.name_server)
    producer.start()
    producer.send(JavaMessage("Hooked", b"hello"))
    producer.shutdown()
    assert_received(url, "Hooked", ["hello"])


def test_a_wrong_key_is_refused_with_the_brokers_words(server: ApacheServer, url: str) -> None:
    with Client(url) as mq:
        mq.admin.create_topic("Refused", read_queues=1)
    with (
        Client(f"rmq://python-client:wrong-secret@{server.name_server}") as mq,
        mq.producer("refused", retries=0) as producer,
        pytest.raises(BrokerError, match=r"Check signature failed|SignatureException"),
    ):
        producer.send(Message("Refused", b"x"), queue=producer.queues("Refused")[0])
