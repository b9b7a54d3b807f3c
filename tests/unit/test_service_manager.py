"""What systemd is told, by a socket of its kind."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.service_manager import VARIABLE, ServiceManager


@pytest.fixture(params=["a file", "an abstract name"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """The name as systemd gives it, and who listens there."""
    name = str(tmp_path / "notify") if request.param == "a file" else f"@mqcore-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(name.replace("@", "\0"))
        made.settimeout(10)
        yield name, made


def test_each_notice_is_one_datagram(listener: tuple[str, socket.socket]) -> None:
    name, heard = listener
    environment = {VARIABLE: name, "PATH": "/bin"}
    manager = ServiceManager(environment)
    assert environment == {"PATH": "/bin"}, "a child would speak for its parent"
    manager.ready("serves at 127.0.0.1:10911")
    manager.reloading()
    manager.stopping()
    assert heard.recv(4096) == b"READY=1\nSTATUS=serves at 127.0.0.1:10911"
    reloading, at = heard.recv(4096).decode().split("\n")
    assert reloading == "RELOADING=1"
    assert at.startswith("MONOTONIC_USEC=")
    assert heard.recv(4096) == b"STOPPING=1\nSTATUS=stopping"


def test_without_the_variable_nobody_is_told() -> None:
    ServiceManager({}).ready("serves")


def test_who_cannot_be_told_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({VARIABLE: str(tmp_path / "nobody")}).ready("serves")
    assert "the service manager cannot be told notice=READY=1" in caplog.text
