"""Settings that change while the broker runs: how they are published, and that every one of them has a reader."""

from __future__ import annotations

import ast
import functools
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import pytest
from fast_rig import shared_segment

from mqcore import broker as broker_package
from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.live_settings import LiveSettings
from mqcore.config import SETTINGS, Setting, Settings, SettingValues, load
from mqcore.config.table import Mark
from mqcore.errors import ConfigError, WorkerError
from mqcore.workers import pull, send, settings_sheet, timer
from mqcore.workers.commit_log_flusher import CommitLogFlusher
from mqcore.workers.file_keeper import FileKeeper
from mqcore.workers.handover import Handover
from mqcore.workers.settings_sheet import SettingsFollower, SettingsSheet
from mqcore.workers.store_keeper import StoreKeeper
from tests.rows import walked

ROW = 1
LIVE = [row for row in SETTINGS if row.changeable and row.used]
BROKER = Path(broker_package.__file__).parent


def settings(**overrides: str) -> Settings:
    return load(overrides={"bindAddress": "127.0.0.1"} | overrides, environment={})


@pytest.fixture
def sheet() -> Iterator[SettingsSheet]:
    made = SettingsSheet.create()
    yield made
    os.close(made.fd)


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


# The sheet -------------------------------------------------------------------------------------------------------


def test_the_newest_settings_are_read_whole(sheet: SettingsSheet) -> None:
    sheet.write(settings(storePathRootDir="/a/very/long/way/to/the/store", maxMessageSize="7"), 1)
    shorter = settings(storePathRootDir="/s", maxMessageSize="8")
    sheet.write(shorter, 2)
    version, read = sheet.read()
    assert (version, read.store) == (2, shorter.store)


@pytest.mark.parametrize("cut", [4, layout.SETTINGS_HEAD.size, 100])
def test_a_sheet_that_is_being_written_is_read_again(sheet: SettingsSheet, cut: int) -> None:
    sheet.write(settings(), 1)
    sheet.write(settings(maxMessageSize="7"), 2)
    whole = os.pread(sheet.fd, settings_sheet.SHEET_MAX, 0)
    os.pwrite(sheet.fd, bytes(len(whole) - cut), cut)
    found: list[tuple[int, SettingValues]] = []
    reader = threading.Thread(target=lambda: found.append(sheet.read()))
    reader.start()
    os.pwrite(sheet.fd, whole, 0)
    reader.join()
    assert [(version, read.store.max_message_size) for version, read in found] == [(2, 7)]


def test_a_sheet_that_stays_broken_is_an_error(sheet: SettingsSheet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_sheet, "READS_MAX", 3)
    sheet.write(settings(), 1)
    os.pwrite(sheet.fd, b"!", layout.SETTINGS_HEAD.size)
    with pytest.raises(WorkerError, match="cannot be read"):
        sheet.read()


def test_a_worker_says_which_settings_it_goes_by(sheet: SettingsSheet, segment: SharedSegment) -> None:
    used: list[int] = []
    handover = Handover("send", 0, ROW, 0, segment.fd, -1, -1, "", settings_version=4, sheet=sheet.fd)
    segment.set("settings_version", 4)
    follower = SettingsFollower(segment, handover, lambda changed: used.append(changed.store.max_message_size))
    assert segment.worker_word(ROW, "settings_version") == 4
    assert not follower.has_news
    sheet.write(settings(maxMessageSize="7"), 5)
    segment.set("settings_version", 5)
    assert follower.has_news
    follower.follow()
    assert (used, segment.worker_word(ROW, "settings_version"), follower.has_news) == ([7], 5, False)


def test_a_worker_that_cannot_use_settings_does_not_say_that_it_does(
    sheet: SettingsSheet, segment: SharedSegment
) -> None:
    def refuse(changed: Settings) -> None:
        raise ValueError(changed)

    sheet.write(settings(), 1)
    segment.set("settings_version", 1)
    follower = SettingsFollower(segment, Handover("send", 0, ROW, 0, segment.fd, -1, -1, "", sheet=sheet.fd), refuse)
    with pytest.raises(ValueError, match="Settings"):
        follower.follow()
    assert segment.worker_word(ROW, "settings_version") == 0


# The table -------------------------------------------------------------------------------------------------------


class Recorder:
    """Stands for a group of settings and notes which of them are asked for."""

    def __init__(self, values: Any, asked: set[str]) -> None:
        self._values = values
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        for part in {"delete_hours": ["delete_when"]}.get(name, [name]):
            self._asked.add(part)
        return getattr(self._values, name)


class RecordedSettings:
    def __init__(self) -> None:
        self.asked: set[str] = set()
        for group in ("broker", "store", "mqcore", "server", "namesrv", "failover"):
            setattr(self, group, Recorder(getattr(settings(), group), self.asked))


def used_again(use: Callable[[Any], object]) -> set[str]:
    """Which live settings are taken anew by what a worker calls when they have changed."""
    recorded = RecordedSettings()
    use(recorded)
    return recorded.asked & {row.name for row in LIVE}


def marked(mark: Mark) -> set[str]:
    return {row.name for row in LIVE if mark in row.marks}


def test_a_send_worker_follows_what_the_table_says() -> None:
    assert used_again(send.live_options) == marked(Mark.BY_SEND)


