"""The settings that hold now, and how an administrator changes them while the broker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from mqcore.broker.ports import Clock
from mqcore.config import BrokerSettings, Settings, StoreSettings
from mqcore.config.loading import COMMAND_LINE
from mqcore.config.property_file import rewrite_file
from mqcore.config.reading_again import read_again
from mqcore.protocol.bodies import DataVersion

logger = logging.getLogger(__name__)

Listener = Callable[[Settings, Settings], None]
Publisher = Callable[[Settings, int], Awaitable[None]]


async def keep_to_oneself(settings: Settings, version: int) -> None:
    """Publish to nobody: the publisher of a broker process without workers."""


class LiveSettings:
    """Holds the current ``Settings``. Readers ask for ``broker`` or ``store`` each time and keep neither."""

    def __init__(
        self, settings: Settings, clock: Clock, path: Path | None = None, publish: Publisher = keep_to_oneself
    ) -> None:
        """*path* is the properties file that changes are written to; without one they last until the next start.

        *publish* hands settings and their version to the workers and returns when all that run go by them.
        """
        self.current = settings
        self.version = DataVersion(counter=0, timestamp=clock())
        self._clock = clock
        self._path = path
        self._publish = publish
        self._listeners: list[Listener] = []
        self._lock = asyncio.Lock()

    @property
    def broker(self) -> BrokerSettings:
        return self.current.broker

    @property
    def store(self) -> StoreSettings:
        return self.current.store

    def on_change(self, listener: Listener) -> None:
        """Call *listener* with the old and the new settings after each change."""
        self._listeners.append(listener)

    async def update(self, changes: Mapping[str, str]) -> None:
        """Make *changes*, all or none: on disk first, then for this process, then for the workers.

        Raises ConfigError for a value that cannot stand and OSError if the file cannot be written: then nothing has
        changed. Raises WorkerError if a worker that runs does not follow in time, and names it: the change holds then,
        for everybody else and for that worker's successor.
        """
        async with self._lock:
            before, after = self.current, self.current.update(changes)
            is_written = self._path is not None and await asyncio.to_thread(rewrite_file, self._path, changes)
            for warning in (*after.warnings, *self._undone_at_the_next_start(changes, is_written)):
                logger.warning("%s", warning)
            await self._hold(before, after)

    async def follow_files(self, fresh: Settings) -> None:
        """Let what may change be as in *fresh*, which was read from the files anew, and log what waits for a start.

        Raises WorkerError as ``update``.
        """
        async with self._lock:
            after = read_again(self.current, fresh)
            if after is not self.current:
                await self._hold(self.current, after)

    async def _hold(self, before: Settings, after: Settings) -> None:
        self.current = after
        self.version = DataVersion(counter=self.version.counter + 1, timestamp=self._clock())
        for listener in self._listeners:
            listener(before, after)
        await self._publish(after, self.version.counter)

    async def publish_again(self) -> None:
        """Have the workers look again at what they are handed beside the settings. Raises WorkerError as ``update``."""
        async with self._lock:
            self.version = DataVersion(counter=self.version.counter + 1, timestamp=self._clock())
            await self._publish(self.current, self.version.counter)

    def _undone_at_the_next_start(self, changes: Mapping[str, str], is_written: bool) -> list[str]:
        if not is_written:
            place = "there is no file to write to" if self._path is None else f"{self._path} may not be written"
            return [f"{', '.join(changes)}: changed until the next start only, as {place}"]
        given = [key for key in changes if self.current.source(key) == COMMAND_LINE]
        return [f"{key}: the command line has a value too, which wins at the next start" for key in given]
