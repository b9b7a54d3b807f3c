"""The file ``metadata``: up to where a broker of a failover group has what its log tells of tables.

It may be too old: what is told twice comes out the same. A start dispatches nothing behind *applied_to* that it has not
looked at, since queues may be dropped there. Whoever empties a store takes the file away with it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from mqcore.files import make_directory, read_if_there, write_atomically

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetadataPlace:
    """*next_offset*: the first unit of the queue that is not applied; *applied_to*: all that lies before is, bytes."""

    next_offset: int = 0
    applied_to: int = 0

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what the file says; the beginning without one that can be read."""
        try:
            found = json.loads(read_if_there(path) or b"{}")
            return cls(int(found.get("next_offset", 0)), int(found.get("applied_to", 0)))
        except (ValueError, TypeError, AttributeError) as error:
            logger.warning("not read, all of the log's metadata is applied anew path=%s error=%s", path, error)
            return cls()

    def write(self, path: Path) -> None:
        """Write the file, durably. Raises OSError."""
        make_directory(path.parent)
        write_atomically(path, json.dumps(asdict(self)).encode(), keep_backup=False)
