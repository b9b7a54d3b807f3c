"""The Python client on connections with TLS, and what it says when there is none to be had."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.aio import Client as AsyncClient
from mqcore.client import Client, Message
from mqcore.errors import ConfigError, MQError, TlsError
from tests.rigs.certificates import NO_OPENSSL, OPENSSL, Authority, Pair, trusting
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import create_topic

pytestmark = pytest.mark.skipif(OPENSSL is None, reason=NO_OPENSSL)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client_pair(authority: Authority) -> Pair:
    return authority.sign("/CN=alice", password="secret")


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, client_pair: Pair
) -> Iterator[MqcoreBroker]:
    """Lets in those only who show a certificate of *authority*; so the broker has one itself, for the name server."""
    settings = authority.sign().server_settings(
        mode="enforcing", need_client_auth="require", authClient="true", trustCertPath=str(authority.certificate)
    )
    settings |= {
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.certificate),
        "tls.client.certPath": str(client_pair.certificate),
        "tls.client.keyPath": str(client_pair.key),
        "tls.client.keyPassword": client_pair.password,
    }
    store = tmp_path_factory.mktemp("guarded") / "store"
    with MqcoreBroker(store, settings, tls=authority.client(client_pair)) as running:
        yield running


def test_messages_of_all_sizes_pass_both_ways(
    guarded: MqcoreBroker, authority: Authority, client_pair: Pair, chance: random.Random
) -> None:
    bodies = [os.urandom(chance.choice((1, 1_000, 16_384, 100_000, 1_500_000))) for _ in range(40)]
    with Client(
        guarded.name_server,
        tls=True,
        tls_ca_file=str(authority.certificate),
        tls_cert_file=str(client_pair.certificate),
        tls_key_file=str(client_pair.key),
        tls_key_password=client_pair.password,
    ) as client:
        client.admin.create_topic("Sizes", read_queues=1)
        with client.producer("P", compression="none", send_timeout_s=60) as producer:
            for body in bodies:
                producer.send(Message("Sizes", body))
        with client.consumer("G", "Sizes", from_where="earliest", orderly=True) as consumer:
            received = []
            for message in consumer:
                received.append(message.body)
                if len(received) == len(bodies):
                    break
    assert received == bodies


def test_the_client_of_asyncio_takes_a_context_of_its_user(broker: MqcoreBroker) -> None:
    create_topic(broker.broker_address, "ByContext")

    async def send() -> str:
        async with AsyncClient(broker.name_server, tls=trusting()) as client, client.producer("P") as producer:
            return (await producer.send(Message("ByContext", b"x"))).msg_id

    assert asyncio.run(send())


def test_settings_of_the_environment_and_of_a_url_turn_it_on(
    broker: MqcoreBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(f"rmq://{broker.name_server}?tls=true&tls_verify=false") as client:
        assert client.admin.list_topics()
    monkeypatch.setenv("MQCORE_CLIENT_TLS", "true")
    with Client(broker.name_server) as client, pytest.raises(MQError, match="certificate verify failed: self-signed"):
        client.admin.list_topics()


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("a stranger", "certificate verify failed: "),
        ("no certificate", "certificate required|before it said anything"),
        ("expired", "certificate expired|before it said anything"),
        ("plain", "a port with tls.server.mode=enforcing closes what comes without TLS"),
    ],
)
def test_what_is_wrong_is_named(guarded: MqcoreBroker, authority: Authority, case: str, words: str) -> None:
    contexts: dict[str, ssl.SSLContext | bool] = {
        "a stranger": ssl.create_default_context(),
        "no certificate": authority.client(),
        "expired": authority.client(authority.sign(days=-1)),
        "plain": False,
    }
    with Client(guarded.name_server, tls=contexts[case]) as client, pytest.raises(MQError, match=words):
        client.admin.list_topics()


def test_files_that_cannot_be_used_are_named(tmp_path: Path, authority: Authority) -> None:
    one, other = authority.sign(), authority.sign()
    with pytest.raises(TlsError, match=r"tls_ca_file: cannot read .*nothing.pem"):
        Client("127.0.0.1:1", tls=True, tls_ca_file=str(tmp_path / "nothing.pem")).start()
    with pytest.raises(TlsError, match="key values mismatch"):
        Client("127.0.0.1:1", tls=True, tls_cert_file=str(one.certificate), tls_key_file=str(other.key)).start()
    with pytest.raises(ConfigError, match="they say nothing unless tls is True"):
        Client("127.0.0.1:1", tls_ca_file=str(authority.certificate))
