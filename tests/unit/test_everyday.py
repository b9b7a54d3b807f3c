"""The everyday run: its shares hold every test, and which failures get a second look."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil
import pytest

from tests.everyday import FAILURES_MAX, SHARES
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
FAILS_ONCE = """
from pathlib import Path
import pytest

def test_{name}():
    been_here = Path(__file__).with_suffix(".txt")
    first = not been_here.exists()
    been_here.write_text("yes")
    assert not first
"""
FAILS_ALWAYS = "def test_{name}():\n    assert not 'in vain'\n"
WAITS = """
import os, time
from pathlib import Path

def test_{name}():
    Path(__file__).with_suffix(".new").write_text(str(os.getpid()))
    Path(__file__).with_suffix(".new").rename(Path(__file__).with_suffix(".pid"))
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.05)
"""
PASSES = "def test_{name}():\n    assert 'passed'\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("integration", "unit", "interop", "compat", "fault"):
        add(tmp_path, f"tests/{folder}", f"good_{folder}", PASSES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = fault: kills\naddopts = -p no:cacheprovider\n")
    return tmp_path


def add(project: Path, folder: str, name: str, text: str) -> None:
    path = project / folder / f"test_{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(name=name))


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
PROGRAM = """
import sys
from tests.everyday import main
sys.exit(main([["tests/integration", "tests/unit"], ["tests/interop", "tests/compat", "tests/fault"]], []))
"""


def run(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=ENVIRONMENT,
    )


def test_every_test_is_in_a_share() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    shared = [folder for share in SHARES for folder in share]
    assert len(shared) == len(set(shared))
    left_out = [
        path
        for top in settings["testpaths"]
        for path in (ROOT / top).rglob("test_*.py")
        if not any(path.is_relative_to(ROOT / folder) for folder in shared) and "node_modules" not in path.parts
    ]
    assert left_out == []


def test_what_passes_gets_none(project: Path) -> None:
    done = run(project)
    assert done.returncode == 0
    assert "SECOND LOOK" not in done.stdout
    assert (done.stdout.count("2 passed"), done.stdout.count("3 passed")) == (1, 1)


def test_what_fails_once_among_processes_passes_and_is_named(project: Path) -> None:
    add(project, "tests/integration", "once", FAILS_ONCE)
    done = run(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed alone: it fails by chance, find out why: tests/integration/test_once.py::test_once" in done.stdout
    assert "1 failed, 2 passed" in done.stdout
    assert done.stdout.count("test session starts") == 3


def test_what_fails_again_fails(project: Path) -> None:
    add(project, "tests/interop", "always", FAILS_ALWAYS)
    done = run(project)
    assert done.returncode == 1
    assert "failed again" in done.stdout


@pytest.mark.parametrize("folder", ["tests/unit", "tests/compat", "tests/fault"])
def test_what_runs_in_one_process_or_tells_of_loss_gets_none(project: Path, folder: str) -> None:
    add(project, folder, "once", FAILS_ONCE)
    done = run(project)
    assert done.returncode == 1
    assert "SECOND LOOK" not in done.stdout


def test_a_fault_test_gets_none_wherever_it_is(project: Path) -> None:
    add(project, "tests/integration", "once", FAILS_ONCE.replace("def test", "@pytest.mark.fault\ndef test"))
    done = run(project)
    assert done.returncode == 1
    assert "SECOND LOOK" not in done.stdout


def test_more_than_two_failures_are_no_accident(project: Path) -> None:
    for number in range(FAILURES_MAX + 1):
        add(project, "tests/integration", f"once_{number}", FAILS_ONCE)
    done = run(project)
    assert done.returncode == 1
    assert "SECOND LOOK" not in done.stdout


def test_a_module_that_cannot_be_imported_gets_none(project: Path) -> None:
    add(project, "tests/integration", "broken", "import nothing_of_this_name\n")
    done = run(project)
    assert done.returncode == 2
    assert "SECOND LOOK" not in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_who_is_told_to_end_ends_both_shares(project: Path, number: signal.Signals) -> None:
    folders = ("tests/unit", "tests/interop")
    for folder in folders:
        add(project, folder, "waits", WAITS)
    pid_files = [project / folder / "test_waits.pid" for folder in folders]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    ) as running:
        try:
            wait_until(lambda: all(path.exists() for path in pid_files), 60, "both shares are at work")
            running.send_signal(number)
            assert running.wait(60) != 0
        finally:
            running.kill()
    assert not any(psutil.pid_exists(int(path.read_text())) for path in pid_files)
