"""Metrics and health, on a segment of their own: the table, bounds, rates, the text, and a port that trusts nobody."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from broker_ports import BrokerRig
from fast_rig import RawSegment, shared_segment

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.consumers import ClientChannelInfo
from mqcore.broker.figures import UnconsumedQueue
from mqcore.broker.metrics import endpoint as endpoint_module
from mqcore.broker.metrics import exposition, http_end
from mqcore.broker.metrics.bounds import OTHERS, LabelBound, Thing, number
from mqcore.broker.metrics.broker_facts import Observed, gather_facts
from mqcore.broker.metrics.endpoint import MetricsEndpoint
from mqcore.broker.metrics.exposition import Breath, render
from mqcore.broker.metrics.health import FLAG_WORDS, liveness, readiness
from mqcore.broker.metrics.lags import LagTimes
from mqcore.broker.metrics.machine import ThreadCounts
from mqcore.broker.metrics.page import BEGIN, PAGE, main
from mqcore.broker.metrics.rates import SPAN_S, GrowthRates
from mqcore.broker.metrics.rows import NOT_SERVED, ROWS, MetricFamily, MetricRow, SeriesKind
from mqcore.broker.metrics.survey import BrokerSurvey
from mqcore.broker.metrics.wanted import start_endpoint
from mqcore.broker.segment.shared_figures import SharedFigures
from mqcore.codes import LanguageCode
from mqcore.config import load
from mqcore.errors import ConfigError
from mqcore.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel
from tests.rigs import free_port
from tests.rigs.scrapes import Series, by, get, series_of
from tests.rows import walked
from tests.waiting import wait_until

DEADLINE_S = 30.0
MANY = 10_000
"""Of processor time: what the caches of a busy machine make of a few milliseconds."""


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


@pytest.fixture
def rig(tmp_path: Path) -> BrokerRig:
    return BrokerRig(tmp_path)


def observed(rig: BrokerRig, segment: SharedSegment) -> Observed:
    return Observed(rig.broker, SharedFigures(segment, [], rig.settings), True)


def has(segment: SharedSegment, topic: str, puts: int, queues: int = 1) -> None:
    segment.publish_topic(topic.encode(), 6, queues, queues, True, False)
    RawSegment(segment.fd).rows("topics")["put_nums"][segment.topic_row(topic.encode())] = puts


async def scraped(survey: BrokerSurvey, rig: BrokerRig) -> Series:
    pause = Breath()
    things = survey.take(await gather_facts(rig.broker), is_ready=True)
    return series_of(b"".join(render(things, survey.common_labels(), pause)).decode())


# The table.


@walked("row", ROWS)
def test_a_row_is_as_prometheus_and_its_family_want_it(row: MetricRow) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", row.name)
    assert row.name.startswith("mqcore_" if row.family is MetricFamily.OWN else "rocketmq_")
    assert all(re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]*", label) for label in row.labels)
    assert len(set(row.labels)) == len(row.labels)
    assert row.unit
    assert row.help
    assert row.source
    if row.family is not MetricFamily.EXPORTER:  # whose names are all of gauges
        assert row.name.endswith("_total") == (row.kind is SeriesKind.COUNTER)
    for word in re.findall(r"(topic_row|offset_row|queue_row|worker_row|store_board)\.(\w+)", row.source):
        assert word[1] in getattr(layout, word[0].upper()).offsets, f"{row.name}: {word}"


def test_what_is_not_given_is_not_in_the_table() -> None:
    assert not {row.name for row in ROWS} & NOT_SERVED.keys()


def test_the_page_has_the_table_of_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    copy = tmp_path / "metrics.md"
    copy.write_text(PAGE.read_text().replace("topic_row.put_nums", "by hand"))
    assert main(["--check", "--page", str(copy)]) == 1
    assert "stale" in capsys.readouterr().err
    assert main(["--page", str(copy)]) == 0
    assert copy.read_text() == PAGE.read_text()
    assert BEGIN in copy.read_text()


def test_each_flag_has_its_words() -> None:
    assert FLAG_WORDS.keys() == layout.constants("StoreFlag").keys()


# Bounds and rates.


def topics(**counts: int) -> list[Thing]:
    return [{"topic": name, "count": count, "age": count} for name, count in counts.items()]


def shown(bound: LabelBound, **counts: int) -> dict[str, tuple[float, float]]:
    found = bound.apply(topics(**counts))
    return {str(thing["topic"]): (number(thing["count"]), number(thing.get("age", 0))) for thing in found}


def test_who_comes_late_is_summed_up_and_counted() -> None:
    bound = LabelBound(2, ["topic"], ["count"], ["age"], Breath())
    assert shown(bound, a=1, b=2) == {"a": (1, 1), "b": (2, 2)}
    assert shown(bound, a=1, b=2, c=5, d=7) == {"a": (1, 1), "b": (2, 2), OTHERS: (12, 7)}
    assert bound.left_out == 2


def test_a_sum_of_counts_never_falls_and_keeps_whom_it_has() -> None:
    bound = LabelBound(1, ["topic"], ["count"], ["age"], Breath())
    assert shown(bound, a=1, c=5, d=7)[OTHERS] == (12, 7)
    assert shown(bound, c=5, d=8) == {OTHERS: (13, 8)}, "the place of a is not for whom the sum has counted"
    assert shown(bound, d=9, e=3) == {"e": (3, 3), OTHERS: (14, 9)}
    assert shown(bound, e=3) == {"e": (3, 3)}, "nobody is left for a sum"
    assert shown(bound, e=3, f=2)[OTHERS] == (16, 2), "which goes on where it was"


def test_a_bound_of_nothing_sums_up_all() -> None:
    assert shown(LabelBound(0, ["topic"], ["count"], ["age"], Breath()), a=1, b=2) == {OTHERS: (3, 2)}


def test_rates_are_over_the_life_first_and_then_over_the_span() -> None:
    rates = GrowthRates(started_s=100.0)
    rates.begin(120.0)
    assert rates.of("a", 40) == 2.0
    rates.begin(120.0 + SPAN_S / 2)
    assert rates.of("a", 90) == 90 / 25
    rates.begin(120.0 + SPAN_S)
    assert rates.of("a", 140) == 100 / SPAN_S
    assert rates.of("new", 50) == 50 / SPAN_S
    rates.begin(120.0 + 3 * SPAN_S)
    assert rates.of("a", 140) == 0.0
    rates.begin(120.0 + 3 * SPAN_S)
    assert rates.of("a", 0) == 0.0


# The text.


async def test_series_come_and_go_with_their_topic(rig: BrokerRig, segment: SharedSegment) -> None:
    survey = BrokerSurvey(observed(rig, segment), Breath())
    has(segment, "Orders", 12)
    has(segment, "%DLQ%billing", 3)
    found = await scraped(survey, rig)
    assert by(found, "rocketmq_messages_in_total", "topic") == {"Orders": 12, "%DLQ%billing": 3}
    assert by(found, "rocketmq_send_to_dlq_messages_total", "topic", "consumer_group") == {"%DLQ%billing billing": 3}
    assert by(found, "rocketmq_producer_offset", "topic") == {"Orders": 0}
    assert by(found, "rocketmq_topic_dlq_offset", "group") == {"billing": 0}
    segment.remove_topic(b"Orders")
    found = await scraped(survey, rig)
    assert by(found, "rocketmq_messages_in_total", "topic") == {"%DLQ%billing": 3}
    assert "rocketmq_producer_offset" not in found


async def test_groups_are_shown_with_what_is_known_of_them(rig: BrokerRig, segment: SharedSegment) -> None:
    has(segment, "Orders", 12)
    segment.set_queue_word(segment.queue_row(b"Orders", 0), "max_offset", 12)
    await rig.broker.groups.find_or_create("billing")
    for group in (b"billing", b"unknown"):
        segment.commit(segment.offset_row(group, b"Orders", 0, True), 5)
    found = await scraped(BrokerSurvey(observed(rig, segment), Breath()), rig)
    assert by(found, "rocketmq_consumer_lag_messages", "consumer_group", "topic", "is_retry") == {
        "billing Orders false": 7
    }
    diff = by(found, "rocketmq_group_diff", "group", "topic", "countOfOnlineConsumers", "msgModel")
    assert diff == {"billing Orders 0 1": 7}
    assert by(found, "rocketmq_consumer_offset", "group", "topic") == {"billing Orders": 5}
    await rig.broker.groups.delete("billing")
    assert "rocketmq_consumer_lag_messages" not in await scraped(BrokerSurvey(observed(rig, segment), Breath()), rig)


async def test_labels_have_their_bounds(tmp_path: Path, segment: SharedSegment) -> None:
    rig = BrokerRig(tmp_path, metricsTopicsMax="2")
    for index in range(5):
        has(segment, f"T{index}", index + 1)
    found = await scraped(BrokerSurvey(observed(rig, segment), Breath()), rig)
    assert by(found, "rocketmq_messages_in_total", "topic") == {"T0": 1, "T1": 2, OTHERS: 12}
    assert by(found, "mqcore_series_left_out", "label") == {"topic": 3, "group": 0, "consumer_group": 0}


async def test_a_client_that_names_many_groups_makes_few_series(tmp_path: Path, segment: SharedSegment) -> None:
    rig = BrokerRig(tmp_path, metricsGroupsMax="3")
    for index in range(50):
        info = ClientChannelInfo(rig.client, f"c{index}", int(LanguageCode.PYTHON), index, 0)
        rig.broker.consumers.register(
            f"G{index}", info, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, [], False,
        )  # fmt: skip
    found = await scraped(BrokerSurvey(observed(rig, segment), Breath()), rig)
    members = by(found, "rocketmq_consumer_connections", "consumer_group")
    assert members == {"G0": 1, "G1": 1, "G2": 1, OTHERS: 47}
    assert by(found, "mqcore_series_left_out", "label")["consumer_group"] == 47


async def test_a_name_with_quotes_does_not_break_the_text(rig: BrokerRig, segment: SharedSegment) -> None:
    has(segment, 'a"\\\nb', 1)
    found = await scraped(BrokerSurvey(observed(rig, segment), Breath()), rig)
    assert by(found, "rocketmq_messages_in_total", "topic") == {'a"\\\nb': 1}


# What is looked up, and what the kernel says.


class Times:
    """Store times of a log whose message number n was stored at 1000 + n; it counts who asks."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        self.asked.append(queue_offset)
        return -1 if queue_offset == UNREADABLE else 1000 + queue_offset


