"""The file ``dispatched``: how far a clean stop had dispatched the log, where its consume queues cannot tell.

Records at the log's tail that have no unit (of queues that were dropped, half of a transaction as 4.x has it) look like
records whose units are missing. A start walks them to be sure, and as often as it is started: a topic that was deleted
after it had filled a disk would be read by each. So a stop leaves word in a file of our own. It counts for a log and
consume queues that end where they ended then; whoever has removed a directory since, or let another broker at the
store, changes that. Without the file, or with one that cannot be read, the tail is walked.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from mqcore.files import make_directory, write_atomically

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Everything before *log_end* is dispatched, and the newest unit's record ends at *queues_end*; both bytes."""

    log_end: int
    queues_end: int

    @classmethod
    def read(cls, path: Path) -> Dispatched | None:
        """Return what the file says, None without one that can be read."""
        try:
            found = json.loads(path.read_bytes())
            return cls(int(found["log_end"]), int(found["queues_end"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("not read, the log's tail is looked through path=%s error=%s", path, error)
            return None

    def write(self, path: Path) -> None:
        """Write the file, durably. Raises OSError."""
        make_directory(path.parent)
        write_atomically(path, json.dumps(asdict(self)).encode(), keep_backup=False)
