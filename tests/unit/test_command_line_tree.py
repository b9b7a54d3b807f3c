"""All commands at once: their outputs, help, completion, manual page, and what the docs say of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mqcore.admin.command_line import cli
from mqcore.admin.formats import MARKS
from mqcore.admin.man_page import leaves, man_page
from mqcore.admin.output import OUTPUTS
from mqcore.admin.shell_commands import SHELLS
from tests.rows import walked

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"

WITHOUT_OUTPUT = {
    "completion": "a program for a shell",
    "man": "a manual page",
    "console": "a server",
    "systemd-unit": "a unit file",
}
"""Commands that print no data, and what they give."""

SHORT_OPTIONS = {
    "-c": "count", "-e": "exit_at_end", "-f": "text", "-h": "help", "-i": "stream", "-K": "key_separator",
    "-o": "output", "-q": "quiet", "-v": "verbose",
}  # fmt: skip
"""What each letter means, wherever it is an option. -n is name servers or, from before there was -c, a count."""

VERBS = (
    "addWritePerm", "allocateMQ", "brokerConsumeStats", "brokerStatus", "checkMsgSendRT", "cleanExpiredCQ",
    "cleanUnusedTopic", "cloneGroupOffset", "clusterAclConfigVersion", "clusterList", "clusterRT", "consumeMessage",
    "consumerConnection", "consumerProgress", "consumerStatus", "deleteAclConfig", "deleteExpiredCommitLog",
    "deleteKvConfig", "deleteSubGroup", "deleteTopic", "exportConfigs", "exportMetadata", "exportMetrics",
    "getBrokerConfig", "getConsumerConfig", "getNamesrvConfig", "printMsg", "printMsgByQueue", "producer",
    "producerConnection", "queryCq", "queryMsgById", "queryMsgByKey", "queryMsgByOffset", "queryMsgByUniqueKey",
    "queryMsgTraceById", "resetOffsetByTime", "sendMessage", "sendMsgStatus", "skipAccumulatedMessage",
    "startMonitoring", "statsAll", "topicClusterList", "topicList", "topicRoute", "topicStatus", "updateAclConfig",
    "updateBrokerConfig", "updateGlobalWhiteAddr", "updateKvConfig", "updateNamesrvConfig", "updateOrderConf",
    "updateSubGroup", "updateTopic", "updateTopicPerm", "wipeWritePerm",
)  # fmt: skip
"""What MQAdminStartup of RocketMQ 4.9.8 registers."""


def commands() -> list[tuple[str, click.Command]]:
    return [(" ".join(path), command) for path, command in leaves(cli)]


def option_names(command: click.Command) -> set[str]:
    return {name for param in command.params for name in param.opts}


@walked("name, command", commands())
def test_every_command_prints_in_every_form(name: str, command: click.Command) -> None:
    output = next((param for param in command.params if "--output" in param.opts), None)
    if name in WITHOUT_OUTPUT:
        assert output is None
        return
    assert output is not None, f"{name} has no --output, and no reason in WITHOUT_OUTPUT"
    assert isinstance(output.type, click.Choice)
    assert tuple(output.type.choices) == OUTPUTS
    assert "-o" in output.opts
    visible = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    assert not any("--json" in param.opts for param in visible), "there is -o json"


@walked("name, command", commands())
def test_every_command_and_option_says_what_it_is(name: str, command: click.Command) -> None:
    done = CliRunner().invoke(cli, [*name.split(), "--help"])
    assert done.exit_code == 0, done.output
    assert command.help
    for param in command.params:
        if not isinstance(param, click.Option):
            continue
        for letter in (one for one in param.opts if len(one) == 2 and one != "-n"):
            assert SHORT_OPTIONS[letter] == param.name, f"{name}: {letter} means another thing elsewhere"
        assert all(re.fullmatch(r"-[A-Za-z]|--[a-z][a-z-]*", one) for one in param.opts), param.opts


@walked("name, command", commands())
def test_a_wrong_option_is_wrong_usage(name: str, command: click.Command) -> None:
    done = CliRunner().invoke(cli, [*name.split(), "--no-such-option"])
    assert done.exit_code == 2
    assert "no such option" in done.stderr.lower()


def test_what_destroys_asks_for_yes() -> None:
    for name, command in commands():
        if re.search(r"\b(delete|remove|clean|reset|skip|clone|wipe|resend|unclean)", name):
            assert "--yes" in option_names(command), name


def test_json_is_an_alias_where_it_was() -> None:
    for name in ("send", "consume"):
        (param,) = [param for param in cli.commands[name].params if "--json" in param.opts]
        assert isinstance(param, click.Option)
        assert param.hidden


def rows_of(heading: str) -> list[list[str]]:
    """Return the rows of the first table under a heading of the page."""
    text = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_every_verb_of_mqadmin_has_its_row_and_every_row_a_command() -> None:
    rows = rows_of("From mqadmin")
    assert [row[0].strip("` ") for row in rows] == sorted(VERBS, key=str)
    for verb, ours in rows:
        found = re.findall(r"`mqcore ([^`]+)`", ours)
        assert found or ours.startswith("none"), verb
        for text in found:
            check_command(text)


def check_command(text: str) -> None:
    """Fail unless *text* is words that lead to a command, and options that it has."""
    command: click.Command = cli
    words = text.split()
    while words and isinstance(command, click.Group) and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert not isinstance(command, click.Group), text
    for word in words:
        assert not word.startswith("-") or word in option_names(command), text


def test_examples_of_the_page_have_commands_and_options_that_there_are() -> None:
    blocks = re.findall(r"```shell\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if "mqcore" in line]
    assert len(lines) > 20
    for line in lines:
        for part in re.split(r"[|(]", line.partition("   #")[0]):
            if re.match(r"\s*mqcore ", part):
                words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", part).split()[1:]
                words = words[2:] if words[0] == "--context" else words
                check_command(" ".join(word for word in words if not re.match(r"-\d|-$", word)))


def test_every_mark_of_a_format_is_on_the_page() -> None:
    assert [[f"`%{letter}`", meaning] for letter, (meaning, _) in MARKS.items()] == rows_of("Consuming")


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_a_program_of_its_shell(shell: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert "_MQCORE_COMPLETE" in done.stdout
    program = shutil.which(shell)
    if program is not None:
        file = tmp_path / "completion"
        file.write_text(done.stdout)
        subprocess.run([program, "-n", str(file)], check=True, timeout=60)


def test_completion_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MQCORE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "mqcore topic cr")
    monkeypatch.setenv("COMP_CWORD", "2")
    done = CliRunner().invoke(cli, [], prog_name="mqcore", complete_var="_MQCORE_COMPLETE")
    assert done.output.strip() == "plain,create"


def test_the_manual_page_has_every_command_and_option_and_no_fault(tmp_path: Path) -> None:
    text = man_page(cli)
    for name, command in commands():
        assert f'"mqcore {name}'.replace("-", r"\-") in text
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                assert max(param.opts, key=len).replace("-", r"\-") in text
    file = tmp_path / "mqcore.1"
    file.write_text(text)
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z", str(file)], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stderr == ""
    if shutil.which("mandoc"):
        done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", str(file)], capture_output=True, text=True, timeout=60)
        assert done.stdout == ""