UNREADABLE = 99


def looked(lags: LagTimes, **committed: int) -> dict[int, int]:
    for row, offset in committed.items():
        lags.want("T", UnconsumedQueue(int(row[1:]), 0, offset))
    return dict(lags.look(Breath()))


def test_a_group_that_stands_still_is_looked_up_once() -> None:
    times = Times()
    lags = LagTimes(times)  # type: ignore[arg-type]
    assert looked(lags, r0=5, r1=UNREADABLE) == {0: 1005}
    assert looked(lags, r0=5, r1=UNREADABLE) == {0: 1005}
    assert times.asked == [5, UNREADABLE]
    assert looked(lags, r0=6) == {0: 1006}
    assert looked(lags) == {}
    assert looked(lags, r0=6) == {0: 1006}
    assert times.asked == [5, UNREADABLE, 6, 6]


def test_looks_are_few_and_go_round() -> None:
    times = Times()
    lags = LagTimes(times, looks_max=2)  # type: ignore[arg-type]
    seen: set[int] = set()
    for turn in range(4):
        found = looked(lags, **{f"r{row}": 10 * turn + row for row in range(5)})
        assert len(times.asked) == 2 * (turn + 1)
        assert all(stored <= 1000 + 10 * turn + row for row, stored in found.items()), "older than is, if at all"
        seen |= found.keys()
    assert seen == {0, 1, 2, 3, 4}


