"""A client's memory does not grow with the number of messages that go through it."""

from __future__ import annotations

import gc

import psutil
import pytest

from mqcore.client import Client, Message
from tests.integration.client_helpers import make_topic
from tests.rigs import RunningBroker

GROWTH_MAX = 24 * 1024 * 1024
"""What resident memory may grow by after the first tenth, bytes: room for arenas, not for what is kept per message."""

ROUND = 20_000
SYNC_SHARE = 100
"""Messages of a round that are waited for one by one."""


def resident_size() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(200_000, id="200,000"),
        pytest.param(10_000_000, id="ten million", marks=pytest.mark.slow),
    ],
)
def test_memory_is_flat_over_many_messages(broker: RunningBroker, count: int) -> None:
    topic = make_topic(broker, f"test_memory_{count}")
    sizes: list[int] = []
    with (
        Client(broker.name_server) as mq,
        mq.producer("P") as producer,
        mq.pull_consumer("G", topic, from_where="earliest", pull_batch_size=32) as consumer,
    ):
        for _ in range(count // ROUND):
            for number in range(ROUND - SYNC_SHARE):
                producer.send_soon(Message(topic, b"%d" % number))
            for _ in range(SYNC_SHARE):
                producer.send(Message(topic, b"one by one"))
            producer.flush()
            received = 0
            while received < ROUND:
                received += len(consumer.poll(5.0))
            assert received == ROUND
            sizes.append(resident_size())
    first = sizes[len(sizes) // 10]
    assert max(sizes) - first < GROWTH_MAX, [size >> 20 for size in sizes]
