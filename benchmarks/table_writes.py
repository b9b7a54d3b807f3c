"""How long the broker's event loop stands while its tables are written: a million offsets, 60,000 topics and groups.

    python -m benchmarks.table_writes

For each kind of table: the longest time that somebody else who wants the loop has to wait for it while one change is
made and written, and how long that takes. What a busy machine adds (threads that wait for a processor) is taken off.

The bar is 10 ms for each. Offsets are chosen, sorted and rendered by a thread that leaves the interpreter alone. Topics
and groups are a frozen view as soon as the change is made: a thread renders the records that have changed, and joins
them with the text of the others. On the machine that it was tried on (loaded): offsets 0.1 to 2.5 ms; topics and groups
0.2 to 5.7 ms, a change in 70 ms. While the loop itself made objects of the whole table for each change, topics took 101
to 132 ms, groups up to 92 ms, and a change 840 and 1,240 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.config_file import ConfigFile
from mqcore.broker.groups import SubscriptionGroupManager
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.offsets import ConsumerOffsetManager
from mqcore.broker.ports import wall_clock_ms
from mqcore.broker.segment.shared_ports import SharedOffsetTable, SharedTopicBoard
from mqcore.broker.topics import TopicConfigManager
from mqcore.config import load
from mqcore.protocol.bodies import SubscriptionGroupConfig, TopicConfig

BAR_S: Final = 0.010
RECORDS: Final = 60_000
GROUPS, TOPICS, QUEUES = 20, 250, 200
ROUNDS: Final = 5
Work = Callable[[int], Awaitable[object]]


def delayed_s() -> float:
    """How long the threads of this process have waited for a processor, seconds, all together."""
    waited = 0
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            waited += int((thread / "schedstat").read_text().split()[1])
    return waited / 1e9


async def longest_stop_s(work: Awaitable[object]) -> float:
    """How long the event loop stands at most while *work* goes on, seconds, without what a busy machine adds."""
    longest = 0.0
    task = asyncio.ensure_future(work)
    while not task.done():
        delayed, before = delayed_s(), time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - before - 0.001 - (delayed_s() - delayed))
    await task
    return longest


async def measure(name: str, work: Work) -> float:
    """Print what *work*, called with numbers that grow, does to the loop; the best of some rounds."""
    stops, took = [], []
    await work(-1)
    for number in range(ROUNDS):
        began = time.monotonic()
        stops.append(await longest_stop_s(work(number)))
        took.append(time.monotonic() - began)
    print(f"{name}: longest stop {min(stops) * 1000:.1f} ms (worst round {max(stops) * 1000:.1f}), "
          f"one change {min(took) * 1000:.0f} ms")  # fmt: skip
    return min(stops)


def offsets_work(segment: SharedSegment, root: Path) -> Work:
    table = SharedOffsetTable(segment)
    for topic in range(TOPICS):
        for queue_id in range(QUEUES):
            for group in range(GROUPS):
                table.put(f"group-{group}", f"topic-{topic}", queue_id, 1000 + queue_id)
    manager = ConsumerOffsetManager(table, ConfigFile(root / "consumerOffset.json"))

    async def write(number: int) -> None:
        table.put("group-0", "topic-0", 0, 5000 + number)
        await manager.persist()

    return write


async def topics_work(live: LiveSettings, segment: SharedSegment, root: Path) -> Work:
    manager = TopicConfigManager(live, ConfigFile(root / "topics.json"), SharedTopicBoard(segment), wall_clock_ms)
    await manager.update(*(TopicConfig(f"topic-{number}", 4, 4, 6) for number in range(RECORDS)))
    return lambda number: manager.update(TopicConfig("topic-7", 4 + number % 2, 4, 6))


async def groups_work(live: LiveSettings, root: Path) -> Work:
    file = ConfigFile(root / "subscriptionGroup.json")
    manager = SubscriptionGroupManager(live, file, lambda _: None, wall_clock_ms)
    await manager.update(*(SubscriptionGroupConfig(group_name=f"group-{number}") for number in range(RECORDS)))
    return lambda number: manager.update(SubscriptionGroupConfig(group_name="group-7", retry_max_times=20 + number))


async def run(root: Path) -> int:
    live = LiveSettings(load(overrides={"bindAddress": "127.0.0.1"}, environment={}), wall_clock_ms)
    segment = SharedSegment.create()
    try:
        stops = [
            await measure("a million offsets", offsets_work(segment, root)),
            await measure(f"{RECORDS} topics", await topics_work(live, segment, root)),
            await measure(f"{RECORDS} groups", await groups_work(live, root)),
        ]
    finally:
        os.close(segment.fd)
    return int(max(stops) > BAR_S)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(run(Path(directory)))


if __name__ == "__main__":
    sys.exit(main())
