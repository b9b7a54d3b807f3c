"""The public API is typed: a program that uses it passes strict type checkers, and nothing in it is Any."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import json
import re
import shutil
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mqcore
from mqcore.client import ClientSettings, ConsumerSettings, ProducerSettings, PullConsumerSettings
from mqcore.client.settings.options import ClientOptions, ConsumerOptions, ProducerOptions, PullConsumerOptions
from tests.rows import walked

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("typed_program.py")
DEADLINE_S = 300.0
PUBLIC_MODULES = (
    "mqcore.aio",
    "mqcore.client",
    "mqcore.client.errors",
    "mqcore.compat",
    "mqcore.compat.rocketmq",
    "mqcore.testing",
)


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(mqcore.__file__).with_name("py.typed")).is_file()


def test_a_program_of_a_user_passes_mypy_strict() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(PROGRAM)], cwd=ROOT, capture_output=True, text=True,
        timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_of_a_user_passes_pyright_strict(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyright") is None or shutil.which("node") is None:
        pytest.skip("needs pyright and node")
    shutil.copy(PROGRAM, tmp_path / "program.py")
    settings = {
        "include": ["program.py"],
        "typeCheckingMode": "strict",
        "pythonVersion": f"{sys.version_info.major}.{sys.version_info.minor}",
        "extraPaths": [str(ROOT)],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(tmp_path), "--pythonpath", sys.executable],
        capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    if "error TS" not in done.stdout and done.returncode not in (0, 1):
        pytest.skip(f"pyright cannot run here: {done.stdout}{done.stderr}")
    assert done.returncode == 0, done.stdout


def public_callables() -> Iterator[tuple[str, Callable[..., object]]]:
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        names = getattr(module, "__all__", None) or [
            name for name, value in vars(module).items() if getattr(value, "__module__", "") == module_name
        ]
        for name in names:
            yield from callables_of(f"{module_name}.{name}", getattr(module, name))


def callables_of(name: str, value: object) -> Iterator[tuple[str, Callable[..., object]]]:
    if inspect.isclass(value):
        for member, found in vars(value).items():
            if member.startswith("_") and member != "__init__":
                continue
            found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
            if inspect.isfunction(found):
                yield f"{name}.{member}", found
    elif inspect.isfunction(value):
        yield name, value


@walked("name, function", [pytest.param(*found, id=found[0]) for found in public_callables()])
def test_nothing_public_is_any(name: str, function: Callable[..., object]) -> None:
    if function.__name__ == "__init__" and function.__module__.startswith(("dataclasses", "enum", "typing")):
        return
    for parameter, annotation in function.__annotations__.items():
        text = annotation if isinstance(annotation, str) else repr(annotation)
        assert not re.search(r"\bAny\b", text), f"{name}: {parameter}: {text}"
    wanted = {
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", "cls", "_cls")
    }
    assert wanted <= set(function.__annotations__), f"{name}: {wanted - set(function.__annotations__)} has no type"


def test_type_hints_resolve_for_tools_that_read_them() -> None:
    from mqcore.client import Client, Message

    assert typing.get_type_hints(Message)["body"] is bytes
    assert "name_servers" in typing.get_type_hints(Client.__init__)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (ClientSettings, ClientOptions),
        (ProducerSettings, ProducerOptions),
        (ConsumerSettings, ConsumerOptions),
        (PullConsumerSettings, PullConsumerOptions),
    ],
    ids=lambda cls: cls.__name__,
)
def test_keyword_arguments_are_the_settings_with_their_types(settings: type, options: type) -> None:
    wanted = {field.name: typing.get_type_hints(settings)[field.name] for field in dataclasses.fields(settings)}
    assert typing.get_type_hints(options) == wanted
