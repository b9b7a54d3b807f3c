"""Delayed messages: due when due, in order, at least once, and never lost between two runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from broker_ports import BrokerRig, settle

from mqcore import clock as machine_clock
from mqcore.broker.ports import PutStatus, QueueUnit
from mqcore.broker.services import delay_levels, system_queues
from mqcore.broker.services.system_queues import Pace, SystemQueues
from mqcore.protocol.names import SCHEDULE_TOPIC
from mqcore.store.queues.ext import ExtUnit, ext_address


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders")
    return rig


@pytest.fixture(autouse=True)
def time_is_real_again() -> Iterator[None]:
    yield
    machine_clock.forget_skips()


async def send_delayed(rig: BrokerRig, body: bytes, level: int = 1) -> None:
    reply = await rig.send("orders", body, e=2, i=f"TAGS\x01a\x02DELAY\x01{level}")
    assert reply.code == 0


async def test_a_message_is_delivered_when_its_time_has_come(rig: BrokerRig) -> None:
    await send_delayed(rig, b"later")
    assert await rig.broker.schedule.deliver_due(1) == 1.0
    rig.clock.advance(999)
    assert await rig.broker.schedule.deliver_due(1) == pytest.approx(0.001)
    assert rig.store.messages("orders", 2) == []
    rig.clock.advance(1)
    assert await rig.broker.schedule.deliver_due(1) == 0.0
    (message,) = rig.store.messages("orders", 2)
    assert message.body == b"later"
    assert await rig.broker.schedule.deliver_due(1) is None


async def test_a_delivered_message_keeps_its_traces_but_is_not_delayed_again(rig: BrokerRig) -> None:
    await send_delayed(rig, b"later")
    rig.clock.advance(1000)
    await rig.broker.schedule.deliver_due(1)
    (message,) = rig.store.messages("orders", 2)
    assert message.properties == {
        "TAGS": "a", "DELAY": "1", "CLUSTER": "DefaultCluster", "REAL_TOPIC": "orders", "REAL_QID": "2",
    }  # fmt: skip
    assert "DELAY" not in rig.store.puts[-1].properties
    assert rig.store.puts[-1].wait_store_ok is False


async def test_messages_of_a_level_come_out_in_order(rig: BrokerRig) -> None:
    for number in range(100):
        await send_delayed(rig, b"%d" % number)
    rig.clock.advance(1000)
    while await rig.broker.schedule.deliver_due(1) is not None:
        pass
    assert [int(message.body) for message in rig.store.messages("orders", 2)] == list(range(100))
    assert rig.broker.schedule.offsets == {1: 100}


async def test_a_refused_delivery_is_tried_again(rig: BrokerRig) -> None:
    await send_delayed(rig, b"later")
    rig.clock.advance(1000)
    rig.store.outcome = PutStatus.OS_PAGECACHE_BUSY
    assert await rig.broker.schedule.deliver_due(1) == system_queues.RETRY_S
    assert rig.broker.schedule.offsets == {}
    rig.store.outcome = PutStatus.PUT_OK
    await rig.broker.schedule.deliver_due(1)
    assert len(rig.store.messages("orders", 2)) == 1


async def test_a_delivery_time_beyond_the_level_counts_as_now(rig: BrokerRig) -> None:
    await send_delayed(rig, b"later")
    rig.clock.advance(-60_000)
    assert await rig.broker.schedule.deliver_due(1) == 0.0
    assert len(rig.store.messages("orders", 2)) == 1


@pytest.mark.parametrize("ext_is_there", [True, False])
async def test_a_delivery_time_in_an_ext_unit_is_kept(rig: BrokerRig, ext_is_there: bool) -> None:
    await send_delayed(rig, b"later")
    (unit,) = rig.store.queues[SCHEDULE_TOPIC, 0]
    ext = ExtUnit(unit.tags_code, unit.tags_code - 1000, b"") if ext_is_there else None
    rig.store.queues[SCHEDULE_TOPIC, 0] = [replace(unit, tags_code=ext_address(0), ext=ext)]
    assert await rig.broker.schedule.deliver_due(1) == 1.0
    assert rig.store.messages("orders", 2) == []
    rig.clock.advance(1000)
    await rig.broker.schedule.deliver_due(1)
    assert [message.body for message in rig.store.messages("orders", 2)] == [b"later"]


async def test_a_record_that_is_gone_is_stepped_over(rig: BrokerRig) -> None:
    await send_delayed(rig, b"gone")
    await send_delayed(rig, b"there")
    del rig.store.records[0]
    rig.clock.advance(1000)
    await rig.broker.schedule.deliver_due(1)
    assert [message.body for message in rig.store.messages("orders", 2)] == [b"there"]


@pytest.mark.parametrize("properties", ["REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010", "KEYS\x01k"])
async def test_a_message_that_may_go_nowhere_does_not_block_its_level(rig: BrokerRig, properties: str) -> None:
    await send_delayed(rig, b"first")
    unit = rig.store.queues[SCHEDULE_TOPIC, 0][0]
    message = rig.store.puts[-1]
    message.properties_text = properties
    await rig.store.put(message)
    rig.store.queues[SCHEDULE_TOPIC, 0].append(QueueUnit(2, unit.physical_offset, unit.record_size, unit.tags_code))
    rig.clock.advance(1000)
    await rig.broker.schedule.deliver_due(1)
    assert rig.broker.schedule.offsets == {1: 3}
    assert rig.store.messages("RMQ_SYS_TRANS_HALF_TOPIC") == []


@pytest.mark.parametrize(("saved", "corrected"), [(0, 2), (99, 3)])
async def test_an_offset_outside_the_queue_moves_to_its_nearer_end(rig: BrokerRig, saved: int, corrected: int) -> None:
    for _ in range(3):
        await send_delayed(rig, b"x")
    rig.store.drop_before(SCHEDULE_TOPIC, 0, 2)
    rig.broker.schedule.offsets = {1: saved}
    assert await rig.broker.schedule.deliver_due(1) == system_queues.RETRY_S
    assert rig.broker.schedule.offsets == {1: corrected}


async def test_offsets_are_corrected_at_the_start_too(rig: BrokerRig) -> None:
    await send_delayed(rig, b"x")
    rig.broker.schedule.offsets = {1: 50}
    rig.broker.schedule.correct_offsets()
    assert rig.broker.schedule.offsets == {1: 1}


async def test_a_level_that_is_ahead_of_what_a_log_has_goes_back_to_that(rig: BrokerRig) -> None:
    ends = {(SCHEDULE_TOPIC, 0): 5, (SCHEDULE_TOPIC, 2): 7}
    rig.broker.schedule.offsets = {1: 6, 3: 7}
    rig.broker.schedule.lower_offsets(lambda topic, queue_id: ends[topic, queue_id])
    assert rig.broker.schedule.offsets == {1: 5, 3: 7}


async def test_the_offset_file_is_in_apaches_form_and_loads_again(rig: BrokerRig) -> None:
    rig.broker.schedule.offsets = {3: 7, 1: 1}
    await rig.broker.schedule.persist()
    assert rig.config_text("delayOffset.json") == '{\n\t"offsetTable":{1:1,3:7\n\t}\n}'
    rig.reopen()
    assert rig.broker.schedule.offsets == {1: 1, 3: 7}


async def test_a_compact_file_with_a_data_version_loads(rig: BrokerRig) -> None:
    path = rig.root / "store" / "config" / "delayOffset.json"
    path.write_text('{"dataVersion":{"counter":1,"timestamp":2},"offsetTable":{2:5}}')
    rig.reopen()
    assert rig.broker.schedule.offsets == {2: 5}


async def test_the_tasks_deliver_by_themselves_and_save_when_stopped(
    rig: BrokerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemQueues, "pace", Pace(first_turn=0.0))
    rig.broker.schedule.start()
    await send_delayed(rig, b"later")
    rig.clock.advance(1000)
    async with asyncio.timeout(60):
        while not rig.store.messages("orders", 2):
            await asyncio.sleep(0.01)
    await rig.broker.schedule.stop()
    assert rig.config_text("delayOffset.json") == '{\n\t"offsetTable":{1:1\n\t}\n}'


async def test_a_level_that_fails_does_not_stop_the_others(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemQueues, "pace", Pace(first_turn=0.0))
    rig.store.queues[SCHEDULE_TOPIC, 0] = [QueueUnit(0, 0, 10, 0)]
    rig.store.records[0] = b"not a record"
    rig.store.end = 100
    rig.broker.schedule.start()
    await send_delayed(rig, b"later", level=2)
    rig.clock.advance(5000)
    async with asyncio.timeout(60):
        while not rig.store.messages("orders", 2):
            await asyncio.sleep(0.01)
    await rig.broker.schedule.stop()


async def test_deliveries_are_counted(rig: BrokerRig) -> None:
    await send_delayed(rig, b"later")
    rig.clock.advance(1000)
    await rig.broker.schedule.deliver_due(1)
    for name, key in (
        ("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"),
        ("QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@0"),
        ("GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"),
        ("TOPIC_PUT_NUMS", "orders"),
    ):
        assert rig.broker.statistics.view(name, key) is not None


@pytest.mark.parametrize("turns", range(6))
async def test_a_stop_that_meets_a_put_still_stops(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    monkeypatch.setattr(SystemQueues, "pace", Pace(first_turn=0.0))
    rig.broker.schedule.start()
    await settle()
    await send_delayed(rig, b"later")
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await rig.broker.schedule.stop()


async def test_skipped_time_counts_for_what_was_stored_before_and_not_for_what_comes_later(rig: BrokerRig) -> None:
    await send_delayed(rig, b"before", level=4)
    machine_clock.skip(rig.clock(), 29_999)
    assert await rig.broker.schedule.deliver_due(4) == pytest.approx(0.001)
    rig.clock.advance(1)
    await send_delayed(rig, b"after", level=4)
    assert await rig.broker.schedule.deliver_due(4) == delay_levels.CLOCK_POLL_S
    assert [message.body for message in rig.store.messages("orders", 2)] == [b"before"]
    machine_clock.skip(rig.clock(), 15_000)
    machine_clock.skip(rig.clock(), 15_000)
    assert await rig.broker.schedule.deliver_due(4) == 0.0
    assert [message.body for message in rig.store.messages("orders", 2)] == [b"before", b"after"]


async def test_a_level_that_waits_notices_skipped_time_at_once(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemQueues, "pace", Pace(first_turn=0.0, idle_poll=3600.0))
    await send_delayed(rig, b"later", level=4)
    rig.broker.schedule.start()
    await settle()
    machine_clock.skip(rig.clock(), 30_000)
    async with asyncio.timeout(30):
        while not rig.store.messages("orders", 2):
            await settle()
    await rig.broker.schedule.stop()
