"""A broker that asks who a request is from: served, refused, and changed while it serves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from mqcore.client import Client, Message, MessageQueue, Producer
from mqcore.errors import MQError
from tests.integration.acl_clients import received, refusal_of
from tests.rigs import wire
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.waiting import wait_until

SECRET = "s3cret/with:signs"
URL_SECRET = "s3cret%2Fwith%3Asigns"
ADMIN = {"accessKey": "operator", "secretKey": SECRET, "admin": True}
WORKER = {
    "accessKey": "worker-1",
    "secretKey": SECRET,
    "defaultTopicPerm": "PUB|SUB",
    "defaultGroupPerm": "SUB",
    "topicPerms": ["Closed=DENY", "ReadOnly=SUB"],
}


def put(home: Path, *accounts: dict[str, object], white: tuple[str, ...] = ()) -> None:
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text(
        yaml.safe_dump({"globalWhiteRemoteAddresses": [*white], "accounts": [*accounts]})
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    put(home, ADMIN, WORKER)
    return home


@pytest.fixture(scope="module")
def guarded(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    store = tmp_path_factory.mktemp("guarded") / "store"
    with MqcoreBroker(store, {"aclEnable": "true", "rocketmqHome": str(home)}) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(guarded: MqcoreBroker) -> Callable[..., Client]:
    return lambda key="worker-1", secret=URL_SECRET: Client(f"rmq://{key}:{secret}@{guarded.name_server}")


@pytest.fixture(scope="module", autouse=True)
def topics(client: Callable[..., Client]) -> None:
    with client("operator") as mq:
        for topic in ("Open", "Closed", "ReadOnly", "Batches", "Changing"):
            assert all(error is None for error in mq.admin.create_topic(topic, read_queues=1).values())


def test_signed_messages_are_stored_and_received(client: Callable[..., Client], guarded: MqcoreBroker) -> None:
    with client() as mq:
        with mq.producer("producers") as producer:
            for number in range(20):
                producer.send(Message("Open", b"%d" % number, properties={"a": "b"}, keys=[f"k{number}"]))
        got = received(mq, "readers", "Open", 20)
    assert sorted(got) == sorted(b"%d" % number for number in range(20))


def test_without_a_key_nothing_is_served(guarded: MqcoreBroker) -> None:
    answer = wire.call(guarded.broker_address, wire.GET_BROKER_RUNTIME_INFO)
    assert answer.code == 1
    assert answer.remark == "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"


def test_a_wrong_secret_an_unknown_key_and_a_missing_permission_are_told_apart(client: Callable[..., Client]) -> None:
    with client(secret="something-else") as mq:
        assert "Check signature failed for accessKey=worker-1" in refusal_of(mq, "Open")
    with client("stranger") as mq:
        assert "No acl config for stranger" in refusal_of(mq, "Open")
    with client() as mq:
        assert "No default permission for topic:Closed" in refusal_of(mq, "Closed")
        assert "No default permission for topic:ReadOnly" in refusal_of(mq, "ReadOnly")
        outcomes = mq.admin.create_topic("Wished", read_queues=1)
        assert "Need admin permission for request code=17" in str(list(outcomes.values()))


def test_refusals_are_logged_with_the_key_and_without_the_secret(
    client: Callable[..., Client], guarded: MqcoreBroker
) -> None:
    with client("stranger") as mq:
        refusal_of(mq, "Open")
    log = guarded.child.log.read_text()
    assert "refused reason='unknown key' key='stranger' address=127.0.0.1" in log
    assert SECRET not in log


def test_changes_of_the_file_hold_without_a_restart_while_messages_come(
    client: Callable[..., Client], home: Path, guarded: MqcoreBroker
) -> None:
    with client() as mq, mq.producer("changing", retries=0) as producer:
        queue = producer.queues("Changing")[0]

        def is_refused() -> bool:
            try:
                producer.send(Message("Changing", b"x"), queue=queue)
            except MQError as error:
                return "No default permission for topic:Changing" in str(error)
            return False

        assert not is_refused()
        try:
            put(home, ADMIN, {**WORKER, "topicPerms": ["Changing=SUB"]})
            wait_until(is_refused, describe="the permission is taken away")
            put(home, ADMIN, WORKER)
            wait_until(lambda: not is_refused(), describe="it is given back")
            (home / "conf" / "plain_acl.yml").write_text("accounts: [")
            wait_until(lambda: "cannot stand" in guarded.child.log.read_text(), describe="the bad file is named")
            assert not is_refused()
        finally:
            put(home, ADMIN, WORKER)


def test_a_connection_that_is_known_is_served_while_the_broker_process_sleeps(
    client: Callable[..., Client], guarded: MqcoreBroker
) -> None:
    with client() as mq, mq.producer("sleepless", retries=0) as producer:
        queue = producer.queues("Open")[0]
        producer.send(Message("Open", b"first"), queue=queue)
        broker = psutil.Process(guarded.pid)
        broker.suspend()
        try:
            for _ in range(20):
                producer.send(Message("Open", b"more", properties={"a": "b"}), queue=queue)
        finally:
            broker.resume()


def test_what_is_taken_away_is_taken_from_connections_that_are_known(
    client: Callable[..., Client], home: Path, guarded: MqcoreBroker
) -> None:
    with client() as mq, mq.producer("known", retries=0) as producer:
        queue = producer.queues("Open")[0]
        producer.send(Message("Open", b"first"), queue=queue)
        try:
            put(home, ADMIN)
            wait_until(lambda: is_unknown(producer, queue), describe="the account is gone")
        finally:
            put(home, ADMIN, WORKER)


def is_unknown(producer: Producer, queue: MessageQueue) -> bool:
    try:
        producer.send(Message("Open", b"x"), queue=queue)
    except MQError as error:
        return "No acl config for worker-1" in str(error)
    return False


def test_a_send_worker_that_died_asks_for_keys_again(client: Callable[..., Client], guarded: MqcoreBroker) -> None:
    (sender,) = [worker for worker in guarded.workers() if "send" in worker.cmdline()]
    sender.kill()
    with client(secret="something-else") as mq:
        wait_until(lambda: "Check signature failed" in refusal_of(mq, "Open"), describe="it is there and asks")
    with client() as mq, mq.producer("after_the_death") as producer:
        for _ in range(5):
            producer.send(Message("Open", b"x"))


def test_a_bad_file_stops_the_start_by_name(tmp_path: Path) -> None:
    put(tmp_path, {**ADMIN, "secretKey": "short"})
    done = subprocess.run(
        [sys.executable, "-m", "mqcore.broker", "--set", "aclEnable=true", "--set", f"rocketmqHome={tmp_path}",
         "--store", str(tmp_path / "store")],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode != 0
    assert (
        f"{tmp_path}/conf/plain_acl.yml: account 1 (operator): secretKey: got 5 characters, wanted more" in done.stderr
    )
    assert not (tmp_path / "store" / "commitlog").exists()
