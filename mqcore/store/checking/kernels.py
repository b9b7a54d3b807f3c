"""The door to the tallies, fast or, with ``MQ_PURE=1``, plain. They need NumPy, which a broker does without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.extensions import PURE

if TYPE_CHECKING or PURE:
    from mqcore.store.queues.index_tally import IndexTally
    from mqcore.store.queues.tally import LogTally, sum_units
else:
    from mqcore._fast.queues.index_tally import IndexTally
    from mqcore._fast.queues.tally import LogTally, sum_units

__all__ = ["IndexTally", "LogTally", "sum_units"]
