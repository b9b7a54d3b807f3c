"""Small files, the lock, the abort file and the checkpoint: whole or old, never half."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqcore import clock, files
from mqcore.delay_levels import parse_delay_levels
from mqcore.errors import ConfigError, StoreError, StoreLockedError
from mqcore.store.abort_file import AbortFile
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.geometry import StoreGeometry
from mqcore.store.lock_file import LockFile
from mqcore.store.paths import StorePaths, file_name, is_topic

# ------------------------------------------------------------------------------------------------------------ files


def test_a_file_is_replaced_and_its_old_content_kept(tmp_path):
    path = tmp_path / "topics.json"
    files.write_atomically(path, b"one")
    assert not (tmp_path / "topics.json.bak").exists()
    files.write_atomically(path, b"two")
    assert (path.read_bytes(), (tmp_path / "topics.json.bak").read_bytes()) == (b"two", b"one")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["topics.json", "topics.json.bak"]


def test_no_backup_is_kept_when_none_is_wanted(tmp_path):
    path = tmp_path / "x"
    files.write_atomically(path, b"one", keep_backup=False)
    files.write_atomically(path, b"two", keep_backup=False)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


class _CutError(Exception):
    pass


@pytest.mark.parametrize("last", range(12))
def test_a_write_that_dies_anywhere_leaves_the_old_content_or_the_new(tmp_path, monkeypatch, last):
    path = tmp_path / "table"
    files.write_atomically(path, b"zero")
    files.write_atomically(path, b"one")
    calls = 0

    def guarded(call):
        def run(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls > last:
                raise _CutError
            return call(*arguments, **options)

        return run

    with monkeypatch.context() as patch:
        for name in ("fsync", "replace", "open"):
            patch.setattr(os, name, guarded(getattr(os, name)))
        patch.setattr(Path, "open", guarded(Path.open))
        patch.setattr(Path, "replace", guarded(Path.replace))
        try:
            files.write_atomically(path, b"two")
            done = True
        except _CutError:
            done = False
    assert path.read_bytes() in ((b"two",) if done else (b"one", b"two"))
    files.write_atomically(path, b"three")
    assert path.read_bytes() == b"three"


def test_order_of_a_write_is_content_then_name_then_directory(tmp_path, monkeypatch):
    path = tmp_path / "table"
    files.write_atomically(path, b"one")
    order = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))  # noqa: PTH115, PTH119
        fsync(descriptor)

    def note_replace(source, target):
        order.append("rename")
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    files.write_atomically(path, b"two")
    assert order == ["table.tmp", "table.bak", "rename", tmp_path.name]


def test_a_sized_file_appears_whole_with_its_head_and_its_blocks(tmp_path):
    directory = tmp_path / "d"
    directory.mkdir()
    files.make_sized_file(directory / "f", 1 << 20, reserve=8192, head=b"head")
    data = (directory / "f").read_bytes()
    assert (len(data), data[:4], data.count(0)) == (1 << 20, b"head", (1 << 20) - 4)
    assert 8192 <= (directory / "f").stat().st_blocks * 512 < 1 << 20
    with pytest.raises(FileExistsError):
        files.make_sized_file(directory / "f", 10)
    assert (directory / "f").stat().st_size == 1 << 20
    assert [entry.name for entry in tmp_path.iterdir()] == ["d"]


def test_a_second_name_that_a_crash_left_does_not_destroy_its_file(tmp_path):
    directory = tmp_path / "d"
    directory.mkdir()
    files.make_sized_file(directory / "one", 4096, head=b"one")
    os.link(directory / "one", tmp_path / "d.making")
    files.make_sized_file(directory / "two", 4096, head=b"two")
    assert (directory / "one").read_bytes()[:3] == b"one"
    assert (directory / "two").read_bytes()[:3] == b"two"


def test_a_full_disk_is_an_error_and_leaves_no_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    directory = tmp_path / "d"
    directory.mkdir()
    with pytest.raises(OSError, match="No space"):
        files.make_sized_file(directory / "f", 4096, reserve=4096)
    assert list(directory.iterdir()) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["d"]


def test_zeroing_reaches_the_end_and_leaves_what_is_before(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"a" * 3_000_000)
    assert files.zero_from(path, 10) == 3_000_000 - 10
    assert path.read_bytes() == b"a" * 10 + bytes(3_000_000 - 10)
    assert files.zero_from(path, 10) == 0
    assert files.zero_from(path, 3_000_000) == 0


def test_zeroing_passes_over_holes(tmp_path):
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"x")
    assert 0 < files.zero_from(path, 0) <= 1 << 20
    assert path.stat().st_size == 1 << 40
    with path.open("rb") as file:
        file.seek(1 << 39)
        assert file.read(1) == b"\0"


def test_directories_are_made_with_their_parents(tmp_path):
    files.make_directory(tmp_path / "a" / "b" / "c")
    files.make_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_deleting_what_is_gone_is_no_error(tmp_path):
    (tmp_path / "f").touch()
    files.delete_file(tmp_path / "f")
    files.delete_file(tmp_path / "f")


def test_now_is_in_milliseconds():
    assert 1_600_000_000_000 < clock.now_ms() < 10_000_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()


# ------------------------------------------------------------------------------------------------------------- lock

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import sys
from pathlib import Path
from mqcore.errors import StoreLockedError
from mqcore.store.lock_file import LockFile
try:
    LockFile(Path(sys.argv[1])).acquire()
except StoreLockedError:
    print("refused")
else:
    print("taken")
"""


