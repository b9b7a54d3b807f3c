"""One full disk among those of a commit log costs nobody a message; all full is an answer to the producer."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from tests.compat import apache_requests as requests
from tests.fault import ext4
from tests.fault.ext4 import Disk
from tests.fault.test_full_disk import fill
from tests.integration.spread_log import BODY_SIZE, DEADLINE_S, TOPIC, homes, log_properties, numbers_of, pulled, send
from tests.rigs import MqcoreBroker
from tests.rigs.wire import SUCCESS, Answer, create_topic
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(ext4.missing_means()), reason=ext4.missing_means()),
]

DISK_SIZE = 32 << 20


def try_send(broker: MqcoreBroker, number: int) -> Answer:
    body = b"%d " % number + bytes(BODY_SIZE)
    return requests.send(broker.broker_address, TOPIC, 0, body, 0, {"UNIQ_KEY": f"U{number}", "WAIT": "true"})


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_full_disk_is_passed_over_and_all_full_is_an_error_code(tmp_path: Path, flush: str) -> None:
    with Disk(tmp_path / "x", DISK_SIZE) as x, Disk(tmp_path / "y", DISK_SIZE) as y:
        properties = log_properties(tmp_path, flushDiskType=flush)
        properties["storePathCommitLog"] = f"{x.path / 'log'},{y.path / 'log'}"
        with MqcoreBroker(tmp_path / "store", properties) as broker:
            create_topic(broker.broker_address, TOPIC, queues=1)
            send(broker.broker_address, range(30))
            fill(x.path / "filler")
            before = homes(x.path, ["log"])
            send(broker.broker_address, range(30, 90))
            # What was made ahead before the disk filled up may lie there; nothing that came later does.
            assert homes(x.path, ["log"]) == before
            assert len(homes(y.path, ["log"])["log"]) >= 8
            fill(y.path / "filler")
            acknowledged = list(range(90))
            refused = []
            for number in range(90, 130):
                answer = try_send(broker, number)
                (acknowledged if answer.code == SUCCESS else refused).append(number)
                assert answer.code in (SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE), answer
            assert refused
            (x.path / "filler").unlink()
            wait_until(lambda: try_send(broker, 200).code == SUCCESS, DEADLINE_S, "messages are accepted again")
            broker.kill()
            broker.start_again()
            assert [number for number in pulled(broker.broker_address) if number != 200] == acknowledged
            numbers = sorted(number for disk in (x, y) for number in numbers_of(homes(disk.path, ["log"])))
            assert numbers == list(range(numbers[-1] + 1)), "each file once"
            broker.stop()
