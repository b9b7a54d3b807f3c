"""A million committed offsets: their file has the same content, and the event loop does not stand for it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from fast_rig import shared_segment

from mqcore.broker.config_file import ConfigFile
from mqcore.broker.offsets import ConsumerOffsetManager
from mqcore.broker.segment.shared_ports import SharedCounters, SharedOffsetTable
from mqcore.broker.statistics import BrokerStatsManager
from mqcore.protocol import fastjson

MILLION = 1_000_000
GROUPS, TOPICS, QUEUES = 20, 250, 200
STOP_MAX_S = 0.02
LOOKS_MAX = 5
SMALL_S = 0.002
"""To walk over a million rows takes ten milliseconds of a processor."""


def manager(table: SharedOffsetTable, root: Path, with_light: bool) -> ConsumerOffsetManager:
    light = ConfigFile(root / "lmqConsumerOffset.json") if with_light else None
    return ConsumerOffsetManager(table, ConfigFile(root / "consumerOffset.json"), light)


def in_order(text: bytes, *, pretty: bool) -> bytes:
    """What is in *text*, written by fastjson's rules: queue ids are bare there."""
    value = fastjson.loads(text)
    tables = {
        name: {key: {int(number): offset for number, offset in queues.items()} for key, queues in table.items()}
        if name == "offsetTable"
        else table
        for name, table in value.items()
    }
    return fastjson.dumps(tables, pretty=pretty)


def as_read(offsets: ConsumerOffsetManager) -> object:
    return fastjson.loads(fastjson.dumps(offsets.to_json()))


@pytest.mark.parametrize("with_light", [False, True])
@pytest.mark.parametrize("odd", ["", 'gr"oup', "gruppe-ü", "a\\b\x01\n\x7f\x80\x9f\xa0\u2028\u2029\u202a\U0001f600"])
async def test_the_file_says_what_the_table_has(
    tmp_path: Path, with_light: bool, odd: str, chance: random.Random
) -> None:
    name = "lmqConsumerOffset.json" if with_light else "consumerOffset.json"
    (tmp_path / name).write_text('{"offsetTable":{"no-separator":{3:4,1:2},"x@":{}}}')
    with shared_segment() as segment:
        table = SharedOffsetTable(segment)
        offsets = manager(table, tmp_path, with_light)
        offsets.load()
        await offsets.persist()
        assert fastjson.loads((tmp_path / name).read_bytes()) == as_read(offsets)
        for _ in range(300):
            group = chance.choice(["g", "%LMQ%g", "group-2", *([odd] if odd else [])])
            topic = chance.choice(["T", "%LMQ%t", "%RETRY%g"])
            table.put(group, topic, chance.randrange(12), chance.randrange(1 << 40))
        await table.remove("group-2", "T")
        await offsets.persist()
        text = (tmp_path / name).read_bytes()
        written = fastjson.loads(text)
        assert written == as_read(offsets)
        assert text == in_order(text, pretty=True), "escaped in another way than fastjson does"
        answer = await offsets.all_text()
        assert fastjson.loads(answer) == written
        assert answer == in_order(answer, pretty=False)
        assert "T@group-2" not in written["offsetTable"]
        again = manager(SharedOffsetTable(segment), tmp_path, with_light)
        again.load()
        assert as_read(again) == written


async def test_what_was_committed_is_told_once(chance: random.Random) -> None:
    with shared_segment() as segment:
        table = SharedOffsetTable(segment)
        table.put("before", "T", 0, 1)
        segment.set("keeps_metadata", 1)
        assert list(table.take_changed()) == []
        told: dict[tuple[str, str, int], int] = {}
        expected: dict[tuple[str, str, int], int] = {}
        for _ in range(30):
            for _ in range(chance.randrange(400)):
                key = (f"g{chance.randrange(40)}", f"T{chance.randrange(20)}", chance.randrange(100))
                expected[key] = chance.randrange(1 << 40)
                table.put(*key, expected[key])
            if chance.random() < 0.3:
                topic = f"T{chance.randrange(20)}"
                await table.remove(None, topic)
                expected |= {key: -1 for key in expected if key[1] == topic}
            for *key, offset in table.take_changed():
                told[key[0], key[1], key[2]] = offset
            assert list(table.take_changed()) == [], "told twice"
        assert told == expected


