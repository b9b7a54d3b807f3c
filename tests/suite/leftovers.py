"""What no module leaves behind, since it lives as long as the run.

It stands here and not in ``tests/conftest.py``: other modules that import that one get a second copy of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from tests.rigs import RunningBroker

long_lived: list[Callable[[], Iterable[int]]] = []
"""Each gives pids and descriptors of what is there for every module, whichever it was started for."""


@contextlib.contextmanager
def kept(broker: RunningBroker) -> Iterator[None]:
    """While this lasts no module leaves the processes of *broker* behind. They may change: some tests restart it."""
    long_lived.append(broker.pids)
    yield
    long_lived.remove(broker.pids)
