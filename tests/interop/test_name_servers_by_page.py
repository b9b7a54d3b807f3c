"""Who is given no name server finds them by a page, by the same URL and in the same form as Apache's own programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mqcore import aio
from mqcore.client import Client, Message
from mqcore.client.errors import MQError
from tests.integration.client_helpers import make_topic
from tests.rigs import MqcoreBroker, RunningBroker
from tests.rigs.address_page import address_page
from tests.rigs.apache import SMALL, write_home
from tests.rigs.maven import admin_class_path
from tests.waiting import wait_until

DEADLINE_S = 60.0


def test_a_client_finds_its_name_servers_by_a_page(shared_broker: RunningBroker) -> None:
    topic = make_topic(shared_broker, "ByPage")
    with address_page(shared_broker.name_server) as page:
        with Client(page.url) as mq, mq.producer("P") as producer:
            assert producer.send(Message(topic, b"x")).offset >= 0
            assert topic in mq.admin.list_topics()
        page.status = 404
        with (
            Client(page.url, unit_name="blue") as mq,
            mq.producer("P") as producer,
            pytest.raises(MQError, match="status 404"),
        ):
            producer.send(Message(topic, b"x"))
        assert page.asked[0] == "/rocketmq/nsaddr"
        assert set(page.asked[1:]) == {"/rocketmq/nsaddr-blue?nofix=1"}


async def test_a_client_goes_on_when_the_page_comes_late(shared_broker: RunningBroker) -> None:
    topic = make_topic(shared_broker, "ByLatePage")
    with address_page("") as page:
        async with aio.Client(page.url) as mq, mq.producer("P") as producer:
            with pytest.raises(MQError, match="wanted host:port"):
                await producer.send(Message(topic, b"x"))
            page.text = shared_broker.name_server
            assert (await producer.send(Message(topic, b"x"))).offset >= 0


def test_a_broker_registers_with_the_name_servers_of_a_page(shared_broker: RunningBroker, tmp_path: Path) -> None:
    with address_page("") as page:
        settings = {
            "fetchNamesrvAddrByAddressServer": "true",
            "rmqAddressServerDomain": page.host,
            "rmqAddressServerSubGroup": "mine",
            "registerNameServerPeriod": "10000",
            "brokerName": "by-page",
            # It has none of its own: where the rig looks for it.
            "namesrvListenPort": shared_broker.name_server.rpartition(":")[2],
            "brokerClusterName": "ByPage",
        }
        page.text = shared_broker.name_server
        with MqcoreBroker(tmp_path / "store", settings), Client(shared_broker.name_server) as mq:
            wait_until(lambda: "by-page" in mq.admin.cluster_info().broker_addr_table, DEADLINE_S, "it is registered")
        assert set(page.asked) == {"/rocketmq/mine"}


@pytest.mark.compat
def test_apaches_tools_read_the_same_page(shared_broker: RunningBroker, tmp_path: Path) -> None:
    with address_page(shared_broker.name_server) as page:
        home = write_home(tmp_path / "home", ["tools"])
        command = [
            "java", *SMALL, f"-Duser.home={home}", f"-Drocketmq.home.dir={home}",
            f"-Drocketmq.namesrv.domain={page.host}",
            "-cp", admin_class_path("4.9.8"), "org.apache.rocketmq.tools.command.MQAdminStartup", "clusterList",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
        assert shared_broker.broker_address in done.stdout, done.stdout + done.stderr
        assert set(page.asked) == {"/rocketmq/nsaddr"}
        with Client(page.url) as mq:
            assert mq.admin.cluster_info().broker_addr_table
        assert set(page.asked) == {"/rocketmq/nsaddr"}
