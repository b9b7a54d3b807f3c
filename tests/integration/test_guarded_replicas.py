"""A slave whose master asks who a request is from: let in by its address, by keys, or not, and then it says why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mqcore.codes import RequestCode
from tests.compat import apache_requests as requests
from tests.fault.replicas import await_topic, refusal
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

TOPIC, GROUP = "Guarded", "billing"
COUNT = 20
DEADLINE_S = 60.0
REPLICA = {"accessKey": "replica-1", "secretKey": "replica/secret="}
"""It may do nothing but what needs a good signature alone, and a slave needs no more."""
CREDENTIALS = '{"accessKey":"replica-1","secretKey":"%s"}'
SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "haSendHeartbeatInterval": "200", "bindAddress": "127.0.0.1"}


def put(home: Path, *white: str) -> None:
    (home / "conf").mkdir(exist_ok=True)
    fresh = home / "conf" / "fresh"
    fresh.write_text(yaml.safe_dump({"globalWhiteRemoteAddresses": [*white], "accounts": [REPLICA]}))
    fresh.replace(home / "conf" / "plain_acl.yml")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MqcoreBroker]:
    """A guarded master with a topic, messages in it, and a group that has consumed some; then no address is let in."""
    put(tmp_path, "127.0.0.1")
    guard = {"aclEnable": "true", "rocketmqHome": str(tmp_path), "brokerIP2": "127.0.0.1"}
    with MqcoreBroker(tmp_path / "master", SMALL | guard) as broker:
        address = broker.broker_address
        wire.create_topic(address, TOPIC, queues=1)
        for number in range(COUNT):
            sent = requests.send(address, TOPIC, 0, b"%d" % number, int(time.time() * 1000), {})
            assert sent.code == wire.SUCCESS, sent
        wire.commit_offset(address, GROUP, TOPIC, 0, 7)
        put(tmp_path)
        wait_until(
            lambda: wire.call(address, wire.GET_BROKER_RUNTIME_INFO).code != wire.SUCCESS,
            DEADLINE_S,
            "it asks for keys",
        )
        yield broker


def start_slave(master: MqcoreBroker, store: Path, credentials: str = "") -> MqcoreBroker:
    role = {"namesrvAddr": master.name_server, "brokerId": "1", "brokerRole": "SLAVE"}
    keys = {"innerClientAuthenticationCredentials": credentials} if credentials else {}
    return MqcoreBroker(store, {**SMALL, **role, **keys})


def await_copy(slave: MqcoreBroker) -> None:
    await_topic(slave, TOPIC)
    address = slave.broker_address
    wait_until(lambda: wire.max_offset(address, TOPIC, 0) == COUNT, DEADLINE_S, "the slave has the messages")
    wait_until(lambda: wire.consumer_offset(address, GROUP, TOPIC, 0) == 7, DEADLINE_S, "the slave has the offset")
    assert refusal(slave) == ""


def test_a_slave_without_keys_says_what_keeps_it_out_and_copies_once_its_address_is_let_in(
    master: MqcoreBroker, tmp_path: Path
) -> None:
    with start_slave(master, tmp_path / "slave") as slave:
        wait_until(lambda: refusal(slave), DEADLINE_S, "the slave says why it does not copy")
        assert "No accessKey is configured" in refusal(slave)
        assert "globalWhiteRemoteAddresses" in refusal(slave)
        assert (
            wire.call(slave.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]["commitLogMaxOffset"] == "0"
        )
        put(tmp_path, "127.0.0.1")
        await_copy(slave)


def test_a_slave_with_keys_of_its_own_copies_and_with_wrong_ones_says_so(master: MqcoreBroker, tmp_path: Path) -> None:
    with start_slave(master, tmp_path / "wrong", CREDENTIALS % "another secret") as slave:
        wait_until(lambda: refusal(slave), DEADLINE_S, "the slave says why it does not copy")
        assert "innerClientAuthenticationCredentials" in refusal(slave)
        assert "another secret" not in refusal(slave) + (tmp_path / "wrong.mqcore" / "broker.out").read_text()
    with start_slave(master, tmp_path / "slave", CREDENTIALS % "replica/secret=") as slave:
        await_copy(slave)
        asked = wire.call(slave.broker_address, RequestCode.GET_BROKER_CONFIG)
        assert b"replica/secret" not in asked.body