def test_counts_of_threads_outlive_them() -> None:
    counts = ThreadCounts()
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    before = {str(thing["switch"]): thing["switches"] for thing in counts.switch_things(os.getpid())}
    waited = counts.runqueue_wait_s(os.getpid())
    stop.set()
    for thread in threads:
        thread.join()
    after = {str(thing["switch"]): thing["switches"] for thing in counts.switch_things(os.getpid())}
    assert before.keys() == {"voluntary", "involuntary"}
    assert all(number(after[switch]) >= number(before[switch]) for switch in before)
    assert counts.runqueue_wait_s(os.getpid()) >= waited
    counts.keep(set())
    assert counts.switch_things(2**22 + 1) == [
        {"switch": "voluntary", "switches": 0}, {"switch": "involuntary", "switches": 0},
    ]  # fmt: skip


async def test_puts_are_a_histogram(rig: BrokerRig, segment: SharedSegment) -> None:
    for tally, count in enumerate((3, 2, 0, 1)):
        segment.set(f"put_tally_{tally}", count)
    segment.set("put_tally_12", 4)
    found = await scraped(BrokerSurvey(observed(rig, segment), Breath()), rig)
    buckets = by(found, "mqcore_put_latency_seconds_bucket", "le")
    assert [buckets[bound] for bound in ("0.001", "0.01", "0.05", "0.1", "10.0", "+Inf")] == [3, 5, 5, 6, 6, 10]
    assert len(buckets) == len(layout.PUT_TALLY_BOUNDS_MS) + 1
    assert found["mqcore_put_latency_seconds_count"][0][1] == 10


