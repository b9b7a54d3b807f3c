"""The broker's command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mqcore.broker.options import parse_arguments, read_again
from mqcore.config import Settings, parse_properties
from mqcore.errors import ConfigError
from mqcore.version import __version__
from mqcore.workers.__main__ import KINDS

DEAR = ("numpy", "lark", "rich", "pyarrow", "pyspark", "mqcore.client", "mqcore.broker.group_server")
JSON = ("orjson", "mqcore.protocol.fastjson", "decimal", "uuid")
"""What JSON is read and written with, which imports more than it is."""
LOCAL = ("--set", "bindAddress=127.0.0.1")


def settings_of(argv: Sequence[str]) -> Settings:
    return parse_arguments(argv, environment={})[0]


def test_changes_are_kept_in_the_last_file(tmp_path: Path) -> None:
    for name in ("a.conf", "b.conf"):
        (tmp_path / name).touch()
    files = ["-c", str(tmp_path / "a.conf"), "-c", str(tmp_path / "b.conf")]
    assert parse_arguments([*files, *LOCAL], environment={})[1] == tmp_path / "b.conf"
    assert parse_arguments(LOCAL, environment={})[1] is None


def imported(modules: Sequence[str], names: Sequence[str]) -> list[str]:
    """Which of *names* a process has imported with *modules*."""
    script = f"import sys, {', '.join(modules)}; print(*[name for name in {names} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_what_a_start_does_not_need_is_not_imported() -> None:
    assert imported(["mqcore.broker.server", *(f"mqcore.workers.{kind}" for kind in KINDS)], DEAR) == []


def test_who_moves_messages_knows_no_json() -> None:
    assert imported([f"mqcore.workers.{kind}" for kind in ("send", "pull", "reput", "flush", "ha")], JSON) == []


def status(*argv: str) -> object:
    with pytest.raises(SystemExit) as caught:
        settings_of(argv)
    return caught.value.code


def test_no_argument_gives_the_defaults() -> None:
    assert settings_of(LOCAL).server.listen_port == 10911


def test_file_name_servers_store_and_single_settings_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=from-file\nnamesrvAddr=file:1\nlistenPort=20911\n")
    argv = ["-c", str(file), "-n", "a:1;b:2", "--store", str(tmp_path / "s"), "--set", "listenPort=30911", *LOCAL]
    settings = settings_of(argv)
    assert settings.broker.broker_name == "from-file"
    assert settings.source("brokerName") == f"{file}:1"
    assert settings.broker.namesrv_addr == "a:1;b:2"
    assert settings.store.root_dir == tmp_path / "s"
    assert settings.server.listen_port == 30911


def test_the_last_of_two_spellings_wins() -> None:
    argv = ["--set", "mapedFileSizeCommitLog=4096", "--set", "mappedFileSizeCommitLog=8192"]
    assert settings_of([*argv, *LOCAL]).store.mapped_file_size_commit_log == 8192
    reverse = [*argv, "--set", "mapedFileSizeCommitLog=4096"]
    assert settings_of([*reverse, *LOCAL]).store.mapped_file_size_commit_log == 4096


def test_value_may_hold_an_equals_sign() -> None:
    settings = settings_of(["--set", "workerCpuAffinity=send=0;pull=1", *LOCAL])
    assert settings.mqcore.cpu_affinity == {"send": {0}, "pull": {1}}


def test_p_prints_all_settings_and_m_the_important_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("-p", *LOCAL) == 0
    everything = parse_properties(capsys.readouterr().out)
    assert status("-m", *LOCAL) == 0
    important = parse_properties(capsys.readouterr().out)
    assert everything["listenPort"] == "10911"
    assert important["brokerClusterName"] == "DefaultCluster"
    assert important.items() < everything.items()
    assert "listenPort" not in important


@pytest.mark.parametrize("module", ["mqcore", "mqcore.broker", "mqcore.namesrv"])
def test_every_program_tells_its_version(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == __version__


def test_h_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("-h") == 0
    assert "--set KEY=VALUE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["-n", "nowhere"], "namesrvAddr: got 'nowhere', wanted host:port"),
        (["--set", "brokerRole=SLAVE"], "brokerId: got '0', wanted an id above 0"),
        (["--set", "listenPort=x"], "listenPort: got 'x', wanted an integer"),
        (["-c", "/nowhere/broker.conf"], "cannot read the configuration file"),
        (["-p", "--set", "nonsense=1"], "nonsense: unknown setting"),
    ],
)
def test_settings_that_cannot_stand_exit_like_rocketmq(
    argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(*argv, *LOCAL) == 253
    output = capsys.readouterr()
    assert output.out == ""
    assert complaint in output.err


@pytest.mark.parametrize("argv", [["--nonsense"], ["-n"], ["--set", "listenPort"], ["stray"]])
def test_unreadable_command_line_exits_with_2(argv: list[str]) -> None:
    assert status(*argv) == 2


def test_each_mistake_is_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("--set", "listenPort=x", "--set", "nonsense=1", *LOCAL) == 253
    assert [line.split(":")[:2] for line in capsys.readouterr().err.splitlines()] == [
        ["mqcore broker", " nonsense"], ["mqcore broker", " listenPort"],
    ]  # fmt: skip


def test_the_files_of_a_command_line_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("maxMessageSize=1\n")
    argv = ["-c", str(file), *LOCAL]
    file.write_text("maxMessageSize=2\n")
    assert read_again(argv, environment={}).store.max_message_size == 2
    file.write_text("nonsense=2\n")
    with pytest.raises(ConfigError, match="nonsense"):
        read_again(argv, environment={})
