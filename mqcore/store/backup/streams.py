"""Reading and writing gigabytes beside a broker: at a rate, and without washing away what it has in memory."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from typing_extensions import Buffer

CHUNK_SIZE: Final = 8 << 20
PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")
SYNC_STEP: Final = 32 << 20
"""Written so much at a time: more in one go holds up the syncs of a broker on the same disk."""

PACE_STEP_S: Final = 0.2


class Pace:
    """Lets no more than *max_rate* bytes a second by; 0: as fast as it goes."""

    def __init__(
        self,
        max_rate: int = 0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.max_rate = max_rate
        self._now = now
        self._sleep = sleep
        self._due = now()

    def chunk_size(self) -> int:
        """Return how much to read at once, so that the rate holds over a fraction of a second, too."""
        return min(CHUNK_SIZE, max(64 << 10, int(self.max_rate * PACE_STEP_S))) if self.max_rate else CHUNK_SIZE

    def spend(self, size: int) -> None:
        """Wait until *size* more bytes may have gone by."""
        if self.max_rate:
            now = self._now()
            self._due = max(self._due, now - PACE_STEP_S) + size / self.max_rate
            if self._due > now:
                self._sleep(self._due - now)


class Reading:
    """One file that is read; pages that were not in memory before leave it again."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # Without reading ahead: what that brings in would look as if others had been using it.
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        self.modified_ms = os.fstat(self.descriptor).st_mtime_ns // 1_000_000
        self._can_tell = True

    def read(self, target: memoryview, position: int) -> int:
        """Fill *target* from *position* on; how many bytes were there."""
        done = self._read_warm(target, position)
        cold = position + done
        while done < len(target):
            size = os.preadv(self.descriptor, [target[done:]], position + done)
            if size == 0:
                break
            done += size
        if self._can_tell and position + done > cold:
            # Whole pages, or the kernel keeps them; the first that was not in memory is one from its start on.
            start = cold - cold % PAGE_SIZE
            end = -(-(position + done) // PAGE_SIZE) * PAGE_SIZE
            os.posix_fadvise(self.descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
        return done

    def _read_warm(self, target: memoryview, position: int) -> int:
        """Read what is in memory already, from *position* on."""
        if not self._can_tell:
            return 0
        try:
            return os.preadv(self.descriptor, [target], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            self._can_tell = False
            return 0

    def close(self) -> None:
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Writing:
    """One file that grows from *position* on. A thread makes it durable, and lets go of its pages, a step behind."""

    def __init__(self, path: Path, position: int) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # What a broken-off run has left behind its last word.
        os.ftruncate(self.descriptor, position)
        self.position = position
        self._synced = position
        self._behind: Future[None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sync")

    def write(self, data: Buffer) -> None:
        """Append *data*. Raises OSError, of an earlier part perhaps."""
        view = memoryview(data)
        while len(view):
            size = os.pwrite(self.descriptor, view, self.position)
            self.position += size
            view = view[size:]
        if self.position - self._synced >= SYNC_STEP:
            self._wait()
            self._behind = self._pool.submit(self._sync, self._synced, self.position)
            self._synced = self.position

    def finish(self, size: int | None = None, modified_ms: int = 0) -> None:
        """Make everything durable, let the file be *size* bytes long, and have been modified then."""
        self._wait()
        if size is not None:
            os.ftruncate(self.descriptor, size)
        if modified_ms:
            os.utime(self.descriptor, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        os.fsync(self.descriptor)
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def _wait(self) -> None:
        if self._behind is not None:
            behind, self._behind = self._behind, None
            behind.result()

    def _sync(self, start: int, end: int) -> None:
        os.fdatasync(self.descriptor)
        os.posix_fadvise(self.descriptor, start, end - start, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        self._pool.shutdown()
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