async def test_answers_are_histograms_by_request(rig: BrokerRig, segment: SharedSegment) -> None:
    rows = RawSegment(segment.fd).rows("latencies")
    kinds = layout.constants("LatencyKind")
    for worker in (0, 3):
        row = rows[worker * len(kinds) + kinds["HELD"]]
        row["count_0"], row["count_12"], row["sum_us"] = 5, 1, 1500
    found = await scraped(BrokerSurvey(observed(rig, segment), Breath()), rig)
    labels = ("request_code", "response_code", "is_long_polling")
    assert by(found, "rocketmq_rpc_latency_count", *labels) == {
        "send_message_v2 success false": 0,
        "send_message_v2 other false": 0,
        "pull_message success false": 0,
        "pull_message success true": 12,
    }
    assert by(found, "rocketmq_rpc_latency_sum", *labels)["pull_message success true"] == 3
    buckets = by(found, "rocketmq_rpc_latency_bucket", *labels, "le")
    held = {le.split()[-1]: count for le, count in buckets.items() if le.startswith("pull_message success true")}
    assert len(held) == len(layout.LATENCY_BOUNDS_US) + 1
    assert [held[le] for le in ("0.016", "0.768", "1.024", "+Inf")] == [10, 10, 12, 12]


async def test_what_is_not_on_disk_has_a_size_and_an_age(rig: BrokerRig, segment: SharedSegment) -> None:
    survey = BrokerSurvey(observed(rig, segment), Breath())
    for end, offset, timestamp in (("wrote", 900, 9000), ("flushed", 400, 6500), ("dispatched", 900, 1)):
        segment.set(f"{end}_offset", offset)
        segment.set(f"{end}_timestamp", timestamp)
    found = await scraped(survey, rig)
    assert found["mqcore_flush_behind_seconds"][0][1] == 2.5
    assert found["mqcore_dispatch_behind_seconds"][0][1] == 0


@pytest.mark.parametrize("is_enabled", [True, False])
def test_nothing_is_collected_while_a_text_is_made(is_enabled: bool) -> None:
    collected: list[str] = []
    before = gc.isenabled()

    def note(phase: str, info: dict[str, int]) -> None:
        collected.append(phase)

    gc.callbacks.append(note)
    try:
        (gc.enable if is_enabled else gc.disable)()
        with contextlib.suppress(KeyError), endpoint_module.collections_later():
            things = [{} for _ in range(100_000)]
            assert collected == []
            raise KeyError
        assert len(things) == 100_000
        assert gc.isenabled() is is_enabled
    finally:
        gc.callbacks.remove(note)
        (gc.enable if before else gc.disable)()


# Health.


async def test_a_broker_is_ready_unless_something_says_no(rig: BrokerRig, segment: SharedSegment) -> None:
    seen = observed(rig, segment)
    assert readiness(None).reasons == ("it is starting: the store is being opened and recovered",)
    await rig.broker.registration.register_all(check_order=False, oneway=False, force=True)
    base = readiness(seen).reasons
    for flag, words in FLAG_WORDS.items():
        segment.set("store_flags", layout.constants("StoreFlag")[flag])
        assert set(readiness(seen).reasons) - set(base) == ({words} if words else set())
    segment.set("store_flags", 0)
    assert "it is starting, or stopping" in readiness(replace(seen, is_serving=False)).reasons
    await rig.broker.settings.update({"brokerPermission": "4"})
    assert "brokerPermission=4 lets nobody write" in readiness(seen).reasons
    assert liveness(seen, 1).is_yes


# The port.


@pytest.fixture
async def port(rig: BrokerRig, segment: SharedSegment) -> AsyncIterator[int]:
    async with served(observed(rig, segment)) as found:
        yield found


@contextlib.asynccontextmanager
async def served(seen: Observed | None) -> AsyncIterator[int]:
    endpoint = MetricsEndpoint(load(overrides={"metricsPort": str(free_port())}, environment={}), lambda: seen)
    await endpoint.start()
    try:
        yield endpoint.address[1]
    finally:
        await endpoint.stop()


