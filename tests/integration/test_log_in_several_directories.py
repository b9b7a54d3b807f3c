"""A broker whose commit log lies in several directories: it rolls over them, restarts, crashes, deletes, and tells."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqcore.codes import RequestCode
from mqcore.store.reader import StoreReader
from tests.compat.apache_requests import bounds
from tests.integration.spread_log import (
    DEADLINE_S,
    PER_FILE,
    TOPIC,
    homes,
    is_in_turn,
    log_properties,
    numbers_of,
    pulled,
    send,
)
from tests.rigs import ChildError, MqcoreBroker
from tests.rigs.wire import SUCCESS, call, create_topic
from tests.waiting import wait_until


def runtime_info(broker: MqcoreBroker) -> dict[str, str]:
    table: dict[str, str] = call(broker.broker_address, RequestCode.GET_BROKER_RUNTIME_INFO).json()["table"]
    return table


def is_without_gaps(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[-1] + 1))


def test_it_rolls_over_restarts_and_recovers_from_a_crash(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", log_properties(tmp_path)) as broker:
        create_topic(broker.broker_address, TOPIC, queues=1)
        send(broker.broker_address, range(50))
        assert is_in_turn(tmp_path, 50)
        broker.restart()
        send(broker.broker_address, range(50, 80))
        broker.kill()
        broker.start_again()
        send(broker.broker_address, range(80, 110))
        assert is_in_turn(tmp_path, 110)
        assert pulled(broker.broker_address) == list(range(110))
        with StoreReader(tmp_path / "store", [tmp_path / name for name in "abc"]) as reader:
            assert sum(batch.row_count for batch in reader.batches(["queue_offset"], topics=TOPIC)) == 110
        broker.stop()
        # A clean stop leaves no file that was made ahead, in none of them.
        assert is_in_turn(tmp_path, 110)
        assert numbers_of(homes(tmp_path)) == list(range(110 // PER_FILE + 1))


@pytest.mark.slow
def test_a_log_in_one_directory_goes_on_in_others_and_is_read_only_itself(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", log_properties(tmp_path, "a")) as broker:
        create_topic(broker.broker_address, TOPIC, queues=1)
        send(broker.broker_address, range(40))
        broker.stop()
        before = homes(tmp_path, "a")
        for name in "bc":
            (tmp_path / name).mkdir()
        broker.properties.update(log_properties(tmp_path, "bc", "a"))
        broker.start_again()
        send(broker.broker_address, range(40, 80))
        assert pulled(broker.broker_address) == list(range(80))
        assert homes(tmp_path, "a") == before
        assert all(homes(tmp_path, "bc").values())
        broker.kill()
        broker.start_again()
        assert pulled(broker.broker_address) == list(range(80))
        broker.stop()


def test_a_missing_directory_stops_the_start_and_loses_nothing(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", log_properties(tmp_path)) as broker:
        create_topic(broker.broker_address, TOPIC, queues=1)
        send(broker.broker_address, range(30))
        broker.stop()
        (tmp_path / "b").rename(tmp_path / "away")
        with pytest.raises(ChildError, match="is missing: mount its disk"):
            broker.start_again()
        (tmp_path / "b").mkdir()
        with pytest.raises(ChildError, match="is its disk mounted"):
            broker.start_again()
        (tmp_path / "b").rmdir()
        (tmp_path / "away").rename(tmp_path / "b")
        broker.start_again()
        assert pulled(broker.broker_address) == list(range(30))
        broker.stop()


def test_files_are_deleted_in_order_over_all_directories(tmp_path: Path) -> None:
    in_twelve_hours = f"{(time.localtime().tm_hour + 12) % 24:02d}"
    given = log_properties(tmp_path, fileReservedTime="0", deleteWhen=in_twelve_hours, cleanResourceInterval="100")
    with MqcoreBroker(tmp_path / "store", given) as broker:
        create_topic(broker.broker_address, TOPIC, queues=1)
        send(broker.broker_address, range(60))
        assert numbers_of(homes(tmp_path))[0] == 0
        assert call(broker.broker_address, RequestCode.DELETE_EXPIRED_COMMITLOG).code == SUCCESS
        wait_until(lambda: numbers_of(homes(tmp_path))[0] == 60 // PER_FILE, DEADLINE_S, "all but the newest are gone")
        # The next files are made ahead, perhaps between the looks at two directories.
        wait_until(lambda: is_without_gaps(numbers_of(homes(tmp_path))), DEADLINE_S, "one file after the other is left")
        wait_until(lambda: bounds(broker.broker_address, TOPIC, 0)[0] > 0, DEADLINE_S, "the queue follows the log")
        numbers = pulled(broker.broker_address)
        assert numbers
        assert numbers == list(range(numbers[0], 60))
        broker.restart()
        assert pulled(broker.broker_address) == numbers
        broker.stop()


def test_the_runtime_info_tells_of_each_directory_and_of_the_emptiest(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", log_properties(tmp_path, "abc")) as broker:
        table = runtime_info(broker)
        ratios = [float(table[f"commitLogDiskRatio_{tmp_path / name}"]) for name in "abc"]
        assert float(table["commitLogDiskRatio"]) == min(ratios) > 0
        directory = tmp_path / "c"
        directory.rename(tmp_path / "away")
        table = runtime_info(broker)
        assert (table[f"commitLogDiskRatio_{directory}"], table["commitLogDiskRatio"]) == ("-1.0", "-1.0")
        (tmp_path / "away").rename(directory)
        broker.stop()
