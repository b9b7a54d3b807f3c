"""Workers are forked by a nursery, are the broker process's own children, and come back without it, too."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore._fast.base.process import show_command
from mqcore._fast.segment.boards import SharedSegment
from mqcore.codes import ResponseCode
from mqcore.errors import WorkerError
from mqcore.workers import start
from mqcore.workers.handover import Handover, Peer
from mqcore.workers.start import is_called
from tests.fault.rig import (
    DEADLINE_S,
    SMALL_FILES,
    WORKER_KINDS,
    await_successor,
    find_worker,
    kill_worker,
    start_broker,
)
from tests.fault.talker import Talker, pull_request, pulled, send_request
from tests.rigs import MqcoreBroker, wire
from tests.rigs.mqcore_broker import NURSERY
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC = "Born"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreBroker]:
    with start_broker(tmp_path, SMALL_FILES) as running:
        wire.create_topic(running.broker_address, TOPIC, queues=1)
        yield running


def nursery_of(broker: MqcoreBroker) -> psutil.Process:
    (found,) = [process for process in broker.descendants() if process.name() == NURSERY]
    return found


def check_service(broker: MqcoreBroker, body: bytes) -> None:
    """A message goes in, and everything that went in comes out."""

    def is_accepted() -> bool:
        try:
            with Talker(broker.broker_address) as talker:
                return talker.call(send_request(TOPIC, 0, body)).code == ResponseCode.SUCCESS
        except OSError:
            return False

    wait_until(is_accepted, DEADLINE_S, "a message is accepted")
    with Talker(broker.broker_address) as talker:
        wait_until(lambda: pulled(talker.call(pull_request(TOPIC, 0, 0))), DEADLINE_S, "messages are read")


def test_workers_are_children_of_the_broker_process_under_their_own_names(broker: MqcoreBroker) -> None:
    for kind in WORKER_KINDS:
        worker = find_worker(broker, kind)
        assert worker.ppid() == broker.pid
        assert worker.name() == f"mq-{kind}-0"
        assert [word for word in worker.cmdline() if word] == ["mqcore.workers", kind, "0"]
    assert nursery_of(broker).ppid() == broker.pid
    again = await_successor(broker, "send", kill_worker(broker, "send"))
    assert (again.ppid(), again.cmdline()[0]) == (broker.pid, "mqcore.workers")


def test_without_the_nursery_workers_are_programs_of_their_own(broker: MqcoreBroker) -> None:
    nursery = nursery_of(broker)
    nursery.kill()
    for kind in WORKER_KINDS:
        successor = await_successor(broker, kind, kill_worker(broker, kind))
        assert successor.ppid() == broker.pid
        wait_until(lambda one=successor: "-m" in one.cmdline(), DEADLINE_S, f"{kind} is a program")
    check_service(broker, b"after it")
    assert not nursery.is_running()
    said = broker.child.log.read_text()
    assert said.count(f"nursery does not answer pid={nursery.pid}") == 1


def test_a_nursery_that_stands_still_is_given_up(broker: MqcoreBroker) -> None:
    nursery = nursery_of(broker)
    nursery.send_signal(signal.SIGSTOP)
    await_successor(broker, "reput", kill_worker(broker, "reput"))
    check_service(broker, b"without it")
    assert not nursery.is_running()
    kinds = sorted(worker.name() for worker in broker.workers())
    assert kinds == sorted(f"mq-{kind}-0" for kind in WORKER_KINDS)


class TestCalled:
    """Only whom the board names does the work of a row."""

    @pytest.fixture
    def segment(self) -> SharedSegment:
        return SharedSegment.create()

    def test_one_that_is_named_works_and_another_does_not(self, segment: SharedSegment) -> None:
        segment.set_worker_word(3, "pid", os.getpid())
        assert is_called(segment, 3)
        segment.set_worker_word(3, "pid", os.getppid())
        assert not is_called(segment, 3)

    def test_it_waits_for_the_call(self, segment: SharedSegment) -> None:
        later = threading.Timer(0.05, segment.set_worker_word, (3, "pid", os.getpid()))
        later.start()
        assert is_called(segment, 3)
        later.join()

    def test_where_nobody_is_called_it_ends(self, segment: SharedSegment, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(start, "CALL_DEADLINE_S", 0.01)
        with pytest.raises(WorkerError, match="nobody was called to row 3"):
            is_called(segment, 3)


def test_a_handover_moves_with_its_descriptors() -> None:
    handover = Handover(
        kind="send", number=1, row=4, parent_pid=1, shared_fd=5, wake=6, link=7, settings="{}", sheet=8, certificates=9,
        listeners=[(10, False), (11, True)], senders=[Peer(4, 6), Peer(5, 12)], pullers=[Peer(3, 13)],
        reput=Peer(2, 14), flush=Peer(1, 15), ha=Peer(6, 16), timer=Peer(7, 17), broker=Peer(0, 18),
    )  # fmt: skip
    there = {number: 100 + number for number in handover.descriptors()}
    moved = handover.moved(there)
    assert moved.descriptors() == sorted(there.values())
    assert moved.moved({new: old for old, new in there.items()}) == handover
    assert (moved.time_sheet, moved.ha_listener) == (-1, -1)


@pytest.mark.parametrize(
    ("words", "shown"),
    [(["mqcore.workers", "send", "0"], ["mqcore.workers", "send", "0"]), (["x" * 100_000], None)],
    ids=["short", "longer than there is room"],
)
def test_a_process_shows_another_command(words: list[str], shown: list[str] | None) -> None:
    heard, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        show_command(words)
        os.write(says, b".")
        time.sleep(DEADLINE_S)
        os._exit(0)
    try:
        os.read(heard, 1)
        before = psutil.Process().cmdline()
        found = [word for word in psutil.Process(pid).cmdline() if word]
        if shown is None:
            (word,) = found
            assert set(word) == {"x"}
            assert len(word) == sum(len(part) + 1 for part in before) - 1
        else:
            assert found == shown
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(heard)
        os.close(says)
