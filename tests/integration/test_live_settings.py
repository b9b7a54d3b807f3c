"""A setting that is changed while the broker runs holds for its workers when the change is answered, or is refused."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.config import load, parse_properties
from tests.fault.rig import DEADLINE_S, await_successor, find_worker, kill_worker, start_broker
from tests.fault.talker import Talker, pull_request, pulled, send_request
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

TOPIC = "Changing"
FILE_SIZE = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    small = {"mappedFileSizeCommitLog": str(FILE_SIZE), "diskMaxUsedSpaceRatio": "95"}
    with start_broker(tmp_path_factory.mktemp("live"), small) as running:
        wire.create_topic(running.broker_address, TOPIC, queues=1)
        yield running


def update(broker: MqcoreBroker, **changes: object) -> wire.Answer:
    text = "".join(f"{key}={value}\n" for key, value in changes.items())
    return wire.call(broker.broker_address, RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


def shown(broker: MqcoreBroker, key: str) -> str:
    answer = wire.call(broker.broker_address, RequestCode.GET_BROKER_CONFIG)
    return parse_properties(answer.body.decode())[key]


@contextmanager
def changed(broker: MqcoreBroker, **changes: object) -> Iterator[None]:
    """The settings with *changes* within the block, and as they were behind it."""
    before = {key: shown(broker, key) for key in changes}
    assert (update(broker, **changes).code, shown(broker, next(iter(changes)))) == (
        0,
        str(next(iter(changes.values()))),
    )
    try:
        yield
    finally:
        assert update(broker, **before).code == ResponseCode.SUCCESS


def send(talker: Talker, size: int) -> tuple[int, str | None]:
    answer = talker.call(send_request(TOPIC, 0, b"x" * size))
    return answer.code, (answer.ext_fields or {}).get("TRACE_ON")


def pull_count(talker: Talker) -> int:
    """How many messages a pull from the start of the queue gets; asked again where a worker has died over it."""
    while (answer := talker.call(pull_request(TOPIC, 0, 0))).code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        time.sleep(0.01)
    return len(pulled(answer))


def test_the_send_worker_follows(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address) as talker:
        assert send(talker, 2000) == (ResponseCode.SUCCESS, "true")
        with changed(broker, maxMessageSize=1000, traceOn="false"):
            assert send(talker, 2000)[0] == ResponseCode.MESSAGE_ILLEGAL
            assert send(talker, 1000) == (ResponseCode.SUCCESS, "false")
        assert send(talker, 2000) == (ResponseCode.SUCCESS, "true")


def test_the_pull_worker_follows_and_so_does_its_successor(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address) as talker:
        for _ in range(10):
            send(talker, 10)
        wait_until(lambda: wire.is_dispatched(broker.broker_address), describe="all is dispatched")
        assert pull_count(talker) >= 10
        with changed(broker, maxTransferCountOnMessageInMemory=3):
            assert pull_count(talker) == 3
            await_successor(broker, "pull", kill_worker(broker, "pull"))
            assert pull_count(talker) == 3, "a worker that is started later goes by the change too"
        assert pull_count(talker) >= 10


def test_the_flush_worker_follows(broker: MqcoreBroker) -> None:
    def files() -> list[Path]:
        return sorted((broker.store_dir / "commitlog").iterdir())

    with Talker(broker.broker_address) as talker:
        while wire.max_offset(broker.broker_address, TOPIC, 0) < 60:
            send(talker, FILE_SIZE // 16)
            wait_until(lambda: wire.is_dispatched(broker.broker_address), describe="all is dispatched")
    oldest = files()[0]
    assert len(files()) >= 3
    two_hours_ago = time.time() - 2 * 3600
    os.utime(oldest, (two_hours_ago, two_hours_ago))
    with changed(broker, fileReservedTime=1, cleanResourceInterval=10):
        wire.call(broker.broker_address, RequestCode.DELETE_EXPIRED_COMMITLOG)
        wait_until(lambda: not oldest.exists(), DEADLINE_S, "a file that is two hours old is deleted")


def test_a_worker_that_does_not_follow_is_named(broker: MqcoreBroker) -> None:
    process = find_worker(broker, "flush")
    process.send_signal(signal.SIGSTOP)
    try:
        answer = update(broker, flushIntervalCommitLog=400)
    finally:
        process.send_signal(signal.SIGCONT)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "flush-0 did not follow" in (answer.remark or "")
    assert "send-0" not in (answer.remark or "")
    assert update(broker, flushIntervalCommitLog=500).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("key", ["listenPort", "storePathRootDir", "flushDiskType", "mappedFileSizeCommitLog"])
def test_what_cannot_change_is_refused_by_name(broker: MqcoreBroker, key: str) -> None:
    before = shown(broker, key)
    answer = update(broker, maxMessageSize=5, **{key: before})
    assert answer.code == ResponseCode.NO_PERMISSION
    assert key in (answer.remark or "")
    assert shown(broker, "maxMessageSize") != "5"


def test_the_file_of_the_start_is_rewritten(broker: MqcoreBroker) -> None:
    path = broker.store_dir.with_name(broker.store_dir.name + ".mqcore") / "broker.conf"
    path.write_text("# whose broker this is\n" + path.read_text())
    path.chmod(0o600)
    before = path.read_text()
    with changed(broker, fileReservedTime=49):
        assert path.read_text().startswith("# whose broker this is\n")
        assert load(files=[path], environment={}).store.file_reserved_time_hours == 49, "the next start knows it"
        assert path.with_name("broker.conf.bak").read_text() == before
        assert path.stat().st_mode & 0o777 == 0o600


def test_levels_change_in_every_process_that_follows(broker: MqcoreBroker) -> None:
    said = broker.store_dir.with_name(broker.store_dir.name + ".mqcore") / "broker.out"
    before = said.stat().st_size
    with changed(broker, logLevels="ERROR;mqcore.workers.settings_sheet=INFO"):
        assert update(broker, maxMessageSize=5000).code == ResponseCode.SUCCESS
    lines = [line.split()[3:5] for line in said.read_bytes()[before:].decode().splitlines()]
    for worker in ("send-0", "pull-0", "flush-0"):
        assert lines.count([worker, "mqcore.workers.settings_sheet"]) == 3
    # What an administrator asks for is told by the broker process, twice while it says errors alone.
    assert lines.count(["broker", "mqcore.broker.processors.admin_config"]) == 1


def test_a_hangup_has_the_file_read_again(broker: MqcoreBroker) -> None:
    path = broker.store_dir.with_name(broker.store_dir.name + ".mqcore") / "broker.conf"
    before = path.read_text()
    try:
        path.write_text(before + "maxMessageSize=1000\n")
        os.kill(broker.pid, signal.SIGHUP)
        with Talker(broker.broker_address) as talker:
            wait_until(lambda: send(talker, 2000)[0] == ResponseCode.MESSAGE_ILLEGAL, DEADLINE_S, "workers follow")
    finally:
        path.write_text(before)
        os.kill(broker.pid, signal.SIGHUP)
    with Talker(broker.broker_address) as talker:
        wait_until(lambda: send(talker, 2000)[0] == ResponseCode.SUCCESS, DEADLINE_S, "workers follow")
