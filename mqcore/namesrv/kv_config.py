"""Configuration that the name server keeps for others: namespace -> key -> value, all text.

A change is on disk, synced, before it is acknowledged. Source: RocketMQ namesrv/kvconfig/KVConfigManager.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mqcore.errors import CorruptFileError, ProtocolError
from mqcore.files import backup_of, write_atomically
from mqcore.protocol.json_body import JsonBody

logger = logging.getLogger(__name__)


Table = dict[str, dict[str, str]]


@dataclass(slots=True)
class KVConfigSerializeWrapper(JsonBody):
    """Content of kvConfig.json."""

    config_table: Table = field(default_factory=dict)


class KVConfig:
    """The table and its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: Table = {}
        self._lock = asyncio.Lock()

    def load(self) -> None:
        """Read the file, or its backup if it is missing, empty or broken; without both the table is empty.

        Raises CorruptFileError if there is something and none of it can be read.
        """
        broken: list[str] = []
        for path in (self._path, backup_of(self._path)):
            data = path.read_bytes() if path.exists() else b""
            if not data.strip():
                continue
            try:
                self._table = KVConfigSerializeWrapper.decode(data).config_table
                return
            except ProtocolError as error:
                logger.warning("cannot read key-value table path=%s error=%s", path, error)
                broken.append(str(error))
        if broken:
            raise CorruptFileError("; ".join(broken), str(self._path))
        self._table = {}

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, or None."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return a copy of the keys and values of a namespace, or None if it has never had any."""
        values = self._table.get(namespace)
        return None if values is None else dict(values)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; on return it is on disk. Raises OSError, and then nothing has changed."""

        def change(table: Table) -> None:
            table.setdefault(namespace, {})[key] = value

        await self._commit(change)

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a key if it is there; on return it is gone from the disk too. Raises OSError."""
        if self.get(namespace, key) is None:
            return
        await self._commit(lambda table: table.get(namespace, {}).pop(key, None))

    async def _commit(self, change: Callable[[Table], object]) -> None:
        async with self._lock:
            draft = {namespace: dict(values) for namespace, values in self._table.items()}
            change(draft)
            data = KVConfigSerializeWrapper(draft).encode()
            # In a thread: route queries need not wait for the disk.
            await asyncio.to_thread(self._write, data)
            self._table = draft

    def _write(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, data)