async def test_offsets_are_found_by_group_and_topic() -> None:
    with shared_segment() as segment:
        table = SharedOffsetTable(segment)
        rows = {(f"g{number % 3}", f"t{number % 5}", number) for number in range(60)}
        for group, topic, queue_id in rows:
            table.put(group, topic, queue_id, queue_id)
        for group in (None, "g1", "nobody"):
            for topic in (None, "t4", "nothing"):
                wanted = {row for row in rows if group in (None, row[0]) and topic in (None, row[1])}
                assert {row[:3] for row in await table.find(group, topic)} == wanted
        assert sorted(await table.pairs()) == sorted({row[:2] for row in rows})


async def test_offsets_are_removed_by_group_topic_or_both() -> None:
    with shared_segment() as segment:
        table = SharedOffsetTable(segment)
        left = {(f"g{number % 3}", f"t{number % 5}", number) for number in range(60)}
        for group, topic, queue_id in left:
            table.put(group, topic, queue_id, queue_id)
        for gone_group, gone_topic in (("g1", "t2"), ("g0", None), (None, "t4"), ("nobody", None), (None, "nothing")):
            await table.remove(gone_group, gone_topic)
            left = {row for row in left if gone_group not in (None, row[0]) or gone_topic not in (None, row[1])}
            assert {row[:3] for row in table.items()} == left
        assert left


async def test_a_million_offsets_do_not_stop_the_event_loop(tmp_path: Path) -> None:
    with shared_segment() as segment:
        table = SharedOffsetTable(segment)
        for topic in range(TOPICS):
            for queue_id in range(QUEUES):
                for group in range(GROUPS):
                    table.put(f"group-{group}", f"topic-{topic}", queue_id, 1000 + queue_id)
        offsets = manager(table, tmp_path, False)
        statistics = BrokerStatsManager("cluster", True, SharedCounters(segment), lambda: 0)
        for name, work in {
            "persist": offsets.persist, "all": offsets.all_text, "minute": statistics.sample_minutes,
            "pairs": offsets.topics_by_group, "group": lambda: offsets.topics_of("group-3"),
            "topic": lambda: offsets.groups_of("topic-7"), "queues": lambda: offsets.queues("group-3", "topic-7"),
        }.items():  # fmt: skip
            longest = []
            # What the work does to the loop it does each time; what the machine does, seldom twice.
            while not longest or (min(longest) >= STOP_MAX_S and len(longest) < LOOKS_MAX):
                table.put("group-0", "topic-0", 0, len(longest))  # there is something new to be written
                stops = await stops_of(work)
                longest.append(max(stops))
                median = sorted(stops)[len(stops) // 2]
                print(f"{name}: longest stop {longest[-1] * 1000:.1f} ms, median {median * 1000:.1f} ms")
            assert min(longest) < STOP_MAX_S, name
        assert (tmp_path / "consumerOffset.json").stat().st_size > 6 * MILLION
        segment.set("keeps_metadata", 1)
        costs = [cost_of_few_changes(table) for _ in range(LOOKS_MAX)]
        assert min(costs) < SMALL_S, "it looked through all of them"
        assert len(await offsets.queues("group-3", "topic-7")) == QUEUES


def cost_of_few_changes(table: SharedOffsetTable) -> float:
    """What it takes to find two offsets that have changed, s."""
    table.put("group-0", "topic-0", 0, 7)
    table.put("group-19", "topic-249", 199, 9)
    started = time.thread_time()
    changed = sorted(table.take_changed())
    cost = time.thread_time() - started
    assert changed == [("group-0", "topic-0", 0, 7), ("group-19", "topic-249", 199, 9)]
    return cost


def delayed_s() -> float:
    """How long the threads of this process have waited for a processor, seconds, all together."""
    waited = 0
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            waited += int((thread / "schedstat").read_text().split()[1])
    return waited / 1e9


async def stops_of(work: Callable[[], Awaitable[object]]) -> list[float]:
    """How long the event loop stands each time that somebody else wants it while *work* goes on, seconds.

    Without what a busy machine adds to it.
    """
    stops: list[float] = []
    task = asyncio.ensure_future(work())
    while not task.done():
        delayed, before = delayed_s(), time.monotonic()
        await asyncio.sleep(0.001)
        stops.append(max(0.0, time.monotonic() - before - 0.001 - (delayed_s() - delayed)))
    await task
    return stops
