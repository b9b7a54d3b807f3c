"""The name server's settings as an administrator reads and changes them while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from mqcore.config import Program, Settings, find
from mqcore.config.property_file import rewrite_file
from mqcore.config.reading_again import read_again
from mqcore.process_log import use_levels

logger = logging.getLogger(__name__)


class NameServerLiveSettings:
    """Holds the settings that hold now. Readers ask for ``current`` each time."""

    def __init__(self, settings: Settings) -> None:
        self.current = settings
        self._lock = asyncio.Lock()

    def forbidden_among(self, keys: Mapping[str, str]) -> tuple[str, ...]:
        """Return those of *keys* that may not be changed from outside: the black list, and what only a start reads."""
        return self.current.unchangeable_among(keys)

    async def update(self, changes: Mapping[str, str]) -> None:
        """Make the changes whose keys are known, all or none, and write them to ``configStorePath``.

        Unknown keys are ignored, as RocketMQ does. Raises ConfigError for a value that cannot stand, OSError if the
        file cannot be written; nothing has changed then. A file that may not be written is no error, and logged.
        """
        known = {key: value for key, value in changes.items() if _is_known(key)}
        for key in changes.keys() - known.keys():
            logger.warning("ignoring an unknown setting in an update key=%s", key)
        if not known:
            return
        async with self._lock:
            after = self.current.update(known)
            path = Path(after.namesrv.config_store_path)
            if not await asyncio.to_thread(rewrite_file, path, known):
                logger.warning(
                    "changed until the next start only, as %s may not be written keys=%s", path, ", ".join(known)
                )
            await self._accept(after, known)

    async def follow_files(self, fresh: Settings) -> None:
        """Let what may change be as in *fresh*, which was read from the files anew, and log what waits for a start."""
        async with self._lock:
            self._hold(read_again(self.current, fresh))

    async def _accept(self, after: Settings, changes: Mapping[str, str]) -> None:
        """Let *after*, which is the present with *changes* made, hold from now on."""
        self._hold(after)

    def _hold(self, after: Settings) -> None:
        self.current = after
        use_levels(after.mqcore.log_levels)


def _is_known(key: str) -> bool:
    row = find(key)
    return row is not None and Program.NAMESRV in row.programs
