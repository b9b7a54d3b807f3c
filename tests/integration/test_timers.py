"""Messages with timers against a whole broker: on time, once, over restarts, rolled, and taken back."""

from __future__ import annotations

import base64
import contextlib
import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from mqcore.client import Client, Message, ReceivedMessage
from mqcore.errors import BrokerError
from mqcore.store.timer.checkpoint import TimerCheck
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import GET_BROKER_RUNTIME_INFO, Answer, call
from tests.waiting import wait_until

SEND_MESSAGE, END_TRANSACTION, RECALL_MESSAGE, GET_TIMER_CHECK_POINT, GET_TIMER_METRICS = 10, 37, 370, 60, 61
SMALL = {"mappedFileSizeTimerLog": str(52 * 200 + 20), "timerFlushIntervalMs": "100", "recallMessageEnable": "true"}
LATE_MS = 30_000
"""A loaded machine may be so late; how late an idle one is, the benchmark says."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    with MqcoreBroker(tmp_path_factory.mktemp("timers") / "store", SMALL) as made:
        # The first message starts the worker; on a busy machine that takes longer than others are to wait.
        accepted(send(made, "First", b"first", TIMER_DELAY_MS="1"))
        yield made
        made.stop()


@pytest.fixture
def topic() -> str:
    return f"Timed{next(_numbers)}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send(broker: MqcoreBroker, topic: str, body: bytes, **properties: str) -> Answer:
    """Send as a client of RocketMQ 4.9 would that sets user properties."""
    named = {"UNIQ_KEY": body.decode(), **properties}
    header = {
        "producerGroup": "G", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "1",
        "sysFlag": "0", "bornTimestamp": str(now_ms()), "flag": "7", "reconsumeTimes": "0", "unitMode": "false",
        "batch": "false", "properties": "\x02".join(f"{name}\x01{value}" for name, value in named.items()),
    }  # fmt: skip
    return call(broker.broker_address, SEND_MESSAGE, header, body)


def accepted(answer: Answer) -> Answer:
    assert answer.code == 0, answer.remark
    return answer


def received(broker: MqcoreBroker, topic: str, count: int) -> dict[str, list[ReceivedMessage]]:
    """What is in the topic once there are *count* messages, by body, after a look whether there are more."""
    found: dict[str, list[ReceivedMessage]] = {}
    deadline = time.monotonic() + 30
    with (
        Client(broker.name_server) as client,
        client.pull_consumer(f"readers-{next(_numbers)}", topic, from_where="earliest") as consumer,
    ):
        missing = count
        while missing > 0 and time.monotonic() < deadline:
            for message in consumer.poll(timeout_s=0.2):
                found.setdefault(message.body.decode(), []).append(message)
                missing -= 1
        for message in consumer.poll(timeout_s=0.3):
            found.setdefault(message.body.decode(), []).append(message)
    return found


def runtime(broker: MqcoreBroker, key: str) -> str:
    value: str = call(broker.broker_address, GET_BROKER_RUNTIME_INFO).json()["table"][key]
    return value


def timer_workers(broker: MqcoreBroker) -> list[psutil.Process]:
    found = []
    for process in broker.workers():
        with contextlib.suppress(psutil.Error):  # it may end between any two looks
            if "timer" in process.cmdline():
                found.append(process)
    return found


def test_a_message_comes_when_it_asked_to_come(broker: MqcoreBroker, topic: str) -> None:
    # The first message of a store takes the slow path, and starts the worker; later ones take the fast one.
    due = {"first": now_ms() + 100}
    accepted(send(broker, topic, b"first", TAGS="t", mine="x", TIMER_DELAY_MS="100"))
    begin = now_ms()
    wanted = {
        "sec": {"TIMER_DELAY_SEC": "1"}, "ms": {"TIMER_DELAY_MS": "600"},
        "date": {"TIMER_DELIVER_MS": str(begin + 2500)}, "all": {"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "9"},
    }  # fmt: skip
    for name, asked in wanted.items():
        accepted(send(broker, topic, name.encode(), TAGS="t", mine="x", **asked))
        due[name] = begin + {"sec": 1000, "ms": 600, "date": 2500, "all": 1000}[name]
    found = received(broker, topic, len(due))
    assert {name: len(messages) for name, messages in found.items()} == dict.fromkeys(due, 1)
    for name, (message,) in found.items():
        late = message.store_timestamp - due[name]
        assert 0 <= late < LATE_MS, (name, late)
        assert message.tag == "t"
        assert (message.queue.queue_id, message.flag) == (1, 7)
        properties = message.properties
        assert properties["mine"] == "x"
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == (topic, "1")
        assert int(properties["TIMER_OUT_MS"]) % 1000 == 0
        assert int(properties["TIMER_DEQUEUE_MS"]) >= due[name]
        assert "TIMER_ENQUEUE_MS" in properties


def test_what_is_due_already_comes_at_once(broker: MqcoreBroker, topic: str) -> None:
    answer = accepted(send(broker, topic, b"past", TIMER_DELIVER_MS="1"))
    assert "recallHandle" not in answer.ext_fields
    (message,) = received(broker, topic, 1)["past"]
    assert "TIMER_OUT_MS" not in message.properties


def test_a_delay_level_wins(broker: MqcoreBroker, topic: str) -> None:
    accepted(send(broker, topic, b"level", DELAY="1", TIMER_DELAY_MS="3600000"))
    (message,) = received(broker, topic, 1)["level"]
    assert "TIMER_DELAY_MS" not in message.properties
    assert message.properties["DELAY"] == "1"


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "259210"},
        {"TIMER_DELAY_MS": "abc"},
        {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "T+x"},
    ],
)
def test_what_cannot_wait_is_refused_by_name(broker: MqcoreBroker, topic: str, properties: dict[str, str]) -> None:
    answer = send(broker, topic, b"x", **properties)
    assert answer.code == 13
    assert answer.remark is not None
    assert answer.remark.startswith("timer message illegal, the delay time should not be bigger than the max delay ")


def test_a_message_is_taken_back_and_no_other(broker: MqcoreBroker, topic: str) -> None:
    due = str((now_ms() // 1000 + 4) * 1000 + 500)
    handles = {}
    for name in ("kept", "gone", "stays"):
        handles[name] = accepted(send(broker, topic, name.encode(), TIMER_DELIVER_MS=due)).ext_fields["recallHandle"]
    slot = int(due) // 1000 * 1000
    assert base64.urlsafe_b64decode(handles["gone"]).decode() == f"v1 {topic} broker-a {slot + 1} gone"
    answer = call(broker.broker_address, RECALL_MESSAGE, {"topic": topic, "recallHandle": handles["gone"]})
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "gone")
    assert sorted(received(broker, topic, 2)) == ["kept", "stays"]


def handle(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("name", "text", "code", "remark"),
    [
        ("", "", 604, "recall handle is invalid"),
        ("", "%%%", 604, "recall handle is invalid"),
        ("", handle("v2 T broker-a 1 k"), 604, "recall handle is invalid"),
        ("", handle("v1 T broker-a"), 604, "recall handle is invalid"),
        ("", handle("v1 Other broker-a 1 k"), 604, "recall failed, topic not match"),
        ("", handle("v1 TBW102 broker-b 1 k"), 604, "recall failed, broker service not available"),
        ("", handle("v1 TBW102 broker-a 1 k"), 604, "recall failed, timestamp invalid"),
        ("", handle("v1 TBW102 broker-a 9999999999999 k"), 604, "recall failed, timestamp invalid"),
        ("", handle("v1 TBW102 broker-a x k"), 604, "recall failed, timestamp invalid"),
        ("NoSuchTopic", "x", 17, "recall failed, the topic[NoSuchTopic] not exist"),
    ],
)
def test_a_handle_that_names_nothing_is_refused(
    broker: MqcoreBroker, name: str, text: str, code: int, remark: str
) -> None:
    answer = call(broker.broker_address, RECALL_MESSAGE, {"topic": name or "TBW102", "recallHandle": text})
    assert (answer.code, answer.remark) == (code, remark)


def test_a_transaction_waits_from_its_commit_on(broker: MqcoreBroker, topic: str) -> None:
    begin = now_ms()
    answer = accepted(send(broker, topic, b"half", TRAN_MSG="true", PGROUP="G", TIMER_DELAY_MS="900"))
    assert "recallHandle" not in answer.ext_fields
    time.sleep(0.3)
    place = int(answer.ext_fields["msgId"][-16:], 16)
    header = {
        "producerGroup": "G", "tranStateTableOffset": answer.ext_fields["queueOffset"], "commitLogOffset": str(place),
        "commitOrRollback": str(2 << 2), "fromTransactionCheck": "false", "msgId": "half", "transactionId": "half",
    }  # fmt: skip
    accepted(call(broker.broker_address, END_TRANSACTION, header))
    (message,) = received(broker, topic, 1)["half"]
    assert 1200 <= message.store_timestamp - begin < 1200 + LATE_MS


def test_a_client_says_when_and_takes_back(broker: MqcoreBroker, topic: str) -> None:
    with Client(broker.name_server) as client, client.producer("calendar") as producer:
        begin = now_ms()
        producer.send(Message(topic, b"soon", delay=timedelta(milliseconds=700)))
        kept = producer.send(Message(topic, b"date", deliver_at=datetime.now(UTC) + timedelta(seconds=1.5)))
        gone = producer.send(Message(topic, b"gone", delay=2.5))
        assert kept.recall_handle is not None
        assert gone.recall_handle is not None
        assert producer.recall(topic, gone.recall_handle) == gone.msg_id
        assert producer.send(Message(topic, b"plain")).recall_handle is None
        with pytest.raises(BrokerError, match="recall failed, topic not match"):
            producer.recall("TBW102", gone.recall_handle)
    found = received(broker, topic, 3)
    assert sorted(found) == ["date", "plain", "soon"]
    assert 700 <= found["soon"][0].store_timestamp - begin < 700 + LATE_MS
    assert 1500 <= found["date"][0].store_timestamp - begin < 1500 + LATE_MS
    wait_until(lambda: runtime(broker, "timerCongestNum") == "0", describe="what was taken back is forgotten")
    assert sorted(received(broker, topic, 3)) == ["date", "plain", "soon"]


def test_operators_see_what_waits(broker: MqcoreBroker, topic: str) -> None:
    for number in range(3):
        accepted(send(broker, topic, b"%d" % number, TIMER_DELAY_MS="2500"))

    def count() -> int:
        metrics = call(broker.broker_address, GET_TIMER_METRICS).json()
        found: int = metrics["timingCount"].get(topic, {}).get("count", 0)
        return found

    wait_until(lambda: count() == 3, describe="three messages wait")
    assert int(runtime(broker, "timerCongestNum")) >= 3
    assert {"timerReadBehind", "timerOffsetBehind", "timerEnqueueTps", "timerDequeueTps"} <= set(
        call(broker.broker_address, GET_BROKER_RUNTIME_INFO).json()["table"]
    )
    check = call(broker.broker_address, GET_TIMER_CHECK_POINT).body
    assert len(check) == 56
    wait_until(lambda: count() == 0, deadline_s=20, describe="none waits any more")


def test_a_message_that_is_taken_back_in_time_is_not_delivered_though_dispatch_stands_still(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", SMALL) as broker:
        (reput,) = (worker for worker in broker.workers() if "reput" in worker.cmdline())
        # A machine that stands still may come too late to take anything back: then once more, for a later time.
        for ahead_ms in (4_000, 40_000):
            topic, due = f"Back{ahead_ms}", now_ms() + ahead_ms
            handle = accepted(send(broker, topic, b"gone", TIMER_DELIVER_MS=str(due))).ext_fields["recallHandle"]
            accepted(send(broker, topic, b"kept", TIMER_DELIVER_MS=str(due)))
            wait_until(lambda: runtime(broker, "timerOffsetBehind") == "0", describe="both are in the wheel")
            reput.suspend()
            answer = call(broker.broker_address, RECALL_MESSAGE, {"topic": topic, "recallHandle": handle})
            if now_ms() < due:
                break
            reput.resume()
        assert (answer.code, now_ms() < due) == (0, True), answer
        wait_until(lambda: now_ms() > due + 500, describe="it would be due")
        reput.resume()
        assert set(received(broker, topic, 1)) == {"kept"}
        broker.stop()


def test_what_waits_outlives_a_stop_and_a_kill(broker: MqcoreBroker, topic: str) -> None:
    for number in range(300):  # more than a file of the timer log has units
        accepted(send(broker, topic, b"%d" % number, TIMER_DELAY_MS=str(100 + 10 * number)))
    broker.stop()
    check = TimerCheck.read(broker.store_dir / "config" / "timercheck")
    assert check.queue_offset >= 300
    assert check.log_position >= 300 * 52
    broker.start_again()
    time.sleep(0.3)  # some are delivered, some are not
    broker.kill()
    broker.start_again()
    found = received(broker, topic, 300)
    assert {name: len(messages) for name, messages in found.items()} == {str(number): 1 for number in range(300)}


def test_a_store_without_its_timer_files_builds_them_anew(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", SMALL) as broker:
        for number in range(100):
            accepted(send(broker, "Waits", b"%d" % number, TIMER_DELAY_MS=str(100 + 40 * number)))
        time.sleep(1)
        broker.stop()
        # As the store of a slave is, which has the commit log and nothing else of this.
        for path in (broker.store_dir / "timerlog").iterdir():
            path.unlink()
        for name in ("timerwheel", "config/timercheck", "mqcore/timers"):
            (broker.store_dir / name).unlink()
        broker.start_again()
        found = received(broker, "Waits", 100)
        assert {name: len(messages) for name, messages in found.items()} == {str(number): 1 for number in range(100)}
        broker.stop()


def test_a_worker_that_is_killed_repeats_nothing(broker: MqcoreBroker, topic: str) -> None:
    # Longer than a slot, so that a successor, which is behind, moves over slots of which others have delivered already.
    for number in range(400):
        accepted(send(broker, topic, b"%d" % number, TIMER_DELAY_MS=str(50 + 12 * number)))
    for _ in range(3):
        time.sleep(1.2)
        (worker,) = timer_workers(broker)
        worker.kill()
        worker.wait(10)
        wait_until(lambda: timer_workers(broker), describe="another timer worker runs")
    found = received(broker, topic, 400)
    assert {name: len(messages) for name, messages in found.items()} == {str(number): 1 for number in range(400)}


def test_a_long_delay_is_rolled(tmp_path: Path) -> None:
    properties = {**SMALL, "timerPrecisionMs": "100", "timerRollWindowSlot": "4"}
    with MqcoreBroker(tmp_path / "store", properties) as broker:
        begin = now_ms()
        accepted(send(broker, "Rolled", b"rolled", TIMER_DELAY_MS="2500"))
        (message,) = received(broker, "Rolled", 1)["rolled"]
        assert int(message.properties["TIMER_ROLL_TIMES"]) >= 2
        assert 2500 <= message.store_timestamp - begin < 2500 + LATE_MS
        broker.stop()


def test_a_broker_without_a_wheel_says_so(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", {"timerWheelEnable": "false"}) as broker:
        answer = send(broker, "T", b"x", TIMER_DELAY_MS="5")
        assert (answer.code, answer.remark) == (
            1, "accurate timer message is not enabled, timerWheelEnable is false",
        )  # fmt: skip
        assert call(broker.broker_address, GET_TIMER_METRICS).code == 1
        assert not timer_workers(broker)
        broker.stop()


def test_a_broker_without_timers_has_no_timer_worker(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store") as broker:
        accepted(send(broker, "T", b"x"))
        assert not timer_workers(broker)
        assert runtime(broker, "timerReadBehind") == "0"
        answer = call(broker.broker_address, RECALL_MESSAGE, {"topic": "T", "recallHandle": "x"})
        assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")
        broker.stop()
    assert not (tmp_path / "store" / "timerwheel").exists()
