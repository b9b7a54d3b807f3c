"""Collecting eight thousand tests costs each process of a run four seconds of CPU, and twice that in a fresh clone.

Of what is made there nothing becomes garbage, so nobody looks for it meanwhile, nor among that later on. In a fresh
clone each process does a share for all before it begins: it rewrites the assertions of test modules, and looks for the
constants of product modules that Hypothesis tries. pytest and Hypothesis keep what they have found in files, but
processes that begin together all begin with the same module, and each would look at all of them. This goes by their
inside: where that has changed, each does so again, and test_suite.py fails.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

import pytest

from .scheduling import is_distributed

Thing = TypeVar("Thing")
CHANGED: Final = (ImportError, AttributeError, TypeError, KeyError)
"""What is raised where the inside of pytest or Hypothesis is no longer what this goes by."""


def pytest_configure(config: pytest.Config) -> None:
    if not is_distributed(config) or sys.dont_write_bytecode:
        return
    with contextlib.suppress(*CHANGED):
        rewrite(share(sorted(modules(config)), config), config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config) -> None:
    if not is_distributed(config):
        return
    with contextlib.suppress(*CHANGED):
        from hypothesis.internal.constants_ast import constants_from_module

        for module in share(product_modules(), config):
            constants_from_module(module)


def share(things: Sequence[Thing], config: pytest.Config) -> Sequence[Thing]:
    """Those of *things* that this process does for all; the processes have them in the same order."""
    number = int(config.workerinput["workerid"].removeprefix("gw"))
    return things[number :: config.workerinput["workercount"]]


def product_modules() -> list[ModuleType]:
    """The modules whose constants Hypothesis tries, of those that are imported."""
    from hypothesis.internal.constants_ast import is_local_module_file

    imported = [sys.modules[name] for name in sorted(sys.modules)]
    return [one for one in imported if (file := getattr(one, "__file__", None)) and is_local_module_file(file)]


def modules(config: pytest.Config) -> Iterator[Path]:
    """The test modules at and below what is to be run."""
    patterns = config.getini("python_files")
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        yield from [path] if path.is_file() else {found for pattern in patterns for found in path.rglob(pattern)}


def rewrite(paths: Iterable[Path], config: pytest.Config) -> list[Path]:
    """Rewrite those of *paths* that have changed since pytest did; return where it finds them now.

    A module that cannot be read or compiled is left to the collection, which says so.
    """
    from _pytest.assertion import rewrite as inside

    state, written = config.stash[inside.assertstate_key], []
    for path in paths:
        folder = inside.get_cache_dir(path)
        kept = folder / (path.name.removesuffix(".py") + inside.PYC_TAIL)
        if inside._read_pyc(path, kept) is not None or not inside.try_makedirs(folder):
            continue
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            source, code = inside._rewrite_test(path, config)
            if inside._write_pyc(state, code, source, kept):
                written.append(kept)
    return written
