"""What ``mqcore top`` makes of two looks, what its keys do, and what its lines look like on screens of any size."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import Any

import pytest

from mqcore import layout
from mqcore.admin.top_data import BrokerLook, GroupLook, Look, TimedCount, change_between, quantile_ms, size_of
from mqcore.admin.top_keys import keys_of, press
from mqcore.admin.top_view import NAMES, TABLES, ViewState, fitting, screen_lines, seconds, short, size
from mqcore.client.admin.base import BrokerPlace

BOUNDS = layout.LATENCY_BOUNDS_US
MASTER = BrokerPlace("c", "a", 0, "10.0.0.1:10911")
SLAVE = BrokerPlace("c", "a", 1, "10.0.0.2:10911")


def counts(*times_us: int) -> str:
    found = [0] * (len(BOUNDS) + 1)
    for took_us in times_us:
        found[bisect_right(BOUNDS, took_us)] += 1
    return "sumUs=1 counts=" + ",".join(map(str, found))


def process(pid: int = 7, **words: int) -> str:
    return f"kind=send state=RUNNING pid={pid} " + " ".join(f"{name}={value}" for name, value in words.items())


def look(at_s: float, *brokers: BrokerLook, **changes: Any) -> Look:
    values: dict[str, Any] = {"topics": {}, "consumed": {}, "groups": {}, "errors": []} | changes
    return Look(at_s, 1_700_000_000_000, {one.place.address: one for one in brokers}, **values)


def master(at_s: float, **table: str) -> BrokerLook:
    return BrokerLook(MASTER, at_s, table)


def test_rates_are_what_has_grown_between_two_looks() -> None:
    before = look(
        100.0, master(100.0, msgPutTotalTodayNow="50", commitLogMaxOffset="1000"),
        topics={"T": TimedCount(10, 100.0)}, consumed={"T": TimedCount(5, 100.0)},
        groups={"G": GroupLook(TimedCount(5, 100.0), TimedCount(10, 100.0), 0)},
    )  # fmt: skip
    now = look(
        102.0, master(102.0, msgPutTotalTodayNow="250", commitLogMaxOffset="5000", commitLogDiskRatio="0.5"),
        topics={"T": TimedCount(30, 102.0), "new": TimedCount(3, 102.0)}, consumed={"T": TimedCount(9, 102.0)},
        groups={"G": GroupLook(TimedCount(9, 102.0), TimedCount(30, 102.0), 1500)},
    )  # fmt: skip
    change = change_between(before, now)
    (broker,) = change.brokers
    assert (broker.in_rate, broker.in_bytes_rate, broker.out_rate, broker.disk_ratio) == (100, 2000, None, 0.5)
    assert [(row.topic, row.in_rate, row.out_rate) for row in change.topics] == [("T", 10, 2), ("new", None, None)]
    (group,) = change.groups
    assert (group.in_rate, group.out_rate, group.lag, group.delay_s) == (10, 2, 21, 1.5)


def test_what_has_begun_anew_has_no_negative_rate_and_the_first_look_has_none() -> None:
    before, now = look(1.0, master(1.0, msgPutTotalTodayNow="50")), look(2.0, master(2.0, msgPutTotalTodayNow="3"))
    assert change_between(before, now).brokers[0].in_rate == 0
    assert change_between(None, now).brokers[0].in_rate is None


def test_a_process_is_told_by_its_words_and_another_one_of_its_name_begins_anew() -> None:
    words = {"userMs": 100, "systemMs": 0, "waitMs": 0, "residentBytes": 4096, "units": 10, "backlog": 3}
    grown = words | {"userMs": 1000, "systemMs": 600, "waitMs": 400, "units": 30}
    before = look(10.0, master(10.0, **{"process_send-0": process(**words)}))
    (row,) = change_between(before, look(12.0, master(12.0, **{"process_send-0": process(**grown)}))).processes
    assert (row.process, row.cpu, row.wait, row.unit_rate, row.memory, row.backlog) == (
        "send-0",
        0.75,
        0.2,
        10,
        4096,
        3,
    )
    (row,) = change_between(before, look(12.0, master(12.0, **{"process_send-0": process(8, **grown)}))).processes
    assert (row.pid, row.cpu, row.unit_rate) == (8, None, None)


def test_quantiles_are_of_what_was_answered_in_between() -> None:
    old = {"latency_SEND": counts(*[1_000_000] * 50), "latency_UNCONFIRMED": counts()}
    new = {"latency_SEND": counts(*[1_000_000] * 50, *[100] * 99), "latency_UNCONFIRMED": counts(3_000_000)}
    change = change_between(look(1.0, master(1.0, **old)), look(2.0, master(2.0, **new)))
    assert change.brokers[0].send_p99_ms == pytest.approx(0.128)
    assert change.brokers[0].pull_p99_ms is None, "RocketMQ's brokers do not tell"


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_quantile_lies_between_the_bounds_of_its_count(share: float) -> None:
    for took_us in (0, 20, 999, 123_456, 5_000_000):
        found = [0] * (len(BOUNDS) + 1)
        found[bisect_right(BOUNDS, took_us)] = 10
        value = quantile_ms(share, found)
        assert value is not None
        edges = (0, *BOUNDS)
        place = bisect_right(BOUNDS, took_us)
        assert edges[place] <= value * 1000 <= edges[place + 1]
    assert quantile_ms(share, [0] * (len(BOUNDS) + 1)) is None
    assert quantile_ms(share, [1, 2, 3]) is None, "of a broker with other bounds"


def test_a_slave_lacks_what_its_master_has_more() -> None:
    slave = BrokerLook(SLAVE, 1.0, {"commitLogMaxOffset": "600", "haMasterState": "COPYING"})
    change = change_between(None, look(1.0, master(1.0, commitLogMaxOffset="1000"), slave))
    assert [(row.role, row.behind, row.state) for row in change.replicas] == [
        ("master", None, None), ("slave", 400, "COPYING"),
    ]  # fmt: skip


def test_keys_of_the_json_do_not_depend_on_names_in_python() -> None:
    record = change_between(None, look(1.0, master(1.0))).record()
    assert set(record) == {"time", "brokers", "processes", "topics", "groups", "replicas", "errors"}
    assert {"brokerId", "inRate", "sendP99Ms", "flushBehind"} <= set(record["brokers"][0])


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.5, "0.5"), (999, "999"), (999.7, "1.0k"), (12_345, "12.3k"), (123_456, "123k"),
     (1_000_000, "1.0M")],
)  # fmt: skip
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert short(value) == text


def test_sizes_and_times_are_as_people_write_them() -> None:
    assert [size(value) for value in (0, 1023, 1 << 20, 1.5 * (1 << 30))] == ["0", "1.0K", "1.0M", "1.5G"]
    assert [seconds(value) for value in (0, 0.5, 59, 185, 7650, 442_800)] == [
        "0s",
        "0.5s",
        "59s",
        "3m05s",
        "2h07m",
        "5d03h",
    ]
    assert [size_of(text) for text in ("512 B", "1.5 KiB", "7", "", None)] == [512, 1536, 7, None, None]


# The view.


def many(count: int = 50) -> Look:
    return look(
        2.0, master(2.0, **{"process_send-0": process()}), BrokerLook(SLAVE, 2.0, error="connect to it failed"),
        topics={f"topic-{number:02d}": TimedCount(number, 2.0) for number in range(count)},
        groups={"g" * 200: GroupLook(TimedCount(1, 2.0), TimedCount(5, 2.0), 0)},
        errors=["10.0.0.2:10911: connect to it failed"],
    )  # fmt: skip


def screen(state: ViewState, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain for line in screen_lines(state, change_between(None, many()), "here", width, height)]


@pytest.mark.parametrize("table", NAMES)
@pytest.mark.parametrize("width", [1, 10, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 2, 5, 24, 100])
def test_a_screen_of_any_size_is_filled_and_not_overrun(table: str, width: int, height: int) -> None:
    lines = screen(ViewState(table=table), width, height)
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)


def test_the_usual_screen_has_the_columns_that_matter() -> None:
    wanted = {
        "brokers": ["in_rate", "out_rate", "send_p99_ms", "disk_ratio", "flush_behind"],
        "workers": ["cpu", "wait", "blocked", "memory", "unit_rate"],
        "topics": ["in_rate", "out_rate", "messages"],
        "groups": ["in_rate", "out_rate", "lag", "delay_s"],
        "replicas": ["role", "behind", "slaves", "epoch", "state"],
    }
    for table, keys in wanted.items():
        shown = [column.key for column, _ in fitting(TABLES[table], 80)]
        assert set(keys) <= set(shown), table
        assert {column.key for column, _ in fitting(TABLES[table], 300)} == {column.key for column in TABLES[table]}


def typed(state: ViewState, text: str) -> ViewState:
    for key in keys_of(text):
        press(state, key)
    return state


def shown(state: ViewState) -> list[str]:
    return [row.topic for row in state.shown(change_between(None, many()))]


def test_keys_choose_sort_turn_and_filter() -> None:
    state = typed(ViewState(), "3")
    assert state.table == "topics"
    assert shown(state)[0] == "topic-00"
    typed(state, "ss")
    assert state.sorted_by["topics"] == "messages"
    assert shown(state)[:2] == ["topic-49", "topic-48"]
    assert shown(typed(state, "r"))[:2] == ["topic-00", "topic-01"]
    assert shown(typed(state, "/PIC-1\r")) == [f"topic-1{number}" for number in range(10)]
    assert state.filter == "PIC-1"
    assert len(shown(typed(state, "/x"))) == 0, "what is being typed counts already"
    assert len(shown(typed(state, "\x7f3\r"))) == 1
    assert len(shown(typed(state, "\x1b"))) == 50
    assert typed(state, "\t").table == "groups"
    assert typed(state, "\x1b[Z").table == "topics"


def test_keys_scroll_within_the_rows() -> None:
    state = typed(ViewState(), "3")
    assert screen(typed(state, "\x1b[B\x1b[Bj"))[5].split()[0] == "topic-03"
    assert state.first == 3
    screen(typed(state, "G\x1b[6~"))
    assert state.first == 50 - (24 - 6), "the last row stands in the last line"
    screen(typed(state, "g\x1b[A"))
    assert state.first == 0


def test_keys_pause_change_the_pace_and_end() -> None:
    state = ViewState(every_s=2.0)
    assert typed(state, " ").is_paused
    assert "PAUSED" in screen(state)[0]
    assert not typed(state, "p").is_paused
    assert [typed(state, key).every_s for key in "++-----"] == [5.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.5]
    assert typed(state, "q").is_over


def test_what_is_typed_as_a_filter_is_no_command() -> None:
    state = typed(ViewState(), "3/q3s")
    assert (state.is_over, state.table, state.typed) == (False, "topics", "q3s")


def test_keys_that_mean_nothing_do_nothing() -> None:
    before = ViewState()
    assert typed(ViewState(), "9\x1b[15~\x1b[99;5Xzé\x00") == before


def test_a_silent_broker_is_seen_and_its_error_said() -> None:
    lines = screen(ViewState())
    assert "1 silent" in lines[2]
    assert "connect to it failed" in lines[3]
    assert "BROKER" in lines[4]


def test_an_empty_table_says_why() -> None:
    change = replace(change_between(None, many()), processes=[], groups=[])
    for table, words in (("workers", "do not tell"), ("groups", "there are none")):
        lines = [line.plain for line in screen_lines(ViewState(table=table), change, "here", 80, 24)]
        assert any(words in line for line in lines)
