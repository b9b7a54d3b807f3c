"""The console that a broker has served: by a process of its own, with the broker's life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from mqcore.client import Client
from mqcore.errors import MQError
from tests.rigs import MqcoreBroker, make_topic
from tests.rigs.console import PageClient
from tests.rigs.ports import free_port
from tests.waiting import wait_until

DEADLINE_S: Final = 60.0
PASSWORD: Final = "correct horse"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[MqcoreBroker]:
    """One whose console asks for a password, and may change things."""
    directory = tmp_path_factory.mktemp("hosted")
    (directory / "password").write_text(PASSWORD + "\n")
    properties = {"consolePort": str(port), "consolePasswordFile": str(directory / "password")}
    with MqcoreBroker(directory / "store", {**properties, "consoleWriteEnable": "true"}) as running:
        yield running


def consoles(broker: MqcoreBroker) -> list[psutil.Process]:
    """The processes that serve the broker's console."""
    return [child for child in broker.workers() if "mqcore.console.hosted" in child.cmdline()]


def log_in(port: int) -> PageClient:
    client = PageClient(port)
    token = client.get("/login").token
    assert client.post("/login", {"csrf": token, "password": PASSWORD}).status == 303
    return client


def test_pages_are_served_to_who_has_the_password(broker: MqcoreBroker, port: int) -> None:
    assert PageClient(port).get("/").status == 303
    pages = log_in(port)
    assert "broker-a" in pages.get("/brokers").text
    assert value_shown(pages) == str(port)


def value_shown(pages: PageClient) -> str:
    """The value of consolePort as the page of settings has it."""
    words = pages.get("/settings").text.split()
    return words[words.index("consolePort") + 2]


def test_changes_are_allowed_where_the_settings_say_so(broker: MqcoreBroker, port: int) -> None:
    topic, pages = make_topic(broker, "hosted"), log_in(port)
    form = pages.get("/topic", name=topic)
    sent = pages.post(f"/topic/send?name={topic}", {"csrf": form.token, "body": "by the console", "queue": ""})
    assert "Sent, and stored at this place." in pages.follow(sent, "/topic/send").text


def test_it_is_a_process_of_its_own_on_this_machine_alone(broker: MqcoreBroker, port: int) -> None:
    (console,) = consoles(broker)
    assert console.pid != broker.pid
    assert console.name() == "mq-console"
    listening = {link.laddr for link in psutil.Process(broker.pid).net_connections("tcp") if not link.raddr}
    assert [host for host, at in listening if at == port] == ["127.0.0.1"]
    command = " ".join(console.cmdline())
    assert PASSWORD not in command
    assert PASSWORD not in broker.child.log.read_text()


def test_signals_to_the_group_leave_it_to_the_broker(broker: MqcoreBroker, port: int) -> None:
    (console,) = consoles(broker)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        console.send_signal(number)
    assert PageClient(port).get("/healthz").status == 200
    assert [found.pid for found in consoles(broker)] == [console.pid]


def test_one_that_is_killed_comes_back_and_nobody_is_refused(broker: MqcoreBroker, port: int) -> None:
    (console,) = consoles(broker)
    console.kill()
    # The broker has the port: who comes in between waits for the next one.
    assert PageClient(port).get("/healthz").status == 200
    assert [found.pid for found in consoles(broker)] != [console.pid]
    wait_until(lambda: "console died pid=" in broker.child.log.read_text(), DEADLINE_S, "the broker says so")


@pytest.mark.parametrize("name", ["consolePort", "consoleHost", "consolePasswordFile", "consoleWriteEnable"])
def test_its_settings_are_not_changed_while_it_runs(broker: MqcoreBroker, name: str) -> None:
    with Client(broker.name_server) as mq, pytest.raises(MQError, match=name):
        mq.admin.update_broker_config(broker.broker_address, {name: "1"})


def test_it_ends_with_its_broker_in_order(tmp_path: Path) -> None:
    own = free_port()
    with MqcoreBroker(tmp_path / "store", {"consolePort": str(own)}) as broker:
        assert "read-only" in PageClient(own).get("/").text
        broker.stop()  # which raises if a process is left
    with pytest.raises(OSError, match="refused"):
        PageClient(own).get("/healthz")


def test_it_ends_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    own = free_port()
    with MqcoreBroker(tmp_path / "store", {"consolePort": str(own)}) as broker:
        assert PageClient(own).get("/healthz").status == 200
        broker.kill()  # as above
        with pytest.raises(OSError, match="refused"):
            PageClient(own).get("/healthz")


def test_a_start_that_could_not_serve_it_ends_in_one_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mqcore.broker",
        "--store",
        str(tmp_path / "store"),
        "--set",
        "bindAddress=127.0.0.1",
    ]
    options = ["--set", f"consolePort={free_port()}", "--set", "consoleHost=0.0.0.0"]
    environment = {name: value for name, value in os.environ.items() if name != "MQCORE_CONSOLE_PASSWORD"}
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 253
    said = [line for line in done.stderr.splitlines() if "consoleHost" in line]
    assert len(said) == 1
    assert "wanted consolePasswordFile=FILE" in said[0]
    assert "Traceback" not in done.stderr
