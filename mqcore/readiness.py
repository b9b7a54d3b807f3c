"""Waiting for files and sockets by ``poll``: ``select`` fails for descriptors from 1024 on."""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

READABLE: Final = select.POLLIN
WRITABLE: Final = select.POLLOUT


class HasFileno(Protocol):
    def fileno(self) -> int: ...


Waited = TypeVar("Waited", bound=HasFileno | int)


def wait_ready(files: Iterable[Waited], timeout_s: float, what: int = READABLE) -> list[Waited]:
    """Return those of *files* that are *what*, in their order, as soon as one is; none after *timeout_s*, seconds.

    One that has ended or failed is ready: who reads or writes it is told. Raises ValueError for a closed file.
    """
    by_descriptor = {one if isinstance(one, int) else one.fileno(): one for one in files}
    poll = select.poll()
    for descriptor in by_descriptor:
        if descriptor < 0:
            raise ValueError(f"descriptor {descriptor}: the file is closed")
        poll.register(descriptor, what)
    ready = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}  # it rounds up to whole milliseconds
    return [one for descriptor, one in by_descriptor.items() if descriptor in ready]
