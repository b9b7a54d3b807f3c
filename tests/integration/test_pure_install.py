"""An installation without the extensions, by wish or for want of a compiler: the client works on their Python twins."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.client_helpers import RunningBroker, make_topic

ROOT = Path(__file__).resolve().parents[2]
BUILD_S = 1200.0
NAMES_A_KERNEL = re.compile(r"^ *(from|import) mqcore\._fast", re.MULTILINE)

PROGRAM = """
import logging, sys
logging.basicConfig(format="%(message)s")
from mqcore.client import Client, Message
with Client(sys.argv[1]) as mq, mq.producer("P") as producer:
    producer.send(Message(sys.argv[2], b"alone"))
    producer.send_soon(Message(sys.argv[2], b"in a batch", tag="a")).result(60)
    with mq.consumer("G_" + sys.argv[2], sys.argv[2], from_where="earliest") as consumer:
        print(sorted(message.body.decode() for _, message in zip(range(2), consumer)))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run *command* without anything of this tree in its way."""
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **(env or {})}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({"MQ_BUILD_EXTENSIONS": "0"}, id="refused"),
        pytest.param({"CC": "false"}, id="no compiler"),
    ],
)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with mqcore built from this tree, and this one's other packages; its interpreter."""
    place = tmp_path_factory.mktemp("pure")
    source = place / "source"
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    if (generated := ROOT / "build" / "cython").exists():
        shutil.copytree(generated, source / "build" / "cython", copy_function=shutil.copy2)
    pip = (sys.executable, "-m", "pip")
    offline = ("--no-deps", "--no-index", "--quiet")
    run(*pip, "wheel", *offline, "--no-build-isolation", "-w", place, source, cwd=place, env=request.param)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        assert not [name for name in opened.namelist() if name.endswith(".so")]
    run(sys.executable, "-m", "venv", "--without-pip", place / "venv", cwd=place)
    interpreter = place / "venv" / "bin" / "python"
    run(*pip, "--python", interpreter, "install", *offline, wheel, cwd=place)
    (packages,) = place.glob("venv/lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return interpreter


def test_a_client_sends_and_receives_and_says_that_it_is_slow(
    installed: Path, broker: RunningBroker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    topic = make_topic(broker, request.node.name)
    done = run(installed, "-c", PROGRAM, broker.name_server, topic, cwd=tmp_path)
    assert done.stdout.strip() == "['alone', 'in a batch']"
    assert done.stderr.count("the extensions are not built: their Python twins do the work") == 1


def test_a_broker_says_what_it_lacks(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run([installed, "-m", "mqcore.broker"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("a broker needs the extensions, which are not built: install a C compiler")


def test_the_client_s_unit_tests_hold_for_the_twins(installed: Path, tmp_path: Path) -> None:
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    modules = sorted((tmp_path / "tests" / "unit").glob("test_client_*.py"))
    # Who compares a kernel with its twin needs both.
    alone = [str(module) for module in modules if not NAMES_A_KERNEL.search(module.read_text())]
    assert len(alone) > 20
    done = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *alone, cwd=tmp_path)
    assert re.search(r"[0-9]{3} passed", done.stdout)
