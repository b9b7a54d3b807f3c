"""``mqcore systemd-unit``: systemd takes what it prints, and its command does what the unit says of it."""

from __future__ import annotations

import configparser
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqcore.admin.command_line import cli
from mqcore.admin.systemd_unit import HIDDEN_HOMES, Server
from tests.rigs.ports import free_broker_ports, free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

DEADLINE_S = 60.0
EXPOSURE_MAX = 20
"""In tenths: systemd calls up to 2.0 safe or OK."""

SYSTEM_CALLS_DEADLINE_S = 300.0
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="not installed: systemd-analyze (Debian's systemd)")


def print_unit(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["systemd-unit", *arguments])


def read_unit(text: str) -> configparser.SectionProxy:
    """The service's part; of a key that comes twice the last."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=["="], strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser["Service"]


@needs_systemd
@pytest.mark.parametrize("server", Server)
@pytest.mark.parametrize("options", [[], ["--memory", "4G", "--state", "/srv/mq 1", "--user", "mq"]], ids=str)
def test_systemd_takes_it_and_finds_little_exposed(server: Server, options: list[str], tmp_path: Path) -> None:
    done = print_unit(server.value, *options)
    assert done.exit_code == 0, done.output
    path = tmp_path / f"mqcore-{server}.service"
    path.write_text(done.stdout)
    verify = subprocess.run([str(ANALYZE), "verify", path], capture_output=True, text=True, check=False)
    # It speaks of what else is wrong with the machine, too.
    assert (verify.returncode, path.name in verify.stderr) == (0, False), verify.stderr
    threshold = f"--threshold={EXPOSURE_MAX}"
    security = subprocess.run(
        [str(ANALYZE), "security", "--offline=true", threshold, path], capture_output=True, text=True, check=False
    )
    assert security.returncode == 0, security.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--state", "var/lib/mq"], "wanted an absolute path"),
        (["--config", "/etc/../root/x"], "wanted an absolute path without .."),
        (["--python", "/opt/\nExecStart=/bin/sh"], "wanted no control characters"),
        (["--user", "a b"], "wanted the name of a user"),
        (["--memory", "much"], "as in 4G"),
        (["controller"], "'broker', 'namesrv'"),
    ],
)
def test_what_cannot_stand_in_a_unit_is_refused(options: list[str], words: str) -> None:
    done = print_unit(*options)
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize("is_linked", [False, True], ids=["itself", "by a link"])
def test_an_interpreter_in_a_home_is_seen_and_said(is_linked: bool, tmp_path: Path) -> None:
    python = link = Path(HIDDEN_HOMES[0]) / "me" / "bin" / "python"
    if is_linked:
        link = tmp_path / "python"
        link.symlink_to(python)
    done = print_unit("--python", str(link))
    assert read_unit(done.stdout)["ProtectHome"] == "read-only"
    assert "--python /opt/mqcore/bin/python" in done.stderr


class Manager:
    """Starts the command of a unit as systemd does, and hears what it says."""

    def __init__(self, unit: configparser.SectionProxy, directory: Path) -> None:
        self.heard: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(directory / "notify"))
        self._socket.setblocking(False)
        for key in ("ExecStartPre", "ExecStart"):
            assert not set(unit.get(key, "")) & set("%$"), "what systemd would replace"
        if "ExecStartPre" in unit:
            subprocess.run(shlex.split(unit["ExecStartPre"]), check=True)
        self.child = Child(
            shlex.split(unit["ExecStart"]),
            log=directory / "server.log",
            env={"NOTIFY_SOCKET": str(directory / "notify")},
        )

    def hears(self, notice: str) -> bool:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.heard.append(self._socket.recv(4096).decode())
        return any(line.startswith(notice) for line in self.heard)

    def await_notice(self, notice: str) -> None:
        def is_heard() -> bool:
            assert self.child.is_alive or self.hears(notice), self.child.error("has ended")
            return self.hears(notice)

        wait_until(is_heard, DEADLINE_S, f"it says {notice}")

    def close(self) -> None:
        self.child.kill()
        self._socket.close()


@pytest.fixture(params=Server)
def started(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """Either server, by its own unit, with a store here."""
    port = free_broker_ports().listen
    lines = {"listenPort": str(port), "bindAddress": "127.0.0.1"}
    if request.param is Server.BROKER:
        lines |= {"namesrvListenPort": str(free_port()), "mappedFileSizeCommitLog": "1048576"}
    config, state = tmp_path / "server.conf", tmp_path / "state"
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    state.mkdir()
    done = print_unit(request.param.value, "--config", str(config), "--state", str(state), "--python", sys.executable)
    manager = Manager(read_unit(done.stdout), tmp_path)
    try:
        yield manager
    finally:
        manager.close()


def test_the_server_says_that_it_is_ready_that_it_reloads_and_that_it_stops(started: Manager) -> None:
    started.await_notice("READY=1\nSTATUS=")
    started.heard.clear()
    os.kill(started.child.pid, signal.SIGHUP)
    started.await_notice("RELOADING=1\nMONOTONIC_USEC=")
    started.await_notice("READY=1\nSTATUS=")
    assert started.child.stop() == 0
    assert started.hears("STOPPING=1")


def allowed_calls() -> set[str]:
    """Names of the system calls that the unit leaves."""
    listed = subprocess.run([str(ANALYZE), "syscall-filter"], capture_output=True, text=True, check=True).stdout
    sets: dict[str, list[str]] = {}
    for line in listed.splitlines():
        if line.startswith("@"):
            members = sets.setdefault(line.strip(), [])
        elif line.startswith("    ") and not line.strip().startswith("#"):
            members.append(line.strip())

    def resolve(name: str) -> set[str]:
        return set().union(*(resolve(member) for member in sets[name])) if name.startswith("@") else {name}

    return (resolve("@system-service") - resolve("@privileged")) | resolve("@default")


@pytest.mark.slow
@needs_systemd
@pytest.mark.skipif(shutil.which("strace") is None, reason="not installed: strace")
def test_a_broker_calls_nothing_that_its_unit_forbids(tmp_path: Path) -> None:
    """From its start over messages, a timer and a backup of its tables to its stop."""
    trace, store = tmp_path / "trace", tmp_path / "store"
    name_server = free_port()
    settings = {
        "listenPort": free_broker_ports().listen, "namesrvListenPort": name_server, "bindAddress": "127.0.0.1",
        "mappedFileSizeCommitLog": 1 << 20, "metricsPort": free_port(),
    }  # fmt: skip
    arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "mqcore.broker", "--store", str(store), *arguments]
    with Child(["strace", "-f", "-qq", "-o", str(trace), *command], log=tmp_path / "log") as child:
        wait_until(lambda: "boot success" in child.log.read_text(), SYSTEM_CALLS_DEADLINE_S, "it serves")
        mqcore = [sys.executable, "-m", "mqcore", "-n", f"127.0.0.1:{name_server}"]
        for words in ("send hello --body x --delay 1s", "consume hello --group first -n 1", "topic create more"):
            subprocess.run([*mqcore, *words.split()], check=True, timeout=SYSTEM_CALLS_DEADLINE_S, capture_output=True)
        os.kill(child.pid, signal.SIGTERM)
        os.kill(int(trace.read_text().split(" ", 1)[0]), signal.SIGTERM)
        child.wait(SYSTEM_CALLS_DEADLINE_S)
    lines = trace.read_text().splitlines()
    called = {line.split(None, 1)[1].partition("(")[0] for line in lines if "(" in line and "<..." not in line}
    assert called - allowed_calls() == set()
    # MemoryDenyWriteExecute: no memory is both.
    assert not [line for line in lines if "PROT_WRITE|PROT_EXEC" in line]
