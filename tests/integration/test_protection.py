"""What a broker answers when there is too much: over the wire, in RocketMQ's words, with the cause."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore._fast.segment.boards import SharedSegment
from mqcore.codes import RequestCode, ResponseCode
from mqcore.config import parse_properties
from mqcore.protocol.command import RemotingCommand
from tests.fault.rig import DEADLINE_S, SMALL_FILES, find_worker, start_broker
from tests.fault.talker import Talker, asker_heart_beat, pull_request, pulled, send_request
from tests.rigs import MqcoreBroker, wire
from tests.unit.fast_rig import Mortals
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC, OTHER = "Guarded", "Unguarded"
READ_ONLY, WRITE_ONLY, BOTH = 4, 2, 6
LIMITS = {
    "waitTimeMillsInSendQueue": "200",
    "waitTimeMillsInHeartbeatQueue": "200",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    with start_broker(tmp_path_factory.mktemp("guarded"), {**SMALL_FILES, "sendWorkerNums": "1"}) as running:
        for topic in (TOPIC, OTHER):
            wire.create_topic(running.broker_address, topic, queues=1)
        yield running
        running.stop()


@contextlib.contextmanager
def changed(broker: MqcoreBroker, **changes: str) -> Iterator[None]:
    """Settings that hold within the block."""
    text = wire.call(broker.broker_address, RequestCode.GET_BROKER_CONFIG).body.decode()
    before = {key: parse_properties(text).get(key, "") for key in changes}
    assert update(broker, changes).code == wire.SUCCESS
    try:
        yield
    finally:
        assert update(broker, before).code == wire.SUCCESS


def update(broker: MqcoreBroker, changes: dict[str, str]) -> wire.Answer:
    body = "".join(f"{key}={value}\n" for key, value in changes.items()).encode()
    return wire.call(broker.broker_address, RequestCode.UPDATE_BROKER_CONFIG, body=body)


def figures(broker: MqcoreBroker) -> dict[str, str]:
    answer = wire.call(broker.broker_address, RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = answer.json()["table"]
    return table


def figure(broker: MqcoreBroker, name: str) -> int:
    return int(figures(broker).get(name, "0"))


@contextlib.contextmanager
def segment_of(broker: MqcoreBroker) -> Iterator[SharedSegment]:
    """The broker's shared memory, with a descriptor of it."""
    for link in Path(f"/proc/{broker.pid}/fd").iterdir():
        if link.is_symlink() and str(link.readlink()).startswith("/memfd:mqcore "):
            descriptor = os.open(link, os.O_RDWR | os.O_CLOEXEC)
            try:
                yield SharedSegment.attach(descriptor)
            finally:
                os.close(descriptor)
            return


@contextlib.contextmanager
def append_stuck(broker: MqcoreBroker) -> Iterator[int]:
    """Somebody has the put lock, and does not come to an end."""
    with segment_of(broker) as segment, contextlib.closing(Mortals()) as children:
        children.begin(segment, "keep_put_lock")
        wait_until(lambda: segment.get("locked_since") != 0, describe="the lock is kept")
        (pid,) = children.pids()
        try:
            yield pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            children.finish()


# Waiting for too long ---------------------------------------------------------------------------------------------


def test_sends_that_wait_too_long_are_told_so_and_why(broker: MqcoreBroker) -> None:
    before = figure(broker, "fastFailureTotal")
    with changed(broker, **LIMITS), Talker(broker.broker_address) as talker:
        with append_stuck(broker) as pid:
            talker.send(send_request(TOPIC, 0, b"x") for _ in range(3))
            time.sleep(0.6)
            os.kill(pid, signal.SIGKILL)
            answers = [talker.receive() for _ in range(3)]
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] + [ResponseCode.SYSTEM_BUSY] * 2
        assert (answers[1].remark or "").startswith(
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
        )
        assert ", cause: disk, " in (answers[1].remark or "")
        assert talker.call(send_request(TOPIC, 0, b"x")).code == ResponseCode.SUCCESS
    assert figure(broker, "fastFailureTotal") == before + 2


def test_without_fast_failure_they_wait(broker: MqcoreBroker) -> None:
    settings = {**LIMITS, "brokerFastFailureEnable": "false"}
    with changed(broker, **settings), Talker(broker.broker_address) as talker, append_stuck(broker) as pid:
        talker.send(send_request(TOPIC, 0, b"x") for _ in range(3))
        time.sleep(0.6)
        os.kill(pid, signal.SIGKILL)
        assert [talker.receive().code for _ in range(3)] == [ResponseCode.SUCCESS] * 3


