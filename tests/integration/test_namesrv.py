"""The name server over real sockets: every request code, both body forms, both route forms, liveness, its process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.namesrv.processor import Processor
from mqcore.namesrv.server import NameServer
from mqcore.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
    body_crc32,
)
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import RESPONSE_HEADERS, decode_response, encode_request
from mqcore.transport.client import RemotingClient

ADDRESS = "10.0.0.1:10911"
BROKER: dict[str, Any] = {
    "broker_name": "broker-a",
    "broker_addr": ADDRESS,
    "cluster_name": "DefaultCluster",
    "broker_id": 0,
}
SLAVE = BROKER | {"broker_addr": "10.0.0.2:10911", "broker_id": 1}
HA = "10.0.0.1:10912"
TIMEOUT_S = 30.0


class Caller:
    """Calls one name server by one connection, and names requests in short."""

    def __init__(self, server: NameServer) -> None:
        self.server = server
        self.client = RemotingClient()

    async def call(self, code: RequestCode, body: bytes = b"", version: int = 409, **header: Any) -> RemotingCommand:
        ext_fields = encode_request(code, **header) if header else None
        command = RemotingCommand(code, ext_fields=ext_fields, body=body, version=version)
        return await self.client.invoke(self.server.address, command, TIMEOUT_S)

    async def ok(self, code: RequestCode, body: bytes = b"", version: int = 409, **header: Any) -> RemotingCommand:
        answer = await self.call(code, body, version, **header)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert (answer.ext_fields is not None) == (code in RESPONSE_HEADERS)
        return answer

    async def register(
        self,
        *topics: TopicConfig,
        broker: dict[str, Any] = BROKER,
        counter: int = 1,
        compressed: bool = False,
        **options: Any,
    ) -> RemotingCommand:
        table = {topic.topic_name: topic for topic in topics}
        registration = RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(1795245418426, counter)))
        body = registration.encode_body(compressed=compressed)
        header = {"ha_server_addr": HA, "compressed": compressed, "body_crc32": body_crc32(body)} | options
        return await self.call(RequestCode.REGISTER_BROKER, body, **(broker | header))

    async def route(self, topic: str, version: int = 409, **header: Any) -> RemotingCommand:
        return await self.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, version=version, topic=topic, **header)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    server = NameServer.at("127.0.0.1", 0, tmp_path)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def caller(server: NameServer) -> AsyncIterator[Caller]:
    caller = Caller(server)
    yield caller
    await caller.client.close()


@pytest.fixture
async def second(server: NameServer) -> AsyncIterator[Caller]:
    caller = Caller(server)
    yield caller
    await caller.client.close()


async def until(condition: Callable[[], bool], deadline_s: float = 30) -> None:
    """Wait until *condition* holds; fail after *deadline_s*."""
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.005)


# Routes


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_registered_topic_has_a_route_in_the_form_of_the_client(caller: Caller, compressed: bool) -> None:
    answer = await caller.register(TopicConfig("T", 8, 8), compressed=compressed)
    assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (0, None, {}, b"")
    lenient = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,'
        b'"writeQueueNums":8}]}'
    )
    strict = lenient.replace(b"{0:", b'{"0":')
    for version, header, form in [
        (317, {}, lenient),
        (400, {}, lenient),
        (401, {}, strict),
        (479, {}, strict),
        (317, {"accept_standard_json_only": True}, strict),
        (409, {"accept_standard_json_only": False}, strict),
    ]:
        route = await caller.route("T", version, **header)
        assert (route.code, route.remark, route.ext_fields) == (0, None, None)
        assert route.body == form


async def test_an_unknown_topic_has_no_route(caller: Caller) -> None:
    answer = await caller.route("nowhere")
    assert (answer.code, answer.body) == (ResponseCode.TOPIC_NOT_EXIST, b"")
    assert answer.remark == (
        "No topic route info in name server for the topic: nowhere"
        "\nSee docs/errors.md#topic-does-not-exist for further details."
    )


async def test_a_slave_is_told_its_master(caller: Caller) -> None:
    await caller.register(TopicConfig("T", 8, 8))
    answer = await caller.register(broker=SLAVE)
    assert decode_response(RequestCode.REGISTER_BROKER, answer.ext_fields) == {
        "ha_server_addr": HA,
        "master_addr": ADDRESS,
    }
    route = TopicRouteData.decode((await caller.route("T")).body)
    assert route.broker_datas[0].broker_addrs == {0: ADDRESS, 1: "10.0.0.2:10911"}


async def test_a_damaged_registration_is_refused(caller: Caller) -> None:
    answer = await caller.register(TopicConfig("T"), body_crc32=1)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert (await caller.register(TopicConfig("T"), body_crc32=0)).code == 0
    header = BROKER | {"ha_server_addr": HA}
    for compressed in (False, True):
        broken = await caller.call(RequestCode.REGISTER_BROKER, b"{broken", **header, compressed=compressed)
        assert broken.code == ResponseCode.SYSTEM_ERROR
        assert broken.remark is not None
        assert broken.remark.startswith("ProtocolError: ")


async def test_a_registration_without_body_registers_the_address(caller: Caller) -> None:
    await caller.ok(RequestCode.REGISTER_BROKER, **BROKER, ha_server_addr=HA)
    info = ClusterInfo.decode((await caller.ok(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: ADDRESS}


async def test_a_broker_of_long_ago_registers_its_topics_alone(caller: Caller) -> None:
    wrapper = TopicConfigSerializeWrapper({"T": TopicConfig("T", 3, 3)}, DataVersion(1, 1))
    await caller.ok(RequestCode.REGISTER_BROKER, wrapper.encode(), 36, **BROKER, ha_server_addr=HA)
    assert TopicRouteData.decode((await caller.route("T")).body).queue_datas[0].read_queue_nums == 3


async def test_missing_header_fields_are_a_system_error(caller: Caller) -> None:
    answer = await caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("HeaderError: header field topic: got nothing, wanted a text")


# Brokers that live and go


async def test_a_broker_that_says_goodbye_is_gone(caller: Caller) -> None:
    await caller.register(TopicConfig("T"))
    await caller.ok(RequestCode.UNREGISTER_BROKER, **BROKER)
    assert (await caller.route("T")).code == ResponseCode.TOPIC_NOT_EXIST
    info = await caller.ok(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert info.body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


async def test_a_broker_whose_connection_closes_is_gone_at_once(caller: Caller, second: Caller) -> None:
    await caller.register(TopicConfig("T"))
    assert (await second.route("T")).code == 0
    await caller.client.close()
    await until(lambda: caller.server.routes.topics() == [])
    assert (await second.route("T")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_silent_broker_is_dropped_and_its_connection_closed(tmp_path: Path) -> None:
    settings = NameServer.at("127.0.0.1", 0, tmp_path).settings.current
    now_ms = [0]
    server = NameServer(settings, clock=lambda: now_ms[0], first_scan_s=0.01, scan_interval_s=0.01)
    await server.start()
    caller = Caller(server)
    version = DataVersion(1795245418426, 1).encode()
    try:
        await caller.register(TopicConfig("T"))
        for _ in range(5):  # it lives as long as it asks
            now_ms[0] += 119_000
            answer = await caller.call(RequestCode.QUERY_DATA_VERSION, version, **BROKER)
            assert answer.ext_fields == {"changed": "false"}
        now_ms[0] += 121_000
        await until(lambda: server.routes.topics() == [])
        await until(lambda: caller.client.connection_of(server.address) is None)
        await caller.register(TopicConfig("T"))
        assert server.routes.topics() == ["T"]
    finally:
        await caller.client.close()
        await server.stop()


async def test_the_data_version_tells_whether_to_register(caller: Caller) -> None:
    version = DataVersion(1795245418426, 1)
    unknown = await caller.ok(RequestCode.QUERY_DATA_VERSION, version.encode(), **BROKER)
    assert (unknown.ext_fields, unknown.body) == ({"changed": "true"}, b"")
    await caller.register(TopicConfig("T"))
    same = await caller.ok(RequestCode.QUERY_DATA_VERSION, version.encode(), **BROKER)
    assert (same.ext_fields, same.body) == ({"changed": "false"}, b'{"counter":1,"timestamp":1795245418426}')
    newer = await caller.ok(RequestCode.QUERY_DATA_VERSION, DataVersion(1, 2).encode(), **BROKER)
    assert (newer.ext_fields, newer.body) == ({"changed": "true"}, b'{"counter":1,"timestamp":1795245418426}')


# Topics, clusters, permissions


async def test_cluster_info_has_bare_numbers_as_keys(caller: Caller) -> None:
    await caller.register(TopicConfig("T"))
    answer = await caller.ok(RequestCode.GET_BROKER_CLUSTER_INFO, version=479)
    assert answer.body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
    expected = {"broker-a": BrokerData("DefaultCluster", "broker-a", {0: ADDRESS})}
    assert ClusterInfo.decode(answer.body).broker_addr_table == expected


async def test_write_permission_is_wiped_and_added(caller: Caller) -> None:
    await caller.register(TopicConfig("A"), TopicConfig("B"))
    wiped = await caller.ok(RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker_name="broker-a")
    assert wiped.ext_fields == {"wipeTopicCount": "2"}
    assert TopicRouteData.decode((await caller.route("A")).body).queue_datas[0].perm == 4
    added = await caller.ok(RequestCode.ADD_WRITE_PERM_OF_BROKER, broker_name="broker-a")
    assert added.ext_fields == {"addTopicCount": "2"}
    assert TopicRouteData.decode((await caller.route("A")).body).queue_datas[0].perm == 6
    nothing = await caller.ok(RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker_name="unknown")
    assert nothing.ext_fields == {"wipeTopicCount": "0"}


async def test_topic_lists(caller: Caller) -> None:
    await caller.register(*(TopicConfig(f"flag{flag}", topic_sys_flag=flag) for flag in range(4)))
    topics = ["flag0", "flag1", "flag2", "flag3"]
    for code, header, expected in [
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, topics),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}, topics),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "unknown"}, []),
        (RequestCode.GET_UNIT_TOPIC_LIST, {}, ["flag1", "flag3"]),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, {}, ["flag2", "flag3"]),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}, ["flag2"]),
    ]:
        answer = await caller.ok(code, **header)
        assert TopicList.decode(answer.body) == TopicList(expected), code
    system = await caller.ok(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert system.body == b'{"brokerAddr":"10.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}'


async def test_a_topic_is_deleted(caller: Caller) -> None:
    await caller.register(TopicConfig("A"), TopicConfig("B"))
    await caller.ok(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="A", cluster_name="other")
    assert (await caller.route("A")).code == 0
    await caller.ok(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="A", cluster_name="DefaultCluster")
    await caller.ok(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="B")
    assert (await caller.route("A")).code == (await caller.route("B")).code == ResponseCode.TOPIC_NOT_EXIST


# Key-value tables and order


async def test_values_are_kept_over_a_restart(caller: Caller, tmp_path: Path) -> None:
    await caller.ok(RequestCode.PUT_KV_CONFIG, namespace="N", key="k", value="v 中")
    again = NameServer.at("127.0.0.1", 0, tmp_path)
    await again.start()
    other = Caller(again)
    try:
        answer = await other.ok(RequestCode.GET_KV_CONFIG, namespace="N", key="k")
        assert answer.ext_fields == {"value": "v 中"}
        await other.ok(RequestCode.DELETE_KV_CONFIG, namespace="N", key="k")
        missing = await other.call(RequestCode.GET_KV_CONFIG, namespace="N", key="k")
        assert (missing.code, missing.ext_fields) == (ResponseCode.QUERY_NOT_FOUND, {})
        assert missing.remark == "No config item, Namespace: N Key: k"
    finally:
        await other.client.close()
        await again.stop()


async def test_a_namespace_is_listed(caller: Caller) -> None:
    missing = await caller.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="N")
    assert (missing.code, missing.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: N")
    await caller.ok(RequestCode.PUT_KV_CONFIG, namespace="N", key="k", value="v")
    assert (await caller.ok(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="N")).body == b'{"table":{"k":"v"}}'
    await caller.ok(RequestCode.DELETE_KV_CONFIG, namespace="M", key="absent")


async def test_order_configuration_reaches_brokers_always_and_clients_when_enabled(
    caller: Caller, server: NameServer
) -> None:
    await caller.ok(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
    registered = await caller.register(TopicConfig("T"))
    assert KVTable.decode(registered.body) == KVTable({"T": "broker-a:4"})
    assert b"orderTopicConf" not in (await caller.route("T")).body
    await caller.ok(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n")
    assert b'"orderTopicConf":"broker-a:4","queueDatas"' in (await caller.route("T")).body


# Settings


async def test_settings_are_read_and_changed(caller: Caller, tmp_path: Path) -> None:
    before = (await caller.ok(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert "orderMessageEnable=false\n" in before
    assert f"kvConfigPath={tmp_path / 'kvConfig.json'}\n" in before
    await caller.ok(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\nnobodyKnowsThis=1\n")
    after = (await caller.ok(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert after == before.replace("orderMessageEnable=false", "orderMessageEnable=true")
    assert (tmp_path / "namesrv.properties").read_text() == "orderMessageEnable=true\n"


@pytest.mark.parametrize(
    "key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "listenPort", "bindAddress"]
)
async def test_settings_that_outsiders_may_not_change(caller: Caller, tmp_path: Path, key: str) -> None:
    before = await caller.ok(RequestCode.GET_NAMESRV_CONFIG)
    changes = f"orderMessageEnable=true\n{key}=/tmp\n".encode()
    answer = await caller.call(RequestCode.UPDATE_NAMESRV_CONFIG, changes)
    words = "Can not update config path" if key.endswith("Path") else "Can not update config in black list."
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, words)
    assert (await caller.ok(RequestCode.GET_NAMESRV_CONFIG)).body == before.body
    assert not (tmp_path / "namesrv.properties").exists()


async def test_a_wrong_value_changes_nothing(caller: Caller) -> None:
    before = await caller.ok(RequestCode.GET_NAMESRV_CONFIG)
    answer = await caller.call(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=perhaps\n")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "orderMessageEnable" in answer.remark
    assert (await caller.ok(RequestCode.GET_NAMESRV_CONFIG)).body == before.body


# What it does not know


@pytest.mark.parametrize("code", [0, 1, 10, 34, 901, 904, 200050])
async def test_unknown_codes_are_answered(caller: Caller, code: int) -> None:
    answer = await caller.client.invoke(caller.server.address, RemotingCommand(code), TIMEOUT_S)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    mistaken = ": this is a name server, and that is for a broker" if code in (10, 34) else ""
    assert answer.remark == f" request type {code} not supported{mistaken}"


def test_every_name_server_code_has_a_handler(tmp_path: Path) -> None:
    server = NameServer.at("127.0.0.1", 0, tmp_path)
    handlers = Processor(server.routes, server.kv_config, server.settings).handlers
    codes = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327}
    assert set(handlers) == codes


# The process


class Process:
    """A name server of its own, as an administrator starts it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def boot_line(self) -> str:
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), 60)).decode()

    async def read_again(self) -> None:
        """Have it read its files again, and wait until it says that it has."""
        assert self._process.stderr is not None
        self._process.send_signal(signal.SIGHUP)
        while "settings read again changed=none" not in (line := await self._process.stderr.readline()).decode():
            assert line, "it has ended"

    async def stop(self, number: int) -> tuple[int, str]:
        """Send a signal; return the exit status and what was logged."""
        self._process.send_signal(number)
        _, errors = await asyncio.wait_for(self._process.communicate(), 60)
        assert self._process.returncode is not None
        return self._process.returncode, errors.decode()

    async def finished(self) -> tuple[int, str]:
        _, errors = await asyncio.wait_for(self._process.communicate(), 60)
        assert self._process.returncode is not None
        return self._process.returncode, errors.decode()


