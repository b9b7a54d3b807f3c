"""Which failures get a second look, and what decides after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_look import FAILURES_MAX

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
PASSES = "def test_{name}():\n    assert 'passed'\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = fault: kills\naddopts = -p no:cacheprovider\n")
    return tmp_path


def add(project: Path, folder: str, name: str, text: str) -> None:
    path = project / folder / f"test_{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(name=name))


def run(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tests" / "second_look.py", "tests"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_passes_gets_none(project: Path) -> None:
    add(project, "tests/integration", "good", PASSES)
    done = run(project)
    assert done.returncode == 0
    assert "SECOND LOOK" not in done.stdout


def test_what_fails_once_among_processes_passes_and_is_named(project: Path) -> None:
    add(project, "tests/integration", "once", FAILS_ONCE)
    add(project, "tests/unit", "good", PASSES)
    done = run(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed alone: it fails by chance, find out why: tests/integration/test_once.py::test_once" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert done.stdout.count("test session starts") == 2


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
