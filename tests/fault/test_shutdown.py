"""Stopping a broker, starting it twice, and what either leaves behind: nothing but the store."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fault.history import read_all
from tests.fault.rig import (
    DEADLINE_S,
    SMALL_FILES,
    WORKER_KINDS,
    await_successor,
    check_store,
    kill_worker,
    new_history,
    seeded,
    seeds,
    start_broker,
    under_load,
)
from tests.rigs import MqcoreBroker, free_broker_ports, free_port, wire
from tests.rigs.apache import write_properties
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

EXIT_BAD_SETTINGS = 253
EXIT_START_FAILED = 255
MARK = "MQCORE_TEST_MARK"
STOP_SIGNALS = [signal.SIGTERM, signal.SIGINT]
START_TRIES = 2
START_TRIES_SLOW = 60
KILLS = 2
DESCRIPTORS_SPARE = 2


@pytest.fixture
def mark() -> Iterator[str]:
    """A word in the environment of a broker, by which every process that it ever started is found; none may be left."""
    word = uuid.uuid4().hex
    yield word
    assert marked_processes(word) == []


def marked_processes(word: str) -> list[str]:
    """The command lines of the processes that carry *word*."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == word:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def leftovers(store_dir: Path) -> list[str]:
    """Names in and beside a store that only a broker at work may have."""
    names = [path for path in store_dir.rglob("*") if path.name.endswith(".tmp") or ".making" in path.name]
    return [
        str(path.relative_to(store_dir)) for path in [*names, *store_dir.glob(".dropped*"), *store_dir.glob("abort")]
    ]


def shared_memory(broker: MqcoreBroker) -> set[str]:
    """The files of shared memory with a name that the broker's processes map or hold open now.

    Looked for with them, and not by comparing what is in /dev/shm before and after: others come and go there too.
    """
    held: set[str] = set()
    for process in [psutil.Process(broker.pid), *broker.workers()]:
        held.update(mapped.path for mapped in process.memory_maps())
        held.update(opened.path for opened in process.open_files())
    return {path for path in held if path.startswith("/dev/shm/")}


def those_left(paths: set[str]) -> list[str]:
    return [path for path in paths if Path(path).exists()]


def end_by(broker: MqcoreBroker, number: signal.Signals) -> int:
    """Send *number* to the broker process and wait for its end; its exit code."""
    os.kill(broker.pid, number)
    return broker.child.wait(DEADLINE_S)


@pytest.fixture(params=["any", *(pytest.param(number, marks=pytest.mark.slow) for number in STOP_SIGNALS)])
def stop_signal(request: pytest.FixtureRequest, chance: random.Random) -> signal.Signals:
    """What ends a broker in order: in long runs each signal in turn, otherwise the one that chance takes."""
    number: signal.Signals = chance.choice(STOP_SIGNALS) if request.param == "any" else request.param
    print(f"stopped by {number.name}")
    return number


def test_a_stop_under_load_leaves_a_whole_store_and_nothing_else(
    tmp_path: Path, mark: str, flush_mode: dict[str, str], stop_signal: signal.Signals
) -> None:
    with MqcoreBroker(tmp_path / "store", flush_mode, env={MARK: mark}) as broker:
        history = new_history(broker, "Stopped", "stopped")
        with under_load(history, broker):
            wait_until(lambda: history.acked_count > 200, DEADLINE_S, "messages are accepted")
            assert (broker.store_dir / "abort").exists()
            memory = shared_memory(broker)
            assert end_by(broker, stop_signal) == 0
        assert marked_processes(mark) == []
        assert leftovers(broker.store_dir) == []
        assert those_left(memory) == []
        check_store(history, broker.store_dir)
        broker.start_again()
        assert "recovery begins after_crash=True" not in broker.child.log.read_text()
        history.check(read_all(history, broker.broker_address))
        broker.stop()


def test_ctrl_c_reaches_the_whole_group_and_stops_it_in_order(tmp_path: Path, mark: str) -> None:
    """A terminal sends SIGINT to every process of the foreground group, the workers included."""
    with MqcoreBroker(tmp_path / "store", SMALL_FILES, env={MARK: mark}) as broker:
        history = new_history(broker, "Stopped", "stopped")
        with under_load(history, broker):
            wait_until(lambda: history.acked_count > 100, DEADLINE_S, "messages are accepted")
            for process in [*broker.workers(), psutil.Process(broker.pid)]:
                process.send_signal(signal.SIGINT)
            assert broker.child.wait(DEADLINE_S) == 0
        assert leftovers(broker.store_dir) == []
        check_store(history, broker.store_dir)


def start_command(tmp_path: Path) -> list[str]:
    """The command that starts a broker on *tmp_path*/store, on ports that are free now."""
    configuration = write_properties(
        tmp_path / "broker.conf",
        {
            **SMALL_FILES,
            "brokerIP1": "127.0.0.1",
            "listenPort": str(free_broker_ports().listen),
            "namesrvListenPort": str(free_port()),
            "storePathRootDir": str(tmp_path / "store"),
            "storePathCommitLog": str(tmp_path / "store" / "commitlog"),
        },
    )
    return [sys.executable, "-m", "mqcore.broker", "-c", str(configuration)]


