"""The broker's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.broker.options import parse_arguments
from mqcore.config import parse_properties

LOCAL = ("--set", "bindAddress=127.0.0.1")


def status(*argv: str) -> object:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(argv, environment={})
    return caught.value.code


def test_no_argument_gives_the_defaults() -> None:
    assert parse_arguments(LOCAL, environment={}).server.listen_port == 10911


def test_file_name_servers_store_and_single_settings_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=from-file\nnamesrvAddr=file:1\nlistenPort=20911\n")
    argv = ["-c", str(file), "-n", "a:1;b:2", "--store", str(tmp_path / "s"), "--set", "listenPort=30911", *LOCAL]
    settings = parse_arguments(argv, environment={})
    assert settings.broker.broker_name == "from-file"
    assert settings.source("brokerName") == f"{file}:1"
    assert settings.broker.namesrv_addr == "a:1;b:2"
    assert settings.store.root_dir == tmp_path / "s"
    assert settings.server.listen_port == 30911


def test_the_last_of_two_spellings_wins() -> None:
    argv = ["--set", "mapedFileSizeCommitLog=4096", "--set", "mappedFileSizeCommitLog=8192"]
    assert parse_arguments([*argv, *LOCAL], environment={}).store.mapped_file_size_commit_log == 8192
    reverse = [*argv, "--set", "mapedFileSizeCommitLog=4096"]
    assert parse_arguments([*reverse, *LOCAL], environment={}).store.mapped_file_size_commit_log == 4096


def test_value_may_hold_an_equals_sign() -> None:
    settings = parse_arguments(["--set", "workerCpuAffinity=send=0;pull=1", *LOCAL], environment={})
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
