"""Every fixed layout, on disk, on the wire and in shared memory, as tables.

From one table come ``layout.struct`` for Python, ``layout.dtype`` for NumPy scans, the offsets in
``_fast/base/layout.pxd``, the C structs in ``_fast/include/shared_layout.h``, the page LAYOUT.md and test parameters.
``python -m mqcore.layout --check`` fails when a generated file is stale; ``--write`` makes them anew.

On disk and on the wire integers are big-endian and signed, as in Java. In shared memory they are of the machine.
"""

from __future__ import annotations

# ruff: noqa: F403, F405
from collections.abc import Iterator

from mqcore.layout import boards, disk, messages, wire
from mqcore.layout.boards import *
from mqcore.layout.disk import *
from mqcore.layout.messages import *
from mqcore.layout.regions import *
from mqcore.layout.sets import *
from mqcore.layout.sizes import *
from mqcore.layout.tables import *
from mqcore.layout.wire import *


def layouts() -> Iterator[Layout]:
    """Every layout, in the order of their definition: on disk, on the wire, in shared memory."""
    for module in (disk, wire, boards, messages):
        for value in vars(module).values():
            if isinstance(value, Layout):
                yield value
