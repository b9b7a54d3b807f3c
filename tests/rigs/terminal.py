"""A program in a terminal of its own: keys go in, and its screen is read as a person would see it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import pyte

from tests.waiting import wait_until

READ_SIZE = 65536
END_S = 30.0


class Terminal:
    """Runs a command in a pseudo terminal of *columns* by *lines*. What it has written is kept in ``written``."""

    def __init__(
        self, command: Sequence[str], columns: int = 80, lines: int = 24, environment: Mapping[str, str] | None = None
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.written = b""
        self._ours, self._theirs = pty.openpty()
        self._set_size(columns, lines)
        self.modes_before = self.modes()
        env = os.environ | {"TERM": "xterm-256color"} | dict(environment or {})
        self.process = subprocess.Popen(
            command, stdin=self._theirs, stdout=self._theirs, stderr=self._theirs, env=env, start_new_session=True,
            preexec_fn=self._take_terminal,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _take_terminal(self) -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, READ_SIZE):
                with self._lock:
                    self.written += data
                    self._stream.feed(data)

    def modes(self) -> list[Any]:
        """Return the terminal's modes: whether it echoes, gives whole lines, and so on."""
        return termios.tcgetattr(self._theirs)

    def lines(self) -> list[str]:
        """Return what stands on the screen, without blanks at the ends of lines."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    def text(self) -> str:
        return "\n".join(self.lines())

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        with self._lock:
            self._screen.resize(lines, columns)
        self._set_size(columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def shows(self, *words: str, deadline_s: float = 60.0) -> list[str]:
        """Wait until all *words* stand on the screen, and return its lines."""
        with contextlib.suppress(AssertionError, TimeoutError):
            wait_until(lambda: self._has(words), deadline_s, f"{words} on the screen")
        assert self._has(words), f"{words} not on the screen:\n{self.text()}"
        return self.lines()

    def _has(self, words: Sequence[str]) -> bool:
        text = self.text()
        return all(word in text for word in words)

    def ends(self) -> int:
        """Wait until the program has ended, and return its exit code."""
        return self.process.wait(END_S)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_S)
        os.close(self._theirs)
        self._thread.join(END_S)
        os.close(self._ours)
