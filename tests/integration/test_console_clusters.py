"""The console with access control at the brokers, with a slave, and with a broker that is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil
import pytest

from mqcore.client import Client
from tests.integration.test_acl import ADMIN, SECRET, WORKER, put
from tests.rigs import RunningBroker
from tests.rigs.certificates import NO_OPENSSL, OPENSSL, Authority
from tests.rigs.console import ConsoleServer, PageClient
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.waiting import wait_until

DEADLINE_S: Final = 60.0


def keys(account: dict[str, object]) -> dict[str, str]:
    return {"MQCORE_CLIENT_ACCESS_KEY": str(account["accessKey"]), "MQCORE_CLIENT_SECRET_KEY": SECRET}


def test_accounts_are_shown_to_an_admin_and_secrets_to_nobody(tmp_path: Path) -> None:
    put(tmp_path, ADMIN, WORKER, white=("10.9.8.7",))
    properties = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    with MqcoreBroker(tmp_path / "store", properties) as broker:
        with ConsoleServer(tmp_path, broker.name_server, env=keys(ADMIN)) as console:
            answer = PageClient(console.port).get("/accounts")
            assert answer.status == 200
            for word in ("operator", "worker-1", "Closed=DENY", "ReadOnly=SUB", "all: PUB|SUB", "hidden", "10.9.8.7"):
                assert word in answer.text
            assert SECRET not in answer.html
            assert SECRET not in PageClient(console.port).get("/settings", all=1).html
        with ConsoleServer(tmp_path, broker.name_server, env=keys(WORKER)) as console:
            answer = PageClient(console.port).get("/accounts")
            assert "An admin's account is needed" in answer.text
            assert "operator" not in answer.text
        with ConsoleServer(tmp_path, broker.name_server) as console:
            page = PageClient(console.port).get("/groups")
            assert (page.status, "MQCORE_CLIENT_ACCESS_KEY" in page.text) == (403, True)


def test_a_slave_is_shown_and_missed_when_it_does_not_answer(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "master") as master, ConsoleServer(tmp_path, master.name_server) as console:
        pages = PageClient(console.port)
        of_slave = {"namesrvAddr": master.name_server, "brokerId": "1", "brokerRole": "SLAVE"}
        with MqcoreBroker(tmp_path / "slave", of_slave) as slave, Client(master.name_server) as mq:
            wait_until(lambda: len(mq.admin.brokers()) == 2, DEADLINE_S, "the slave is registered")
            wait_until(lambda: "in sync" in pages.get("/brokers").text, DEADLINE_S, "it is seen to be in sync")
            text = pages.get("/brokers").text
            assert "slave 1" in text
            assert "copies" in text
            # The name server knows it yet: what is killed it would miss at once, by its connection.
            for process in [psutil.Process(slave.pid), *slave.workers()]:
                process.suspend()
            wait_until(lambda: "does not answer" in pages.get("/").text, DEADLINE_S, "it is seen to be gone")
            overview = pages.get("/")
            assert (overview.status, slave.broker_address in overview.text) == (200, True)
            assert pages.get("/brokers").text.count("has not answered within") == 2


@pytest.mark.skipif(OPENSSL is None, reason=NO_OPENSSL)
def test_with_a_certificate_it_speaks_tls_and_its_cookie_is_secure(broker: RunningBroker, tmp_path: Path) -> None:
    pair = Authority(tmp_path).sign()
    options = ("--certificate", str(pair.certificate), "--key", str(pair.key))
    with ConsoleServer(tmp_path, broker.name_server, *options, has_tls=True) as console:
        answer = PageClient(console.port, has_tls=True).get("/")
        assert (answer.status, "Secure" in answer.headers["Set-Cookie"]) == (200, True)
