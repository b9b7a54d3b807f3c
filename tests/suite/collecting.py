"""Collecting seven thousand tests costs each process of a run three seconds of CPU, and twice that in a fresh clone.

Of what is made there nothing becomes garbage, so nobody looks for it meanwhile, nor among that later on. In a fresh
clone each process rewrites the assertions of a share of the modules, for all, before it begins: pytest keeps what it
has rewritten beside the modules, but processes that begin together all begin with the same module, and each would
rewrite all of them. This goes by pytest's inside: where that has changed, each does so again, and test_suite.py fails.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from .scheduling import is_distributed


def pytest_configure(config: pytest.Config) -> None:
    if not is_distributed(config) or sys.dont_write_bytecode:
        return
    number = int(config.workerinput["workerid"].removeprefix("gw"))
    share = sorted(modules(config))[number :: config.workerinput["workercount"]]
    with contextlib.suppress(ImportError, AttributeError, TypeError, KeyError):
        rewrite(share, config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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
