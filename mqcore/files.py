"""The door to the file system for Python code: everything that must be durable or never half there goes through it.

Tests stand in this door to count, delay or fail the calls. RocketMQ's names are kept for small tables: ``X.tmp`` while
writing, ``X.bak`` with the content before the last change. A failed sync is final for its file: the kernel may already
have dropped the pages, and a later success proves nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

TEMPORARY_SUFFIX: Final = ".tmp"
BACKUP_SUFFIX: Final = ".bak"
ZERO_STEP_SIZE: Final = 1 << 20
GRAVE_PREFIX: Final = ".dropped-"
SYNCED_ONE_BY_ONE_MAX: Final = 64

AT_FDCWD: Final = -100
STATX_SIZE: Final = 256
STATX_MNT_ID: Final = 0x1000
STATX_MNT_ID_UNIQUE: Final = 0x4000
STATX_DEV_AT: Final = 136
STATX_MOUNT: Final = struct.Struct("=IIQ")
"""Of Linux's struct statx from STATX_DEV_AT on: the device's two numbers, and the mount's."""


def write_atomically(path: str | Path, data: Buffer, keep_backup: bool = True) -> None:
    """Replace the content of *path* by *data*, durably; the directory must exist.

    Order: temporary file, its sync, the backup of the old content, rename, sync of the directory. Blocks for the syncs.
    Two writers of one path must not run at the same time. Raises OSError, and then *path* has its old content or, if
    only the last sync failed, perhaps the new one.
    """
    target = Path(path)
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    _write_synced(temporary, data, mode)
    if keep_backup and mode is not None:
        _write_synced(backup_of(target), target.read_bytes(), mode)
    temporary.replace(target)
    # The new name is not durable before its directory is.
    sync_directory(target.parent)


def backup_of(path: Path) -> Path:
    """Return where ``write_atomically`` keeps what *path* was before."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def read_if_there(path: Path) -> bytes:
    """Return the content of *path*; empty if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def sync_directory(directory: str | Path) -> None:
    """Make the names in *directory* durable; raises OSError."""
    sync_file(directory)


def sync_file(path: str | Path) -> None:
    """Make the content and length of *path* durable, however they were written; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_content(descriptor: int) -> None:
    """Make durable what is in a file that is open for writing, through whatever mapping it came; raises OSError.

    A sync alone does not prove it. When ext4 shuts down, or its journal gives up, while fdatasync has its pages under
    way, the blocks stay marked as unwritten, nobody is told, and fdatasync reports success: the message would read as
    zeros after the next mount (``tests/fault/test_sync_content.py``, seen with Linux 6.18). A file system in that state
    refuses every write from then on, one of no bytes too, which costs nothing and comes after what it vouches for.
    """
    os.fdatasync(descriptor)
    os.pwrite(descriptor, b"", 0)


def can_sync_file_systems() -> bool:
    """Whether sync_file_system tells of writes that failed; Linux does since 5.8."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (5, 8)


def sync_file_system(path: str | Path, witness: int) -> None:
    """Make durable all that lies on the file system of *path*, names too: for when there is much of it.

    A sync costs the disk the same for a page as for a hundred files: 1 to 3 ms each, or once. What others have on the
    same file system is written with it. *witness* is a file there, open for writing, see sync_content. Raises OSError.
    """
    import ctypes  # here, because a start does without it

    library = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if library.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)
    os.pwrite(witness, b"", 0)


def mount_of(path: str | Path) -> str:
    """Return what tells the mount that *path* lies on from every other one of this kernel's life.

    What was on no disk does not outlive it. Before Linux 6.8 a later mount may be told from it by its device alone.
    Raises OSError.
    """
    import ctypes  # here, because most starts do without it

    answer = ctypes.create_string_buffer(STATX_SIZE)
    library = ctypes.CDLL(None, use_errno=True)
    if library.statx(AT_FDCWD, os.fsencode(path), 0, STATX_MNT_ID | STATX_MNT_ID_UNIQUE, answer) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    major, minor, mount = STATX_MOUNT.unpack_from(answer, STATX_DEV_AT)
    return f"{major}:{minor}:{mount}"


def sync_files(paths: Sequence[str | Path]) -> None:
    """Make the content of files of one file system durable, of many at once; raises OSError."""
    if len(paths) <= SYNCED_ONE_BY_ONE_MAX or not can_sync_file_systems():
        for path in paths:
            sync_file(path)
        return
    witness = os.open(paths[0], os.O_RDWR | os.O_CLOEXEC)
    try:
        sync_file_system(paths[0], witness)
    finally:
        os.close(witness)


def make_directory(path: str | Path) -> None:
    """Make the directory *path* and those above it, durably; one that is there is left alone."""
    target = Path(path)
    if target.is_dir():
        return
    make_directory(target.parent)
    with contextlib.suppress(FileExistsError):
        target.mkdir()
    sync_directory(target.parent)


