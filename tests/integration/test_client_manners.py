"""What a library must not do: write files, print, add handlers, leave threads behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.testing import RunningBroker, running_broker
from tests.rigs.patience import PATIENCE_S, SETTINGS

DEADLINE_S = 120.0

PROGRAM = """
import asyncio, logging, sys, threading
from mqcore import aio
from mqcore.client import Client, Message

name_server, dead = sys.argv[1:]
# In development mode event loops warn of each callback that had to wait for a processor, which is nobody's bad manner.
logging.getLogger("asyncio").addFilter(lambda record: not str(record.msg).startswith("Executing %s took"))
with Client(name_server) as mq:
    with mq.producer("p") as producer:
        producer.send(Message("Quiet", b"1"))
        producer.send_soon(Message("Quiet", b"2"))
    with mq.consumer("c", "Quiet", from_where="earliest", message_model="broadcasting") as consumer:
        got = 0
        while got < 2:
            got += len(consumer.receive(timeout_s=30))

async def asynchronous():
    async with aio.Client(name_server) as mq, mq.producer("p") as producer:
        await producer.send(aio.Message("Quiet", b"3"))

asyncio.run(asynchronous())

with Client(dead) as mq:  # nobody is there: many warnings to log
    try:
        mq.queues("Quiet")
    except Exception:
        pass
logging.getLogger("mqcore.client").warning("not to be seen: the program has not set up logging")
assert logging.getLogger().handlers == [], logging.getLogger().handlers
assert all(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("mqcore").handlers)
left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
assert left == [], left
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(topics=["Quiet"]) as broker:
        yield broker


def test_a_client_writes_no_file_prints_nothing_and_leaves_no_thread(broker: RunningBroker, tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    environment = {"HOME": str(home), "PATH": "", **dict.fromkeys(SETTINGS, PATIENCE_S)}
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-X", "dev", "-c", PROGRAM, broker.name_server, "127.0.0.1:9"],
        capture_output=True, text=True, timeout=DEADLINE_S, cwd=work, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")
    assert [*home.rglob("*"), *work.rglob("*")] == []
