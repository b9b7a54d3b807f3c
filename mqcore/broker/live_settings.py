"""The settings that hold now, and how an administrator changes them while the broker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from mqcore.broker.ports import Clock
from mqcore.config import BrokerSettings, Settings, StoreSettings, edit_properties
from mqcore.files import write_atomically
from mqcore.protocol.bodies import DataVersion

Listener = Callable[[Settings, Settings], None]


class LiveSettings:
    """Holds the current ``Settings``. Readers ask for ``broker`` or ``store`` each time and keep neither."""

    def __init__(self, settings: Settings, clock: Clock, path: Path | None = None) -> None:
        """*path* is the properties file that changes are written to; without one they last until the next start."""
        self.current = settings
        self.version = DataVersion(counter=0, timestamp=clock())
        self._clock = clock
        self._path = path
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
        """Make *changes*, all or none: on disk first, then for everybody.

        Raises ConfigError for a value that cannot stand, OSError if the file cannot be written.
        """
        async with self._lock:
            before, after = self.current, self.current.update(changes)
            if self._path is not None:
                await asyncio.to_thread(self._rewrite, self._path, changes)
            self.current = after
            self.version = DataVersion(counter=self.version.counter + 1, timestamp=self._clock())
            for listener in self._listeners:
                listener(before, after)

    @staticmethod
    def _rewrite(path: Path, changes: Mapping[str, str]) -> None:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        write_atomically(path, edit_properties(text, changes).encode())
