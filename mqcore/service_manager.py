"""What a server tells systemd of itself: one datagram each to the socket that NOTIFY_SOCKET names (sd_notify(3)).

Without that variable nobody is told anything; a notice that cannot be sent is logged, and nothing else comes of it.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

logger = logging.getLogger(__name__)

VARIABLE: Final = "NOTIFY_SOCKET"


class ServiceManager:
    """Made before any child is started: the variable is taken out of the environment, as it is for this process."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        name = environment.pop(VARIABLE, "")
        # A name that begins with @ is of the abstract kind, which has no file.
        self._address = f"\0{name[1:]}" if name.startswith("@") else name

    def ready(self, status: str) -> None:
        """It serves, for the first time or again; *status* is a line for people."""
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """It reads its settings again; ``ready`` follows, whatever comes of that."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1", "STATUS=stopping")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notices:
                notices.setblocking(False)
                notices.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            logger.warning("the service manager cannot be told notice=%s error=%s", lines[0], error)