def end_of(process: subprocess.Popen[bytes], number: signal.Signals, printed: Path) -> int:
    """Wait for the end of *process*, which was sent *number*; its exit code.

    Before it comes to our first line, Python may swallow an interrupt in a callback of its own. It says so in
    *printed*, and a person would press the keys once more.
    """
    sent = 1

    def swallowed() -> int:
        text = printed.read_text()
        return text.count("\nKeyboardInterrupt") if text.startswith("Exception ignored in") else 0

    try:
        while process.poll() is None:
            wait_until(lambda: process.poll() is not None or swallowed() == sent, DEADLINE_S, "the start ends")  # noqa: B023
            if process.poll() is None:
                process.send_signal(number)
                sent += 1
        return process.wait(DEADLINE_S)
    finally:
        process.kill()  # without effect on one that has ended; its workers go with it


def interrupt_starts(tmp_path: Path, mark: str, number: signal.Signals, rng: random.Random, tries: int) -> None:
    """Start a broker and send it *number* at some moment of its start, again and again on one store."""
    command = start_command(tmp_path)
    boot_s = 1.0
    for _ in range(tries):
        with (tmp_path / "out").open("wb") as sink:
            began = time.monotonic()
            process = subprocess.Popen(command, stdout=sink, stderr=sink, env={**os.environ, MARK: mark})
            time.sleep(rng.uniform(0, boot_s))
            process.send_signal(number)
            code = end_of(process, number, tmp_path / "out")
        boot_s = max(boot_s, time.monotonic() - began)
        wait_until(lambda: marked_processes(mark) == [], DEADLINE_S, "nothing of it is left")
        printed = (tmp_path / "out").read_text()
        if number is signal.SIGKILL:
            assert code == -signal.SIGKILL
        else:
            # Before Python has got as far as our own first line the signal does what it does to any process.
            assert code == 0 or (code in (-number, 1) and "recovery begins" not in printed), printed
            assert leftovers(tmp_path / "store") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_start_may_be_interrupted_at_any_moment(tmp_path: Path, mark: str, number: signal.Signals) -> None:
    interrupt_starts(tmp_path, mark, number, seeded(seeds(1)[0]), START_TRIES)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_many_starts_may_be_interrupted(tmp_path: Path, mark: str, number: signal.Signals) -> None:
    interrupt_starts(tmp_path, mark, number, seeded(seeds(1)[0]), START_TRIES_SLOW)


def test_workers_go_with_their_killed_broker(tmp_path: Path, mark: str) -> None:
    with MqcoreBroker(tmp_path / "store", SMALL_FILES, env={MARK: mark}) as broker:
        assert len(broker.workers()) == len(WORKER_KINDS)
        memory = shared_memory(broker)
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: marked_processes(mark) == [], DEADLINE_S, "no worker is left")
        assert those_left(memory) == []
        assert (broker.store_dir / "abort").exists()
        broker.child.wait(DEADLINE_S)
        broker.start_again()
        assert "recovery begins after_crash=True" in broker.child.log.read_text()
        broker.stop()
        assert leftovers(broker.store_dir) == []


def test_a_second_broker_on_the_store_is_refused(tmp_path: Path, mark: str) -> None:
    with start_broker(tmp_path, SMALL_FILES) as broker:
        history = new_history(broker, "Locked", "locked")
        for _ in range(2):
            second = subprocess.run(
                start_command(tmp_path),
                capture_output=True,
                text=True,
                check=False,
                timeout=DEADLINE_S,
                env={**os.environ, MARK: mark},
            )
            assert second.returncode == EXIT_START_FAILED
            assert f"another process holds {broker.store_dir / 'lock'}" in second.stderr.splitlines()[-1]
            assert marked_processes(mark) == []
        with under_load(history, broker):
            wait_until(lambda: history.acked_count > 100, DEADLINE_S, "messages are accepted")
        history.check(read_all(history, broker.broker_address))
        broker.stop()
        check_store(history, broker.store_dir)


def test_a_second_broker_on_the_port_is_refused_by_its_name(tmp_path: Path, mark: str) -> None:
    with start_broker(tmp_path, SMALL_FILES) as broker:
        other = tmp_path / "other"
        other.mkdir()
        command = [*start_command(other), "--set", f"listenPort={broker.properties['listenPort']}"]
        second = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=DEADLINE_S, env={**os.environ, MARK: mark}
        )
        assert second.returncode == EXIT_BAD_SETTINGS
        assert f"listenPort: cannot listen on 127.0.0.1:{broker.properties['listenPort']}" in second.stderr
        assert leftovers(other / "store") == []
        assert wire.max_offset(broker.broker_address, "TBW102", 0) == 0
        broker.stop()


def test_restarted_workers_cost_no_descriptors_and_no_processes(tmp_path: Path) -> None:
    with start_broker(tmp_path, SMALL_FILES) as broker:
        process = psutil.Process(broker.pid)
        before = process.num_fds()
        for _ in range(KILLS):
            for kind in WORKER_KINDS:
                await_successor(broker, kind, kill_worker(broker, kind))
        wait_until(lambda: process.num_fds() <= before + DESCRIPTORS_SPARE, DEADLINE_S, "descriptors are given back")
        assert len(process.children()) == len(WORKER_KINDS) + 1  # and their nursery
        wait_until(lambda: wire.serves(broker.name_server, broker.broker_address), DEADLINE_S, "it serves")
        broker.stop()
