"""The broker process watches its workers: a dead one is noticed at once and brought back; nobody waits in vain."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from tests.fault.rig import (
    DEADLINE_S,
    SMALL_FILES,
    WORKER_KINDS,
    Witness,
    attach_segment,
    await_successor,
    check_limit,
    find_worker,
    kill_worker,
    start_broker,
)
from tests.fault.talker import Talker, pull_request, pulled, send_request
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC = "Supervised"
DEATH = re.compile(r"worker died name=(\w+)-0 pid=(\d+) status=(.+?) lived_s=[\d.]+ restart_in_ms=(\d+)")
AT_ONCE_S = 10.0
"""Milliseconds where nothing else runs; what is told apart here from "at once" takes six times as long."""

LONG_PAUSE_MS = 60_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreBroker]:
    with start_broker(tmp_path, SMALL_FILES) as running:
        wire.create_topic(running.broker_address, TOPIC, queues=1)
        yield running


def deaths(broker: MqcoreBroker) -> list[tuple[str, int, str, int]]:
    """(kind, process id, status, pause before the restart in ms) of each death that the log tells of."""
    found = DEATH.findall(broker.child.log.read_text())
    return [(kind, int(pid), status, int(pause)) for kind, pid, status, pause in found]


def pause_after(broker: MqcoreBroker, pid: int) -> int:
    """How long after the death of *pid* its successor is started, ms."""
    wait_until(lambda: any(dead == pid for _, dead, *_ in deaths(broker)), DEADLINE_S, "the death is noticed")
    (pause_ms,) = [pause for _, dead, _, pause in deaths(broker) if dead == pid]
    return pause_ms


def accepts_messages(broker: MqcoreBroker) -> bool:
    try:
        with Talker(broker.broker_address) as talker:
            return talker.call(send_request(TOPIC, 0, b"x")).code == ResponseCode.SUCCESS
    except OSError:
        return False


@pytest.mark.parametrize("kind", WORKER_KINDS)
def test_a_dead_worker_is_noticed_at_once_and_comes_back(broker: MqcoreBroker, kind: str) -> None:
    others = {other: find_worker(broker, other).pid for other in WORKER_KINDS if other != kind}
    witness = Witness()
    pid = kill_worker(broker, kind)
    killed_at = time.monotonic()
    wait_until(lambda: deaths(broker), AT_ONCE_S, "the death is noticed")
    assert deaths(broker) == [(kind, pid, "SIGKILL", 0)]
    await_successor(broker, kind, pid)
    wait_until(lambda: accepts_messages(broker), DEADLINE_S, "messages are accepted")
    with Talker(broker.broker_address) as talker:
        wait_until(lambda: pulled(talker.call(pull_request(TOPIC, 0, 0))), DEADLINE_S, "messages are read")
    check_limit(time.monotonic() - killed_at, witness)
    assert {other: find_worker(broker, other).pid for other in others} == others


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_crash_is_told_by_its_name(broker: MqcoreBroker, number: signal.Signals) -> None:
    worker = find_worker(broker, "send")
    worker.send_signal(number)
    wait_until(lambda: deaths(broker), DEADLINE_S, "the death is noticed")
    ((kind, pid, status, _),) = deaths(broker)
    assert (kind, pid) == ("send", worker.pid)
    # A bus error is caught, to say what it means, and ends the worker with the status that a shell gives it.
    assert status == (number.name if number is not signal.SIGBUS else f"exit {128 + number}")
    wait_until(lambda: accepts_messages(broker), DEADLINE_S, "messages are accepted")


def test_workers_do_not_listen_to_the_terminal(broker: MqcoreBroker) -> None:
    pids = {kind: find_worker(broker, kind).pid for kind in WORKER_KINDS}
    for kind in WORKER_KINDS:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            find_worker(broker, kind).send_signal(number)
    assert accepts_messages(broker)
    assert {kind: find_worker(broker, kind).pid for kind in WORKER_KINDS} == pids


def test_a_worker_that_keeps_dying_is_brought_back_ever_more_slowly(tmp_path: Path) -> None:
    properties = SMALL_FILES | {"workerRestartBackoffMillis": "100", "workerRestartBackoffMaxMillis": "300"}
    with start_broker(tmp_path, properties) as broker:
        pid = 0
        for _ in range(5):
            pid = await_successor(broker, "send", pid).pid
            kill_worker(broker, "send")
        wait_until(lambda: len(deaths(broker)) == 5, DEADLINE_S, "the deaths are noticed")
        assert [pause for *_, pause in deaths(broker)] == [0, 100, 200, 300, 300]


def test_a_held_pull_does_not_wait_for_the_next_worker(tmp_path: Path) -> None:
    """The second death in a row, if it is not long after the first, is followed by a pause in which nobody answers."""
    with start_broker(tmp_path, SMALL_FILES | {"workerRestartBackoffMillis": str(LONG_PAUSE_MS)}) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        segment = attach_segment(broker)
        with Talker(broker.broker_address) as talker:
            pause_ms = 0
            while pause_ms != LONG_PAUSE_MS:
                talker.send([pull_request(TOPIC, 0, 0, suspend_ms=60_000)])
                wait_until(lambda: segment.waiting_pulls() == 1, DEADLINE_S, "the pull is held")
                pid = kill_worker(broker, "pull")
                killed_at = time.monotonic()
                response = talker.receive()
                assert time.monotonic() - killed_at < AT_ONCE_S
                assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                assert response.ext_fields is not None
                assert response.ext_fields["nextBeginOffset"] == "0"
                pause_ms = pause_after(broker, pid)
            assert len(broker.workers()) == len(WORKER_KINDS) - 1
            assert pid not in broker.worker_pids()
