"""TLS as a whole: brokers and name servers in their three modes, told by their settings, and what calls them."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.config import TlsMode
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.blocking import connected
from mqcore.transport.connection import TLS_FAREWELL_S, Connection
from mqcore.transport.door import TlsDoor
from mqcore.transport.server import RemotingServer
from mqcore.transport.tls import ServerMaterial
from tests.rigs.certificates import NO_OPENSSL, OPENSSL, Authority, Pair, trusting
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import GET_BROKER_RUNTIME_INFO, call, registered_brokers

DEADLINE_S = 20 * TLS_FAREWELL_S

pytestmark = pytest.mark.skipif(OPENSSL is None, reason=NO_OPENSSL)


def fast_port_of(broker: str) -> str:
    host, _, port = broker.rpartition(":")
    return f"{host}:{int(port) - 2}"


def ports_of(broker: MqcoreBroker) -> dict[str, str]:
    return {
        "broker": broker.broker_address,
        "fast": fast_port_of(broker.broker_address),
        "name server": broker.name_server,
    }


def ask(address: str, tls: ssl.SSLContext | None) -> int:
    """Any request that both a broker and a name server answer somehow."""
    return call(address, GET_BROKER_RUNTIME_INFO, tls=tls).code


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_pair(authority: Authority) -> Pair:
    return authority.sign(password="open sesame")


@pytest.fixture(scope="module")
def enforcing(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, server_pair: Pair
) -> Iterator[MqcoreBroker]:
    """Everything by TLS only, told by a file as RocketMQ's users have it, and calls to the name server checked."""
    directory = tmp_path_factory.mktemp("enforcing")
    settings = {
        **server_pair.server_settings(need_client_auth="none"),
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.certificate),
    }
    file = directory / "tls.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    properties = {"tls.server.mode": "enforcing", "tls.config.file": str(file)}
    with MqcoreBroker(directory / "store", properties, tls=authority.client()) as broker:
        yield broker


@pytest.mark.parametrize("port", ["broker", "fast", "name server"])
def test_an_enforcing_port_serves_tls_only(enforcing: MqcoreBroker, authority: Authority, port: str) -> None:
    address = ports_of(enforcing)[port]
    ask(address, authority.client())
    with pytest.raises(ConnectionError):
        ask(address, None)
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(address, ssl.create_default_context())


def test_an_enforcing_broker_registers_with_tls(enforcing: MqcoreBroker, authority: Authority) -> None:
    addresses = registered_brokers(enforcing.name_server, authority.client())
    assert addresses["broker-a"]["0"] == enforcing.broker_address


def test_no_password_is_told(enforcing: MqcoreBroker, authority: Authority) -> None:
    listed = call(enforcing.broker_address, 26, tls=authority.client())
    assert b"tls.server.keyPath" in listed.body
    assert b"Password" not in listed.body
    assert b"sesame" not in listed.body + enforcing.child.log.read_bytes()


@pytest.mark.parametrize("port", ["broker", "fast", "name server"])
def test_by_default_a_port_serves_both(broker: MqcoreBroker, port: str) -> None:
    address = ports_of(broker)[port]
    assert ask(address, trusting()) == ask(address, None)


def test_a_certificate_of_its_own_vouches_for_nothing(broker: MqcoreBroker) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate"):
        ask(broker.broker_address, ssl.create_default_context())


def test_disabled_ports_know_no_tls(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", {"tls.server.mode": "disabled"}) as broker:
        for address in ports_of(broker).values():
            ask(address, None)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                ask(address, trusting())


@pytest.mark.parametrize("program", ["mqcore.broker", "mqcore.namesrv"])
def test_a_start_with_certificates_that_cannot_be_used_names_the_file(
    tmp_path: Path, authority: Authority, program: str
) -> None:
    one, other = authority.sign(), authority.sign()
    missing = tmp_path / "missing.pem"
    cases = {
        str(missing): Pair(missing, one.key),
        "key values mismatch": Pair(one.certificate, other.key),
        "is not a PEM file": Pair(Path(sys.executable), one.key),
        "tls.server.certPath": Pair(Path(), one.key),
    }
    for words, pair in cases.items():
        settings = pair.server_settings()
        if pair.certificate == Path():
            settings["tls.server.certPath"] = ""
        given = [f"--set={name}={value}" for name, value in settings.items()]
        place = ["--store", str(tmp_path / "store")] if program == "mqcore.broker" else ["--port", "0"]
        done = subprocess.run(
            [sys.executable, "-m", program, *place, *given], capture_output=True, text=True, timeout=60, check=False
        )
        assert words in done.stderr
        assert done.returncode in (253, 255)
        assert "Traceback" not in done.stderr


async def test_a_peer_that_says_no_farewell_is_let_go_soon() -> None:
    """As Apache's clients do, and who has gone silent: the connection ends, and with it its descriptor."""

    async def answer(connection: Connection, command: RemotingCommand) -> None:
        return None

    arrived: asyncio.Queue[Connection] = asyncio.Queue()
    door = TlsDoor(TlsMode.ENFORCING, ServerMaterial(), DEADLINE_S)
    server = RemotingServer("127.0.0.1", 0, answer, door=door, on_connect=arrived.put_nowait)
    await server.start()
    peer = await asyncio.to_thread(connected, server.address, DEADLINE_S, trusting())
    try:
        async with asyncio.timeout(DEADLINE_S):
            connection = await arrived.get()
            connection.close()
            await connection.wait_closed()
    finally:
        peer.close()
        await server.stop()
