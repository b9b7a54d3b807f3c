"""The table of consumer filters: what heart-beats make of it, how filters die and come back, and its file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from broker_ports import START_MS, BrokerRig, MemoryChannel, subscription

from mqcore.bloom import BloomFilter
from mqcore.broker import filter_compiler
from mqcore.broker.consumer_filters import ConsumerFilter
from mqcore.codes import RequestCode
from mqcore.filter.sql import Answer, answer_sql, compile_sql
from mqcore.protocol import fastjson
from mqcore.protocol.bodies import SubscriptionData

DAY_MS = 24 * 3_600_000


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders")
    return rig


def sql(expression: str = "a > 1", version: int = 1, topic: str = "orders") -> SubscriptionData:
    return subscription(topic, expression, version, "SQL92")


def known(rig: BrokerRig, topic: str = "orders") -> ConsumerFilter:
    found = rig.broker.filters.find(topic, "g")
    assert found is not None
    return found


async def test_a_heart_beat_registers_its_filters(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql(version=7), subscription("%RETRY%g")])
    entry = known(rig)
    assert (entry.expression, entry.expression_type, entry.client_version) == ("a > 1", "SQL92", 7)
    assert (entry.born_time, entry.dead_time, entry.is_dead) == (rig.clock(), 0, False)
    assert rig.broker.filters.find("%RETRY%g", "g") is None


async def test_a_newer_version_of_the_same_expression_is_the_same_filter(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql()])
    rig.clock.advance(1000)
    await rig.heart_beat("g", [sql(version=9)])
    assert (known(rig).client_version, known(rig).born_time) == (9, START_MS)


async def test_another_expression_is_another_filter_if_it_is_newer(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql(version=5)])
    rig.clock.advance(1000)
    for version in (4, 5):
        await rig.heart_beat("g", [sql("a > 2", version)])
        assert known(rig).expression == "a > 1"
    await rig.heart_beat("g", [sql("a > 2", 6)])
    assert (known(rig).expression, known(rig).born_time) == ("a > 2", START_MS + 1000)


async def test_what_is_not_understood_is_not_registered_and_takes_the_old_one_away(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql("a >")])
    assert rig.broker.filters.find("orders", "g") is None
    await rig.heart_beat("g", [sql("a > 1", 2)])
    await rig.heart_beat("g", [sql("a >", 3)])
    assert rig.broker.filters.find("orders", "g") is None


async def test_a_filter_dies_with_its_subscription_and_with_its_group_and_comes_back(rig: BrokerRig) -> None:
    await rig.create_topic("bills")
    await rig.heart_beat("g", [sql(), sql(topic="bills")])
    rig.clock.advance(1000)
    await rig.heart_beat("g", [sql()])
    assert (known(rig, "bills").is_dead, known(rig).is_dead) == (True, False)
    assert (await rig.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "client-1", "consumerGroup": "g"})).code == 0
    assert known(rig).dead_time == rig.clock()
    rig.clock.advance(1000)
    await rig.heart_beat("g", [sql(), sql(topic="bills", version=2)])
    assert not known(rig).is_dead
    assert not known(rig, "bills").is_dead
    assert known(rig).born_time == known(rig, "bills").born_time == START_MS


async def test_a_filter_lives_while_one_member_does(rig: BrokerRig) -> None:
    others = MemoryChannel(port=40_002)
    await rig.heart_beat("g", [sql()])
    await rig.heart_beat("g", [sql()], channel=others, client_id="client-2")
    rig.core.on_channel_closed(rig.client)
    assert not known(rig).is_dead
    rig.core.on_channel_closed(others)
    assert known(rig).is_dead


async def test_each_change_asks_for_new_bindings(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql()])
    before = rig.board.epoch(group="g")
    await rig.heart_beat("g", [sql()])
    assert rig.board.epoch(group="g") == before
    await rig.heart_beat("g", [sql("a > 2", 2)])
    assert rig.board.epoch(group="g") > before


async def test_the_file_is_apaches(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql()])
    await rig.broker.filters.persist()
    text = rig.config_text("consumerFilter.json")
    bits = BloomFilter.sized(20, 32).bits_of("g#orders")
    assert text.startswith('{\n\t"filterDataByTopic":{\n\t\t"orders":{\n\t\t\t"groupFilterData":{\n\t\t\t\t"g":{\n')
    assert json.loads(text)["filterDataByTopic"]["orders"] == {
        "groupFilterData": {
            "g": {
                "bloomFilterData": {"bitNum": 112, "bitPos": list(bits)}, "bornTime": START_MS, "clientVersion": 1,
                "consumerGroup": "g", "dead": False, "deadTime": 0, "expression": "a > 1", "expressionType": "SQL92",
                "topic": "orders",
            }
        },
        "topic": "orders",
    }  # fmt: skip


async def test_a_restart_brings_filters_back_dead_and_a_heart_beat_alive(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql()])
    await rig.broker.filters.persist()
    rig.clock.advance(60_000)
    rig.reopen()
    assert known(rig).dead_time == rig.clock() - 30_000
    assert known(rig).compiled is not None
    await rig.heart_beat("g", [sql()])
    assert (known(rig).is_dead, known(rig).born_time) == (False, START_MS)


async def test_a_file_for_another_size_of_bitmap_counts_for_nothing(rig: BrokerRig, tmp_path: Path) -> None:
    await rig.heart_beat("g", [sql()])
    await rig.broker.filters.persist()
    rig.properties["expectConsumerNumUseFilter"] = "64"
    rig.reopen()
    assert rig.broker.filters.by_topic == {}


async def test_a_stored_filter_that_is_not_understood_matches_nothing_until_it_is_corrected(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql()])
    await rig.broker.filters.persist()
    path = rig.root / "store" / "config" / "consumerFilter.json"
    path.write_text(path.read_text().replace("a > 1", "a >"))
    rig.reopen()
    assert known(rig).compiled is None


async def test_a_filter_that_has_been_dead_for_a_day_is_forgotten(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql()])
    rig.core.on_channel_closed(rig.client)
    rig.clock.advance(DAY_MS - 1)
    await rig.broker.filters.persist()
    assert known(rig).is_dead
    rig.clock.advance(1)
    await rig.broker.filters.persist()
    assert rig.broker.filters.by_topic == {}
    assert fastjson.loads(rig.config_text("consumerFilter.json")) == {"filterDataByTopic": {}}


async def test_the_bits_count_from_where_the_bitmaps_have_them(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [sql()])
    asked = [known(rig)]
    before = rig.board.epoch(group="g")
    rig.broker.filters.bits_known_from("orders", asked, 4096)
    assert known(rig).bitmap_from == 4096
    assert rig.board.epoch(group="g") > before
    # An answer about a filter that has become another one meanwhile says nothing of that one.
    rig.clock.advance(1)
    await rig.heart_beat("g", [sql("a > 2", 2)])
    rig.broker.filters.bits_known_from("orders", asked, 8192)
    assert known(rig).bitmap_from == -1


@pytest.mark.parametrize(
    ("rate", "count", "bits", "hashes"), [(20, 32, 112, 3), (10, 128, 616, 4), (1, 1, 16, 7), (99, 1, 8, 1)]
)
def test_the_size_of_a_bloom_filter(rate: int, count: int, bits: int, hashes: int) -> None:
    assert BloomFilter.sized(rate, count) == BloomFilter(hashes, bits)


def test_the_bits_of_a_group_are_apaches() -> None:
    assert BloomFilter.sized(20, 32).bits_of("GF#TopicA") == (45, 91, 84)


async def test_the_event_loop_goes_on_while_a_large_expression_is_compiled(rig: BrokerRig) -> None:
    large = " OR ".join(f"a = {number}" for number in range(2_500))
    compiling = asyncio.create_task(rig.heart_beat("g", [sql(large)]))
    turns = 0
    while not compiling.done():
        await asyncio.sleep(0)
        turns += rig.broker.filters.find("orders", "g") is None
    # Of the turns that a heart-beat takes anyway there are some ten.
    assert turns > 100
    assert known(rig).compiled == compile_sql(large)


async def test_members_that_say_the_same_at_once_are_answered_from_one_compilation(
    rig: BrokerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def answer(expression: str) -> Answer:
        made.append(expression)
        return answer_sql(expression)

    monkeypatch.setattr(filter_compiler, "answer_sql", answer)
    said = [sql("a = 'said by all'")]
    beats = [
        rig.heart_beat("g", said, channel=MemoryChannel(port=number), client_id=f"client-{number}")
        for number in range(1, 6)
    ]
    await asyncio.gather(*beats)
    assert made == ["a = 'said by all'"]
