"""How much memory a process may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore import machine


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of control groups in which this process is in a service of a slice."""
    own = tmp_path / "own"
    own.write_text("1:name=systemd:/old\n0::/system.slice/mqcore-broker.service\n")
    (tmp_path / "groups" / "system.slice" / "mqcore-broker.service").mkdir(parents=True)
    monkeypatch.setattr(machine, "CONTROL_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "OWN_GROUP", own)
    monkeypatch.setattr(machine, "MEMORY_LIMITS", ())
    return tmp_path / "groups"


def test_the_limit_of_a_service_counts(groups: Path) -> None:
    (groups / "system.slice" / "mqcore-broker.service" / "memory.max").write_text("67108864\n")
    (groups / "system.slice" / "memory.max").write_text("max\n")
    assert machine.memory_bytes() == 64 << 20


def test_so_does_a_lower_one_around_it(groups: Path) -> None:
    (groups / "system.slice" / "mqcore-broker.service" / "memory.max").write_text("67108864\n")
    (groups / "system.slice" / "memory.max").write_text("33554432\n")
    assert machine.memory_bytes() == 32 << 20


@pytest.mark.parametrize("said", ["", "1:memory:/old\n", "0::/\n"])
def test_without_one_it_is_the_machine_s(groups: Path, said: str) -> None:
    machine.OWN_GROUP.write_text(said)
    assert machine.memory_bytes() == machine.physical_bytes()
    machine.OWN_GROUP.unlink()
    assert machine.memory_bytes() == machine.physical_bytes()
