"""One JSON file of the broker's configuration directory, in fastjson's pretty form, with its backup.

Source: RocketMQ common/ConfigManager.java.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from mqcore.errors import CorruptFileError, ProtocolError
from mqcore.files import write_atomically
from mqcore.protocol import fastjson

logger = logging.getLogger(__name__)

BACKUP_SUFFIX = ".bak"


class ConfigFile:
    """A file that holds one JSON value."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = asyncio.Lock()
        self._written = b""

    def load(self) -> Any:
        """Return the file's value; that of the backup if the file is missing, empty or broken; None if both are.

        Raises CorruptFileError if it comes to the backup and that does not parse.
        """
        text = _read(self.path)
        if text:
            try:
                return fastjson.loads(text)
            except ProtocolError as error:
                logger.warning("configuration file is broken, trying its backup path=%s error=%s", self.path, error)
        backup = self.path.with_name(self.path.name + BACKUP_SUFFIX)
        text = _read(backup)
        if not text:
            return None
        try:
            return fastjson.loads(text)
        except ProtocolError as error:
            raise CorruptFileError(str(error), str(backup)) from error

    async def write(self, value: Any) -> None:
        """Write *value*; on return it is on disk, name included. Nothing happens if it is what was written last.

        Rendering and writing happen in a thread, so nobody may change *value* any more. Writes of one file follow each
        other. Raises OSError.
        """
        async with self._lock:
            await asyncio.to_thread(self._write, value)

    def _write(self, value: Any) -> None:
        data = fastjson.dumps(value, pretty=True)
        if data != self._written:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, data)
            self._written = data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
