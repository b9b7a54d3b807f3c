"""docs/deploy/Containerfile and compose.yaml: what they run, run as they run it.

An image cannot be built without a registry for its base. So the commands of the file are run with what an image gives
them: process numbers of their own, a root that cannot be written, nobody's rights, and one directory.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from mqcore.admin.systemd_unit import STOP_S
from mqcore.config import Program, find, load
from tests.release import containerfile
from tests.release.source_tree import ROOT
from tests.rigs.ports import free_broker_ports, free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

DEADLINE_S = 60.0
VOLUME = Path("/var/lib/mqcore")
COMPOSE = yaml.safe_load((ROOT / "docs" / "deploy" / "compose.yaml").read_text())

# Mounts of its own; all of them read-only but that of the volume; then a user without any right. An interpreter in a
# home that others may not enter is mounted into an empty one.
READ_ONLY = """
set -e
mount --make-rprivate /
if [ -n "$2" ]; then
    mount --bind "$3" "$4"
    mount -t tmpfs -o mode=755 none "$2"
    mkdir -p "$3"
    mount --bind "$4" "$3"
fi
mount --bind "$1" "$1"
mount -o remount,bind,ro /
test ! -w /etc
shift 4
exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def closed_above(path: Path) -> Path | None:
    """The topmost directory above *path* that others may not enter."""
    return next((above for above in reversed(path.parents) if not above.stat().st_mode & 0o001), None)


def missing() -> str:
    """Why nothing can be run so here, empty if it can."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        return "needs root, unshare, setpriv and mount"
    return f"others may not enter {closed_above(ROOT)}" if closed_above(ROOT) else ""


def test_the_image_runs_as_nobody_special_and_what_it_starts_is_there() -> None:
    assert containerfile.words_of("USER").split(":")[0].isdigit(), "by number, so that runAsNonRoot can be checked"
    assert Path(containerfile.words_of("VOLUME")) == VOLUME
    assert containerfile.words_of("STOPSIGNAL") == "SIGTERM"
    assert containerfile.command_of("ENTRYPOINT") == ["python", "-m"]
    module, *words = containerfile.command_of("CMD")
    assert module == "mqcore.broker"
    settings = load(Program.BROKER, overrides=dict([words[3].split("=")]), environment={})
    exposed = set(map(int, containerfile.words_of("EXPOSE").split()))
    ports = {settings.server.listen_port, settings.fast_listen_port, settings.ha_listen_port}
    assert exposed == ports | {settings.mqcore.namesrv_listen_port, settings.mqcore.metrics_port}
    assert f":{settings.mqcore.metrics_port}/healthz" in containerfile.command_of("HEALTHCHECK")[2]
    assert Path(words[1]).is_relative_to(VOLUME)


def test_the_build_takes_what_the_build_needs() -> None:
    """What is copied into the image is tracked, and let through to it."""
    text = containerfile.PATH.read_text()
    copied = [
        word
        for line in text.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    assert {"mqcore", "workers", "spark", "setup.py", "pyproject.toml"} <= set(copied)
    let_through = containerfile.PATH.with_name("Containerfile.dockerignore").read_text().split()
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in let_through or any(Path(name).match(rule[1:]) for rule in let_through if rule[0] == "!"), (
            name
        )


def test_compose_names_settings_that_are_there_and_gives_a_broker_its_time() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        keys = [word.removeprefix("--set=").split("=")[0] for word in service["command"] if word.startswith("--set=")]
        rows = [find(key) for key in keys]
        assert all(row is not None and row.used for row in rows)
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert int(services["broker"]["stop_grace_period"].rstrip("s")) >= STOP_S
    assert services["namesrv"]["healthcheck"]["test"][:2] == ["CMD", "mqcore"]


class Contained:
    """The image's command in a container of sorts, with *volume* for its volume."""

    def __init__(self, directory: Path) -> None:
        self.volume = directory / "volume"
        self.volume.mkdir(mode=0o777)
        self.volume.chmod(0o777)
        aside = directory / "interpreter"
        aside.mkdir()
        self.metrics_port = free_port()
        module, *words = containerfile.command_of("CMD")
        words = [word.replace(str(VOLUME), str(self.volume)).replace("5557", str(self.metrics_port)) for word in words]
        settings = {
            "listenPort": free_broker_ports().listen, "namesrvListenPort": free_port(), "bindAddress": "127.0.0.1",
            "mappedFileSizeCommitLog": 1 << 20,
        }  # fmt: skip
        words += [f"--set={key}={value}" for key, value in settings.items()]
        home = Path(sys.base_prefix)
        spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside = [
            "sh",
            "-c",
            READ_ONLY,
            "container",
            str(self.volume),
            str(closed_above(home) or ""),
            str(home),
            str(aside),
        ]
        entry = [sys.executable, *containerfile.command_of("ENTRYPOINT")[1:]]
        environment = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self.volume)}
        self.child = Child([*spaces, *inside, *entry, module, *words], log=directory / "broker.log", env=environment)

    @property
    def server(self) -> psutil.Process:
        (found, *_) = psutil.Process(self.child.pid).children()
        return found

    def is_healthy(self) -> bool:
        """What the image's HEALTHCHECK says."""
        command, *words = containerfile.command_of("HEALTHCHECK")
        assert command == "python"
        words = [word.replace("5557", str(self.metrics_port)) for word in words]
        done = subprocess.run([sys.executable, *words], capture_output=True, timeout=DEADLINE_S, check=False)
        return done.returncode == 0


@pytest.fixture
def contained() -> Iterator[Contained]:
    # pytest's own directories are its user's alone.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="mqcore-container-") as directory:
        Path(directory).chmod(0o755)
        running = Contained(Path(directory))
        try:
            yield running
        finally:
            running.child.kill()


@pytest.mark.root
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_it_serves_without_rights_on_a_root_that_cannot_be_written_and_stops_in_order(contained: Contained) -> None:
    wait_until(lambda: not contained.child.is_alive or contained.is_healthy(), DEADLINE_S, "it is healthy")
    assert contained.child.is_alive, contained.child.error("has ended")
    wait_until(lambda: "boot success" in contained.child.log.read_text(), DEADLINE_S, "it serves")
    status = Path(f"/proc/{contained.server.pid}/status").read_text()
    assert "CapBnd:\t0000000000000000" in status
    assert contained.server.uids().real == 65534
    os.kill(contained.server.pid, signal.SIGTERM)
    assert contained.child.wait(DEADLINE_S) == 0
    assert not (contained.volume / "store" / "abort").exists()
    assert not contained.is_healthy()