def bury_directory(directory: str | Path, root: str | Path) -> Path | None:
    """Rename *directory* to ``.dropped-...`` in *root*, of the same file system; its new path, None if it is not there.

    One that is half removed must not be taken for a whole one by a start in between, which finishes what it finds of
    that name. The new name is not made durable: who must not see the old one again has written down why.
    """
    grave = Path(root) / f"{GRAVE_PREFIX}{time.time_ns()}"
    try:
        return Path(directory).rename(grave)
    except FileNotFoundError:
        return None


def make_sized_file(
    path: str | Path, size: int, reserve: int = 0, head: bytes = b"", *, is_durable: bool = True
) -> None:
    """Make *path* with *size* bytes, zeros behind *head*, so that it is never seen with another length.

    Disk blocks are reserved for the first *reserve* bytes: a full disk is an OSError here and not a SIGBUS later.
    Unless *is_durable* a power cut may take the file; that its length never comes behind its name is then up to the
    file system's journal, which has them in this order. Raises FileExistsError if *path* is there.
    """
    target = Path(path)
    # Beside the directory: a broker that lists it must not meet a file of another length.
    making = target.parent.with_name(target.parent.name + ".making")
    # One that a crash has left may be the second name of a file in use: never open it, let alone truncate it.
    making.unlink(missing_ok=True)
    descriptor = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(descriptor, size)
        _reserve(descriptor, 0, reserve)
        os.pwrite(descriptor, head, 0)
        if is_durable:
            os.fsync(descriptor)
        os.link(making, target)
    finally:
        os.close(descriptor)
        making.unlink()
    if is_durable:
        sync_directory(target.parent)


def reserve_blocks(path: str | Path, position: int, size: int) -> None:
    """Reserve disk blocks for *size* bytes from *position*, which lie within the file; OSError on a full disk."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _reserve(descriptor, position, size)
    finally:
        os.close(descriptor)


def zero_from(path: str | Path, position: int, *, is_durable: bool = True) -> int:
    """Make every byte of *path* from *position* to its end zero; returns how many bytes had to be written.

    Unless *is_durable* the caller syncs them. The first bytes go first: whatever ended at *position* stays ended there
    should the process die in between. Holes and what reads as zero already are left alone. The length does not change.
    """
    written = 0
    zeros = bytes(ZERO_STEP_SIZE)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _see_only_data(descriptor, position)
        while (position := _next_data(descriptor, position)) >= 0:
            data = os.pread(descriptor, _data_size(descriptor, position), position)
            # Compared, not counted: 0.2 s instead of 0.6 s for the GiB of zeros that warming leaves.
            if data != zeros[: len(data)]:
                written += os.pwrite(descriptor, zeros[: len(data.rstrip(b"\0"))], position)
            position += len(data)
        if written and is_durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return written


def is_zero(path: str | Path) -> bool:
    """Whether every byte of *path* is zero; holes are not read."""
    zeros = bytes(ZERO_STEP_SIZE)
    position = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _see_only_data(descriptor, position)
        while (position := _next_data(descriptor, position)) >= 0:
            data = os.pread(descriptor, _data_size(descriptor, position), position)
            if data != zeros[: len(data)]:
                return False
            position += len(data)
    finally:
        os.close(descriptor)
    return True


def _see_only_data(descriptor: int, position: int) -> None:
    """Let what was reserved and never written count as a hole from *position* on.

    A page of it that is in memory counts as data: what was read ahead is let go first, and reads bring in no more than
    they ask for. Else each finds what the one before has read ahead; a GiB of such zeros took 5 s, and a GiB of memory.
    """
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    if (start := _next_data(descriptor, position)) >= 0 and _data_size(descriptor, start) == ZERO_STEP_SIZE:
        os.posix_fadvise(descriptor, position, 0, os.POSIX_FADV_DONTNEED)


def _data_size(descriptor: int, position: int) -> int:
    """Return how many bytes of data are at *position*, at most ZERO_STEP_SIZE."""
    return min(os.lseek(descriptor, position, os.SEEK_HOLE) - position, ZERO_STEP_SIZE)


def _next_data(descriptor: int, position: int) -> int:
    """Return where the next bytes that are no hole start, from *position* on; -1 if there are none."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return -1


def delete_file(path: str | Path) -> None:
    """Remove the name *path*, durably; mappings of the file stay valid. One that is gone is success."""
    target = Path(path)
    target.unlink(missing_ok=True)
    sync_directory(target.parent)


def _reserve(descriptor: int, position: int, size: int) -> None:
    if size <= 0:
        return
    try:
        os.posix_fallocate(descriptor, position, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system without reservation
            raise


def _write_synced(path: Path, data: Buffer, mode: int | None = None) -> None:
    with path.open("wb") as stream:
        if mode is not None:  # what only its owner may read must not become readable by being changed
            os.fchmod(stream.fileno(), mode)
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
