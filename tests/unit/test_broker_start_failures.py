"""A start that failed says what to do: whose a file is, how much room there is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mqcore.broker.start_failures import in_words
from mqcore.errors import StoreLockedError


def failure(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_who_may_not_is_told_whose_it_is_and_who_asks(tmp_path: Path, number: int) -> None:
    tmp_path.chmod(0o750)
    said = in_words(failure(number, tmp_path / "not" / "there"))
    assert said.startswith(f"{tmp_path}/not/there: {os.strerror(number)}: {tmp_path} belongs to {tmp_path.owner()}:")
    assert f"with drwxr-x---, and this process is run by {Path('/proc/self').owner()}" in said


def test_a_full_disk_is_told_with_its_room(tmp_path: Path) -> None:
    assert " MiB are free there" in in_words(failure(errno.ENOSPC, tmp_path / "file"))


def test_everything_else_stays_as_it_was(tmp_path: Path) -> None:
    assert in_words(StoreLockedError("another process holds it")) == "another process holds it"
    assert in_words(failure(errno.EIO, tmp_path)) == f"{tmp_path}: Input/output error"