async def run(*arguments: str) -> Process:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "mqcore.namesrv",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    return Process(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_boots_serves_and_stops(tmp_path: Path, number: int) -> None:
    process = await run("--port", "0", "--dir", str(tmp_path), "--set", "bindAddress=127.0.0.1")
    line = await process.boot_line()
    found = re.fullmatch(r"The Name Server boot success\. serializeType=JSON, address (127\.0\.0\.1:\d+)\n", line)
    assert found is not None, line
    client = RemotingClient()
    try:
        answer = await client.invoke(found[1], RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_S)
        assert answer.code == 0
        await process.read_again()
        status, log = await process.stop(number)
    finally:
        await client.close()
    assert status == 0, log
    assert "Traceback" not in log


async def test_a_port_in_use_ends_the_start(server: NameServer, tmp_path: Path) -> None:
    process = await run("--port", str(server.port), "--dir", str(tmp_path), "--set", "bindAddress=127.0.0.1")
    status, log = await process.finished()
    assert status == 255
    assert "cannot start" in log
    assert "Traceback" not in log


async def test_a_broken_table_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("{")
    process = await run("--port", "0", "--dir", str(tmp_path), "--set", "bindAddress=127.0.0.1")
    status, log = await process.finished()
    assert status == 255
    assert "kvConfig.json" in log
