"""Statistics over what the workers count, and the runtime table."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_ports import START_MS, BrokerRig

from mqcore.broker.ports import BrokerTotals, GetCount, PutCount
from mqcore.broker.statistics import PORTION, StatsName, next_midnight_ms
from mqcore.codes import RequestCode
from mqcore.protocol import fastjson
from mqcore.protocol.command import RemotingCommand

RUNTIME_KEYS = (
    "bootTimestamp", "runtime", "putMessageEntireTimeMax", "putMessageTimesTotal", "putMessageFailedTimes",
    "putMessageSizeTotal", "putMessageDistributeTime", "putMessageAverageSize", "dispatchMaxBuffer",
    "getMessageEntireTimeMax", "putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps",
    "putLatency99", "putLatency999", "commitLogDiskRatio", "commitLogDiskRatio_/store/commitlog",
    "consumeQueueDiskRatio", "commitLogMinOffset", "commitLogMaxOffset", "brokerVersionDesc", "brokerVersion",
    "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning", "msgGetTotalTodayNow", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueueSize", "pullThreadPoolQueueCapacity", "queryThreadPoolQueueSize",
    "queryThreadPoolQueueCapacity", "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity",
    "dispatchBehindBytes", "pageCacheLockTimeMills", "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills", "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp", "remainTransientStoreBufferNumbs", "remainHowManyDataToFlush",
    "commitLogDirCapacity", "scheduleMessageOffset_1",
)  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path) -> BrokerRig:
    return BrokerRig(tmp_path)


async def view(rig: BrokerRig, name: str, key: str) -> RemotingCommand:
    return await rig.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})


async def sample(rig: BrokerRig, seconds: int = 10) -> None:
    rig.clock.advance(seconds * 1000)
    await rig.broker.statistics.sample_minutes()


async def test_the_last_minute_is_what_lies_between_its_samples(rig: BrokerRig) -> None:
    for number in range(10):
        rig.counters.put_counts["orders"] = PutCount("orders", 100 * (number + 1), 1)
        await sample(rig)
    reply = await view(rig, "TOPIC_PUT_NUMS", "orders")
    assert reply.code == 0
    assert fastjson.loads(reply.body)["statsMinute"] == {"avgpt": 1.0, "sum": 600, "tps": 10.0}
    assert reply.body.startswith(b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":')


async def test_a_first_sample_shows_what_was_counted_before_it(rig: BrokerRig) -> None:
    rig.counters.put_counts["orders"] = PutCount("orders", 50, 5000)
    await sample(rig)
    assert fastjson.loads((await view(rig, "TOPIC_PUT_NUMS", "orders")).body)["statsMinute"] == {
        "avgpt": 1.0, "sum": 50, "tps": 5.0,
    }  # fmt: skip


async def test_gets_are_summed_over_queues_and_shown_for_each(rig: BrokerRig) -> None:
    rig.counters.get_counts = [GetCount("t", "g", 0, 30, 300, 3), GetCount("t", "g", 1, 10, 100, 1)]
    await sample(rig)
    sums = {}
    for name, key in (
        ("GROUP_GET_NUMS", "t@g"), ("GROUP_GET_SIZE", "t@g"), ("QUEUE_GET_NUMS", "t@1@g"),
        ("BROKER_GET_NUMS", "DefaultCluster"),
    ):  # fmt: skip
        sums[name] = fastjson.loads((await view(rig, name, key)).body)["statsMinute"]["sum"]
    assert sums == {"GROUP_GET_NUMS": 40, "GROUP_GET_SIZE": 400, "QUEUE_GET_NUMS": 10, "BROKER_GET_NUMS": 40}
    assert rig.broker.statistics.group_get_tps("t", "g") == 4.0


async def test_latencies_are_counted_by_pull(rig: BrokerRig) -> None:
    rig.counters.get_counts = [GetCount("t", "g", 0, 30, 300, 3), GetCount("t", "g", 1, 10, 100, 1)]
    await sample(rig)
    assert fastjson.loads((await view(rig, "GROUP_GET_LATENCY", "0@t@g")).body)["statsMinute"] == {
        "avgpt": 0.0, "sum": 0, "tps": 0.0,
    }  # fmt: skip
    rig.core.on_late_pull("g", "t", 0, 12)  # one of the three
    await sample(rig)
    assert fastjson.loads((await view(rig, "GROUP_GET_LATENCY", "0@t@g")).body)["statsMinute"] == {
        "avgpt": 4.0, "sum": 12, "tps": 0.6,
    }  # fmt: skip
    rig.broker.statistics.forget_topic("t")
    assert (await view(rig, "GROUP_GET_LATENCY", "0@t@g")).code == 1


async def minutes(rig: BrokerRig, counts: list[int]) -> list[tuple[int, float]]:
    """Sum and rate of the last minute after each sample, of a topic that stands at *counts* by then."""
    found = []
    for count in counts:
        rig.counters.put_counts["orders"] = PutCount("orders", count, count)
        await sample(rig)
        spans = rig.broker.statistics.view("TOPIC_PUT_NUMS", "orders")
        found.append((spans[0].sum, spans[0].tps) if spans is not None else (-1, -1.0))
    return found


async def test_a_topic_without_news_is_in_the_window_for_as_long_as_any(rig: BrokerRig) -> None:
    """As RocketMQ's seven snapshots, of which an item's first is a made up one, show it."""
    rests = await minutes(rig, [0, 0, 60, 60, 60, 60, 60, 60, 60, 60])
    assert rests == [(-1, -1.0), (-1, -1.0), (60, 6.0), (60, 3.0), (60, 2.0), (60, 1.5), (60, 1.2), (60, 1.0),
                     (0, 0.0), (0, 0.0)]  # fmt: skip
    assert await minutes(rig, [90, 90]) == [(30, 0.5), (30, 0.5)]


async def test_the_window_moves_over_steady_counts(rig: BrokerRig) -> None:
    sums = [total for total, _ in await minutes(rig, list(range(10, 130, 10)))]
    assert sums == [10, 20, 30, 40, 50, 60, 60, 60, 60, 60, 60, 60]


async def test_what_came_up_later_than_others_has_a_window_of_its_own(rig: BrokerRig) -> None:
    await minutes(rig, [10] * 20)
    rig.counters.put_counts["late"] = PutCount("late", 40, 1)
    await sample(rig)
    spans = rig.broker.statistics.view("TOPIC_PUT_NUMS", "late")
    assert spans is not None
    assert (spans[0].sum, spans[0].tps) == (40, 4.0)


async def test_many_rows_are_taken_in_portions(rig: BrokerRig) -> None:
    """Others have their turn meanwhile."""
    rig.counters.get_counts = [GetCount("t", "g", queue_id, 1, 1, 1) for queue_id in range(3 * PORTION)]
    sampling = asyncio.create_task(rig.broker.statistics.sample_minutes())
    turns = 0
    while not sampling.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 3
    spans = rig.broker.statistics.view("GROUP_GET_NUMS", "t@g")
    assert spans is not None
    assert spans[0].sum == 3 * PORTION


async def test_hours_and_days_have_their_own_samples(rig: BrokerRig) -> None:
    rig.counters.put_counts["orders"] = PutCount("orders", 3600, 1)
    await rig.broker.statistics.sample_hours()
    await rig.broker.statistics.sample_days()
    body = fastjson.loads((await view(rig, "TOPIC_PUT_NUMS", "orders")).body)
    assert (body["statsMinute"]["sum"], body["statsHour"]["tps"], body["statsDay"]["tps"]) == (0, 6.0, 1.0)


async def test_what_was_never_counted_does_not_exist(rig: BrokerRig) -> None:
    reply = await view(rig, "TOPIC_PUT_NUMS", "orders")
    assert (reply.code, reply.remark) == (1, "The stats <TOPIC_PUT_NUMS> <orders> not exist")


async def test_counters_of_a_deleted_topic_start_at_nothing_again(rig: BrokerRig) -> None:
    rig.counters.put_counts["orders"] = PutCount("orders", 50, 1)
    rig.broker.statistics.add(StatsName.TOPIC_PUT_NUMS, "orders", 5)
    await sample(rig)
    rig.broker.statistics.forget_topic("orders")
    assert (await view(rig, "TOPIC_PUT_NUMS", "orders")).code == 1
    assert rig.broker.statistics.view("BROKER_PUT_NUMS", "DefaultCluster") is not None
    rig.counters.put_counts["orders"] = PutCount("orders", 60, 1)
    await sample(rig)
    assert fastjson.loads((await view(rig, "TOPIC_PUT_NUMS", "orders")).body)["statsMinute"]["sum"] == 10


async def test_counters_of_a_deleted_group_go_with_it(rig: BrokerRig) -> None:
    rig.counters.get_counts = [GetCount("t", "g", 0, 30, 300, 3), GetCount("t", "h", 0, 30, 300, 3)]
    await sample(rig)
    rig.broker.statistics.forget_group("g")
    assert (await view(rig, "GROUP_GET_NUMS", "t@g")).code == 1
    assert (await view(rig, "GROUP_GET_NUMS", "t@h")).code == 0


async def runtime(rig: BrokerRig) -> dict[str, str]:
    reply = await rig.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert (reply.code, reply.remark, reply.ext_fields) == (0, None, None)
    table = fastjson.loads(reply.body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    return dict(table)


TIMER_KEYS = {
    "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps",
}  # fmt: skip
"""Of RocketMQ 5."""


async def test_the_runtime_table_has_every_key(rig: BrokerRig) -> None:
    rig.broker.schedule.offsets = {1: 4}
    assert set(await runtime(rig)) == set(RUNTIME_KEYS) | TIMER_KEYS


async def test_services_add_their_figures(rig: BrokerRig) -> None:
    waiting = 0
    rig.broker.runtime_info.show(lambda: {"timerReadBehind": str(waiting)})
    waiting = 7
    assert (await runtime(rig))["timerReadBehind"] == "7"


async def test_the_runtime_table_of_a_broker_at_work(rig: BrokerRig) -> None:
    for second in range(11):
        rig.counters.all = BrokerTotals(
            put_nums=100 * second, put_bytes=20_000 * second, get_found=second, get_miss=second, get_nums=50 * second
        )
        rig.broker.runtime_info.sample()
        rig.clock.advance(1000)
    rig.clock.now = START_MS + ((24 + 2) * 3600 + 3 * 60 + 4) * 1000
    table = await runtime(rig)
    assert table["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert table["putTps"] == "100.0  "
    assert table["getTransferedTps"] == "50.0  "
    assert table["getTotalTps"] == "2.0 0.0 0.0"
    assert table["putMessageTimesTotal"] == "1000"
    assert table["putMessageAverageSize"] == "200.0"
    assert table["putMessageDistributeTime"].startswith("[<=0ms]:0 [0~10ms]:0 ")
    assert table["remainHowManyDataToFlush"] == "1.5 KiB"
    assert table["commitLogDirCapacity"] == "Total : 2.0 KiB, Free : 1.0 KiB."
    assert table["sendThreadPoolQueueSize"] == "3"
    assert (table["sendThreadPoolQueueCapacity"], table["pullThreadPoolQueueCapacity"]) == ("10000", "100000")
    assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "0"
    assert (table["brokerVersionDesc"], table["brokerVersion"]) == ("V4_9_8", "409")


async def test_a_broker_without_messages_divides_by_one(rig: BrokerRig) -> None:
    table = await runtime(rig)
    assert (table["putMessageTimesTotal"], table["putMessageAverageSize"]) == ("1", "0.0")
    assert (table["msgPutTotalTodayNow"], table["putTps"], table["earliestMessageTimeStamp"]) == ("0", "  ", "-1")


async def test_put_latencies_come_from_the_tallies(rig: BrokerRig) -> None:
    rig.counters.all = BrokerTotals(put_nums=100, put_latency=(90, 9, 1, *(0,) * 10))
    table = await runtime(rig)
    assert (table["putLatency99"], table["putLatency999"]) == ("50.0", "50.0")
    rig.counters.all = BrokerTotals(put_nums=1, put_time_max_ms=30)
    assert (await runtime(rig))["putLatency99"] == "0.0"


async def test_midnight_rolls_the_day_totals(rig: BrokerRig) -> None:
    for put_nums in (10, 25):
        rig.counters.all = BrokerTotals(put_nums=put_nums, get_nums=put_nums * 2)
        rig.broker.runtime_info.roll_day()
    table = await runtime(rig)
    assert [table[f"msg{kind}Total{when}Morning"] for kind in ("Put", "Get") for when in ("Yesterday", "Today")] == [
        "10", "25", "20", "50",
    ]  # fmt: skip


def test_the_next_midnight_is_within_a_day() -> None:
    midnight = next_midnight_ms(START_MS)
    assert 0 < midnight - START_MS <= 25 * 3_600_000
    assert next_midnight_ms(midnight) > midnight
