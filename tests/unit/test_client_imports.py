"""What a program gets that imports the client: everyday names at the top, and nothing of the broker."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import mqcore
from mqcore import aio, client
from mqcore.client import errors


def run(program: str) -> str:
    """Run *program* in an interpreter of its own and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_everyday_names_are_at_the_top() -> None:
    assert set(mqcore.__all__) <= set(dir(mqcore))
    for name in set(mqcore.__all__) - {"__version__", "aio", "client", "errors"}:
        home = errors if hasattr(errors, name) else client
        assert getattr(mqcore, name) is getattr(home, name)
    with pytest.raises(AttributeError, match="module 'mqcore' has no attribute 'Nothing'"):
        mqcore.Nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("face", [aio, client])
def test_every_name_is_what_type_checkers_are_told(face: ModuleType) -> None:
    assert face.__file__ is not None
    tree = ast.parse(Path(face.__file__).read_text())
    (told,) = (node for node in tree.body if isinstance(node, ast.If))
    names = set()
    for statement in told.body:
        assert isinstance(statement, ast.ImportFrom)
        assert statement.module is not None
        for alias in statement.names:
            names.add(alias.asname or alias.name)
            there = getattr(import_module(statement.module), alias.name)
            assert getattr(face, alias.asname or alias.name) is there, alias.name
    assert names == set(face.__all__)


def test_who_only_sends_imports_nothing_of_consumers() -> None:
    program = """
        import sys
        from mqcore.client import Client, Message
        mq = Client("127.0.0.1:9876")
        mq.producer("P")
        rooms = ("mqcore.client.consume.push", "mqcore.client.consume.membership", "mqcore.client.admin")
        print(*(name for name in sys.modules if name.startswith(rooms)))
    """
    assert run(program) == ""


def test_modules_of_the_client_come_with_the_package() -> None:
    assert (
        run("import mqcore; print(mqcore.errors.MQError is mqcore.MQError, mqcore.aio.Client.__name__)")
        == "True Client"
    )


def test_a_face_has_its_admin_without_importing_it_for_all() -> None:
    assert client.Admin.__module__ == "mqcore.client.plain.admin"
    assert aio.Admin.__module__ == "mqcore.client.admin.api"
    assert run("import sys, mqcore.client, mqcore.aio; print('mqcore.client.admin' in sys.modules)") == "False"


def test_importing_the_package_alone_imports_next_to_nothing() -> None:
    ours = run("import sys, mqcore; print(*sorted(name for name in sys.modules if name.startswith('mqcore')))")
    assert ours == "mqcore mqcore.lazy_names mqcore.version"


def test_the_client_needs_neither_the_brokers_settings_nor_numpy_nor_psutil() -> None:
    program = """
        import sys
        for name in ("numpy", "psutil", "lark", "mqcore.config"):
            sys.modules[name] = None  # whoever imports it gets an ImportError
        from mqcore.client import Client
        client = Client("127.0.0.1:9876")
        client.admin
        print(client.client_id.partition("@")[0].count("."))
    """
    assert run(program) == "3"
