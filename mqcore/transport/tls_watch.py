"""Certificates that are exchanged while a server runs: who comes from then on is shown the new ones.

The files are looked at twice a second, as RocketMQ's FileWatchService does, and are read when they have stayed the same
between two looks: a pair is written one file after the other. RocketMQ waits until both files of a pair have changed;
here a new certificate for the old key counts, too. What cannot be used changes nothing, and is told once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from mqcore.config import TlsSettings
from mqcore.errors import MQError, TlsError
from mqcore.transport.tls import ServerMaterial

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 0.5

Signature = tuple[tuple[int, int, int] | None, ...]


class CertificateWatch:
    """Calls *use* with what the files of *tls* say, whenever that is something new and good."""

    def __init__(
        self,
        tls: TlsSettings,
        material: ServerMaterial,
        use: Callable[[ServerMaterial], Awaitable[None]],
        interval_s: float = INTERVAL_S,
    ) -> None:
        """*material* is what is in use now."""
        self._tls = tls
        self._material = material
        self._use = use
        self._interval_s = interval_s
        self._paths = [path for path in (tls.server_cert_path, tls.server_key_path, tls.server_trust_cert_path) if path]
        self._decided = self._changing = self._signature()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        seen = self._signature()
        if seen == self._decided:
            return
        if seen != self._changing:
            self._changing = seen
            return
        self._decided = seen
        try:
            material = await asyncio.to_thread(ServerMaterial.read, self._tls)
        except TlsError as error:
            logger.warning("new certificates are of no use, the old ones stay error=%s", error)
            return
        if material != self._material:
            await self._take(material)

    async def _take(self, material: ServerMaterial) -> None:
        self._material = material
        try:
            await self._use(material)
        except MQError as error:
            logger.error("new certificates are not everywhere in use error=%s", error)
        else:
            logger.info("new certificates in use files=%s", material.source)

    def _signature(self) -> Signature:
        return tuple(_signature_of(path) for path in self._paths)


def _signature_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
