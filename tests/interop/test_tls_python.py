"""The Python client at a broker of Apache's by TLS, where that is asked for and where it may, with keys and without.

Both faces, sends on the short way and on the long one, and what pulls.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from mqcore.aio import Client as AsyncClient
from mqcore.client import Client, Message
from mqcore.client.errors import BrokerError
from mqcore.client.settings.options import ClientOptions
from mqcore.errors import MQError
from tests.rigs import maven
from tests.rigs.apache import SMALL, ApacheBroker, ApacheNamesrv
from tests.rigs.certificates import trusting
from tests.rigs.wire import serves
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

KEYS = """
globalWhiteRemoteAddresses:
accounts:
- accessKey: python-client
  secretKey: s3cret/with:signs
  admin: true
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
MODES = ("permissive", "enforcing")
START_DEADLINE_S = 120.0
COUNT = 20


@dataclass(frozen=True, slots=True)
class Sealed:
    """A name server and a broker, and what a client needs for them."""

    mode: str
    name_server: str
    options: ClientOptions

    def topic(self, name: str) -> str:
        with Client(self.name_server, **self.options) as mq:
            assert all(error is None for error in mq.admin.create_topic(name, read_queues=1).values())
        return name


def keys_for(store: Path) -> None:
    conf = store.with_name(store.name + ".apache") / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(KEYS)


@pytest.fixture(scope="module", params=["either", *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES)])
def sealed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    """The one that lets in TLS only asks for keys as well; in long runs each, otherwise one of them."""
    if missing := maven.missing_tools():
        pytest.skip(missing)
    mode = random.choice(MODES) if request.param == "either" else str(request.param)
    store = tmp_path_factory.mktemp(mode) / "store"
    options: ClientOptions = {"tls": trusting()}
    properties = {}
    if mode == "enforcing":
        keys_for(store)
        properties["aclEnable"] = "true"
        options |= {"access_key": "python-client", "secret_key": "s3cret/with:signs"}
    jvm_options = (*SMALL, f"-Dtls.server.mode={mode}")
    namesrv = ApacheNamesrv("4.9.8", store.with_name("namesrv"), jvm_options=jvm_options)
    broker = ApacheBroker("4.9.8", store, namesrv.address, properties, jvm_options=jvm_options)
    try:
        wait_until(lambda: is_served(namesrv, broker), START_DEADLINE_S, "Apache's broker serves by TLS")
        yield Sealed(mode, namesrv.address, options)
    finally:
        broker.kill()
        namesrv.kill()


def is_served(namesrv: ApacheNamesrv, broker: ApacheBroker) -> bool:
    if not broker.child.is_alive:
        raise broker.child.error("ended while it started")
    with suppress(OSError):
        return serves(namesrv.address, broker.address, trusting())
    return False


def test_each_way_of_sending_and_receiving_of_the_plain_face(sealed: Sealed) -> None:
    topic = sealed.topic("Plain")
    large = b"l" * 3_000_000
    with Client(sealed.name_server, **sealed.options) as mq:
        with mq.producer("plain", send_timeout_s=60, compression="none") as producer:
            for number in range(COUNT):
                receipt = producer.send(Message(topic, b"%d" % number, keys=["k"], properties={"ä": '"'}))
                (pulled,) = mq.pull(receipt.queue, receipt.offset, 1, wait_s=30).messages
                assert (pulled.body, pulled.properties["ä"], pulled.msg_id) == (b"%d" % number, '"', receipt.msg_id)
            producer.send(Message(topic, large))
            assert producer._short_way.connections == 1
            assert producer.counts.sent == COUNT + 1
            producer.send_soon(Message(topic, b"soon")).result(60)
            producer.send_batch([Message(topic, b"batch 1"), Message(topic, b"batch 2")])
        expected = sorted([*(b"%d" % number for number in range(COUNT)), large, b"soon", b"batch 1", b"batch 2"])
        with mq.consumer("readers", topic, from_where="earliest") as consumer:
            received: list[bytes] = []
            while len(received) < len(expected):
                for message in consumer.receive(timeout_s=60):
                    received.append(message.body)
                    message.ack()
        assert sorted(received) == expected


def test_sends_and_pulls_of_the_asyncio_face(sealed: Sealed) -> None:
    topic = sealed.topic("Asyncio")

    async def work() -> list[bytes]:
        async with AsyncClient(sealed.name_server, **sealed.options) as mq:
            async with mq.producer("asyncio", send_timeout_s=60) as producer:
                receipts = await asyncio.gather(*(producer.send(Message(topic, b"%d" % n)) for n in range(COUNT)))
            first = min(receipts, key=lambda receipt: receipt.offset)
            bodies: list[bytes] = []
            while len(bodies) < COUNT:
                pulled = await mq.pull(first.queue, first.offset + len(bodies), COUNT, wait_s=30)
                bodies += [cast("bytes", message.body) for message in pulled.messages]
            return bodies

    assert sorted(asyncio.run(work())) == sorted(b"%d" % number for number in range(COUNT))


def test_who_comes_as_one_may_not_is_refused(sealed: Sealed) -> None:
    topic = sealed.topic("Refused")
    if sealed.mode == "permissive":
        with Client(sealed.name_server) as mq, mq.producer("without_TLS") as producer:
            assert producer.send(Message(topic, b"may come plain, too")).offset == 0
        return
    with pytest.raises(MQError, match=r"before it said anything|closed"), Client(sealed.name_server) as mq:
        mq.queues(topic)
    wrong: ClientOptions = {**sealed.options, "secret_key": "wrong"}
    with (
        Client(sealed.name_server, **wrong) as mq,
        mq.producer("refused", retries=0) as producer,
        pytest.raises(BrokerError, match=r"Check signature failed|SignatureException"),
    ):
        producer.send(Message(topic, b"x"), queue=producer.queues(topic)[0])
