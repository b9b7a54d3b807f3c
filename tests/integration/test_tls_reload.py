"""Certificates exchanged while messages pass: nobody is interrupted, and what is of no use changes nothing."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mqcore.client import Client, Message
from tests.fault.rig import await_successor, kill_worker
from tests.rigs.certificates import NO_OPENSSL, OPENSSL, Authority, Pair
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import create_topic, max_offset
from tests.waiting import wait_until

pytestmark = [pytest.mark.skipif(OPENSSL is None, reason=NO_OPENSSL), pytest.mark.fault]

DEADLINE_S = 60.0
TOPIC = "Sealed"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    directory = tmp_path_factory.mktemp("shown")
    return Pair(directory / "server.pem", directory / "server.key")


def put(pair: Pair, place: Pair) -> None:
    """As certificate managers do: each file beside its place, then there in one step, one after the other."""
    for source, target in ((pair.certificate, place.certificate), (pair.key, place.key)):
        beside = target.with_suffix(".new")
        shutil.copy(source, beside)
        beside.replace(target)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority, shown: Pair) -> Iterator[MqcoreBroker]:
    put(authority.sign("/CN=first"), shown)
    store = tmp_path_factory.mktemp("reload") / "store"
    with MqcoreBroker(store, shown.server_settings()) as running:
        create_topic(running.broker_address, TOPIC)
        yield running


@contextmanager
def connected(address: str, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as sealed,
    ):
        yield sealed


def name_at(address: str, context: ssl.SSLContext) -> str:
    with connected(address, context) as connection:
        found = connection.getpeercert()
        assert found is not None
        return str(dict(pair[0] for pair in found["subject"])["commonName"])


def await_name(broker: MqcoreBroker, context: ssl.SSLContext, name: str) -> None:
    for address in (broker.broker_address, broker.name_server):
        wait_until(lambda at=address: name_at(at, context) == name, DEADLINE_S, f"{address} shows {name}")


def test_new_certificates_are_shown_while_messages_pass(
    broker: MqcoreBroker, authority: Authority, shown: Pair
) -> None:
    context = authority.client()
    sent: list[str] = []
    stop = threading.Event()
    with (
        connected(broker.broker_address, context) as old,
        Client(broker.name_server, tls=context) as client,
        client.producer("P", retries=0) as producer,
    ):

        def send() -> None:
            while not stop.is_set():
                sent.append(producer.send(Message(TOPIC, b"x")).msg_id)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            for name in ("second", "third"):
                count = len(sent)
                put(authority.sign(f"/CN={name}"), shown)
                await_name(broker, context, name)
                wait_until(lambda before=count: len(sent) > before + 20, DEADLINE_S, "messages pass")
        finally:
            stop.set()
            sender.join(DEADLINE_S)
        assert not sender.is_alive()
        stored = sum(max_offset(broker.broker_address, TOPIC, queue_id) for queue_id in range(8))
        assert len(set(sent)) == len(sent) == stored
        assert old.getpeercert() is not None
        old.settimeout(0.01)
        with pytest.raises(TimeoutError):
            old.recv(1)  # it is still open


def test_what_is_of_no_use_is_told_once_and_the_old_one_stays(
    broker: MqcoreBroker, authority: Authority, shown: Pair
) -> None:
    context = authority.client()
    put(authority.sign("/CN=good"), shown)
    await_name(broker, context, "good")
    told = broker.child.log.read_text().count("are of no use")
    put(Pair(authority.sign("/CN=bad").certificate, authority.sign().key), shown)
    wait_until(lambda: broker.child.log.read_text().count("are of no use") >= told + 2, DEADLINE_S, "both watches tell")
    assert "key values mismatch" in broker.child.log.read_text()
    # A worker that is started anew has the good one, too.
    await_successor(broker, "send", kill_worker(broker, "send"))
    await_name(broker, context, "good")
    assert broker.child.log.read_text().count("are of no use") == told + 2
    put(authority.sign("/CN=better"), shown)
    await_name(broker, context, "better")
