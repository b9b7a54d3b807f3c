"""A broker whose commit log is longer than what it keeps in memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mqcore.client import Client, Message
from mqcore.testing import running_broker
from tests.page_cache import keeps_pages, resident_share
from tests.waiting import wait_until

FILE_SIZE = 8 * 2**20
HOT = 8 * 2**20
BODY_SIZE = 16 * 1024
COUNT = 4096
SLACK = 8 * 2**20
"""What is younger than the grace, let go of in steps, or read by somebody who is catching up."""


def body(number: int) -> bytes:
    return hashlib.sha512(b"%d" % number).digest() * (BODY_SIZE // 64)


def in_memory(log: Path) -> int:
    return sum(round(resident_share(path) * FILE_SIZE) for path in log.iterdir())


def test_old_pages_leave_memory_and_every_message_can_still_be_read(tmp_path: Path) -> None:
    if keeps_pages(tmp_path):
        pytest.skip(f"{tmp_path} lies in memory: pages of its files never leave it")
    settings = {
        "mappedFileSizeCommitLog": str(FILE_SIZE), "commitLogHotBytes": str(HOT), "flushIntervalCommitLog": "50",
    }  # fmt: skip
    log = tmp_path / "store" / "commitlog"
    with running_broker(topics={"Orders": 1}, store=tmp_path / "store", settings=settings) as broker:
        with Client(broker.name_server) as mq, mq.producer(group="orders") as producer:
            for start in range(0, COUNT, 64):
                producer.send_batch([Message("Orders", body(number)) for number in range(start, start + 64)])
        assert COUNT * BODY_SIZE > 3 * (HOT + SLACK)
        # Two files stand ready ahead of what is written.
        wait_until(lambda: in_memory(log) <= HOT + SLACK + 2 * FILE_SIZE, 60, "old pages leave memory")
        with Client(broker.name_server) as mq, mq.consumer("billing", "Orders", from_where="earliest") as consumer:
            for number, message in zip(range(COUNT), consumer, strict=False):
                assert message.queue_offset == number
                assert message.body == body(number)
