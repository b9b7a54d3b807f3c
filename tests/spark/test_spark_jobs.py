"""The jobs: archive and replay, trace, dead letters; each as its user runs it, but in this run's session."""

from __future__ import annotations

import json
import random
import time
import xml.dom.minidom
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqcore.client import Client, Message, Reject
from mqcore.protocol.names import TRACE_TOPIC
from mqcore.spark.jobs import archive, deadletters, replay, trace
from mqcore.spark.jobs.chart import render
from mqcore.spark.jobs.command import DONE, FAILED, NOTHING
from mqcore.spark.schema import SCHEMA
from tests.rigs import MqcoreBroker, wire
from tests.spark.helpers import await_readable, bodies_of, fill, make_topic, read
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000


@pytest.fixture
def topic(broker: MqcoreBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, 4)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%07d" % number for number in range(first, first + count)]


def given(broker: MqcoreBroker, *more: object) -> list[str]:
    return ["--name-server", broker.name_server, "--option", "retryIntervalMs=100", *map(str, more)]


def archived(spark: SparkSession, output: Path) -> list[bytes]:
    frame = spark.read.parquet(str(output)).select("body")
    return sorted(bytes(row.body) for row in frame.collect())


@pytest.mark.slow
def test_archive_goes_on_where_it_ended_and_replay_sends_it_again_in_order(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "archive"
    arguments = given(broker, "--topics", topic, "--output", output, "--batch", 600, "--group", "archivist")
    fill(broker, topic, numbered(1000), keys=[str(number) for number in range(1000)], tags=["a", "b"] * 500)
    assert archive.main(arguments) == DONE
    assert archived(spark, output) == numbered(1000)
    fill(broker, topic, numbered(300, 1000), keys=[str(number) for number in range(1000, 1300)], tags=["a", "b"] * 150)
    assert archive.main(arguments) == DONE
    assert archived(spark, output) == numbered(1300)
    assert "archive: 300 messages to" in capsys.readouterr().err
    committed = [wire.consumer_offset(broker.broker_address, "archivist", topic, number) or 0 for number in range(4)]
    assert sum(committed) == 1300
    partitions = {path.name.partition("=")[0] for path in output.rglob("*=*")}
    assert partitions == {"batch", "topic", "date"}

    again = make_topic(broker, "again_" + topic, 4)
    sent = ["--input", output, "--topic", again, "--where", "tags = 'a'", "--keep-queues", "--job-id", "test"]
    begin = time.monotonic()
    assert replay.main(given(broker, *sent, "--rate", 1000)) == DONE
    assert time.monotonic() - begin > 0.3  # 650 messages at 1000 a second, less the first burst
    await_readable(broker, again)
    rows = read(broker, SCHEMA, subscribe=again)
    assert bodies_of(rows) == [body for number, body in enumerate(numbered(1300)) if number % 2 == 0]
    before = {int(row["body"]): row for row in read(broker, SCHEMA, subscribe=topic)}
    for queue_id in range(4):
        mine = [row for row in rows if row["queueId"] == queue_id]
        assert mine == sorted(mine, key=lambda row: before[int(row["body"])]["offset"])
        for row in mine:
            old = before[int(row["body"])]
            assert (row["keys"], row["tags"], old["queueId"]) == (old["keys"], old["tags"], queue_id)
            assert dict(row["properties"])[replay.ARCHIVED_MSG_ID] == old["msgId"]


def test_an_archive_without_its_plans_is_not_begun_anew(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "archive"
    (output / "batch=0").mkdir(parents=True)
    assert archive.main(given(broker, "--topics", topic, "--output", output)) == FAILED
    assert "1 batches and no plans in _archive" in capsys.readouterr().err


def test_an_archive_broken_off_at_any_moment_has_each_message_once(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path, chance: random.Random
) -> None:
    """What a crash leaves is the plan of the last batch, not marked as done, and any part of its files."""
    output = tmp_path / "archive"
    arguments = given(broker, "--topics", topic, "--output", output, "--batch", 250)
    fill(broker, topic, numbered(400))
    assert archive.main(arguments) == DONE
    last = max(int(path.stem) for path in (output / archive.PLANS).glob("*.json"))
    for left in (output / archive.PLANS).glob(f"*{last}.done*"):
        left.unlink()
    files = sorted((output / f"batch={last}").rglob("*.parquet"))
    for path in chance.sample(files, chance.randrange(len(files) + 1)):
        path.unlink()
    fill(broker, topic, numbered(100, 400))
    assert archive.main(arguments) == DONE
    assert archived(spark, output) == numbered(500)
    assert archive.main(arguments) == NOTHING


def test_dead_letters_are_told_apart_and_sent_again(
    spark: SparkSession, broker: MqcoreBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group = "group_of_dead_letters"
    died: list[bytes] = []

    def handle(message: Any) -> None:
        if message.body.startswith(b"bad") and not died.count(message.body):
            died.append(message.body)
            raise Reject
        died.append(message.body)

    with Client(broker.name_server) as mq:
        with mq.producer("sender") as producer:
            for number in range(6):
                body = b"bad %d" % number if number < 4 else b"good"
                producer.send(Message(topic, body, tag="even" if number % 2 == 0 else "odd", keys=[str(number)]))
        with mq.consumer(group, {topic: "*"}, handler=handle, from_where="earliest"):
            wait_until(lambda: len(died) == 6, 30, "each message was handled")
            wait_until(lambda: letters(broker, group) == 4, 30, "four dead letters")
            arguments = given(broker, "--group", group)
            assert deadletters.main(arguments) == DONE
            rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert [(row["originTopic"], row["tags"], row["cause"], row["messages"]) for row in rows] == [
                (topic, "even", "rejected at once", 2),
                (topic, "odd", "rejected at once", 2),
            ]
            assert deadletters.main([*arguments, "--resend", "--where", "tags = 'odd'"]) == DONE
            wait_until(lambda: len(died) == 8, 30, "the odd ones were delivered again")
            assert sorted(died[-2:]) == [b"bad 1", b"bad 3"]
    assert deadletters.main([*arguments, "--where", "tags = 'never'"]) == NOTHING
    again = [row for row in read(broker, SCHEMA, subscribe=topic) if "DEAD_LETTER_ID" in dict(row["properties"])]
    assert sorted(row["keys"] for row in again) == ["1", "3"]


def letters(broker: MqcoreBroker, group: str) -> int:
    return len(read(broker, subscribePattern=f"%DLQ%{group}"))


def record(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


def traces(start_ms: int) -> list[bytes]:
    """What Apache's dispatcher writes for 100 messages sent, two of them in vain, and 50 consumed, one in vain."""
    bodies = []
    for number in range(100):
        msg_id, time_ms = f"ID{number:04d}", start_ms + (number % 2) * HOUR_MS
        success = "false" if number in (10, 11) else "true"
        sender = ("DefaultRegion", "senders", "Orders", msg_id, "tag", "key", "host:1")
        text = record("Pub", time_ms, *sender, 5, number + 1, 0, "OFFSETID", success)
        if number < 50:
            request = f"REQ{number}"
            text += record("SubBefore", time_ms, "DefaultRegion", "readers", request, msg_id, 0, "key")
            tail = [] if number % 5 == 0 else [time_ms, "readers"]  # as with the access channel CLOUD
            text += record("SubAfter", request, msg_id, 7, "false" if number == 3 else "true", "key", 0, *tail)
        bodies.append(text.encode())
    return [*bodies, bodies[0]]


def test_traces_become_percentiles_failures_and_a_chart(
    spark: SparkSession, broker: MqcoreBroker, tmp_path: Path
) -> None:
    start_ms = 1_700_000_000_000 - 1_700_000_000_000 % HOUR_MS
    fill(broker, TRACE_TOPIC, traces(start_ms))
    output, chart = tmp_path / "report.json", tmp_path / "report.svg"
    assert trace.main(given(broker, "--output", output, "--chart", chart)) == DONE
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    kinds = [(row["kind"], row["topic"], row["group"], row["hour"], row["count"], row["failures"]) for row in rows]
    assert kinds == [
        ("consume", "Orders", "readers", "2023-11-14 22:00", 25, 0),
        ("consume", "Orders", "readers", "2023-11-14 23:00", 25, 1),
        ("send", "Orders", "senders", "2023-11-14 22:00", 50, 1),
        ("send", "Orders", "senders", "2023-11-14 23:00", 50, 1),
    ]
    assert [rows[2][name] for name in ("p50Ms", "p95Ms", "p99Ms", "maxMs")] == [49, 95, 99, 99]
    picture = xml.dom.minidom.parse(str(chart))
    assert len(picture.getElementsByTagName("polyline")) == 6
    texts = "".join(node.firstChild.data for node in picture.getElementsByTagName("text"))
    assert "1 of 50 failed" in texts
    assert "2 of 100 failed" in texts


def test_a_chart_shows_names_that_look_like_markup() -> None:
    row = {"kind": "send", "topic": "<b>&", "group": "g", "hour": "2026-01-01 00:00", "count": 1, "failures": 0,
           "p50Ms": 0, "p95Ms": 0, "p99Ms": 0}  # fmt: skip
    assert "&lt;b&gt;&amp;" in render([row])
    xml.dom.minidom.parseString(render([row]))


@pytest.mark.parametrize("main", [archive.main, replay.main, deadletters.main, trace.main])
def test_a_job_that_cannot_reach_its_brokers_or_input_fails_with_one_line(
    spark: SparkSession, main: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: dict[Any, Sequence[str]] = {
        archive.main: ["--topics", "T", "--output", str(tmp_path / "out")],
        replay.main: ["--input", str(tmp_path / "nothing")],
        deadletters.main: ["--group", "g"],
        trace.main: [],
    }
    nowhere = ["--name-server", "127.0.0.1:1", "--option", "numRetries=0"]
    assert main([*nowhere, *arguments[main]]) == FAILED
    assert "failed: " in capsys.readouterr().err
