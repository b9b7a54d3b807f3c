"""Apache's mqadmin: commands in processes of interop.Admin, many in one, as a JVM starts longer than they run.

While an Mqadmin is ``warm`` it keeps one for all that is run without a session.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from .apache import write_home
from .maven import admin_class_path, shared_classes
from .process import Child

JVM_OPTIONS = (
    *("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
MAIN_CLASS = "interop.Admin"
# Nobody listens on port 1: this loads what commands load.
REHEARSAL = "topicRoute\t-t\tT\t-n\t127.0.0.1:1\n"
COMMAND_DEADLINE_S = 180.0
# mqadmin waits 3 s for a connection and 5 s for an answer, its start included: on a busy machine that says nothing
# about the broker.
TIMED_OUT = re.compile(r"Remoting(Timeout|Connect|SendRequest|TooMuchRequest)Exception")
TRIES_MAX = 4
COMMAND_LINE = re.compile(r"^   (\w+) +\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Printed:
    """What one command printed: standard output and standard error together, as on a terminal."""

    command: tuple[str, ...]
    text: str

    def rows(self) -> list[list[str]]:
        """The lines that are not headings, split at blanks."""
        return [line.split() for line in self.text.splitlines() if line.strip() and not line.startswith("#")]


class Session:
    """One process that runs one command after the other. What they write without a path lies in its *directory*."""

    def __init__(self, java: Sequence[str], name_server: str, directory: Path) -> None:
        self.directory = directory
        self._name_server = name_server
        directory.mkdir(parents=True, exist_ok=True)
        self._child = Child(java, log=directory / "mqadmin.out", talks=True, directory=directory)

    def turn_to(self, name_server: str) -> Session:
        """Have commands ask *name_server* from now on."""
        self._name_server = name_server
        return self

    def run(self, *command: str, within_s: float | None = None, tries: int = TRIES_MAX) -> Printed:
        """Run one command, such as run("topicRoute", "-t", "Topic"), again if it has not heard in time.

        With *within_s* it is one that never ends: what it has printed by then counts.
        """
        for _ in range(tries):
            printed = self._printed(*command, within_s=within_s)
            if TIMED_OUT.search(printed.text) is None:
                break
        return printed

    def _printed(self, *command: str, within_s: float | None) -> Printed:
        limit = [] if within_s is None else [f"within={within_s * 1000:.0f}"]
        return Printed(command, self._say("\t".join([*limit, *command, "-n", self._name_server])))

    def _say(self, line: str) -> str:
        self._child.tell(line)
        text: str = self._child.read_event("printed", COMMAND_DEADLINE_S)["text"]
        return text

    def commands(self) -> list[str]:
        """The names of all commands, as mqadmin lists them when it is told none."""
        return COMMAND_LINE.findall(self._say(""))

    def close(self) -> None:
        self._child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Mqadmin:
    """The mqadmin of one release. *directory* takes its home and the logs."""

    def __init__(self, version: str, directory: Path, options: Sequence[str] = ()) -> None:
        """*options* are more of the virtual machine's."""
        self.version = version
        self._home = write_home(directory / f"mqadmin-{version}", ["tools"])
        self._runs = itertools.count(1)
        self._is_warm = False
        self._kept: Session | None = None
        homes = (f"-Drocketmq.home.dir={self._home}", f"-Duser.home={self._home}")
        class_path = admin_class_path(version)
        archive = shared_classes(f"mqadmin-{version}", JVM_OPTIONS, class_path, [*homes, MAIN_CLASS], REHEARSAL)
        self._java = ["java", *JVM_OPTIONS, *options, archive, *homes, "-cp", class_path, MAIN_CLASS]

    @contextlib.contextmanager
    def warm(self) -> Iterator[Self]:
        """While this lasts, a process is kept for what the main thread runs without a session."""
        self._is_warm = True
        try:
            yield self
        finally:
            self._is_warm = False
            if self._kept is not None:
                self._kept.close()
                self._kept = None

    def session(self, name_server: str) -> Session:
        """A process for commands that are told one by one."""
        return Session(self._java, name_server, self._home / f"{next(self._runs):03d}")

    def run(self, name_server: str, *command: str) -> Printed:
        """Run one command, such as run(ns, "topicRoute", "-t", "Topic")."""
        return self.run_all(name_server, [command])[0]

    def run_all(self, name_server: str, commands: Sequence[Sequence[str]]) -> list[Printed]:
        """Run commands one after the other."""
        # A child dies with the thread that started it.
        if not self._is_warm or threading.current_thread() is not threading.main_thread():
            with self.session(name_server) as session:
                return [session.run(*command) for command in commands]
        session, self._kept = self._kept or self.session(name_server), None
        try:
            printed = [session.turn_to(name_server).run(*command) for command in commands]
        except BaseException:
            session.close()  # the next call has another one
            raise
        self._kept = session
        return printed
