"""Apache's broker as slave of ours, and ours as slave of Apache's: equal logs byte for byte, whoever dies meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import apache_requests as requests
from tests.fault.replicas import await_topic, refusal
from tests.rigs import (
    ApacheBroker,
    ApacheNamesrv,
    ApacheServer,
    JavaDriver,
    Mqadmin,
    MqcoreBroker,
    RunningBroker,
    maven,
    wire,
)
from tests.rigs.wire import SUCCESS
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

RELEASE = "4.9.8"
TOPIC = "Replicated"
FILE_SIZE = 1 << 20
DEADLINE_S = 120.0
SMALL = {"mappedFileSizeCommitLog": str(FILE_SIZE), "haSendHeartbeatInterval": "200"}


def send(broker: RunningBroker, count: int, size: int = 8000) -> None:
    for number in range(count):
        answer = requests.send(
            broker.broker_address, TOPIC, 0, b"%d " % number + bytes(size), int(time.time() * 1000), {"WAIT": "true"}
        )
        assert answer.code == SUCCESS, answer


def log_end(address: str) -> int:
    info = wire.call(address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    return int(info["commitLogMaxOffset"])


def log_bytes(store: Path, start: int, end: int) -> bytes:
    """The bytes [start, end) of the log below *store*; *start* is that of a file."""
    found = b""
    for path in sorted((store / "commitlog").iterdir()):
        if start <= int(path.name) < end:
            assert int(path.name) == start + len(found)
            found += path.read_bytes()
    return found[: end - start]


def await_copy(master: RunningBroker, address: str, store: Path) -> None:
    """Wait until the slave at *address* has all that *master* has; both logs must be the same bytes."""
    end = log_end(master.broker_address)
    wait_until(lambda: log_end(address) >= end, DEADLINE_S, f"the slave has the log up to {end}")
    assert log_end(address) == end
    assert log_bytes(store, 0, end) == log_bytes(master.store_dir, 0, end)


def start_slave(master: MqcoreBroker, store: Path, port: str = "") -> ApacheBroker:
    properties = {**SMALL, "brokerId": "1", "brokerRole": "SLAVE"} | ({"listenPort": port} if port else {})
    slave = ApacheBroker(RELEASE, store, master.name_server, properties)
    try:
        slave.await_service()
    except BaseException:
        slave.kill()
        raise
    return slave


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MqcoreBroker]:
    # The slave asks seconds after it has connected; the log has more than one file by then.
    with MqcoreBroker(tmp_path / "master", SMALL | {"haSyncFromFirstFile": "true", "brokerIP2": "127.0.0.1"}) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        yield broker


@pytest.mark.parametrize(
    "with_deaths", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["nobody dies", "both die"]
)
def test_apaches_slave_copies_our_log_over_file_rolls_and_deaths_of_both(
    master: MqcoreBroker, tmp_path: Path, with_deaths: bool
) -> None:
    send(master, 10)
    slave = start_slave(master, tmp_path / "slave")
    try:
        send(master, 450)
        await_copy(master, slave.address, slave.store_dir)
        if not with_deaths:
            return
        slave.kill()
        send(master, 100)
        slave = start_slave(master, tmp_path / "slave", slave.address.rpartition(":")[2])
        send(master, 10)
        await_copy(master, slave.address, slave.store_dir)
        master.kill()
        master.start_again()
        send(master, 100)
        await_copy(master, slave.address, slave.store_dir)
        assert log_end(master.broker_address) > 5 * FILE_SIZE
    finally:
        slave.kill()


def start_our_slave(master: ApacheServer, store: Path, **properties: str) -> MqcoreBroker:
    role = {"namesrvAddr": master.name_server, "brokerId": "1", "brokerRole": "SLAVE"}
    return MqcoreBroker(store, {**SMALL, **role, **properties})


@pytest.mark.parametrize(
    "with_deaths", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["nobody dies", "both die"]
)
def test_our_slave_copies_apaches_log_over_file_rolls_and_deaths_of_both(tmp_path: Path, with_deaths: bool) -> None:
    with ApacheServer(RELEASE, tmp_path / "master", SMALL) as master:
        wire.create_topic(master.broker_address, TOPIC, queues=1)
        # More than one file is there: RocketMQ would send an empty slave only the last one.
        send(master, 300)
        wire.commit_offset(master.broker_address, "billing", TOPIC, 0, 7)
        with start_our_slave(master, tmp_path / "slave") as slave:
            send(master, 150)
            await_copy(master, slave.broker_address, slave.store_dir)
            wait_until(
                lambda: wire.consumer_offset(slave.broker_address, "billing", TOPIC, 0) == 7, DEADLINE_S, "offsets come"
            )
            wait_until(lambda: wire.max_offset(slave.broker_address, TOPIC, 0) == 450, DEADLINE_S, "it is dispatched")
            if not with_deaths:
                return
            slave.kill()
            send(master, 100)
            slave.start_again()
            await_copy(master, slave.broker_address, slave.store_dir)
            master.broker.kill()
            master.start_again()
            send(master, 100)
            await_copy(master, slave.broker_address, slave.store_dir)
            slave.restart()
            send(master, 10)
            await_copy(master, slave.broker_address, slave.store_dir)


GUARD = """globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: replica-1
  secretKey: replica-secret
