"""The rigs themselves: what the other tests of this folder take for granted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore.testing.leftovers import those_left
from tests.rigs import (
    Child,
    ChildError,
    Corpus,
    Produced,
    ReceivedMessage,
    SentMessage,
    free_broker_ports,
    free_port,
    gather,
    normalised,
    nursery,
)
from tests.rigs.apache import write_properties
from tests.rigs.deliveries import check_each_exactly_once, check_queue_order, sent_by_key
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
OWNER = """
import sys, time
from pathlib import Path
from tests.rigs import Child
print(Child(["sleep", "600"], log=Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"event":"ready"}', flush=True)
time.sleep(600)
"""


def test_a_child_dies_with_a_killed_owner(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "child.log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        os.kill(owner.pid, signal.SIGKILL)
    assert those_left([child], 30.0) == []


def test_a_child_that_ends_early_is_reported_with_its_log(tmp_path: Path) -> None:
    with (
        Child(["sh", "-c", "echo no such port >&2"], log=tmp_path / "child.log", talks=True) as child,
        pytest.raises(ChildError, match="no such port"),
    ):
        child.read_event("ready", deadline_s=60)


def test_a_child_that_ignores_sigterm_is_killed_and_reported(tmp_path: Path) -> None:
    with Child([sys.executable, "-c", STUBBORN], log=tmp_path / "child.log", talks=True) as child:
        child.read_event("ready", deadline_s=60)
        with pytest.raises(ChildError, match="still running"):
            child.stop(deadline_s=0.2)
        assert not child.is_alive


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[nursery.Nursery]:
    with nursery.Nursery(tmp_path / "nursery.out") as made:
        yield made


def test_a_fork_speaks_and_ends_as_a_broker_that_users_start(forks: nursery.Nursery, tmp_path: Path) -> None:
    configuration = write_properties(tmp_path / "broker.conf", {"listenPort": "none"})
    fork = forks.born(["-c", str(configuration)], log=tmp_path / "fork.out")
    plain = Child([sys.executable, "-m", nursery.MODULE, "-c", configuration], log=tmp_path / "plain.out")
    assert plain.wait() == 253
    process = psutil.Process(fork.pid)
    # It is there, as others are, until its owner looks.
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, 60, "the fork has ended")
    assert fork.wait() == 253
    wait_until(lambda: not process.is_running(), 60, "the fork is buried")
    assert "listenPort" in fork.log.read_text()
    assert fork.log.read_text() == plain.log.read_text()


def test_forks_die_with_a_killed_nursery(forks: nursery.Nursery, tmp_path: Path) -> None:
    properties = {
        "listenPort": str(free_broker_ports().listen),
        "namesrvListenPort": str(free_port()),
        "bindAddress": "127.0.0.1",
        "storePathRootDir": str(tmp_path / "store"),
    }
    configuration = write_properties(tmp_path / "broker.conf", properties)
    fork = forks.born(["-c", str(configuration)], log=tmp_path / "fork.out")
    wait_until(lambda: "boot success" in fork.log.read_text(), 60, "the fork serves")
    family = [psutil.Process(fork.pid), *psutil.Process(fork.pid).children(recursive=True)]
    os.kill(forks.pid, signal.SIGKILL)
    assert those_left(family, 60.0) == []


def test_the_corpus_is_the_same_each_time_and_has_every_script(corpus: Corpus, tmp_path: Path) -> None:
    again = gather(tmp_path / "again.txt", corpus.count)
    assert again.path.read_bytes() == corpus.path.read_bytes()
    lines = corpus.lines()
    assert len(lines) == corpus.count == sum(corpus.sources.values())
    assert all(lines)
    assert any(not line.isascii() for line in lines)


def test_the_three_ports_of_a_broker_can_be_bound() -> None:
    ports = free_broker_ports()
    assert (ports.listen - ports.fast, ports.ha - ports.listen) == (2, 1)
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def received(key: str, queue_id: int, queue_offset: int) -> ReceivedMessage:
    return ReceivedMessage(key, "T", queue_id, queue_offset, "", 0, 0, "broker-a", "", "CONSUME_SUCCESS", "")


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [(["L0"], "never came"), (["L0", "L1", "L1"], "more than once"), (["L0", "L1", "L2"], "not to")],
)
def test_lost_repeated_and_foreign_messages_are_noticed(keys: list[str], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_each_exactly_once(["L0", "L1"], [received(key, 0, 0) for key in keys])


@pytest.mark.parametrize("offsets", [[1, 0], [0, 2], [0, 0]])
def test_a_queue_out_of_order_is_noticed(offsets: list[int]) -> None:
    with pytest.raises(AssertionError, match="after offset"):
        check_queue_order([received(f"L{at}", 3, offset) for at, offset in enumerate(offsets)])


def test_two_messages_in_one_place_are_noticed() -> None:
    sent = [SentMessage(f"L{at}", "SEND_OK", "", "", "broker-a", 0, 0) for at in range(2)]
    with pytest.raises(AssertionError, match="same place"):
        sent_by_key(Produced(2, 2, 0, 1.0, sent))


def test_only_what_belongs_to_one_broker_is_blanked() -> None:
    here = "OffsetID: 7F00000100005FA700000000000001E9 at 127.0.0.1:24487 2026-11-21 09:37:05,289 TPS: 0.31"
    there = "OffsetID:   7F000001000043BB00000000000001E9 at 127.0.0.1:17339 2027-01-02 10:00:00,000 TPS: 12.5"
    elsewhere = here.replace("01E9", "01EA")
    assert normalised("printMsg", here) == normalised("printMsg", there)
    assert normalised("printMsg", here) != normalised("printMsg", elsewhere)


def test_of_a_brokers_status_counters_remain_and_measurements_go() -> None:
    text = "putTps : 1.2 3.4 5.6\nmsgPutTotalTodayNow : 20\nruntime : [ 0 days, 0 hours, 3 minutes, 1 seconds ]\n"
    assert normalised("brokerStatus", text) == [
        "putTps:<rates>",
        "msgPutTotalTodayNow:20",
        "runtime:[ <n> days, <n> hours, <n> minutes, <n> seconds ]",
    ]
