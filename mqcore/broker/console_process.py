"""The console of a broker (``consolePort``): a process of its own, which the broker starts, watches and ends.

The broker has the port, so that it is there or refused at the start, and the same for every process that serves it.
Nothing else of the console is in the broker's process: what pages cost, and what they break, stays on the other side.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mqcore import clock
from mqcore.address import host_and_port
from mqcore.broker.console_handover import ConsoleHandover
from mqcore.broker.restart_pause import RestartPause
from mqcore.broker.side_port import open_side_port
from mqcore.broker.supervisor import describe_status
from mqcore.config import Settings
from mqcore.config.passwords import CONSOLE_PASSWORD_VARIABLE, checked_password, read_password
from mqcore.errors import ConfigError
from mqcore.orphans import claim
from mqcore.transport.exposure import is_loopback

logger = logging.getLogger(__name__)

MODULE: Final = "mqcore.console.hosted"
EXTRA_PACKAGES: Final = ("jinja2", "starlette", "uvicorn")
PASSWORD_FILE: Final = "consolePasswordFile"
STOP_S: Final = 3.0


def wanted_console(settings: Settings) -> ConsoleProcess | None:
    """Return what serves the console if ``consolePort`` is set; None if it is not.

    Raises ConfigError if the port cannot be had, the extra is not here, or others could reach it without a password.
    """
    port = settings.mqcore.console_port
    if port == 0:
        return None
    missing = next((name for name in EXTRA_PACKAGES if find_spec(name) is None), None)
    if missing is not None:
        wanted = f"{missing}, which is not here: pip install 'mqcore[console]'"
        raise ConfigError(f"consolePort: got {port}, wanted {wanted}")
    return ConsoleProcess(settings, password_of(settings))


def password_of(settings: Settings) -> str | None:
    """Return the password that the console asks for; None: nobody is asked. Raises ConfigError where that cannot be."""
    host, file = settings.mqcore.console_host, settings.mqcore.console_password_file
    found = read_password(PASSWORD_FILE, Path(file) if file else None, os.environ.get(CONSOLE_PASSWORD_VARIABLE))
    if found is not None:
        return checked_password(PASSWORD_FILE if file else CONSOLE_PASSWORD_VARIABLE, found)
    if not is_loopback(host):
        raise ConfigError(
            f"consoleHost: got {host}, which others reach, without a password; wanted {PASSWORD_FILE}=FILE with one "
            "in its first line, or 127.0.0.1"
        )
    return None


class ConsoleProcess:
    """Serves the console from ``start`` to ``stop``; a process that dies has a successor."""

    def __init__(self, settings: Settings, password: str | None) -> None:
        """Raises ConfigError if the port cannot be had."""
        mqcore = settings.mqcore
        self._settings = settings
        self._password = password
        self._host = mqcore.console_host
        self._listener = open_side_port("console", self._host, mqcore.console_port)
        self._name_servers: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._pid_fd = -1
        self._started_s = 0.0
        self._pause = RestartPause()
        self._restart: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self._is_stopping = False

    @property
    def pid(self) -> int:
        """The process that serves now; 0 if none does."""
        return 0 if self._process is None else self._process.pid

    def start(self, name_servers: list[str]) -> None:
        """Serve what *name_servers* know. It is there a moment later: who comes meanwhile waits."""
        self._name_servers = name_servers
        port, has_password = self._listener.getsockname()[1], self._password is not None
        does = "changes allowed" if self._settings.mqcore.console_write_enable else "read-only"
        asks = "with a password" if has_password else "for whoever is on this machine"
        logger.info("console at http://%s/ (%s, %s)", host_and_port(self._host, port), does, asks)
        if has_password and not is_loopback(self._host):
            logger.warning("the console's password can be read on the way to it; a tunnel or a proxy with TLS keeps it")
        self._begin()

    def ask_to_stop(self) -> None:
        """Let the process come to its end, and have no successor."""
        self._is_stopping = True
        if self._restart is not None:
            self._restart.cancel()
        if self._process is not None:
            self._hang_up()

    async def stop(self) -> None:
        """End the process and close the port."""
        self.ask_to_stop()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._ended.wait()
        if self._process is not None:
            self._process.kill()
            await self._ended.wait()
        self._listener.close()

    # The process.

    def _begin(self) -> None:
        self._restart = None
        if self._is_stopping:
            return
        fd = self._listener.fileno()
        try:
            process = subprocess.Popen([sys.executable, "-m", MODULE], stdin=subprocess.PIPE, pass_fds=[fd])
        except OSError as error:
            logger.error("console cannot be started error=%s", error)
            self._begin_later()
            return
        claim(process)
        self._process, self._started_s = process, clock.monotonic_s()
        self._pid_fd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pid_fd, self._on_exit)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which is seen in a moment
            process.stdin.write(self._handover(fd).line())
            process.stdin.flush()

    def _handover(self, listener: int) -> ConsoleHandover:
        return ConsoleHandover(
            parent_pid=os.getpid(),
            listener=listener,
            host=self._host,
            port=self._listener.getsockname()[1],
            name_servers=self._name_servers,
            may_write=self._settings.mqcore.console_write_enable,
            password=self._password,
            settings=self._settings.to_json(),
        )

    def _hang_up(self) -> None:
        """Let its standard input end, by which it knows that it is to stop."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _on_exit(self) -> None:
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._pid_fd)
        os.close(self._pid_fd)
        self._hang_up()
        process, status, self._process = self._process, self._process.wait(), None
        if self._is_stopping:
            self._ended.set()
        else:
            logger.error("console died pid=%d status=%s", process.pid, describe_status(status))
            self._begin_later()

    def _begin_later(self) -> None:
        pause_ms = self._pause.after(clock.monotonic_s() - self._started_s, self._settings.mqcore)
        self._restart = asyncio.get_running_loop().call_later(pause_ms / 1000, self._begin)