"""


def test_our_slave_copies_from_apaches_guarded_master_with_keys_of_its_own(tmp_path: Path) -> None:
    accounts = tmp_path / "master.apache" / "conf" / "plain_acl.yml"
    accounts.parent.mkdir(parents=True)
    accounts.write_text(GUARD)
    with ApacheServer(RELEASE, tmp_path / "master", {**SMALL, "aclEnable": "true"}) as master:
        wire.create_topic(master.broker_address, TOPIC, queues=1)
        send(master, 50)
        wire.commit_offset(master.broker_address, "billing", TOPIC, 0, 7)
        end = log_end(master.broker_address)
        # From now on an address alone opens nothing; release 4.9.8 looks at its files every five seconds.
        accounts.write_text(GUARD.replace("- 127.0.0.1", "- 10.1.2.3"))
        wait_until(
            lambda: wire.call(master.broker_address, wire.GET_BROKER_RUNTIME_INFO).code != SUCCESS,
            DEADLINE_S,
            "guarded",
        )
        with start_our_slave(master, tmp_path / "stranger") as stranger:
            wait_until(lambda: refusal(stranger), DEADLINE_S, "the slave says why it does not copy")
            assert "No accessKey is configured" in refusal(stranger)
        keys = {"innerClientAuthenticationCredentials": '{"accessKey":"replica-1","secretKey":"replica-secret"}'}
        with start_our_slave(master, tmp_path / "slave", **keys) as slave:
            address = slave.broker_address
            wait_until(lambda: log_end(address) >= end, DEADLINE_S, "the slave has the log")
            assert log_bytes(slave.store_dir, 0, end) == log_bytes(master.store_dir, 0, end)
            await_topic(slave, TOPIC)
            wait_until(lambda: wire.consumer_offset(address, "billing", TOPIC, 0) == 7, DEADLINE_S, "offsets come")


@pytest.mark.slow
def test_apaches_slave_copies_from_our_guarded_master_that_lets_its_address_in(tmp_path: Path) -> None:
    """It signs nothing, whatever it is given: release 4.9.8 has no setting for that."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(GUARD)
    guard = {
        "aclEnable": "true",
        "rocketmqHome": str(tmp_path),
        "haSyncFromFirstFile": "true",
        "brokerIP2": "127.0.0.1",
    }
    with MqcoreBroker(tmp_path / "master", SMALL | guard) as master:
        wire.create_topic(master.broker_address, TOPIC, queues=1)
        send(master, 50)
        wire.commit_offset(master.broker_address, "billing", TOPIC, 0, 7)
        slave = start_slave(master, tmp_path / "slave")
        try:
            await_copy(master, slave.address, slave.store_dir)
            wait_until(
                lambda: wire.consumer_offset(slave.address, "billing", TOPIC, 0) == 7, DEADLINE_S, "offsets come"
            )
        finally:
            slave.kill()


@pytest.mark.slow
def test_javas_consumer_reads_on_from_the_slave_when_the_master_is_gone_and_goes_back(
    tmp_path: Path, java_4_9_8: JavaDriver
) -> None:
    namesrv = ApacheNamesrv(RELEASE, tmp_path / "namesrv")
    roles = {**SMALL, "namesrvAddr": namesrv.address, "brokerIP2": "127.0.0.1"}
    try:
        with (
            MqcoreBroker(tmp_path / "master", roles) as master,
            MqcoreBroker(tmp_path / "slave", {**roles, "brokerId": "1", "brokerRole": "SLAVE"}) as slave,
        ):
            wire.create_topic(master.broker_address, TOPIC, queues=1)
            wait_until(lambda: wire.has_route(namesrv.address, TOPIC), DEADLINE_S, "the topic has a route")
            with java_4_9_8.consumer(namesrv.address, TOPIC, "readers") as reader:
                send(master, 100)
                wait_until(lambda: reader.count() >= 100, DEADLINE_S, "the consumer reads from the master")
                # The group and its offsets are copied every ten seconds.
                wait_until(
                    lambda: wire.consumer_offset(slave.broker_address, "readers", TOPIC, 0), DEADLINE_S, "offsets come"
                )
                send(master, 50)
                await_copy(master, slave.broker_address, slave.store_dir)
                master.kill()
                wait_until(lambda: reader.count() >= 150, DEADLINE_S, "the consumer has all")
                # Who comes now has nobody but the slave.
                with java_4_9_8.consumer(namesrv.address, TOPIC, "latecomers") as latecomer:
                    wait_until(lambda: latecomer.count() >= 150, DEADLINE_S, "the slave gives everything")
                    master.start_again()
                    send(master, 50)
                    for consumer in (reader, latecomer):
                        wait_until(lambda consumer=consumer: consumer.count() >= 200, DEADLINE_S, "they go back")
    finally:
        namesrv.kill()


@pytest.mark.slow
def test_mqadmin_of_5_shows_our_replicas(tmp_path: Path) -> None:
    roles = {**SMALL, "brokerIP2": "127.0.0.1"}
    with MqcoreBroker(tmp_path / "master", roles) as master:
        wire.create_topic(master.broker_address, TOPIC, queues=1)
        slave = {**roles, "namesrvAddr": master.name_server, "brokerId": "1", "brokerRole": "SLAVE"}
        with MqcoreBroker(tmp_path / "slave", slave) as copy:
            send(master, 10)
            await_copy(master, copy.broker_address, copy.store_dir)
            end = log_end(master.broker_address)
            mqadmin = Mqadmin("5.3.3", tmp_path / "mqadmin")
            shown = mqadmin.run(master.name_server, "haStatus", "-b", master.broker_address).text
            assert str(end) in shown
            assert "127.0.0.1:" in shown
            shown = mqadmin.run(master.name_server, "haStatus", "-b", copy.broker_address).text
            assert str(end) in shown
