"""What is behind a start that failed, in words that say what to do."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

from mqcore.store.disk import DiskSpace

NOT_ALLOWED = (errno.EACCES, errno.EPERM)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def in_words(error: Exception) -> str:
    """Return what *error* says, and for a file whose it is, who this process is, or how much room there is."""
    if not isinstance(error, OSError) or not error.filename:
        return str(error)
    path = Path(os.fsdecode(error.filename))
    said = f"{path}: {error.strerror}"
    there = next((place for place in (path, *path.parents) if _status(place) is not None), Path("/"))
    if error.errno in NOT_ALLOWED:
        return (
            f"{said}: {_whose(there)}, and this process is run by {_user(os.geteuid())}: change the owner or the user"
        )
    if error.errno in NO_ROOM:
        space = DiskSpace.of(there)
        return f"{said}: {space.free >> 20} of {space.total >> 20} MiB are free there: make room, or name another store"
    return said


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _whose(path: Path) -> str:
    status = _status(path)
    if status is None:
        return f"{path} cannot be looked at"
    return f"{path} belongs to {_user(status.st_uid)}:{_group(status.st_gid)} with {stat.filemode(status.st_mode)}"


def _user(number: int) -> str:
    return _name(number, lambda number: pwd.getpwuid(number).pw_name)


def _group(number: int) -> str:
    return _name(number, lambda number: grp.getgrgid(number).gr_name)


def _name(number: int, look_up: Callable[[int], str]) -> str:
    try:
        return look_up(number)
    except KeyError:
        return str(number)
