"""What signals ask of a server: SIGTERM and SIGINT end it, SIGHUP has it read its files again.

SIGHUP also comes when a terminal goes. Who was started from one ends with it, as every program does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mqcore.errors import MQError

logger = logging.getLogger(__name__)

TERMINAL: Final = "/dev/tty"

Reload = Callable[[], Coroutine[Any, Any, None]]


class Signals:
    """Made and installed in the running event loop; *stop* is set by what ends the server."""

    def __init__(self, stop: asyncio.Event, reload: Reload) -> None:
        """*reload* may raise MQError or OSError: the server goes on as it is then, and the error is logged."""
        self._stop = stop
        self._reload = reload
        self._had_terminal = has_terminal()
        self._reloading: asyncio.Task[None] | None = None
        self._is_asked_again = False

    def install(self) -> None:
        """Obey from now on. SIGHUP is left alone where it is ignored, as nohup leaves it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup)

    def _on_hangup(self) -> None:
        if self._had_terminal and not has_terminal():
            self._stop.set()
        elif self._reloading is None or self._reloading.done():
            self._reloading = asyncio.get_running_loop().create_task(self._run_reload())
        else:
            self._is_asked_again = True  # what is under way may have read the files before they were changed

    async def _run_reload(self) -> None:
        self._is_asked_again = True
        while self._is_asked_again:
            self._is_asked_again = False
            try:
                await self._reload()
            except (MQError, OSError) as error:
                logger.error("the settings were not read again, all stays as it is error=%s", error)


def has_terminal() -> bool:
    """Whether this process was started from a terminal that is still there."""
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
