"""Source and sink over TLS, with keys, against a broker that lets in nobody else."""

from __future__ import annotations

import random
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml

from mqcore.client import Client
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import ConfigError, MQError, RemotingConnectError, RemotingError, RemotingSendError, TlsError
from mqcore.protocol.command import RemotingCommand
from mqcore.spark.batch import BatchReader
from mqcore.spark.cluster import Cluster
from mqcore.spark.connection import borrow, close_idle_links, request
from mqcore.spark.options import Use
from mqcore.spark.schema import schema_of
from mqcore.spark.settings import sink_settings, source_settings
from mqcore.spark.sink_keys import RandomKeys
from mqcore.spark.sink_rows import TaskRows
from mqcore.transport.client_tls import ClientTls
from mqcore.transport.link import BUFFER_SIZE, BlockingLink
from tests.rigs import MqcoreBroker
from tests.rigs.certificates import NO_OPENSSL, OPENSSL, Authority, Pair
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(OPENSSL is None, reason=NO_OPENSSL)

DEADLINE_S = 60.0
SECRET = "s3cret/with:signs"
JOB = {"accessKey": "spark-job", "secretKey": SECRET, "defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"}
OPERATOR = {"accessKey": "operator", "secretKey": SECRET, "admin": True}
COLUMNS = ["queueId", "offset", "body"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    """What is shown to the broker, by Spark and everybody else."""
    return authority.sign("/CN=spark", password="of the key")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority, pair: Pair) -> Iterator[MqcoreBroker]:
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(yaml.safe_dump({"accounts": [JOB, OPERATOR]}))
    settings = authority.sign().server_settings(
        mode="enforcing", need_client_auth="require", authClient="true", trustCertPath=str(authority.certificate)
    )
    settings |= {
        "aclEnable": "true",
        "rocketmqHome": str(home),
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.certificate),
        "tls.client.certPath": str(pair.certificate),
        "tls.client.keyPath": str(pair.key),
        "tls.client.keyPassword": pair.password,
    }
    with MqcoreBroker(tmp_path_factory.mktemp("mq") / "store", settings, tls=authority.client(pair)) as running:
        yield running
    close_idle_links()


@pytest.fixture(scope="module")
def options(broker: MqcoreBroker, authority: Authority, pair: Pair) -> dict[str, str]:
    """What a query gives."""
    return {
        "nameServer": broker.name_server,
        "accessKey": JOB["accessKey"],
        "secretKey": SECRET,
        "group": "spark_group",
        "tls": "true",
        "tls.caFile": str(authority.certificate),
        "tls.certFile": str(pair.certificate),
        "tls.keyFile": str(pair.key),
        "tls.keyPassword": pair.password,
        "retryIntervalMs": "100",
        "numRetries": "100",
    }


@pytest.fixture(scope="module")
def topic(broker: MqcoreBroker, authority: Authority, pair: Pair) -> str:
    with Client(
        broker.name_server,
        access_key=OPERATOR["accessKey"],
        secret_key=SECRET,
        tls=True,
        tls_ca_file=str(authority.certificate),
        tls_cert_file=str(pair.certificate),
        tls_key_file=str(pair.key),
        tls_key_password=pair.password,
    ) as client:
        assert all(error is None for error in client.admin.create_topic("Guarded", read_queues=2).values())
    return "Guarded"


@pytest.fixture(scope="module")
def bodies(options: dict[str, str], topic: str) -> list[bytes]:
    """What the sink has written: bodies of all sizes, more than a link's buffer among them."""
    chance = random.Random(13)
    sizes = (0, 1, 1_000, 16_384, 100_000, BUFFER_SIZE + 1, 1_500_000)
    written = [chance.randbytes(chance.choice(sizes)) for _ in range(60)]
    with TaskRows(sink_settings({**options, "topic": topic}), 0, RandomKeys()) as rows:
        rows.send(pa.RecordBatch.from_pydict({"body": pa.array(written, pa.binary())}))
        rows.finish()
    return written


def read(options: dict[str, str], topic: str) -> list[dict[str, Any]]:
    reader = BatchReader(source_settings({**options, "subscribe": topic}, Use.BATCH), schema_of(COLUMNS))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_what_the_sink_writes_the_source_reads(options: dict[str, str], topic: str, bodies: list[bytes]) -> None:
    wait_until(lambda: len(read(options, topic)) == len(bodies), DEADLINE_S, "what was written can be read")
    assert sorted(row["body"] for row in read(options, topic)) == sorted(bodies)


def test_a_query_of_spark_reads_and_writes(
    spark: SparkSession, options: dict[str, str], topic: str, bodies: list[bytes]
) -> None:
    wait_until(lambda: len(read(options, topic)) == len(bodies), DEADLINE_S, "what was written can be read")
    frame = spark.read.format("rocketmq").options(**options, subscribe=topic).load()
    assert sorted(bytes(row.body) for row in frame.select("body").collect()) == sorted(bodies)
    written = spark.createDataFrame([(bytearray(b"by spark"),)], "body binary")
    written.write.format("rocketmq").options(**options, topic=topic).mode("append").save()
    wait_until(lambda: len(read(options, topic)) == len(bodies) + 1, DEADLINE_S, "what was written can be read")


