"""The examples in docs/examples, and RocketMQ's, ported line by line in docs/examples/java_names, do what they say."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mqcore.testing import RunningBroker, assert_consumed, assert_received, running_broker
from tests.rigs import maven
from tests.rigs.apache import ApacheServer

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
ASKS_SOON = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    topics = [
        "TopicTest", "TopicSimple", "TopicOrder", "TopicBroadcast", "TopicScheduled", "TopicBatch", "TagFilterTest",
        "TopicLitePull", "TopicAssign", "TopicPull", "SqlFilterTest", "RequestTopic", "TopicTest1234",
        "Greetings", "Letters", "OrderSteps", "Announcements", "Alarms", "Imports", "ShopEvents", "Bargains", "Samples",
        "Shards", "Records", "Questions", "Transfers",
    ]  # fmt: skip
    with running_broker(topics=topics, settings=ASKS_SOON | {"enablePropertyFilter": "true"}) as broker:
        yield broker


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def output(name: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    load(EXAMPLES / f"{name}.py").main(*arguments)
    return capsys.readouterr().out.splitlines()


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.rglob("*.py"):
        name = path.relative_to(EXAMPLES).with_suffix("")
        assert f'output("{name}"' in here, name


def test_every_example_has_a_sister_in_the_other_names() -> None:
    ours, javas = ({path.name for path in folder.glob("*.py")} for folder in (EXAMPLES, EXAMPLES / "java_names"))
    assert ours == javas


def test_simple_producer(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("simple_producer", capsys, broker.name_server)
    assert sum(line.startswith("SEND_OK ") for line in lines) == 10
    assert sum(" stored as " in line for line in lines) == 10
    assert lines[-1].startswith("10 receipts from ")
    hello = [f"Hello {i}" for i in range(10)]
    assert_received(broker, "Greetings", [*hello, *hello, *["Hello world"] * 10, *["Hello asyncio"] * 10])


def test_simple_consumer(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Counter(output("simple_consumer", capsys, broker.name_server))
    assert lines == Counter(f"{way}: Letter {i}" for way in ("called with", "came by", "awaited") for i in range(5))
    for group in ("readers", "listeners", "watchers"):
        assert_consumed(broker, group, "Letters")


def test_ordered_messages(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split(": ")[1].split() for line in output("ordered_messages", capsys, broker.name_server)]
    assert len(lines) == 12
    for order in {order for order, _ in lines}:
        assert [step for of, step in lines if of == order] == ["create", "pay", "push", "finish"]


def test_broadcast(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Counter(output("broadcast", capsys, broker.name_server))
    assert lines == Counter(f"member {number} got: Announcement {i}" for number in range(2) for i in range(5))


def test_scheduled_messages(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("scheduled_messages", capsys, broker.name_server, "3", "1")
    late = [int(re.findall(r"(\d+) ms after", line)[0]) for line in lines]
    assert len(late) == 3
    assert all(late_ms >= 1000 for late_ms in late)


def test_batch(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("batch", capsys, broker.name_server)
    assert lines[0] == "3 rows in 1 queue"
    assert lines[1].startswith("10000 rows, ")
    assert_received(broker, "Imports", [*(f"Row {i}" for i in range(3)), *[b"x" * 1000] * 10_000])


def test_filter_by_tag(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Counter(output("filter_by_tag", capsys, broker.name_server))
    assert lines == {"got: new": 3, "got: cancelled": 3}


def test_polling_by_subscription(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("lite_pull_subscribe", capsys, broker.name_server)
    assert sorted(lines) == [f"Sample {i}" for i in range(8)]


def test_polling_by_assignment(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("lite_pull_assign", capsys, broker.name_server)
    got = Counter(line.split()[0] for line in lines if "Sample" in line)
    committed = {line.split()[1]: int(line.split()[2]) for line in lines if line.startswith("committed")}
    assert got == committed
    assert len(committed) == 2


def test_pull_consumer(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("pull_consumer", capsys, broker.name_server)
    assert sorted(line.split()[-1] for line in lines if "Record" in line) == [str(i) for i in range(8)]
    assert_consumed(broker, "archive", "Records")
    again = output("pull_consumer", capsys, broker.name_server, "4")  # it goes on where it was
    assert len([line for line in again if "Record" in line]) == 4


def test_simple_producers_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("java_names/simple_producer", capsys, broker.name_server)
    assert sum(line.startswith("SendResult [sendStatus=SEND_OK, msgId=") for line in lines) == 10
    assert sum(" OK " in line for line in lines) == 10
    hello = [f"Hello RocketMQ {i}" for i in range(10)]
    assert_received(broker, "TopicTest", [*hello, *hello, *["Hello world"] * 10])


def test_simple_consumer_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("java_names/simple_consumer", capsys, broker.name_server)
    wanted = {f"Receive New Messages: Hello RocketMQ {i}" for i in range(5)}
    assert {line for line in lines if line.startswith("Receive")} == wanted
    assert_consumed(broker, "please_rename_unique_group_name_4", "TopicSimple")


def test_ordered_messages_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("java_names/ordered_messages", capsys, broker.name_server)
    contents = [re.sub(r".*content: ", "", line) for line in lines if "content:" in line]
    for order in ("15103111039", "15103111065", "15103117235"):
        steps = [content.split()[1] for content in contents if content.startswith(order)]
        assert steps == ["create", "pay", "push", "finish"]


def test_broadcast_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Counter(output("java_names/broadcast", capsys, broker.name_server))
    assert lines == Counter(
        f"member {number} Receive New Messages: Hello world {i}" for number in range(2) for i in range(5)
    )


def test_scheduled_messages_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("java_names/scheduled_messages", capsys, broker.name_server, "3", "1")
    late = [int(re.findall(r"(\d+) ms after", line)[0]) for line in lines]
    assert len(late) == 3
    assert all(late_ms >= 1000 for late_ms in late)


def test_batch_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = output("java_names/batch", capsys, broker.name_server)
    assert line.startswith("SendResult [sendStatus=SEND_OK, msgId=")
    assert line.count(",") >= 4 + 2  # three ids
    assert_received(broker, "TopicBatch", [*(f"Hello world {i}" for i in range(3)), *[b"x" * 1000] * 10_000])


def test_filter_by_tag_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Counter(output("java_names/filter_by_tag", capsys, broker.name_server))
    assert lines == {"Receive New Messages: TagA": 3, "Receive New Messages: TagC": 3}


def test_lite_pull_by_subscription_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("java_names/lite_pull_subscribe", capsys, broker.name_server)
    assert sorted(lines) == [f"Hello {i}" for i in range(8)]


def test_lite_pull_by_assignment_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("java_names/lite_pull_assign", capsys, broker.name_server)
    got = Counter(line.split()[0] for line in lines if "Hello" in line)
    committed = {line.split()[1]: int(line.split()[2]) for line in lines if line.startswith("committed")}
    assert got == committed
    assert len(committed) == 2


def test_pull_consumer_in_java_names(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    # It asks each queue until there is nothing more, which may be before the last message has come into its queue.
    output("java_names/pull_consumer", capsys, broker.name_server)
    assert_received(broker, "TopicPull", [f"Hello {i}" for i in range(8)])
    lines = output("java_names/pull_consumer", capsys, broker.name_server, "0")
    assert sorted(line.split()[-1] for line in lines if "Hello" in line) == [str(i) for i in range(8)]
    found = [line for line in lines if line.startswith("PullResult [pullStatus=FOUND, nextBeginOffset=2, ")]
    assert len(found) == 4
    assert sum("pullStatus=NO_NEW_MSG" in line for line in lines) == 4
    assert_consumed(broker, "please_rename_unique_group_name_5", "TopicPull")


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    if missing := maven.missing_tools():
        pytest.skip(missing)
    # It asks again until it has heard the answer, and delivers once for each: an answer has five seconds to arrive.
    properties = {"enablePropertyFilter": "true"} | ASKS_SOON | {"transactionCheckInterval": "5000"}
    with ApacheServer("4.9.8", tmp_path_factory.mktemp("examples") / "store", properties) as server:
        yield server


@pytest.fixture(params=["ours", pytest.param("Apache's", marks=pytest.mark.slow)])
def name_server(request: pytest.FixtureRequest) -> str:
    """That of either broker: RocketMQ's has to be told to filter, and both to ask soon."""
    if request.param == "ours":
        return request.getfixturevalue("broker").name_server
    return request.getfixturevalue("apache").name_server