def test_a_busy_page_cache_is_told_at_once_by_send_worker_and_broker_process(broker: MqcoreBroker) -> None:
    delayed = send_request(TOPIC, 0, b"x")
    assert delayed.ext_fields is not None
    delayed.ext_fields["i"] = "DELAY\x013\x02"
    with changed(broker, osPageCacheBusyTimeOutMills="300"), Talker(broker.broker_address) as talker:
        with append_stuck(broker):
            time.sleep(0.5)
            talker.send(send_request(TOPIC, 0, b"x") for _ in range(20))
            for _ in range(20):
                answer = talker.receive()
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert (answer.remark or "").startswith("[PCBUSY_CLEAN_QUEUE]broker busy, start flow control")
            answer = talker.call(delayed)
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert answer.remark == (
                "[REJECTREQUEST]system busy, start flow control for a while, cause: disk, the commit log is written to "
                "slowly"
            )
        # Who kept the lock is dead. A delayed message is the first to find out.
        wait_until(
            lambda: talker.call(delayed).code == ResponseCode.SUCCESS, DEADLINE_S, "delayed messages are stored again"
        )
        assert talker.call(send_request(TOPIC, 0, b"x")).code == ResponseCode.SUCCESS
    assert figure(broker, "pageCacheBusyTotal") >= 20


def test_a_heart_beat_that_the_broker_process_has_left_lying_is_refused(broker: MqcoreBroker) -> None:
    with changed(broker, **LIMITS), Talker(broker.broker_address) as talker:
        assert talker.call(asker_heart_beat("guarded@1")).code == ResponseCode.SUCCESS
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            talker.send([asker_heart_beat("guarded@1"), RemotingCommand(RequestCode.GET_BROKER_CONFIG)])
            time.sleep(0.5)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        answers = {answer.code: answer for answer in (talker.receive(), talker.receive())}
        words = answers[ResponseCode.SYSTEM_BUSY].remark or ""
        assert words.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: ")
        assert ", cause: CPU, the broker process has more to do than one processor can" in words
        # What RocketMQ has no limit for is served late.
        assert ResponseCode.SUCCESS in answers
        assert talker.call(asker_heart_beat("guarded@1")).code == ResponseCode.SUCCESS


def test_a_pull_that_the_pull_worker_has_left_lying_is_refused(broker: MqcoreBroker) -> None:
    with changed(broker, waitTimeMillsInPullQueue="300"), Talker(broker.broker_address) as talker:
        assert talker.call(pull_request(TOPIC, 0, 0)).code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)
        puller = find_worker(broker, "pull").pid
        os.kill(puller, signal.SIGSTOP)
        try:
            talker.send([pull_request(TOPIC, 0, 0)])
            time.sleep(0.7)
        finally:
            os.kill(puller, signal.SIGCONT)
        answer = talker.receive()
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert (answer.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while")
        assert talker.call(pull_request(TOPIC, 0, 0)).code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)


# Read-only and write-only -----------------------------------------------------------------------------------------