def say(port: int, request: bytes) -> bytes:
    """Send *request*, and return all that comes until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as peer:
        peer.sendall(request)
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := peer.recv(65536):
                parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"\xff\xfe\x00\r\n\r\n", b"400"),
        (b"GET /" + b"x" * http_end.REQUEST_SIZE_MAX + b"\r\n\r\n", b"431"),
    ],
)
async def test_what_is_no_request_is_told_so(port: int, request_bytes: bytes, status: bytes) -> None:
    answer = await asyncio.to_thread(say, port, request_bytes)
    assert answer.split(b" ")[1] == status
    assert b"Connection: close" in answer


async def test_head_has_the_length_and_no_body(port: int) -> None:
    head, _, body = (await asyncio.to_thread(say, port, b"HEAD /healthz HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert b" 200 " in head
    assert int(re.findall(rb"Content-Length: (\d+)", head)[0]) > 0
    assert body == b""


async def test_who_says_nothing_is_left_in_time_and_before_that_makes_room(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [socket.create_connection(("127.0.0.1", port), DEADLINE_S) for _ in range(http_end.CONNECTIONS_MAX + 3)]
    try:
        assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 200
        assert silent[0].recv(1) == b"", "the oldest had to go"
        monkeypatch.setattr(http_end, "REQUEST_S_MAX", 0.05)
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as late:
            late.sendall(b"GET /metr")
            assert await asyncio.to_thread(late.recv, 1) == b""
    finally:
        for peer in silent:
            peer.close()


async def test_before_the_broker_is_there_it_lives_and_is_not_ready() -> None:
    async with served(None) as port:
        assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 200
        status, text = await asyncio.to_thread(get, port, "/readyz")
        assert (status, json.loads(text)["ready"]) == (503, False)
        assert (await asyncio.to_thread(get, port, "/metrics"))[0] == 503


async def test_an_event_loop_that_hangs_is_told_of(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "LOOP_S_MAX", 0.1)
    answers: list[tuple[int, str]] = []

    def ask() -> None:
        answers.extend(get(port, path) for path in ("/healthz", "/readyz", "/metrics"))

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: len(answers) == 3, DEADLINE_S, "answers while this event loop stands still")
    thread.join()
    assert [status for status, _ in answers] == [503, 503, 503]
    assert all("the event loop of the broker process has not turned for 0.1 s" in text for _, text in answers)


async def test_a_scrape_of_many_topics_gives_way_to_the_event_loop(
    tmp_path: Path, segment: SharedSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = BrokerRig(tmp_path, metricsTopicsMax=str(MANY), metricsGroupsMax=str(MANY))
    await rig.broker.groups.find_or_create("reader")
    for index in range(MANY):
        row = segment.offset_row(b"reader", f"T{index}".encode(), 0, True)
        segment.publish_topic(f"T{index}".encode(), 6, 1, 1, True, False)
        segment.commit(row, 0)
    given_way = 0

    def sleep(seconds: float) -> None:
        nonlocal given_way
        given_way += 1
        time.sleep(seconds)

    monkeypatch.setattr(exposition, "sleep", sleep)
    async with served(observed(rig, segment)) as port:
        scrape = asyncio.create_task(asyncio.to_thread(get, port, "/metrics"))
        turns = 0
        while not scrape.done():
            await asyncio.sleep(0.001)
            turns += 1
        _, text = await scrape
    assert text.count("rocketmq_messages_in_total{") == MANY
    assert text.count("rocketmq_consumer_lag_messages{") == MANY
    assert given_way > MANY / exposition.PORTION
    assert turns > given_way / 10


async def test_scrapers_that_come_together_are_given_one_text(port: int) -> None:
    texts = await asyncio.gather(*(asyncio.to_thread(get, port, "/metrics") for _ in range(4)))
    assert {status for status, _ in texts} == {200}


async def test_a_text_that_cannot_be_made_is_an_error_and_not_silence(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint_module, "render", lambda *_: 1 // 0)
    assert (await asyncio.to_thread(get, port, "/metrics"))[0] == 500
    assert "request failed path=/metrics" in caplog.text
    monkeypatch.undo()
    assert (await asyncio.to_thread(get, port, "/metrics"))[0] == 200


# Without it.


async def test_a_port_that_is_off_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert await start_endpoint(load(environment={}), lambda: None) is None


async def test_a_port_without_the_extra_says_which_install_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("prometheus_client", "mqcore.broker.metrics."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"metricsPort: got 5557, wanted .* pip install 'mqcore\[metrics\]'"):
        await start_endpoint(load(overrides={"metricsPort": "5557"}, environment={}), lambda: None)


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"metricsPort: cannot listen on 127.0.0.1:{at}: Address already"):
            await start_endpoint(load(overrides={"metricsPort": str(at)}, environment={}), lambda: None)
