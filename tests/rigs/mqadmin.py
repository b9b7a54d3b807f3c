"""Apache's mqadmin: commands in processes of interop.Admin, many in one, as a JVM starts longer than they run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .apache import write_home
from .maven import admin_class_path
from .process import Child

JVM_OPTIONS = (
    *("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
MAIN_CLASS = "interop.Admin"
COMMAND_DEADLINE_S = 180.0
# mqadmin waits 3 s for a connection and 5 s for an answer, its start included: on a busy machine that says nothing
# about the broker.
TIMED_OUT = re.compile(r"Remoting(Timeout|Connect|SendRequest|TooMuchRequest)Exception")
TRIES_MAX = 4


@dataclass(frozen=True, slots=True)
class Printed:
    """What one command printed: standard output and standard error together, as on a terminal."""

    command: tuple[str, ...]
    text: str

    def rows(self) -> list[list[str]]:
        """The lines that are not headings, split at blanks."""
        return [line.split() for line in self.text.splitlines() if line.strip() and not line.startswith("#")]


class Mqadmin:
    """The mqadmin of one release. *directory* takes its home and the logs."""

    def __init__(self, version: str, directory: Path, options: Sequence[str] = ()) -> None:
        """*options* are more of the virtual machine's."""
        self.version = version
        self._home = write_home(directory / f"mqadmin-{version}", ["tools"])
        self._runs = itertools.count(1)
        homes = (f"-Drocketmq.home.dir={self._home}", f"-Duser.home={self._home}")
        self._java = ["java", *JVM_OPTIONS, *options, *homes, "-cp", admin_class_path(version), MAIN_CLASS]

    def run(self, name_server: str, *command: str) -> Printed:
        """Run one command, such as run(ns, "topicRoute", "-t", "Topic")."""
        return self.run_all(name_server, [command])[0]

    def run_all(self, name_server: str, commands: Sequence[Sequence[str]]) -> list[Printed]:
        """Run commands one after the other."""
        printed = self._run_in_turn(name_server, commands)
        return [self._again_if_too_slow(name_server, output) for output in printed]

    def _again_if_too_slow(self, name_server: str, printed: Printed) -> Printed:
        for _ in range(TRIES_MAX - 1):
            if TIMED_OUT.search(printed.text) is None:
                break
            (printed,) = self._run_in_turn(name_server, [printed.command])
        return printed

    def _run_in_turn(self, name_server: str, commands: Sequence[Sequence[str]]) -> list[Printed]:
        with Child(self._java, log=self._home / f"{next(self._runs):03d}.out", talks=True) as child:
            for command in commands:
                child.tell("\t".join([*command, "-n", name_server]))
            child.end_input()
            events = child.read_events_to_end("printed", COMMAND_DEADLINE_S)
            child.wait()
        return [Printed(tuple(command), event["text"]) for command, event in zip(commands, events, strict=True)]