def perms_in_route(broker: MqcoreBroker, topic: str) -> set[int]:
    answer = wire.call(broker.name_server, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return {queue["perm"] for queue in answer.json()["queueDatas"]}


def test_a_broker_may_be_closed_for_sends_or_for_pulls_while_it_runs(broker: MqcoreBroker) -> None:
    """As RocketMQ's: producers go elsewhere by the route. Who comes all the same is refused for ordered topics only."""
    with Talker(broker.broker_address) as talker:
        with changed(broker, brokerPermission=str(READ_ONLY)):
            wait_until(lambda: perms_in_route(broker, TOPIC) == {READ_ONLY}, DEADLINE_S, "the name server knows")
            assert talker.call(send_request(TOPIC, 0, b"x")).code == ResponseCode.SUCCESS
            wait_until(lambda: pulled(talker.call(pull_request(TOPIC, 0, 0))), DEADLINE_S, "it is read")
        with changed(broker, brokerPermission=str(WRITE_ONLY)):
            answer = talker.call(pull_request(TOPIC, 0, 0))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark == "the broker[127.0.0.1] pulling message is forbidden"
            wait_until(lambda: perms_in_route(broker, TOPIC) == {WRITE_ONLY}, DEADLINE_S, "the name server knows")
        assert pulled(talker.call(pull_request(TOPIC, 0, 0)))
    wait_until(lambda: perms_in_route(broker, TOPIC) == {BOTH}, DEADLINE_S, "the name server knows")


def test_a_name_server_takes_the_right_to_write_from_a_broker_and_gives_it_back(broker: MqcoreBroker) -> None:
    """The broker itself goes on taking messages of those who have not heard of it: so it is emptied without a loss."""
    name = {"brokerName": broker.properties["brokerName"]}
    answer = wire.call(broker.name_server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, name)
    assert int(answer.ext_fields["wipeTopicCount"]) >= 2
    assert perms_in_route(broker, TOPIC) == {READ_ONLY}
    with Talker(broker.broker_address) as talker:
        assert talker.call(send_request(TOPIC, 0, b"x")).code == ResponseCode.SUCCESS
    answer = wire.call(broker.name_server, RequestCode.ADD_WRITE_PERM_OF_BROKER, name)
    assert int(answer.ext_fields["addTopicCount"]) >= 2
    assert perms_in_route(broker, TOPIC) == {BOTH}


# Quotas -----------------------------------------------------------------------------------------------------------


def codes_of(talker: Talker, topic: str, count: int) -> list[int]:
    talker.send(send_request(topic, 0, b"x" * 100) for _ in range(count))
    return [talker.receive().code for _ in range(count)]


def test_quotas_are_settings_that_hold_at_once_and_are_counted(broker: MqcoreBroker) -> None:
    settings = {"quotas": f"topic/{TOPIC}/send=20,0", "quotaDelayMaxMillis": "200"}
    refused_before = figure(broker, "quotaRefusedTotal")
    with changed(broker, **settings), Talker(broker.broker_address) as talker:
        codes = codes_of(talker, TOPIC, 60)
        assert 20 <= codes.count(ResponseCode.SUCCESS) <= 50
        refused = codes.count(ResponseCode.SYSTEM_BUSY)
        assert codes.count(ResponseCode.SUCCESS) + refused == 60
        assert set(codes_of(talker, OTHER, 60)) == {ResponseCode.SUCCESS}
    assert figure(broker, "quotaRefusedTotal") == refused_before + refused
    assert figure(broker, "quotaDelayedTotal") > 0
    with Talker(broker.broker_address) as talker:
        assert set(codes_of(talker, TOPIC, 60)) == {ResponseCode.SUCCESS}


def test_a_quota_of_nonsense_is_refused_and_the_old_ones_hold(broker: MqcoreBroker) -> None:
    answer = update(broker, {"quotas": "topic/Orders"})
    assert answer.code != wire.SUCCESS
    assert "quotas: got 'topic/Orders', wanted kind/name/direction=messages,bytes" in (answer.remark or "")


def test_what_the_broker_process_stores_has_the_same_quota(broker: MqcoreBroker) -> None:
    """Delayed messages, and requests in a form that send workers do not read."""
    odd = send_request(OTHER, 0, b"x")
    odd.ext_fields = {**(odd.ext_fields or {}), **{f"unknown{number}": "" for number in range(40)}}
    settings = {"quotas": f"topic/{OTHER}/send=10,0", "quotaDelayMaxMillis": "100"}
    with changed(broker, **settings), Talker(broker.broker_address) as talker:
        talker.send(RemotingCommand(odd.code, ext_fields=odd.ext_fields, body=b"x") for _ in range(30))
        answers = [talker.receive() for _ in range(30)]
    refused = [answer for answer in answers if answer.code == ResponseCode.SYSTEM_BUSY]
    assert 10 <= len(refused) <= 20
    assert all("cause: quota" in (answer.remark or "") for answer in refused)


def test_pulls_above_a_quota_come_late_and_whole(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address) as talker:
        assert set(codes_of(talker, OTHER, 64)) == {ResponseCode.SUCCESS}
        group = {"group": "throttled"}
        wait_until(
            lambda: len(pulled(talker.call(pull_request(OTHER, 0, 0, **group)))) == 32, DEADLINE_S, "32 are there"
        )
        with changed(broker, quotas="group/throttled/pull=40,0"):
            began = time.monotonic()
            got = 0
            for number in range(3):
                answer = talker.call(pull_request(OTHER, 0, 0, suspend_ms=20_000, **group))
                assert answer.code == ResponseCode.SUCCESS, number
                got += len(pulled(answer))
            assert got == 96
            # 32 are less than a second's 40, 64 more, so that the third waits for 24.
            assert time.monotonic() - began >= 0.4


def test_a_pull_that_will_not_be_held_is_refused_above_its_quota(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address) as talker:
        assert talker.call(send_request(OTHER, 0, b"x")).code == ResponseCode.SUCCESS
        settings = {"quotas": "client/127.0.0.1/pull=0,1", "quotaDelayMaxMillis": "100"}
        wait_until(lambda: pulled(talker.call(pull_request(OTHER, 0, 0))), DEADLINE_S, "it can be read")
        with changed(broker, **settings):
            assert talker.call(pull_request(OTHER, 0, 0)).code == ResponseCode.SUCCESS
            answer = talker.call(pull_request(OTHER, 0, 0))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "cause: quota" in (answer.remark or "")
        assert talker.call(pull_request(OTHER, 0, 0)).code == ResponseCode.SUCCESS


# The notice -------------------------------------------------------------------------------------------------------


def test_the_notice_of_an_open_broker_stands_in_the_log_once(tmp_path: Path) -> None:
    settings = {**SMALL_FILES, "bindAddress": "0.0.0.0"}
    with start_broker(tmp_path, settings) as running:
        log = running.child.log.read_text()
        assert log.count("without access control (aclEnable) and TLS") == 1
    (line,) = [line for line in log.splitlines() if "without access control" in line]
    assert "WARNING" in line


def test_the_notice_is_missing_where_only_this_machine_listens(broker: MqcoreBroker) -> None:
    assert "without access control" not in broker.child.log.read_text()
