"""100,000 messages and more through a SYNC_MASTER and its slave, one of them Apache's, while both die and restart.

What was acknowledged is on both, queue by queue, and both logs are the same bytes over all their files. A Java consumer
reads along, from the slave while the master is gone, and misses nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fault.history import History, Load, key_of, read_all, wait_for_acks
from tests.fault.rig import find_worker
from tests.rigs import ApacheBroker, ApacheNamesrv, JavaDriver, MqcoreBroker, maven, wire
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

RELEASE = "4.9.8"
TOPIC = "AtLength"
QUEUES = 4
COUNT = 100_000
DEATHS = 8
FILE_SIZE = 4 << 20
FILES_MIN = 8
PRODUCERS = 8
DEADLINE_S = 300.0
GONE_S = 3.0
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "haSendHeartbeatInterval": "500",
    "slaveTimeout": "2000",
    "brokerIP2": "127.0.0.1",
}
SYNC_MASTER = {"brokerRole": "SYNC_MASTER"}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


class Side(ABC):
    """A broker of either kind that can die and come back on its store and ports."""

    address: str
    store_dir: Path

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...


class Ours(Side):
    def __init__(self, store: Path, name_server: str, role: dict[str, str]) -> None:
        # A worker that dies often is back at once.
        own = {"workerRestartBackoffMillis": "1", "workerRestartBackoffMaxMillis": "1"}
        if role is SYNC_MASTER:
            own["haSyncFromFirstFile"] = "true"
        self.broker = MqcoreBroker(store, {**SETTINGS, **role, **own, "namesrvAddr": name_server})
        self.address, self.store_dir = self.broker.broker_address, store

    def start(self) -> None:
        self.broker.start_again()

    def kill(self) -> None:
        self.broker.kill()

    def stop(self) -> None:
        self.broker.stop()

    def kill_copier(self) -> None:
        """SIGKILL the worker that copies."""
        os.kill(find_worker(self.broker, "ha").pid, signal.SIGKILL)


class Apaches(Side):
    def __init__(self, store: Path, name_server: str, role: dict[str, str]) -> None:
        self._name_server, self._properties, self.store_dir = name_server, {**SETTINGS, **role}, store
        self.start()
        self.address = self._broker.address
        self._properties["listenPort"] = self.address.rpartition(":")[2]

    def start(self) -> None:
        self._broker = ApacheBroker(RELEASE, self.store_dir, self._name_server, self._properties)
        try:
            self._broker.await_service()
        except BaseException:
            self._broker.kill()
            raise

    def kill(self) -> None:
        self._broker.kill()

    def stop(self) -> None:
        self._broker.stop()


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    namesrv = ApacheNamesrv(RELEASE, tmp_path / "namesrv")
    wait_until(lambda: answers(namesrv.address), DEADLINE_S, "the name server answers")
    yield namesrv.address
    namesrv.kill()


def answers(name_server: str) -> bool:
    with contextlib.suppress(OSError):
        return wire.call(name_server, wire.GET_BROKER_CLUSTER_INFO).code == wire.SUCCESS
    return False


# Deaths -----------------------------------------------------------------------------------------------------------

Death = Callable[["Side", "Side"], None]


def kill_the_slave(master: Side, slave: Side) -> None:
    slave.kill()
    time.sleep(GONE_S)
    slave.start()


def restart_the_slave(master: Side, slave: Side) -> None:
    slave.stop()
    slave.start()


def kill_the_master(master: Side, slave: Side) -> None:
    """Its consumers read on from the slave meanwhile."""
    master.kill()
    time.sleep(GONE_S)
    master.start()


def restart_the_master(master: Side, slave: Side) -> None:
    master.stop()
    master.start()


def kill_our_copier(master: Side, slave: Side) -> None:
    for side in (master, slave):
        if isinstance(side, Ours):
            side.kill_copier()


ALL_DEATHS: tuple[Death, ...] = (
    kill_the_slave,
    restart_the_slave,
    kill_the_master,
    restart_the_master,
    kill_our_copier,
)


def log_end(address: str) -> int:
    return int(wire.call(address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]["commitLogMaxOffset"])


def log_bytes(store: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))[:end]


def check_logs(master: Side, slave: Side) -> None:
    """Both logs are the same bytes, over all their files."""
    end = log_end(master.address)
    wait_until(lambda: log_end(slave.address) == end, DEADLINE_S, f"the slave has the log up to {end}")
    assert log_bytes(slave.store_dir, end) == log_bytes(master.store_dir, end)
    assert end > FILES_MIN * FILE_SIZE
    print(f"logs of {end} bytes over {end // FILE_SIZE} file rolls agree")


def run_at_length(master: Side, slave: Side, seed: int) -> History:
    """Send until COUNT messages are acknowledged, with deaths all along."""
    rng = random.Random(seed)
    history = History(f"length{seed}", TOPIC, QUEUES)
    deaths = [*ALL_DEATHS, *rng.choices(ALL_DEATHS, k=DEATHS - len(ALL_DEATHS))]
    rng.shuffle(deaths)
    with Load(history, master.address, producers=PRODUCERS, burst_max=64, body_size_max=1024):
        for death in deaths:
            wait_for_acks(history, COUNT // (DEATHS + 1), DEADLINE_S)
            print(f"{death.__name__} after {history.summary()}")
            death(master, slave)
        wait_for_acks(history, max(1, COUNT - history.acked_count), DEADLINE_S)
    return history


def has_read_all(master: str) -> bool:
    return all(
        wire.consumer_offset(master, "readers", TOPIC, queue) == wire.max_offset(master, TOPIC, queue)
        for queue in range(QUEUES)
    )


@pytest.mark.parametrize(("master_kind", "slave_kind"), [(Ours, Apaches), (Apaches, Ours)], ids=["ours", "apaches"])
def test_a_slave_of_the_other_kind_has_all_that_was_acknowledged(
    tmp_path: Path,
    name_server: str,
    chance: random.Random,
    java_4_9_8: JavaDriver,
    master_kind: Callable[..., Side],
    slave_kind: Callable[..., Side],
) -> None:
    with contextlib.ExitStack() as stack:
        master = master_kind(tmp_path / "master", name_server, SYNC_MASTER)
        stack.callback(master.kill)
        wire.create_topic(master.address, TOPIC, queues=QUEUES)
        wait_until(lambda: wire.has_route(name_server, TOPIC), DEADLINE_S, "the topic has a route")
        slave = slave_kind(tmp_path / "slave", name_server, SLAVE)
        stack.callback(slave.kill)
        reader = stack.enter_context(java_4_9_8.consumer(name_server, TOPIC, "readers"))
        history = run_at_length(master, slave, chance.randrange(1 << 32))
        check_logs(master, slave)
        in_order = master_kind is Ours
        for side in (master, slave):
            history.check(read_all(history, side.address), in_order=in_order)
        wait_until(lambda: has_read_all(master.address), DEADLINE_S, "the Java consumer has committed everything")
        received = {message.key for message in reader.stop()}
        missed = {key_of(body) for body in history.acked.values()} - received
        assert not missed, f"the Java consumer was not given {len(missed)}: {sorted(missed)[:10]}"
        print(history.summary(), "all given to the Java consumer")
