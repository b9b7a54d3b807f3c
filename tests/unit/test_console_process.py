"""What a broker looks at before it has a console served: the extra, the port, and who could reach it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import pytest

from mqcore.broker import console_process
from mqcore.broker.console_handover import ConsoleHandover
from mqcore.broker.console_process import EXTRA_PACKAGES, ConsoleProcess, password_of, wanted_console
from mqcore.client.settings.configuration import from_environment
from mqcore.config import Settings, load
from mqcore.config.passwords import CONSOLE_PASSWORD_VARIABLE
from mqcore.console.hosted import tls_settings
from mqcore.errors import ConfigError
from tests.rigs.ports import free_port

PASSWORD: Final = "correct horse"
DEADLINE_S: Final = 60.0


@pytest.fixture(autouse=True)
def no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONSOLE_PASSWORD_VARIABLE, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    return file


def settings(**properties: str) -> Settings:
    return load(overrides={"consolePort": str(free_port()), **properties}, environment={})


def test_a_console_that_is_off_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in EXTRA_PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)
    assert wanted_console(load(environment={})) is None


@pytest.mark.parametrize("name", EXTRA_PACKAGES)
def test_a_console_without_the_extra_says_which_install_is_missing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    match = rf"consolePort: got 9880, wanted {name}, which is not here: pip install 'mqcore\[console\]'"
    with pytest.raises(ConfigError, match=match):
        wanted_console(settings(consolePort="9880"))


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"consolePort: cannot listen on 127.0.0.1:{at}: Address already in use"):
            wanted_console(settings(consolePort=str(at)))


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"consoleHost: nowhere\.invalid cannot be resolved"):
        wanted_console(settings(consoleHost="nowhere.invalid", consolePasswordFile=__file__))


def test_others_are_let_in_with_a_password_only(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    match = "consoleHost: got 0.0.0.0, which others reach, without a password; wanted consolePasswordFile=FILE"
    with pytest.raises(ConfigError, match=match):
        wanted_console(settings(consoleHost="0.0.0.0"))
    assert password_of(settings()) is None
    assert password_of(settings(consoleHost="0.0.0.0", consolePasswordFile=str(file))) == PASSWORD
    monkeypatch.setenv(CONSOLE_PASSWORD_VARIABLE, "another horse")
    assert password_of(settings(consoleHost="0.0.0.0")) == "another horse"
    assert password_of(settings(consolePasswordFile=str(file))) == PASSWORD


def test_a_password_that_cannot_be_used_is_named(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"consolePasswordFile: cannot read {tmp_path}/none"):
        password_of(settings(consolePasswordFile=f"{tmp_path}/none"))
    file.write_text("short\n")
    with pytest.raises(ConfigError, match="consolePasswordFile: got 5 characters, wanted 8 or more"):
        password_of(settings(consolePasswordFile=str(file)))
    monkeypatch.setenv(CONSOLE_PASSWORD_VARIABLE, "brief")
    with pytest.raises(ConfigError, match="MQCORE_CONSOLE_PASSWORD: got 5 characters"):
        password_of(settings())


def test_what_the_process_is_told_shows_no_secret() -> None:
    told = ConsoleHandover(1, 2, "127.0.0.1", 9880, ["127.0.0.1:9876"], True, PASSWORD, settings().to_json())
    assert ConsoleHandover.of_line(told.line()) == told
    assert told.loaded_settings().mqcore.console_host == "127.0.0.1"
    assert PASSWORD not in repr(told)


def test_the_console_calls_as_its_broker_does_unless_the_environment_says_how() -> None:
    plain, encrypted = settings(), settings(**{"tls.enable": "true", "tls.test.mode.enable": "true"})
    assert tls_settings(plain, {}) == {}
    assert list(tls_settings(encrypted, {})) == ["tls"]
    assert tls_settings(encrypted, {"MQCORE_CLIENT_TLS": "false"}) == {}
    assert from_environment({"MQCORE_CLIENT_TLS": "false"}).values["client"] == {"tls": False}


def test_nothing_of_the_console_is_in_the_brokers_process() -> None:
    code = "import sys, mqcore.broker.__main__, mqcore.broker.group_server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "mqcore.broker.console_process" in loaded
    assert not {
        name for name in loaded if name.partition(".")[0] in EXTRA_PACKAGES or name.startswith("mqcore.console")
    }


# The process, with another program in its place.


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that the process runs; its text is for each test to write."""
    monkeypatch.setattr(console_process, "MODULE", "stand_in")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return tmp_path / "stand_in.py"


async def until(process: ConsoleProcess, *, other_than: int = 0) -> int:
    async with asyncio.timeout(DEADLINE_S):
        while process.pid in (0, other_than):
            await asyncio.sleep(0.01)
    return process.pid


async def test_one_that_is_killed_has_a_successor_and_one_that_dies_young_waits(program: Path) -> None:
    program.write_text("import sys; sys.stdin.read()")
    process = ConsoleProcess(settings(workerRestartBackoffMillis="50"), None)
    process.start(["127.0.0.1:1"])
    try:
        seen = [process.pid]
        for _ in range(3):
            os.kill(seen[-1], signal.SIGKILL)
            seen.append(await until(process, other_than=seen[-1]))
        assert len(set(seen)) == 4
    finally:
        await process.stop()
    assert not any(map(psutil.pid_exists, seen))


async def test_one_that_does_not_stop_is_killed(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_process, "STOP_S", 0.1)
    program.write_text("import time; time.sleep(1000)")
    process = ConsoleProcess(settings(), None)
    process.start(["127.0.0.1:1"])
    pid = process.pid
    await process.stop()
    assert not psutil.pid_exists(pid)
    assert process.pid == 0


async def test_one_that_was_never_started_gives_its_port_back() -> None:
    where = settings()
    process = ConsoleProcess(where, None)
    await process.stop()
    again = ConsoleProcess(where, None)
    await again.stop()
