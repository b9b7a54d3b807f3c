"""The screen of ``mqcore top``: it has the terminal while it lasts, and gives it back however it ends.

Looks are taken in one task; keys, other sizes and signals only have the screen drawn again, so that no slow broker
keeps a key waiting.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.text import Text

from mqcore.admin.top_data import Look, Looker, WatchedChange, change_between
from mqcore.admin.top_keys import keys_of, press
from mqcore.admin.top_view import ViewState, screen_lines
from mqcore.errors import MQError

READ_SIZE: Final = 1024
ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The other screen, no cursor, and lines that are not wrapped."""

LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME: Final = "\x1b[H"
TO_LINE_END: Final = "\x1b[K"
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class TopScreen:
    """Shows what *looker* finds at *place* until a key or a signal ends it."""

    def __init__(self, looker: Looker, place: str, every_s: float) -> None:
        self._looker = looker
        self._place = place
        self._state = ViewState(every_s=every_s)
        self._last: Look | None = None
        self._change: WatchedChange | None = None
        self._error: str | None = None
        self._wanted = asyncio.Event()
        self._console = Console(file=sys.stdout, highlight=False, markup=False)
        self._terminal: OwnTerminal | None = None
        self._ended_by: signal.Signals | None = None

    async def run(self) -> signal.Signals | None:
        """Return the signal that has ended it; None if a key has. Raises what the first look raises."""
        # Before the screen is taken: who has no name server reads the error where he stands.
        self._take(await self._looker.look())
        loop = asyncio.get_running_loop()
        with OwnTerminal(sys.stdin.fileno()) as self._terminal, self._signals(loop):
            loop.add_reader(sys.stdin.fileno(), self._read_keys)
            looking = asyncio.create_task(self._keep_looking())
            try:
                await self._keep_drawing()
                if looking.done():
                    looking.result()  # a fault of ours, which is told as one once the terminal is given back
            finally:
                loop.remove_reader(sys.stdin.fileno())
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
        return self._ended_by

    # Looks.

    async def _keep_looking(self) -> None:
        try:
            while True:
                await self._pause()
                await self._look()
                self._wanted.set()
        except BaseException:
            self._state.is_over = True
            self._wanted.set()
            raise

    async def _pause(self) -> None:
        """Wait for the next look. Another pace holds at once, and a pause until it ends."""
        waited_s = 0.0
        while self._state.is_paused or waited_s < self._state.every_s:
            step_s = min(0.1, max(0.01, self._state.every_s - waited_s))
            await asyncio.sleep(step_s)
            waited_s += step_s

    async def _look(self) -> None:
        try:
            found = await self._looker.look()
        except MQError as error:
            self._error = str(error)
            return
        self._error = None
        if not self._state.is_paused:
            self._take(found)

    def _take(self, found: Look) -> None:
        self._change, self._last = change_between(self._last, found), found

    # The terminal.

    async def _keep_drawing(self) -> None:
        while not self._state.is_over:
            self._draw()
            await self._wanted.wait()
            self._wanted.clear()

    def _draw(self) -> None:
        width, height = os.get_terminal_size(sys.stdout.fileno())
        lines = screen_lines(self._state, self._change, self._place, width, height, self._error)
        # Emptied first: behind a line that fills the screen, the cursor stands on its last letter.
        text = "\r\n".join(TO_LINE_END + self._painted(line) for line in lines)
        write_all(HOME + text)

    def _painted(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True)
        return captured.get()

    def _read_keys(self) -> None:
        data = os.read(sys.stdin.fileno(), READ_SIZE)
        if not data:  # the terminal is gone
            self._state.is_over = True
        for key in keys_of(data.decode("utf-8", "replace")):
            press(self._state, key)
        self._wanted.set()

    @contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        for number in ENDING:
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGWINCH, self._wanted.set)
        loop.add_signal_handler(signal.SIGTSTP, self._stop)
        try:
            yield
        finally:
            for number in (*ENDING, signal.SIGWINCH, signal.SIGTSTP):
                loop.remove_signal_handler(number)

    def _end(self, number: signal.Signals) -> None:
        self._ended_by = number
        self._state.is_over = True
        self._wanted.set()

    def _stop(self) -> None:
        """Ctrl-Z: give the terminal back, sleep, and have it again."""
        assert self._terminal is not None
        self._terminal.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._terminal.enter()
        self._wanted.set()


class OwnTerminal:
    """The terminal behind standard input, with keys that come one by one, and a screen of its own."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before = termios.tcgetattr(fd)

    def enter(self) -> None:
        tty.setcbreak(self._fd, termios.TCSADRAIN)  # what has been typed already counts
        write_all(ENTER)

    def leave(self) -> None:
        write_all(LEAVE)
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def __enter__(self) -> OwnTerminal:
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.leave()
        except (OSError, termios.error):
            pass  # a terminal that is gone needs nothing back


def write_all(text: str) -> None:
    """Write to standard output, past its buffer."""
    data = text.encode()
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]
