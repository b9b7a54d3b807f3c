"""A million committed offsets: their file has the same content, and the event loop does not stand for it."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest
from fast_rig import shared_segment

from mqcore.broker.config_file import ConfigFile
from mqcore.broker.offsets import ConsumerOffsetManager
from mqcore.broker.segment.shared_ports import SharedOffsetTable
from mqcore.protocol import fastjson

MILLION = 1_000_000
GROUPS, TOPICS, QUEUES = 20, 250, 200
STOP_MAX_S = 0.1


def manager(table: SharedOffsetTable, root: Path, with_light: bool) -> ConsumerOffsetManager:
    light = ConfigFile(root / "lmqConsumerOffset.json") if with_light else None
    return ConsumerOffsetManager(table, ConfigFile(root / "consumerOffset.json"), light)


def as_read(offsets: ConsumerOffsetManager) -> object:
    return fastjson.loads(fastjson.dumps(offsets.to_json()))


@pytest.mark.parametrize("with_light", [False, True])
@pytest.mark.parametrize("odd", ["", 'gr"oup', "gruppe-ü"])
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
        table.remove("group-2", "T")
        await offsets.persist()
        written = fastjson.loads((tmp_path / name).read_bytes())
        assert written == as_read(offsets)
        assert "T@group-2" not in written["offsetTable"]
        again = manager(SharedOffsetTable(segment), tmp_path, with_light)
        again.load()
        assert as_read(again) == written


def test_offsets_are_found_by_group_and_topic() -> None:
    with shared_segment() as segment:
        table = SharedOffsetTable(segment)
        rows = {(f"g{number % 3}", f"t{number % 5}", number) for number in range(60)}
        for group, topic, queue_id in rows:
            table.put(group, topic, queue_id, queue_id)
        for group in (None, "g1", "nobody"):
            for topic in (None, "t4", "nothing"):
                wanted = {row for row in rows if group in (None, row[0]) and topic in (None, row[1])}
                assert {row[:3] for row in table.items(group, topic)} == wanted


async def test_a_million_offsets_do_not_stop_the_event_loop(tmp_path: Path) -> None:
    with shared_segment() as segment:
        table = SharedOffsetTable(segment)
        for topic in range(TOPICS):
            for queue_id in range(QUEUES):
                for group in range(GROUPS):
                    table.put(f"group-{group}", f"topic-{topic}", queue_id, 1000 + queue_id)
        offsets = manager(table, tmp_path, False)
        stops: list[float] = []
        persist = asyncio.ensure_future(offsets.persist())
        while not persist.done():
            before = time.monotonic()
            await asyncio.sleep(0.001)
            stops.append(time.monotonic() - before)
        await persist
        print(f"longest stop {max(stops) * 1000:.1f} ms, median {sorted(stops)[len(stops) // 2] * 1000:.1f} ms")
        assert max(stops) < STOP_MAX_S
        assert (tmp_path / "consumerOffset.json").stat().st_size > 6 * MILLION
        began = time.monotonic()
        assert len(offsets.queues("group-3", "topic-7")) == QUEUES
        assert time.monotonic() - began < STOP_MAX_S
