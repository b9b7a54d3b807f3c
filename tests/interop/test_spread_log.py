"""One store whose commit log lies in several directories, under Apache's broker and ours in turn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqcore.store.reader import StoreReader
from tests.integration.spread_log import TOPIC, homes, is_in_turn, log_properties, numbers_of, pulled, send
from tests.rigs import ApacheServer, JavaDriver, MqcoreBroker, RunningBroker, maven, wire
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

RELEASE = "4.9.8"


def runtime_info(broker: RunningBroker) -> dict[str, str]:
    table: dict[str, str] = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    return table


def start(kind: str, root: Path, properties: dict[str, str]) -> RunningBroker:
    """Start *kind* of broker on the one store below *root*."""
    if kind == "apache":
        return ApacheServer(RELEASE, root / "store", properties)
    return MqcoreBroker(root / "store", properties)


def is_numbered(root: Path, names: str = "abc") -> None:
    """No file is there twice, and none is missing between others."""
    numbers = numbers_of(homes(root, names))
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("apache", "mqcore", "apache"), id="apache-mqcore-apache", marks=pytest.mark.slow),
        pytest.param(("mqcore", "apache", "mqcore"), id="mqcore-apache-mqcore"),
    ],
)
@pytest.mark.parametrize("ending", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_each_goes_on_where_the_other_ended(
    tmp_path: Path, java_4_9_8: JavaDriver, kinds: tuple[str, ...], ending: str
) -> None:
    sent = 0
    for number, kind in enumerate(kinds):
        with start(kind, tmp_path, log_properties(tmp_path)) as broker:
            if number == 0:
                wire.create_topic(broker.broker_address, TOPIC, queues=1)
            assert pulled(broker.broker_address) == list(range(sent))
            send(broker.broker_address, range(sent, sent + 40))
            sent += 40
            assert pulled(broker.broker_address) == list(range(sent))
            assert is_in_turn(tmp_path, sent)
            if number == 1:
                wait_until(lambda: wire.has_route(broker.name_server, TOPIC), describe="a route")
                with java_4_9_8.consumer(broker.name_server, TOPIC, "Everybody") as consumer:
                    wait_until(lambda: consumer.count() >= sent, 120, f"{sent} messages")  # noqa: B023
            getattr(broker, ending)()
        is_numbered(tmp_path)
        assert is_in_turn(tmp_path, sent)
    with StoreReader(tmp_path / "store", [tmp_path / name for name in "abc"]) as reader:
        assert sum(batch.row_count for batch in reader.batches(["queue_offset"], topics=TOPIC)) == sent


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("apache", "mqcore"), id="apache-mqcore", marks=pytest.mark.slow),
        pytest.param(("mqcore", "apache"), id="mqcore-apache"),
    ],
)
def test_what_one_wrote_is_read_only_for_the_other(tmp_path: Path, kinds: tuple[str, str]) -> None:
    with start(kinds[0], tmp_path, log_properties(tmp_path, "ab")) as first:
        wire.create_topic(first.broker_address, TOPIC, queues=1)
        send(first.broker_address, range(40))
        first.stop()
    before = homes(tmp_path, "ab")
    for name in "cd":
        (tmp_path / name).mkdir()
    with start(kinds[1], tmp_path, log_properties(tmp_path, "cd", "ab")) as second:
        send(second.broker_address, range(40, 80))
        assert pulled(second.broker_address) == list(range(80))
        second.stop()
    assert homes(tmp_path, "ab") == before
    is_numbered(tmp_path, "abcd")
    with start(kinds[0], tmp_path, log_properties(tmp_path, "abcd")) as again:
        assert pulled(again.broker_address) == list(range(80))
        again.stop()


def disks(table: dict[str, str], kind: str) -> dict[str, str]:
    """What *table* says of the commit log's disks, with the figures blanked, which change while the tests run."""
    return {
        name.replace(kind, "<kind>"): re.sub(r"(?<!-)\b\d+\.\d+", "<n>", value)
        for name, value in table.items()
        if name.startswith("commitLogD")
    }


@pytest.mark.slow
def test_both_tell_the_same_of_the_disks(tmp_path: Path) -> None:
    told = []
    for kind in ("apache", "mqcore"):
        with start(kind, tmp_path / kind, log_properties(tmp_path / kind)) as broker:
            (tmp_path / kind / "c").rename(tmp_path / kind / "away")
            table = runtime_info(broker)
            (tmp_path / kind / "away").rename(tmp_path / kind / "c")
            told.append(disks(table, kind))
            broker.stop()
    assert told[0] == told[1]
    assert sorted(told[0].values()) == ["-1.0", "-1.0", "<n>", "<n>", "Total : <n> GiB, Free : <n> GiB."]
