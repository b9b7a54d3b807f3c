"""SIGKILL of ``mqcore backup`` at any moment, beside a broker that is sent to: no run that was completed is touched."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqcore.store.backup.checking import check_backup
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.restoring import restore
from tests.integration.backup_rig import DEADLINE_S, TOPIC, assert_holds, grow, stored, talking
from tests.rigs import MqcoreBroker, wire

pytestmark = pytest.mark.fault

KILLS = 6
SLOW_KILLS = 150
# Each step of a run is made longer, and each file is committed by itself, so that a kill meets all of them.
CHILD = """
import sys
from pathlib import Path
from mqcore.store.backup.making import Options, make_backup
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
make_backup(Path(sys.argv[1]), Path(sys.argv[2]), options=Options(commit_step=1, max_rate=int(sys.argv[3])))
"""


def start_run(store: Path, target: Path, max_rate: int) -> subprocess.Popen[str]:
    """Start a child that is about to back up."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(store), str(target), str(max_rate)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def finish(child: subprocess.Popen[str], wait_s: float) -> bool:
    """Let it go, kill it after *wait_s*; whether it came to its end."""
    # Who runs out of time before a byte was written leaves the pipe to the child open.
    with child:
        try:
            _, said = child.communicate("go\n", wait_s)
        except subprocess.TimeoutExpired:
            child.kill()
            _, said = child.communicate()
    assert child.returncode in (0, -signal.SIGKILL), said
    return child.returncode == 0


@pytest.mark.parametrize("kills", [KILLS, pytest.param(SLOW_KILLS, marks=pytest.mark.slow)])
def test_what_was_acknowledged_before_the_last_completed_run_is_restored(
    tmp_path: Path, chance: random.Random, kills: int
) -> None:
    target = tmp_path / "backup"
    killed = completed = 0
    known: dict[tuple[int, int], bytes] = {}
    with (
        MqcoreBroker(tmp_path / "store", {"mappedFileSizeCommitLog": str(1 << 18)}) as broker,
        talking(broker) as talker,
    ):
        wire.create_topic(broker.broker_address, TOPIC, queues=2)
        longest_s = 0.3
        while killed < kills or not completed:
            grow(talker, 40)
            before = talker.so_far()
            child = start_run(broker.store_dir, target, chance.choice([0, 2_000_000]))
            began = time.monotonic()
            is_done = finish(child, chance.uniform(0, longest_s) if killed < kills else DEADLINE_S)
            if is_done:
                completed += 1
                known = before
                longest_s = min(1.0, time.monotonic() - began)
            else:
                killed += 1
            directory = BackupDirectory(target)
            if directory.manifest.exists():
                assert check_backup(directory).problems == []
                if completed:
                    assert_holds(stored(target), known)
    print(f"{killed} killed, {completed} completed")
    end = directory.load().runs[-1].end
    assert restore(target, tmp_path / "new").end == end
    with MqcoreBroker(tmp_path / "new", {"mappedFileSizeCommitLog": str(1 << 18)}) as new:
        assert_holds(stored(new.store_dir), known)
        high = wire.max_offset(new.broker_address, TOPIC, 0)
        assert high > max(offset for queue, offset in known if queue == 0)


def test_a_restore_that_is_killed_leaves_no_store_and_can_be_begun_again(tmp_path: Path, chance: random.Random) -> None:
    target = tmp_path / "backup"
    with MqcoreBroker(tmp_path / "store", {"mappedFileSizeCommitLog": str(1 << 18)}) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=2)
        with talking(broker) as talker:
            grow(talker, 300)
        assert finish(start_run(broker.store_dir, target, 0), DEADLINE_S)
    wanted = stored(target)
    command = [sys.executable, "-m", "mqcore.admin.main", "restore", target, tmp_path / "new", "--max-rate", "1M"]
    for _ in range(4):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            child.wait(chance.uniform(0.3, 1.0))
            break
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(DEADLINE_S)
            if (tmp_path / "new" / "commitlog").exists():
                break  # it had just become a store, and is whole then
    if not (tmp_path / "new" / "commitlog").exists():
        restore(target, tmp_path / "new")
    assert stored(tmp_path / "new") == wanted
