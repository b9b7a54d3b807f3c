"""The pytest plugin: its fixtures work in somebody else's tests, under warnings that are errors."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240.0

TESTS = """
import pytest
from mqcore.client import Message
from mqcore.testing import assert_received, assert_consumed

@pytest.fixture(scope="session")
def mqcore_broker_settings():
    return {"messageDelayLevel": "1s 1h"}

topics = []

@pytest.mark.parametrize("number", [1, 2])
def test_sending(mqcore_broker, mqcore_client, mqcore_topic, mqcore_group, number):
    topics.append((mqcore_broker, mqcore_topic, mqcore_group))
    with mqcore_client.producer("p") as producer:
        producer.send(Message(mqcore_topic, b"%d" % number))
        producer.send(Message(mqcore_topic, b"later", delay_level=2))
    mqcore_broker.advance(hours=1)
    assert_received(mqcore_broker, mqcore_topic, [str(number), "later"])

def test_one_broker_and_different_topics():
    (broker, topic, group), (other_broker, other_topic, other_group) = topics
    assert broker is other_broker and topic != other_topic and group != other_group

def test_asyncio(mqcore_aio_client, mqcore_topic):
    import asyncio
    async def queues():
        async with mqcore_aio_client as mq:
            return await mq.queues(mqcore_topic)
    assert len(asyncio.run(queues())) == 4
"""


def test_the_fixtures_work_in_other_peoples_tests(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    # Asked from there: what lies in this directory is not installed for others.
    question = "from importlib.metadata import entry_points as e; print(*[p.value for p in e(group='pytest11')])"
    asked = subprocess.run([sys.executable, "-c", question], cwd=tmp_path, capture_output=True, text=True, check=True)
    installed = "mqcore.pytest_plugin" in asked.stdout.split()
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"),
            *("--rootdir", str(tmp_path), *(() if installed else ("-p", "mqcore.pytest_plugin")), str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_the_plugin_is_registered_with_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"mqcore": "mqcore.pytest_plugin"}


def test_the_plugin_imports_nothing_of_the_client_by_itself() -> None:
    program = (
        "import sys, mqcore.pytest_plugin; sys.exit(any(name.startswith('mqcore.client') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=DEADLINE_S).returncode == 0
