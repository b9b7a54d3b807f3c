"""Contexts: which cluster a command speaks to, who said so, and that the file keeps its secrets."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqcore.admin.command_line import cli
from mqcore.admin.connection import DEFAULT_NAME_SERVER, find_connection
from mqcore.admin.contexts import SECRETS, contexts_path, load_contexts
from mqcore.client.errors import NotFoundError
from mqcore.errors import ConfigError

ADDRESS_VARIABLES = ("MQCORE_NAMESRV", "NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR", "MQCORE_URL")


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*ADDRESS_VARIABLES, "MQCORE_CONFIG", "MQCORE_CONTEXT", "MQCORE_CONTEXTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def mqcore(*arguments: str, typed: str | None = None) -> Result:
    done = CliRunner().invoke(cli, list(arguments), input=typed)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def add(name: str, address: str, *more: str, typed: str | None = None) -> None:
    done = mqcore("context", "add", name, "-n", address, *more, typed=typed)
    assert done.exit_code == 0, done.output


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path), **more}


def test_each_source_yields_to_the_stronger_ones(tmp_path: Path) -> None:
    file = tmp_path / "mqcore.toml"
    file.write_text('[client]\nname_servers = "file:9876"\n')
    around = environment(tmp_path)

    def found(option: str | None = None, context: str | None = None) -> tuple[str, str]:
        connection = find_connection(option, context, around)
        return connection.name_servers, connection.source

    assert found() == (DEFAULT_NAME_SERVER, "the default, as nothing else was said")
    around["MQCORE_CONFIG"] = str(file)
    assert found() == ("file:9876", f"configuration file {file}")
    add("current", "current:9876")
    add("other", "other:9876")
    assert found() == ("current:9876", f"context current, of {tmp_path}/mqcore/contexts.json")
    around["MQCORE_CONTEXT"] = "other"
    assert found() == ("other:9876", "context other, of MQCORE_CONTEXT")
    for variable in reversed(ADDRESS_VARIABLES):
        around[variable] = "rmq://url:9876" if variable == "MQCORE_URL" else f"{variable.lower()}:9876"
        wanted = "url:9876" if variable == "MQCORE_URL" else around[variable]
        assert found() == (wanted, f"environment variable {variable}")
    assert found(context="current") == ("current:9876", "context current")
    assert found("option:1", "current") == ("option:1", "option -n")
    assert found("rmq://k:s@host:2") == ("host:2", "option -n")


def test_keys_of_a_context_go_with_its_address_and_never_in_halves(tmp_path: Path) -> None:
    add("prod", "prod:9876", "--access-key", "me", "--set", "tls=true", typed="very secret\n")
    around = environment(tmp_path)
    keys = {"access_key": "me", "secret_key": "very secret"}
    assert find_connection(None, None, around).settings == {**keys, "tls": True}
    assert find_connection("elsewhere:1", None, around).settings == {}
    assert find_connection("elsewhere:1", "prod", around).settings == {**keys, "tls": True}
    assert find_connection("rmq://a:b@elsewhere:1", "prod", around).settings["secret_key"] == "b"
    around["ROCKETMQ_ACCESS_KEY"] = "else"
    assert find_connection(None, None, around).settings == {"tls": True}
    assert find_connection(None, "prod", around).settings == {**keys, "tls": True}


def test_the_file_is_for_its_owner_alone_and_no_command_prints_a_secret(tmp_path: Path) -> None:
    add("prod", "prod:9876", "--access-key", "me", "--description", "the real one", typed="very secret\n")
    path = tmp_path / "mqcore" / "contexts.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]
    for arguments in (["show", "prod"], ["show"], ["list"], ["use", "prod"]):
        for output in ("table", "json", "yaml", "tsv"):
            done = mqcore("context", *arguments, "-o", output)
            assert done.exit_code == 0, done.output
            assert "very secret" not in done.output
    shown = json.loads(mqcore("context", "show", "prod", "-o", "json").stdout)
    assert shown["settings"] == {"access_key": "me", "secret_key": "***"}
    path.chmod(0o644)
    assert "others can read" in mqcore("context", "show", "prod").stderr


def test_secrets_come_from_files_and_not_from_arguments(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of a file\nand more\n")
    add("prod", "prod:9876", "--access-key", "me", "--set-file", f"secret_key={secret}")
    assert load_contexts(environment(tmp_path)).get("prod").settings["secret_key"] == "of a file"
    assert "secret_key" in SECRETS
    for name in SECRETS:
        done = mqcore("context", "add", "x", "-n", "a:1", "--set", f"{name}=x")
        assert done.exit_code == 2
        assert "would be seen by everybody" in done.output


def test_contexts_are_listed_used_replaced_and_removed(tmp_path: Path) -> None:
    add("one", "one:9876")
    add("two", "two:9876")
    rows = json.loads(mqcore("context", "list", "-o", "json").stdout)
    assert [(row["name"], row["current"]) for row in rows] == [("one", True), ("two", False)]
    assert mqcore("context", "list").stdout.splitlines()[1].split()[:2] == ["*", "one"]
    assert mqcore("context", "use", "two").exit_code == 0
    assert json.loads(mqcore("context", "show", "-o", "json").stdout)["nameServers"] == "two:9876"
    assert mqcore("context", "add", "two", "-n", "three:1").exit_code == 2
    assert mqcore("context", "add", "two", "-n", "three:1", "--replace").exit_code == 0
    assert mqcore("context", "remove", "two").exit_code == 2
    assert mqcore("context", "remove", "two", "--yes").exit_code == 0
    assert json.loads(mqcore("context", "show", "-o", "json").stdout)["nameServers"] == DEFAULT_NAME_SERVER
    mqcore("context", "use", "one")
    assert mqcore("context", "use", "--none").exit_code == 0
    assert load_contexts(environment(tmp_path)).current is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["use", "produ"], 3, "no context named 'produ' in {path}; did you mean 'prod'?"),
        (["show", "nothing"], 3, "no context named 'nothing'"),
        (["add", "a b", "-n", "x:1"], 2, "context name: got 'a b', wanted letters"),
        (["add", "x", "-n", "x:y"], 2, "name server address: got 'x:y'"),
        (["add", "x", "-n", "x:1", "--set", "tsl=true"], 2, "unknown setting 'tsl'; did you mean 'tls'?"),
        (["add", "x", "-n", "x:1", "--set", "tls=maybe"], 2, "setting tls: got 'maybe', wanted true or false"),
        (["add", "x", "-n", "x:1", "--set", "call_timeout_s=-1"], 2, "call_timeout_s"),
        (["add", "x", "-n", "x:1", "--set-file", "secret_key=/nowhere"], 2, "No such file"),
        (["use"], 2, "give NAME or --none"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    add("prod", "prod:9876")
    done = mqcore("context", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said.format(path=contexts_path(environment(tmp_path))) in done.stderr


@pytest.mark.parametrize("content", ["{", "[]", '{"contexts": {"a": {}}}', '{"contexts": {"a": 1}}'])
def test_a_damaged_file_is_named_and_stops_only_who_needs_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mqcore" / "contexts.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ConfigError, match=str(path)):
        load_contexts(environment(tmp_path))
    done = mqcore("topic", "list")
    assert done.exit_code == 2
    assert f"contexts file {path}" in done.stderr
    assert find_connection("given:1", None, environment(tmp_path)).name_servers == "given:1"
    with pytest.raises((ConfigError, NotFoundError)):
        find_connection(None, "prod", environment(tmp_path))


def test_an_error_says_where_the_address_came_from(tmp_path: Path) -> None:
    add("gone", "127.0.0.1:1")
    for arguments, source in (
        (["topic", "list"], f"context gone, of {tmp_path}/mqcore/contexts.json"),
        (["-n", "127.0.0.1:1", "topic", "list"], "option -n"),
        (["--context", "gone", "topic", "list"], "context gone"),
    ):
        done = mqcore(*arguments)
        assert done.exit_code == 1
        assert f"note: the name server address 127.0.0.1:1 comes from {source}\n" in done.stderr
