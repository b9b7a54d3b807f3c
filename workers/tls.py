"""A send worker's side of certificates: from its sheet, a context for its loop when the first client asks for TLS."""

from __future__ import annotations

import logging

from mqcore._fast.send.loop import SendLoop
from mqcore.errors import TlsError
from mqcore.workers.settings_sheet import Sheet

logger = logging.getLogger(__name__)


class CertificateKeeper:
    """Gives *loop* the context for its TLS, and another one when there are other certificates on *sheet*."""

    def __init__(self, loop: SendLoop, sheet: Sheet) -> None:
        self._loop = loop
        self._sheet = sheet
        self._text = b""

    def provide(self) -> None:
        """Give the loop its first context: nobody pays for TLS, nor for its library, before somebody asks for it."""
        from mqcore._fast.tls.context import ServerContext
        from mqcore.transport.tls import ServerMaterial

        _, self._text = self._sheet.read_text()
        try:
            self._loop.use_context(ServerMaterial.from_json(self._text.decode()).use(ServerContext))
        except TlsError as error:
            # The broker process has found it good with the same library, or another.
            logger.error("no TLS on the ports error=%s", error)
            self._loop.use_context(None)

    def follow(self) -> None:
        """Look whether there are other certificates; connections that are there keep theirs."""
        if self._text and self._sheet.read_text()[1] != self._text:
            self.provide()
