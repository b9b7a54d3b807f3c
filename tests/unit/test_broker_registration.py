"""Registration against a server that records what name servers would see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from broker_ports import BrokerRig, settle

from mqcore.broker import registration
from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.client import RemotingClient
from mqcore.transport.connection import Connection
from mqcore.transport.server import RemotingServer
from tests.waiting import wait_until


class RecordingNameServer:
    """Answers like a name server and keeps every request."""

    def __init__(self) -> None:
        self.requests: list[RemotingCommand] = []
        self.order_topics: dict[str, str] | None = None
        self.changed = "false"
        self.refuses = False
        self.arrived = asyncio.Event()
        self.server = RemotingServer("127.0.0.1", 0, self.handle)

    async def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        self.requests.append(request)
        self.arrived.set()
        if request.code == RequestCode.QUERY_DATA_VERSION:
            return request.reply(ext_fields={"changed": self.changed})
        if self.refuses:
            return request.reply(ResponseCode.SYSTEM_BUSY, "not now")
        body = b"" if self.order_topics is None else KVTable(self.order_topics).encode()
        return request.reply(ext_fields={}, body=body)

    async def taken(self, code: RequestCode) -> RemotingCommand:
        """Wait for a request with *code* and take it out."""
        async with asyncio.timeout(60):
            while True:
                for request in self.requests:
                    if request.code == code:
                        self.requests.remove(request)
                        return request
                self.arrived.clear()
                await self.arrived.wait()


@pytest.fixture
async def name_server() -> AsyncIterator[RecordingNameServer]:
    name_server = RecordingNameServer()
    await name_server.server.start()
    yield name_server
    await name_server.server.stop()


@pytest.fixture
async def rig(tmp_path: Path, name_server: RecordingNameServer) -> AsyncIterator[BrokerRig]:
    client = RemotingClient()
    rig = BrokerRig(tmp_path, client, namesrvAddr=name_server.server.address)
    yield rig
    await rig.broker.registration.close()
    await client.close()


def registered(request: RemotingCommand) -> RegisterBrokerBody:
    ext = request.ext_fields or {}
    assert int(ext["bodyCrc32"]) == body_crc32(request.body)
    return RegisterBrokerBody.decode_body(request.body, compressed=ext["compressed"] == "true")


async def test_a_start_registers_every_topic(rig: BrokerRig, name_server: RecordingNameServer) -> None:
    await rig.create_topic("orders")
    await rig.core.start()
    request = await name_server.taken(RequestCode.REGISTER_BROKER)
    body = registered(request)
    assert request.ext_fields == {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:10912",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": str(body_crc32(request.body)),
    }
    assert not request.is_oneway
    assert set(body.topic_config_serialize_wrapper.topic_config_table) == set(rig.broker.topics.names)
    assert body.topic_config_serialize_wrapper.data_version == rig.broker.topics.version
    assert body.filter_server_list == []
    await rig.core.shutdown()
    goodbye = await name_server.taken(RequestCode.UNREGISTER_BROKER)
    assert goodbye.ext_fields == {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "DefaultCluster",
        "brokerId": "0",
    }


async def test_a_broker_that_left_does_not_unregister_twice(rig: BrokerRig, name_server: RecordingNameServer) -> None:
    await rig.core.leave()
    await rig.core.shutdown()
    assert [request.code for request in name_server.requests] == [RequestCode.UNREGISTER_BROKER]


async def test_order_topics_come_from_the_answer(rig: BrokerRig, name_server: RecordingNameServer) -> None:
    await rig.create_topic("orders")
    name_server.order_topics = {"orders": "broker-a:4"}
    await rig.broker.registration.register_all(check_order=True, oneway=False, force=True)
    assert rig.broker.topics.is_order("orders")
    name_server.order_topics = None
    await rig.broker.registration.register_all(check_order=True, oneway=False, force=True)
    assert rig.broker.topics.is_order("orders")
    name_server.order_topics = {}
    await rig.broker.registration.register_all(check_order=True, oneway=False, force=True)
    assert not rig.broker.topics.is_order("orders")


def creation(topic: str) -> dict[str, object]:
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "order": False,
    }  # fmt: skip


async def created(rig: BrokerRig, name_server: RecordingNameServer, topic: str) -> TopicConfigSerializeWrapper:
    """What is registered when an administrator makes *topic*."""
    assert (await rig.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, creation(topic))).code == 0
    (request,) = name_server.requests
    name_server.requests.clear()
    return registered(request).topic_config_serialize_wrapper


async def test_an_administrators_topic_is_registered_alone_before_the_answer(
    rig: BrokerRig, name_server: RecordingNameServer
) -> None:
    await rig.broker.registration.register_all(check_order=False, oneway=False, force=True)
    name_server.requests.clear()
    for topic in ("orders", "payments"):
        wrapper = await created(rig, name_server, topic)
        assert list(wrapper.topic_config_table) == [topic]
        assert wrapper.data_version == rig.broker.topics.version


async def test_with_a_topic_that_a_name_server_does_not_know_yet_it_is_told_all(
    rig: BrokerRig, name_server: RecordingNameServer
) -> None:
    """It takes topics once for each version: one that came with less would hide the rest."""
    await rig.broker.registration.register_all(check_order=False, oneway=False, force=True)
    name_server.requests.clear()
    rig.broker.topics.on_created = lambda: None  # that registration is late
    await rig.broker.topics.create("made by a message", 1, 6, 0)
    assert {"orders", "made by a message"} <= set((await created(rig, name_server, "orders")).topic_config_table)
    assert list((await created(rig, name_server, "payments")).topic_config_table) == ["payments"]


async def test_a_name_server_that_was_away_is_told_all(rig: BrokerRig, name_server: RecordingNameServer) -> None:
    await rig.broker.registration.register_all(check_order=False, oneway=False, force=True)
    name_server.requests.clear()
    name_server.refuses = True
    await created(rig, name_server, "orders")
    name_server.refuses = False
    assert {"orders", "payments"} <= set((await created(rig, name_server, "payments")).topic_config_table)


async def test_topics_created_by_use_are_registered_soon_and_together(
    rig: BrokerRig, name_server: RecordingNameServer
) -> None:
    await asyncio.gather(rig.send("one"), rig.send("two"))
    request = await name_server.taken(RequestCode.REGISTER_BROKER)
    assert request.is_oneway
    topics = registered(request).topic_config_serialize_wrapper.topic_config_table
    assert {"one", "two"} <= set(topics)
    await settle()
    assert name_server.requests == []


async def test_a_broker_that_is_not_both_readable_and_writeable_says_so_for_every_topic(
    rig: BrokerRig, name_server: RecordingNameServer
) -> None:
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4\n")
    request = await name_server.taken(RequestCode.REGISTER_BROKER)
    topics = registered(request).topic_config_serialize_wrapper.topic_config_table
    assert {config.perm for config in topics.values()} == {4}
    assert topics["BenchmarkTest"].read_queue_nums == 1024
    config = rig.broker.topics.find("BenchmarkTest")
    assert config is not None
    assert config.perm == 6


@pytest.mark.parametrize(("changed", "registrations"), [("true", 1), ("false", 0)])
async def test_without_force_only_a_changed_version_registers(
    rig: BrokerRig, name_server: RecordingNameServer, changed: str, registrations: int
) -> None:
    name_server.changed = changed
    await rig.broker.registration.register_all(check_order=False, oneway=False, force=False)
    question = await name_server.taken(RequestCode.QUERY_DATA_VERSION)
    assert DataVersion.decode(question.body) == rig.broker.topics.version
    assert len(name_server.requests) == registrations


async def test_a_compressed_registration_reads_back(rig: BrokerRig, name_server: RecordingNameServer) -> None:
    await rig.broker.settings.update({"compressedRegister": "true"})
    await rig.broker.registration.register_all(check_order=False, oneway=False, force=True)
    request = await name_server.taken(RequestCode.REGISTER_BROKER)
    assert "TBW102" in registered(request).topic_config_serialize_wrapper.topic_config_table


async def test_a_name_server_that_did_not_answer_is_told_again_soon(
    rig: BrokerRig, name_server: RecordingNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "AGAIN_S", 0.01)
    name_server.refuses = True
    await rig.broker.registration.register_all(check_order=False, oneway=False, force=True)
    for _ in range(3):
        await name_server.taken(RequestCode.REGISTER_BROKER)
    assert not rig.broker.registration.is_known
    await rig.create_topic("orders")
    name_server.refuses = False
    name_server.requests.clear()
    request = await name_server.taken(RequestCode.REGISTER_BROKER)
    assert "orders" in registered(request).topic_config_serialize_wrapper.topic_config_table
    await asyncio.to_thread(wait_until, lambda: rig.broker.registration.is_known)
    await asyncio.sleep(0.1)
    assert name_server.requests == [], "who has answered is left alone"


@pytest.mark.parametrize("oneway", [True, False])
async def test_a_name_server_that_was_away_is_told_again_soon(
    rig: BrokerRig, name_server: RecordingNameServer, monkeypatch: pytest.MonkeyPatch, *, oneway: bool
) -> None:
    monkeypatch.setattr(registration, "AGAIN_S", 0.01)
    await name_server.server.stop()
    await rig.broker.registration.register_all(check_order=False, oneway=oneway, force=True)
    host, _, port = name_server.server.address.rpartition(":")
    name_server.server = RemotingServer(host, int(port), name_server.handle)
    await name_server.server.start()
    assert not (await name_server.taken(RequestCode.REGISTER_BROKER)).is_oneway


async def test_who_has_said_good_bye_does_not_register_again(
    rig: BrokerRig, name_server: RecordingNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "AGAIN_S", 0.05)
    name_server.refuses = True
    await rig.broker.registration.register_all(check_order=False, oneway=False, force=True)
    await rig.core.leave()
    # What was under way, and fails now.
    await rig.broker.registration.register_all(check_order=False, oneway=False, force=True)
    name_server.refuses = False
    name_server.requests.clear()
    await asyncio.sleep(0.3)
    assert name_server.requests == []


async def test_who_leads_a_failover_group_is_registered_until_it_is_heard(
    rig: BrokerRig, name_server: RecordingNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "AGAIN_S", 0.01)
    name_server.refuses = True
    rig.broker.registration._group = SimpleNamespace(registered_id=0, epoch=7)
    rig.broker.registration.register_soon()
    assert not (await name_server.taken(RequestCode.REGISTER_BROKER)).is_oneway
    name_server.refuses = False
    assert (await name_server.taken(RequestCode.REGISTER_BROKER)).ext_fields["brokerId"] == "0"
    await asyncio.to_thread(wait_until, lambda: rig.broker.registration.is_known)


async def test_a_name_server_that_is_away_stops_nothing(rig: BrokerRig, name_server: RecordingNameServer) -> None:
    await name_server.server.stop()
    await rig.core.start()
    assert (await rig.send("fresh")).code == 0
    await rig.core.shutdown()
