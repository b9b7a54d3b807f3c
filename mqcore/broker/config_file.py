"""One JSON file of the broker's configuration directory, in fastjson's pretty form, with its backup.

Source: RocketMQ common/ConfigManager.java.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqcore.errors import CorruptFileError, ProtocolError
from mqcore.files import backup_of, read_if_there, write_atomically
from mqcore.protocol import fastjson

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)


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
        text = read_if_there(self.path)
        if text:
            try:
                return fastjson.loads(text)
            except ProtocolError as error:
                logger.warning("configuration file is broken, trying its backup path=%s error=%s", self.path, error)
        backup = backup_of(self.path)
        text = read_if_there(backup)
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

    async def write_text(self, render: Callable[[], Buffer | None]) -> bool:
        """Write what *render*, called in a thread, gives, as ``write``; nothing, and return False, if that is None."""
        async with self._lock:
            return await asyncio.to_thread(self._write_rendered, render)

    def _write_rendered(self, render: Callable[[], Buffer | None]) -> bool:
        data = render()
        if data is not None:
            self._write_data(data)
        return data is not None

    def _write(self, value: Any) -> None:
        self._write_data(fastjson.dumps(value, pretty=True))

    def _write_data(self, data: Buffer) -> None:
        # A digest, since two texts of 30 MB would be compared with the interpreter held.
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest != self._written:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, data)
            self._written = digest