def cluster(options: dict[str, str], **changes: str | None) -> Cluster:
    given = {name: text for name, text in {**options, "numRetries": "0", **changes}.items() if text is not None}
    return Cluster(source_settings({**given, "subscribe": "T"}, Use.BATCH).calling)


def test_a_certificate_that_is_not_trusted_ends_the_query_at_once(options: dict[str, str], tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger", "stranger")
    with pytest.raises(TlsError, match=r"connect to 127\.0\.0\.1:\d+ failed: TLS: .*certificate"):
        cluster(options, **{"tls.caFile": str(stranger.certificate), "numRetries": "1000"}).topics()


def test_who_shows_no_certificate_is_not_let_in(options: dict[str, str]) -> None:
    without = {"tls.certFile": None, "tls.keyFile": None, "tls.keyPassword": None}
    with pytest.raises(RemotingError):
        cluster(options, **without).topics()


def test_who_speaks_no_tls_is_not_let_in(options: dict[str, str]) -> None:
    plain = {name: None for name in options if name.startswith("tls")}
    with pytest.raises(RemotingError):
        cluster(options, **plain).topics()


def test_who_does_not_check_certificates_needs_no_authority(options: dict[str, str]) -> None:
    assert cluster(options, **{"tls.verify": "false", "tls.caFile": None}).topics()


def test_a_link_is_kept_though_the_server_has_sent_tickets(broker: MqcoreBroker, options: dict[str, str]) -> None:
    tls = source_settings({**options, "subscribe": "T"}, Use.BATCH).calling.tls
    used = set[int]()
    for _ in range(3):
        with borrow(broker.name_server, DEADLINE_S, tls) as link:
            answer = link.call(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
            assert answer.code == ResponseCode.SUCCESS
            used.add(id(link))
    assert len(used) == 1
    close_idle_links()


# A peer of the test's own.


def served(stream: bytes, pieces: random.Random, pair: Pair | None) -> tuple[str, threading.Thread]:
    """A port that sends *stream* to who connects, in pieces, and hangs up; with TLS if it has a *pair*."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as plain:
            plain.settimeout(DEADLINE_S)
            accepted = plain
            if pair is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(pair.certificate, pair.key)
                accepted = context.wrap_socket(plain, server_side=True)
            with accepted:
                at = 0
                while at < len(stream):
                    size = pieces.choice((1, 3, 4096, BUFFER_SIZE, 2 * BUFFER_SIZE))
                    accepted.sendall(stream[at : at + size])
                    at += size
                if pair is None:
                    accepted.recv(1)  # a greeting that it does not understand

    thread = threading.Thread(target=serve)
    thread.start()
    return f"127.0.0.1:{listener.getsockname()[1]}", thread


def test_answers_of_any_size_come_whole_and_none_is_overlooked(authority: Authority, chance: random.Random) -> None:
    """Whoever waits by select looks at has_answer before: what is decrypted already does not show in select."""
    sizes = (0, 1, 100, 20_000, BUFFER_SIZE - 200, BUFFER_SIZE, 3 * BUFFER_SIZE)
    expected = [chance.randbytes(chance.choice(sizes)) for _ in range(25)]
    asked = RemotingCommand(ResponseCode.SUCCESS)
    stream = b"".join(asked.reply(body=body).encode() for body in expected)
    address, thread = served(stream, chance, authority.sign())
    link = BlockingLink(address, DEADLINE_S, ClientTls(str(authority.certificate)).context())
    try:
        for body in expected:
            while not link.has_answer:
                assert select.select([link], [], [], DEADLINE_S)[0], "there is an answer, and select says nothing of it"
                if not link.has_answer:
                    break  # a part of one has come: receive waits for the rest
            assert link.receive().body == body
        with pytest.raises(RemotingSendError, match=r"closed the connection|broke"):
            link.receive()
    finally:
        link.close()
        thread.join(DEADLINE_S)


def test_a_port_without_tls_is_named(chance: random.Random) -> None:
    address, thread = served(b"", chance, None)
    with pytest.raises(RemotingConnectError, match=rf"connect to {address} failed in the TLS handshake .*know TLS"):
        BlockingLink(address, DEADLINE_S, ClientTls(verify=False).context())
    thread.join(DEADLINE_S)


# Options.

GIVEN = {"nameServer": "127.0.0.1:9876", "subscribe": "T"}


@pytest.mark.parametrize(
    ("option", "value"),
    [("tls.caFile", "ca.pem"), ("tls.verify", "false"), ("tls.checkHostname", "false"), ("tls.keyPassword", "p")],
)
def test_options_of_tls_that_would_be_ignored_are_errors(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^option {option} means nothing without tls=true$"):
        source_settings({**GIVEN, option: value}, Use.BATCH)


def test_a_file_that_cannot_be_used_is_named_with_its_option(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    settings = source_settings({**GIVEN, "tls": "true", "tls.caFile": missing, "numRetries": "0"}, Use.BATCH)
    with pytest.raises(MQError, match=rf"tls\.caFile.*{missing}"):
        Cluster(settings.calling).topics()


def test_the_password_of_the_key_is_not_shown() -> None:
    settings = sink_settings({"nameServer": "127.0.0.1:9876", "tls": "true", "tls.keyPassword": "s3cret"})
    assert settings.calling.tls == ClientTls(key_password="s3cret")
    assert "s3cret" not in repr(settings)