def test_filter_by_sql(name_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("filter_by_sql", capsys, name_server)
    assert sorted(lines) == ["got: green for 1", "got: red for 0", "got: red for 3"]


def test_request_reply(name_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("request_reply", capsys, name_server)
    assert lines[:2] == ["asked: 21", "answer: 42 EUR"]
    assert sorted(lines[2:]) == ["answers: 2 EUR, 4 EUR, 6 EUR", "asked: 1", "asked: 2", "asked: 3"]


def test_transaction(name_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("transaction", capsys, name_server)
    assert {line.split()[-1] for line in lines if line.startswith("received")} == {"0", "1", "3", "4"}
    assert {line.split()[-1] for line in lines if line.startswith("check of")} == {"0", "3"}


def test_filter_by_sql_in_java_names(name_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("java_names/filter_by_sql", capsys, name_server)
    assert sorted(lines) == [f"Receive New Messages: a={i} {tag}" for i, tag in ((0, "TagA"), (1, "TagB"), (3, "TagA"))]


def test_request_reply_in_java_names(name_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("java_names/request_reply", capsys, name_server)
    assert [line for line in lines if line.startswith("request to")] == [
        "request to <RequestTopic> replyMessage=reply message contents.",
        "request to <RequestTopic> success, replyMessage=reply message contents.",
    ]
    assert [line for line in lines if line.startswith("handle")] == [
        "handle message: Hello world",
        "handle message: Hello again",
    ]


def test_transaction_in_java_names(name_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output("java_names/transaction", capsys, name_server)
    received = {line.split()[-1] for line in lines if line.startswith("received")}
    assert received == {"0", "1", "3", "4"}
    assert {line.split()[-1] for line in lines if line.startswith("check of")} == {"0", "3"}
