"""Replicas: a whole broker as master, with slaves that speak RocketMQ's few bytes, and a whole broker as slave."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore import layout
from mqcore.admin.ha_commands import COLUMNS
from mqcore.codes import RequestCode, ResponseCode
from tests.compat import apache_requests as requests
from tests.fault.rig import attach_segment, await_successor, find_worker, worker_kind
from tests.rigs import MqcoreBroker, wire
from tests.rigs.wire import SUCCESS
from tests.waiting import wait_until

HEAD = layout.HA_FRAME_HEAD
REPORT = layout.HA_REPORT
TOPIC = "Replicated"
FILE_SIZE = 1 << 18
DEADLINE_S = 60.0
SMALL = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "haSendHeartbeatInterval": "100",
    "bindAddress": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    properties = {
        "mappedFileSizeCommitLog": str(FILE_SIZE),
        "haSendHeartbeatInterval": "100",
        "bindAddress": "127.0.0.1",
    }
    with MqcoreBroker(tmp_path_factory.mktemp("replicas") / "store", properties) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        yield broker


def ha_workers(broker: MqcoreBroker) -> list[int]:
    return [worker.pid for worker in broker.workers() if worker_kind(worker) == "ha"]


def send(broker: MqcoreBroker, count: int) -> None:
    for _ in range(count):
        answer = requests.send(broker.broker_address, TOPIC, 0, bytes(4000), int(time.time() * 1000), {"WAIT": "true"})
        assert answer.code == SUCCESS, answer


class CopyingSlave:
    """A slave that keeps what it gets in memory."""

    def __init__(self, broker: MqcoreBroker, data: bytes = b"") -> None:
        self.data = data
        host, _, port = broker.broker_address.rpartition(":")
        self.socket = socket.create_connection((host, int(port) + 1), DEADLINE_S)
        self.report()

    def report(self) -> None:
        self.socket.sendall(REPORT.struct.pack(len(self.data)))

    def copy(self, end: int) -> None:
        """Take frames until the log is there up to *end*, and report it."""
        while len(self.data) < end:
            offset, size = HEAD.struct.unpack(self._take(HEAD.size))
            assert offset == len(self.data)
            self.data += self._take(size)
        self.report()

    def _take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            data = self.socket.recv(size - len(taken))
            if not data:
                raise EOFError("the master has closed the connection")
            taken += data
        return taken

    def close(self) -> None:
        self.socket.close()


def log_end(broker: MqcoreBroker) -> int:
    info = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    return int(info["commitLogMaxOffset"])


def log_bytes(broker: MqcoreBroker, end: int) -> bytes:
    files = sorted((Path(broker.properties["storePathCommitLog"])).iterdir())
    return b"".join(path.read_bytes() for path in files)[:end]


def test_a_broker_without_slaves_has_no_ha_worker_and_the_first_slave_brings_it(master: MqcoreBroker) -> None:
    assert ha_workers(master) == []
    send(master, 3)
    with contextlib.closing(CopyingSlave(master)) as slave:
        slave.copy(log_end(master))
        assert len(ha_workers(master)) == 1
        assert slave.data == log_bytes(master, len(slave.data))


def test_a_slave_gets_what_is_sent_over_file_rolls_and_the_death_of_the_ha_worker(master: MqcoreBroker) -> None:
    send(master, 1)
    slave = CopyingSlave(master, log_bytes(master, log_end(master)))
    for _ in range(2):
        send(master, 100)
        slave.copy(log_end(master))
        worker = find_worker(master, "ha").pid
        os.kill(worker, signal.SIGKILL)
        await_successor(master, "ha", worker)
        with pytest.raises((EOFError, ConnectionResetError)):
            slave.copy(1 << 60)
        slave.close()
        send(master, 10)
        slave = CopyingSlave(master, slave.data)
        slave.copy(log_end(master))
    slave.close()
    assert len(slave.data) > 3 * FILE_SIZE
    assert slave.data == log_bytes(master, len(slave.data))


def test_a_slave_of_a_broker_that_stops_leaves_with_everything(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", {"mappedFileSizeCommitLog": str(FILE_SIZE)}) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        slave = CopyingSlave(broker)
        send(broker, 1)
        slave.copy(log_end(broker))
        send(broker, 200)
        end = log_end(broker)
        os.kill(broker.pid, signal.SIGTERM)
        slave.copy(end)
        with pytest.raises((EOFError, ConnectionResetError)):
            slave.copy(1 << 60)
        slave.close()
        wait_until(lambda: not broker.child.is_alive, DEADLINE_S, "the broker has stopped")
        assert slave.data == log_bytes(broker, len(slave.data))


# A slave of our own -----------------------------------------------------------------------------------------------


def start_slave(master: MqcoreBroker, store: Path, **properties: str) -> MqcoreBroker:
    given = {"namesrvAddr": master.name_server, "brokerId": "1", "brokerRole": "SLAVE", **SMALL, **properties}
    return MqcoreBroker(store, given)


@pytest.fixture(scope="module")
def slave(master: MqcoreBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    with start_slave(master, tmp_path_factory.mktemp("slave") / "store") as broker:
        yield broker


def await_copy(master: MqcoreBroker, slave: MqcoreBroker) -> None:
    """Wait until the slave has all of the log, which must be the same bytes."""
    end = log_end(master)
    wait_until(lambda: log_end(slave) >= end, DEADLINE_S, f"the slave has the log up to {end}")
    assert log_bytes(slave, end) == log_bytes(master, end)


def test_a_slave_copies_the_log_over_file_rolls_and_deaths(master: MqcoreBroker, slave: MqcoreBroker) -> None:
    send(master, 150)
    await_copy(master, slave)
    for broker in (slave, master):
        os.kill(find_worker(broker, "ha").pid, signal.SIGKILL)
        send(master, 20)
        await_copy(master, slave)
    slave.kill()
    send(master, 100)
    slave.start_again()
    await_copy(master, slave)
    slave.restart()
    send(master, 10)
    await_copy(master, slave)
    wait_until(lambda: wire.is_dispatched(slave.broker_address), DEADLINE_S, "the copy is dispatched")
    assert wire.max_offset(slave.broker_address, TOPIC, 0) == wire.max_offset(master.broker_address, TOPIC, 0)
    of_both = [requests.pull_all(broker.broker_address, TOPIC, 0) for broker in (master, slave)]
    assert of_both[0] == of_both[1]


def test_a_slave_has_its_masters_tables(master: MqcoreBroker, slave: MqcoreBroker) -> None:
    wire.create_topic(master.broker_address, "OfTheMaster", queues=3)
    wire.commit_offset(master.broker_address, "billing", TOPIC, 0, 7)
    wait_until(
        lambda: wire.consumer_offset(slave.broker_address, "billing", TOPIC, 0) == 7, DEADLINE_S, "the offset is copied"
    )
    tables = [wire.call(broker.broker_address, RequestCode.GET_ALL_TOPIC_CONFIG).json() for broker in (master, slave)]
    assert tables[0] == tables[1]
    assert "OfTheMaster" in tables[1]["topicConfigTable"]


def test_operators_see_who_copies_and_how_far(master: MqcoreBroker, slave: MqcoreBroker) -> None:
    send(master, 3)
    await_copy(master, slave)
    wait_until(lambda: attach_segment(master).get("replicated_offset") == log_end(master), DEADLINE_S, "it is reported")
    status = wire.call(master.broker_address, RequestCode.GET_BROKER_HA_STATUS).json()
    (copy,) = status["haConnectionInfo"]
    assert (status["master"], status["inSyncSlaveNums"], copy["state"]) == (True, 1, "COPYING")
    assert copy["slaveAckOffset"] == status["masterCommitLogMaxOffset"] == log_end(master)
    table = wire.call(master.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    assert table["haSlaves"] == "1"
    assert table[f"haSlave_{copy['addr']}"].startswith("COPYING")
    status = wire.call(slave.broker_address, RequestCode.GET_BROKER_HA_STATUS).json()
    assert status["master"] is False
    assert status["haClientRuntimeInfo"]["activated"] is True
    command = [sys.executable, "-m", "mqcore.admin.main", "-n", master.name_server, "ha", "status", "--output", "json"]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S).stdout)
    assert [(line["brokerId"], line["role"], line["state"]) for line in shown] == [
        (0, "ASYNC_MASTER", "COPYING"),
        (1, "SLAVE", "COPYING"),
    ]
    assert {tuple(line) for line in shown} == {tuple(COLUMNS)}, "the table has a cell for each"
    table = subprocess.run(command[:-2], check=True, capture_output=True, timeout=DEADLINE_S).stdout.decode()
    assert [line.split()[2] for line in table.splitlines()] == ["ROLE", "ASYNC_MASTER", "SLAVE"]


def ha_status(broker: MqcoreBroker) -> dict[str, Any]:
    found: dict[str, Any] = wire.call(broker.broker_address, RequestCode.GET_BROKER_HA_STATUS).json()
    return found


def test_operators_see_how_fast_is_copied(master: MqcoreBroker, slave: MqcoreBroker) -> None:
    await_copy(master, slave)

    def rates() -> tuple[int, int]:
        (copy,) = ha_status(master)["haConnectionInfo"]
        return copy["transferredByteInSecond"], ha_status(slave)["haClientRuntimeInfo"]["transferredByteInSecond"]

    wait_until(lambda: rates() == (0, 0), DEADLINE_S, "nothing is copied")
    seen = [0, 0]

    def both_have_seen_some() -> bool:
        send(master, 5)
        seen[:] = map(max, seen, rates())
        return min(seen) > 4000

    wait_until(both_have_seen_some, DEADLINE_S, "both sides tell of what was copied in a second")
    wait_until(lambda: rates() == (0, 0), DEADLINE_S, "nothing is copied again")


def test_a_slave_takes_no_messages_and_no_orders_about_topics_and_groups(
    master: MqcoreBroker, slave: MqcoreBroker
) -> None:
    await_copy(master, slave)
    answer = requests.send(slave.broker_address, TOPIC, 0, b"x", int(time.time() * 1000), {"WAIT": "true"})
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    with pytest.raises(AssertionError, match="slave"):
        wire.create_topic(slave.broker_address, "OfTheSlave", queues=1)
    await_copy(master, slave)


@pytest.mark.slow
def test_a_slave_of_another_history_stays_away_and_says_why(master: MqcoreBroker, tmp_path: Path) -> None:
    other = MqcoreBroker(tmp_path / "other", SMALL)
    with other:
        wire.create_topic(other.broker_address, TOPIC, queues=1)
        send(other, 3)
        other.stop()
    before = log_bytes(other, FILE_SIZE)
    send(master, 10)
    with start_slave(master, tmp_path / "other", brokerId="2") as slave:
        log = slave.child.log
        wait_until(lambda: "another history" in log.read_text(), DEADLINE_S, "the slave says why it does not copy")
        assert log_bytes(slave, FILE_SIZE) == before


@pytest.mark.slow
def test_a_slave_with_other_file_sizes_stays_away_and_says_why(master: MqcoreBroker, tmp_path: Path) -> None:
    with start_slave(master, tmp_path / "other", brokerId="2", mappedFileSizeCommitLog=str(2 * FILE_SIZE)) as slave:
        log = slave.child.log
        wait_until(
            lambda: f"mappedFileSizeCommitLog: the master has {FILE_SIZE}" in log.read_text(), DEADLINE_S, "it says why"
        )
        assert log_end(slave) == 0


# SYNC_MASTER ------------------------------------------------------------------------------------------------------


def test_sends_to_a_sync_master_say_whether_a_slave_has_the_message(tmp_path: Path) -> None:
    properties = {**SMALL, "brokerRole": "SYNC_MASTER", "slaveTimeout": "300"}

    def code(broker: MqcoreBroker, wait: str = "true") -> int:
        now = int(time.time() * 1000)
        return int(requests.send(broker.broker_address, TOPIC, 0, bytes(4000), now, {"WAIT": wait}).code)

    with MqcoreBroker(tmp_path / "master", properties) as master:
        wire.create_topic(master.broker_address, TOPIC, queues=1)
        assert code(master) == ResponseCode.SLAVE_NOT_AVAILABLE
        with start_slave(master, tmp_path / "slave") as slave:
            wait_until(lambda: code(master) == SUCCESS, DEADLINE_S, "a slave copies")
            assert [code(master) for _ in range(20)] == [SUCCESS] * 20
            end = log_end(master)
            assert log_bytes(slave, end) == log_bytes(master, end)
            (worker,) = ha_workers(slave)
            os.kill(worker, signal.SIGSTOP)
            assert code(master) == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert code(master, "false") == SUCCESS
            os.kill(worker, signal.SIGCONT)
            wait_until(lambda: code(master) == SUCCESS, DEADLINE_S, "the slave copies again")
            slave.kill()
            wait_until(lambda: code(master) == ResponseCode.SLAVE_NOT_AVAILABLE, DEADLINE_S, "the slave is missed")
