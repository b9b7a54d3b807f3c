"""The name server's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.namesrv.options import parse_arguments


def test_without_arguments_the_settings_are_rocketmq_s() -> None:
    settings = parse_arguments([], {})
    assert settings.server.listen_port == 9876
    assert settings.namesrv.kv_config_path == str(Path.home() / "namesrv" / "kvConfig.json")
    assert settings.namesrv.order_message_enable is False


def test_a_file_is_read_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=1234\norderMessageEnable=true\n")
    settings = parse_arguments(["-c", str(file), "--port", "4321", "--dir", str(tmp_path)], {})
    assert settings.server.listen_port == 4321
    assert settings.namesrv.order_message_enable is True
    assert settings.namesrv.kv_config_path == str(tmp_path / "kvConfig.json")
    assert settings.namesrv.config_store_path == str(tmp_path / "namesrv.properties")
    assert parse_arguments(["--port", "1", "--set", "listenPort=2"], {}).server.listen_port == 2


def test_remote_updates_go_into_the_file_that_it_was_started_with(tmp_path: Path) -> None:
    """As Apache's: else the next start with the same file would undo them."""
    file = tmp_path / "namesrv.conf"
    file.write_text(f"configStorePath={tmp_path / 'never read'}\n")
    settings = parse_arguments(["-c", "/dev/null", "-c", str(file)], {})
    assert settings.namesrv.config_store_path == str(file)
    chosen = parse_arguments(["-c", str(file), "--set", "configStorePath=/chosen"], {})
    assert chosen.namesrv.config_store_path == "/chosen"


def test_p_prints_the_settings_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse_arguments(["-p"], {})
    assert exit_.value.code == 0
    assert "listenPort=9876\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--set", "lisenPort=1"], "lisenPort"),
        (["--port", "99999"], "listenPort"),
        (["--set", "brokerRole=SLAVE"], "brokerRole"),
        (["-c", "/nonexistent.conf"], "/nonexistent.conf"),
    ],
)
def test_settings_that_cannot_stand_end_the_start(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse_arguments(arguments, {})
    assert exit_.value.code == 253
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--set", "x"], ["--unknown"], ["stray"]])
def test_a_command_line_that_cannot_be_parsed_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse_arguments(arguments, {})
    assert exit_.value.code == 2
    assert "usage:" in capsys.readouterr().err
