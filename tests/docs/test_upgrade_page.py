"""docs/upgrade.md: its commands move a store from Apache's broker to ours and back, in place and with a slave."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_page import Command, sections

from mqcore.java_properties import parse_properties
from mqcore.store.paths import StorePaths
from tests.fault.replicas import await_topic
from tests.rigs import ApacheServer, MqcoreBroker, maven, wire
from tests.rigs.apache import TEST_PROPERTIES
from tests.rigs.ports import free_broker_ports
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "upgrade.md"
RELEASE = "4.9.8"
DATA = "/data/rocketmq"
DEADLINE_S = 120.0
ALSO_FINE = {"mqcore doctor": 1, "mqcore ha": 4}
"""What commands end with that find something here, or are answered by one of two brokers, as the page says."""

needs_apache = pytest.mark.skipif(
    bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"
)


class Machine:
    """Types the commands: Apache's broker and ours, one store, one property file, and one address."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.data = directory / "data"
        self.data.mkdir()
        self._config = directory / "broker.conf"
        given = parse_properties(re.search(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])  # type: ignore[index]
        self._properties = {key: self._here(value) for key, value in given.items() if key != "namesrvAddr"}
        self._properties |= {
            **TEST_PROPERTIES, "mappedFileSizeCommitLog": str(1 << 20), "listenPort": str(free_broker_ports().listen),
            "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
        }  # fmt: skip
        self.apache = ApacheServer(RELEASE, self.data / "store", self._properties)
        self._properties["namesrvAddr"] = self.apache.name_server
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
        self.ours: MqcoreBroker | None = None

    def _here(self, text: str) -> str:
        return text.replace(DATA, str(self.data)).replace("broker.conf", str(self._config))

    def type(self, command: Command) -> None:
        """Carry out one line of the page and compare what it prints."""
        match shlex.split(command.words.removesuffix("&")):
            case ["sh", "bin/mqshutdown", "broker"]:
                self.apache.broker.stop()
            case ["sh", "bin/mqbroker", "-c", _]:
                self.apache.start_again()
            case ["kill", "-TERM", "%1"]:
                assert self.ours is not None
                self.ours.stop()
            case ["python", "-m", "mqcore.broker", "-c", name] if command.is_background:
                self._start_ours(name)
            case words:
                command.check(self._run(words))

    def _start_ours(self, name: str) -> None:
        if name == "broker.conf":
            self.ours = MqcoreBroker(self.data / "store", self._properties)
            return
        role = {"slave.conf": "SLAVE", "promoted.conf": "ASYNC_MASTER"}[name]
        port = self.ours.properties["listenPort"] if self.ours else str(free_broker_ports().listen)
        store = self.data / "slave"
        other = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog"), "listenPort": port}
        broker_id = {"brokerRole": role, "brokerId": "1" if role == "SLAVE" else "0"}
        self.ours = MqcoreBroker(store, self._properties | other | broker_id)

    def _run(self, words: list[str]) -> str:
        program = {"mqcore": [sys.executable, "-m", "mqcore"], "python": [sys.executable]}[words[0]]
        line = [*program, *map(self._here, words[1:])]
        done = subprocess.run(
            line, cwd=self._directory, env={**os.environ, "NAMESRV_ADDR": self.apache.name_server},
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert done.returncode in (0, ALSO_FINE.get(" ".join(words[:2]), 0)), f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def await_copy(self) -> None:
        """Wait until the slave has all that its master has, topics included."""
        assert self.ours is not None
        master, slave = self.apache.broker_address, self.ours.broker_address

        def end_of(address: str) -> str:
            return str(wire.call(address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]["commitLogMaxOffset"])

        wait_until(lambda: end_of(slave) == end_of(master), DEADLINE_S, "the slave is not behind")
        await_topic(self.ours, "Rolled")

    def close(self) -> None:
        if self.ours is not None:
            self.ours.kill()
        self.apache.kill()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    running = Machine(tmp_path)
    try:
        yield running
    finally:
        running.close()


def type_all(machine: Machine, title: str) -> None:
    typed = sections(PAGE)[title]
    assert len(typed) > 3
    for command in typed:
        if command.words == "sh bin/mqshutdown broker" and title.startswith("Rolling"):
            machine.await_copy()
        machine.type(command)


@needs_apache
@pytest.mark.compat
@pytest.mark.slow
def test_a_store_moves_to_ours_and_back_in_place(machine: Machine) -> None:
    own = StorePaths.at(machine.data / "store").dispatched.parent
    type_all(machine, "Before")
    assert (machine.data / "backup" / "manifest.json").exists()
    type_all(machine, "In place")
    assert [path.name for path in own.iterdir()] == ["dispatched"]


@needs_apache
@pytest.mark.compat
@pytest.mark.slow
def test_a_slave_of_ours_takes_over_from_apaches_master(machine: Machine) -> None:
    type_all(machine, "Rolling, with a slave")


def own_files() -> set[str]:
    """Names of the files below mqcore/ that the store's code knows."""
    paths = StorePaths.at("/store")
    places = (getattr(paths, name) for name, kind in vars(StorePaths).items() if isinstance(kind, property))
    return {place.name for place in places if isinstance(place, Path) and place.parent == Path("/store/mqcore")}


def test_every_file_of_ours_is_told_with_its_version() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+\.\d+\.\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == own_files()
    assert len(rows) == len(own_files())


def test_links_lead_somewhere() -> None:
    for page in (PAGE, ROOT / "SECURITY.md", ROOT / "docs" / "deploy" / "README.md", ROOT / "docs" / "operations.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"
