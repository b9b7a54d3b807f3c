"""Modules of the client that have moved are found by the names that they had."""

from __future__ import annotations

import pickle
import runpy
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from mqcore import client
from mqcore.client.model.receipt import SendStatus
from mqcore.client.moved import MOVED, install
from mqcore.moved_modules import MovedModules
from tests.rows import walked

PAGE = Path(__file__).parents[2] / "docs" / "client" / "settings.md"


@pytest.mark.parametrize(("old", "now"), MOVED.items())
def test_an_old_name_is_the_module_itself_and_says_what_it_is_called_now(
    monkeypatch: pytest.MonkeyPatch, old: str, now: str
) -> None:
    monkeypatch.delitem(sys.modules, f"mqcore.client.{old}", raising=False)
    monkeypatch.delitem(vars(client), old, raising=False)
    with pytest.deprecated_call(match=f"^mqcore.client.{old} is {now} now$"):
        found = import_module(f"mqcore.client.{old}")
    assert found is import_module(now) is getattr(client, old)
    assert found.__name__ == now, "the module keeps its own name and spec"
    assert found.__spec__ is not None
    assert found.__spec__.name == now


@walked("old, now", MOVED.items())
def test_an_old_name_runs_as_a_program(old: str, now: str) -> None:
    ran: list[tuple[str, str, bool]] = []

    def note(name: str, run_name: str, alter_sys: bool) -> None:
        ran.append((name, run_name, alter_sys))

    with pytest.MonkeyPatch.context() as patched, pytest.deprecated_call(match=f"^mqcore.client.{old} is {now} now$"):
        patched.delitem(sys.modules, f"mqcore.client.{old}", raising=False)
        whole = runpy.run_module
        patched.setattr(runpy, "run_module", note)
        whole(f"mqcore.client.{old}", run_name="a_program")
    assert ran == [(now, "a_program", True)]
    assert find_spec(now) is not None


@pytest.mark.skipif(not PAGE.is_file(), reason="tests without docs: those of an installed package")
def test_a_page_is_checked_by_the_old_name_of_its_module() -> None:
    command = [sys.executable, "-m", "mqcore.client.settings_page", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "mqcore.client.settings_page is mqcore.client.settings.page now" in done.stderr
    refused = subprocess.run([*command, "--page", "nowhere.md"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "nowhere.md is stale" in refused.stderr


def test_the_warning_is_of_the_line_that_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mqcore.client.messages", raising=False)
    with pytest.deprecated_call() as noted:
        exec(compile("from mqcore.client.messages import Message", "users_program.py", "exec"), {})
    assert [warning.filename for warning in noted] == ["users_program.py"]


def test_a_pickle_made_before_the_move_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    old = pickle.dumps(SendStatus.SEND_OK, protocol=2).replace(
        b"mqcore.client.model.receipt", b"mqcore.client.messages"
    )
    assert b"mqcore.client.messages" in old
    monkeypatch.delitem(sys.modules, "mqcore.client.messages", raising=False)
    with pytest.deprecated_call():
        assert pickle.loads(old) is SendStatus.SEND_OK


@pytest.mark.parametrize(
    "name", ["ClientSettings", "ConsumeFromWhere", "ConsumerSettings", "MessageModel", "ProducerSettings"]
)
def test_settings_are_found_where_a_room_has_taken_the_name_of_a_module(name: str) -> None:
    assert getattr(import_module("mqcore.client.settings"), name) is getattr(client, name)


@pytest.mark.parametrize("name", ["Client", "Producer", "TransactionProducer"])
def test_plain_objects_are_found_where_a_room_has_taken_the_name_of_a_module(name: str) -> None:
    assert getattr(import_module("mqcore.client.plain"), name) is getattr(client, name)


def test_no_other_name_is_found() -> None:
    assert find_spec("mqcore.client.nothing") is None
    with pytest.raises(AttributeError, match=r"has no attribute .nothing."):
        client.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_one_finder_is_enough() -> None:
    install()
    assert sum(isinstance(finder, MovedModules) for finder in sys.meta_path) == 1
