"""Against Apache's broker: what mqcore's own does not ask for, keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest

from mqcore.codes import ResponseCode
from mqcore.errors import BrokerError
from mqcore.spark import connection
from mqcore.spark.errors import SinkError
from mqcore.spark.settings import sink_settings
from mqcore.spark.sink_keys import RandomKeys
from mqcore.spark.sink_rows import TaskRows
from tests.rigs import ApacheServer, apache, maven, wire
from tests.spark.helpers import FAST, bodies_of, read
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=maven.missing_tools() or "Maven is there"),
]

COUNT = 3000
KEYS = """
globalWhiteRemoteAddresses:
accounts:
- accessKey: spark-job
  secretKey: s3cret/with:signs
  whiteRemoteAddress:
  admin: true
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
WITH_KEYS = {"accessKey": "spark-job", "secretKey": "s3cret/with:signs"}


@pytest.fixture(autouse=True)
def no_links_are_kept() -> Iterator[None]:
    yield
    connection.close_idle_links()


def body(number: int) -> bytes:
    return b"%07d" % number


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """A broker that wants keys."""
    store = tmp_path_factory.mktemp("acl") / "store"
    conf = store.with_name(store.name + ".apache") / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(KEYS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apache, "serves", refuses)
        server = ApacheServer("4.9.8", store, {"aclEnable": "true"})
    with server:
        yield server


def refuses(name_server: str, broker: str) -> bool:
    """Whether the broker is registered and answers; the question has no keys, so with a refusal."""
    addresses = {address for ids in wire.registered_brokers(name_server).values() for address in ids.values()}
    try:
        return broker in addresses and wire.call(broker, wire.GET_BROKER_RUNTIME_INFO).code == ResponseCode.SYSTEM_ERROR
    except OSError:
        return False


def write(server: ApacheServer, topic: str, count: int, **keys: str) -> None:
    settings = sink_settings({"nameServer": server.name_server, "topic": topic, **FAST, "numRetries": "1", **keys})
    with TaskRows(settings, 0, RandomKeys()) as rows:
        rows.send(pa.RecordBatch.from_pydict({"body": pa.array(list(map(body, range(count))), pa.binary())}))
        rows.finish()


def test_a_broker_that_asks_for_keys_is_written_and_read_with_them(guarded: ApacheServer) -> None:
    topic = "Guarded"
    with pytest.raises(SinkError, match=r"AclException|No accessKey"):
        write(guarded, topic, 1)
    write(guarded, topic, COUNT, **WITH_KEYS)
    options = {"subscribe": topic, "group": "spark", **WITH_KEYS}
    wait_until(partial(is_whole, guarded, options), 30, "all that was sent can be read")
    with pytest.raises(BrokerError, match=r"AclException|No accessKey"):
        read(guarded, subscribe=topic, numRetries=1)
    with pytest.raises(BrokerError, match=r"AclException|signature"):
        read(guarded, numRetries=1, **{**options, "secretKey": "wrong"})


def is_whole(server: ApacheServer, options: dict[str, str]) -> bool:
    return bodies_of(read(server, **options)) == list(map(body, range(COUNT)))