def test_the_timer_worker_follows_what_the_table_says() -> None:
    # What a class of settings reads by itself, by way of another: see flush_commit_log_timed below.
    assert used_again(timer.live_options) == marked(Mark.BY_TIMER)


def test_a_pull_worker_follows_what_the_table_says() -> None:
    assert used_again(pull.live_options) == marked(Mark.BY_PULL)


def test_the_flush_worker_follows_what_the_table_says(tmp_path: Path, segment: SharedSegment) -> None:
    given = settings(storePathRootDir=str(tmp_path), mappedFileSizeCommitLog="4096")
    handover = Handover("flush", 0, ROW, 0, segment.fd, os.eventfd(0), -1, "")
    keepers: list[Any] = [
        CommitLogFlusher(given, segment, handover),
        FileKeeper(given, segment),
        StoreKeeper(given, segment),
    ]
    try:
        found = set().union(*(used_again(keeper.use) for keeper in keepers))
        assert found - {"flush_commit_log_timed"} == marked(Mark.BY_FLUSH) - {"flush_commit_log_timed"}
        assert "flush_commit_log_timed" in found
    finally:
        os.close(handover.wake)


@functools.cache
def reads(path: Path) -> Mapping[str, Set[str]]:
    """What a module reads of anything, and the functions that read it; a lambda is asked each time, whoever made it."""
    tree = ast.parse(path.read_text())
    later = {id(node) for part in ast.walk(tree) if isinstance(part, ast.Lambda) for node in ast.walk(part)}
    found: dict[str, set[str]] = defaultdict(set)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute):
                    found[node.attr].add("<lambda>" if id(node) in later else function.name)
    return found


@walked("row", [row for row in LIVE if Mark.BY_BROKER in row.marks])
def test_the_broker_process_reads_each_setting_when_it_needs_it(row: Setting) -> None:
    """Or anew in ``use``: what only a constructor has read would not change."""
    found = {path: reads(path).get(row.name, set()) for path in BROKER.rglob("*.py")}
    assert any(found.values()), f"nobody reads {row.name}"
    assert [path for path, functions in found.items() if "__init__" in functions and "use" not in functions] == []


def test_whoever_keeps_settings_is_told_of_changes() -> None:
    """The objects of the broker process with a ``use`` are those that the server tells."""
    classes = {
        node.name
        for path in BROKER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(part, ast.FunctionDef) and part.name == "use" for part in node.body)
    }
    assert classes == {"SharedSink", "SharedStoreView", "SendQuotas"}


# Changes ---------------------------------------------------------------------------------------------------------


async def test_workers_are_told_when_the_file_is_written_and_this_process_has_changed(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    path = tmp_path / "broker.conf"

    async def publish(changed: Settings, version: int) -> None:
        assert live.current is changed
        seen.append((version, changed.store.max_message_size, path.read_text()))

    live = LiveSettings(settings(), lambda: 1, path, publish)
    await live.update({"maxMessageSize": "7"})
    await live.update({"maxMessageSize": "8"})
    assert seen == [(1, 7, "maxMessageSize=7\n"), (2, 8, "maxMessageSize=8\n")]
    with pytest.raises(ConfigError):
        await live.update({"maxMessageSize": "9", "listenPort": "1"})
    assert len(seen) == 2


async def test_what_is_not_changed_in_the_file_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    before = "# größer\nbrokerName = broker-ä\r\n\nmaxMessageSize: \\\n   4096\n".encode() + b"# \xe9\n"
    path.write_bytes(before)
    path.chmod(0o640)
    await LiveSettings(settings(), lambda: 1, path).update({"maxMessageSize": "7"})
    assert path.read_bytes() == "# größer\nbrokerName = broker-ä\n\nmaxMessageSize=7\n".encode() + b"# \xe9\n"
    assert path.with_name("broker.conf.bak").read_bytes() == before
    assert {entry.stat().st_mode & 0o777 for entry in tmp_path.iterdir()} == {0o640}


async def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "broker.conf", tmp_path / "broker.conf"
    target.write_text("maxMessageSize=1\n")
    link.symlink_to(target)
    await LiveSettings(settings(), lambda: 1, link).update({"maxMessageSize": "7"})
    assert link.is_symlink()
    assert target.read_text() == "maxMessageSize=7\n"


async def test_a_file_that_may_not_be_written_does_not_keep_a_change_from_holding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mqcore.config.property_file.write_atomically", refuse)
    live = LiveSettings(settings(), lambda: 1, tmp_path / "broker.conf")
    await live.update({"maxMessageSize": "7"})
    assert live.store.max_message_size == 7
    assert "until the next start only" in caplog.text


async def test_a_disk_that_is_full_keeps_a_change_from_holding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mqcore.config.property_file.write_atomically", refuse)
    live = LiveSettings(settings(), lambda: 1, tmp_path / "broker.conf")
    before = live.current
    with pytest.raises(OSError, match="No space"):
        await live.update({"maxMessageSize": "7"})
    assert live.current is before


async def test_a_change_that_the_command_line_would_undo_is_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = LiveSettings(settings(maxMessageSize="5"), lambda: 1, tmp_path / "broker.conf")
    await live.update({"maxMessageSize": "7", "traceOn": "false"})
    assert "maxMessageSize: the command line has a value too" in caplog.text
    assert "traceOn: the command line" not in caplog.text