def try_elsewhere(path: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", TRY, str(path)], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_store_that_another_process_holds_is_refused(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match=f"another process holds {path}: pid {holder.pid}, .*python.* -c"):
            LockFile(path).acquire()
        holder.stdin.close()
        holder.wait(60)
    lock = LockFile(path)
    lock.acquire()
    lock.release()


def test_a_held_lock_refuses_other_processes_and_a_second_try(tmp_path):
    path = tmp_path / "lock"
    lock = LockFile(path)
    lock.acquire()
    assert try_elsewhere(path) == "refused"
    with pytest.raises(StoreLockedError, match="this process"):
        lock.acquire()
    lock.release()
    lock.release()
    assert try_elsewhere(path) == "taken"
    assert path.read_bytes() == b"lock"


# ------------------------------------------------------------------------------------------------ abort, checkpoint


def test_the_abort_file_comes_and_goes(tmp_path):
    abort = AbortFile(tmp_path / "abort")
    assert not abort.exists()
    abort.create()
    abort.create()
    assert abort.exists()
    assert (tmp_path / "abort").stat().st_size == 0
    abort.remove()
    abort.remove()
    assert not abort.exists()


def test_a_checkpoint_has_4096_bytes_and_leaves_the_rest_alone(tmp_path):
    path = tmp_path / "checkpoint"
    Checkpoint(1, 2, 3).write(path)
    assert path.read_bytes() == bytes.fromhex("0000000000000001 0000000000000002 0000000000000003") + bytes(4072)
    path.write_bytes(path.read_bytes()[:24] + b"\xaa" * 4072)
    Checkpoint(4, 5, 6).write(path)
    assert path.read_bytes()[24:] == b"\xaa" * 4072
    assert Checkpoint.read(path) == Checkpoint(4, 5, 6)


@pytest.mark.parametrize("content", [None, b"", b"\0" * 23])
def test_a_missing_or_short_checkpoint_knows_nothing(tmp_path, content):
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)
    assert Checkpoint.read(path) == Checkpoint(0, 0, 0)
    Checkpoint(7, 8, 9).write(path)
    assert path.stat().st_size == 4096


@pytest.mark.parametrize(
    ("times", "minimum", "with_index"),
    [((10_000, 20_000, 30_000), 7000, 7000), ((20_000, 10_000, 5000), 7000, 2000), ((2999, 9999, 9999), 0, 0)],
)
def test_the_checkpoints_minimum_has_a_margin_of_three_seconds(times, minimum, with_index):
    checkpoint = Checkpoint(*times)
    assert (checkpoint.min_timestamp, checkpoint.min_timestamp_with_index) == (minimum, with_index)


# --------------------------------------------------------------------------------------------------- paths, geometry


def test_file_names_have_twenty_digits():
    assert file_name(1 << 30) == "00000000001073741824"


@pytest.mark.parametrize("topic", ["a", "%RETRY%group", "A-1_b|c", "x" * 127])
def test_topics_that_may_be_directories(topic, tmp_path):
    assert is_topic(topic)
    assert StorePaths.at(tmp_path).queue(topic, 3) == tmp_path / "consumequeue" / topic / "3"


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "é", "a\n", "x" * 128])
def test_topics_that_may_not(topic, tmp_path):
    assert not is_topic(topic)
    with pytest.raises(StoreError, match="no directory for topic"):
        StorePaths.at(tmp_path).queue(topic, 0)


@pytest.mark.parametrize("queue_id", [-1, 1 << 31])
def test_queue_numbers_that_may_not_be_directories(queue_id, tmp_path):
    with pytest.raises(StoreError, match="no directory"):
        StorePaths.at(tmp_path).queue("a", queue_id)


def test_the_commit_log_may_lie_elsewhere(tmp_path):
    paths = StorePaths.at(tmp_path / "root", tmp_path / "log")
    paths.make_directories()
    assert (tmp_path / "log").is_dir()
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["config", "consumequeue", "index"]


def test_delay_levels_of_the_default_text():
    levels = StoreGeometry().delay_levels_ms
    assert (len(levels), levels[0], levels[4], levels[17]) == (18, 1000, 60_000, 7_200_000)
    assert parse_delay_levels("2d") == (172_800_000,)


@pytest.mark.parametrize("text", ["", "1", "s", "1x", "1s  2s", "-1s", "١s"])
def test_delay_levels_that_are_none(text):
    with pytest.raises(ValueError, match="delays such as"):
        parse_delay_levels(text)


def test_geometry_that_cannot_be():
    with pytest.raises(ConfigError, match="mappedFileSizeConsumeQueue"):
        StoreGeometry(consume_queue_file_size=30)
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog"):
        StoreGeometry(commit_log_file_size=98)
