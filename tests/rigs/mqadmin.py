"""Apache's mqadmin, one child process per command."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .apache import write_home
from .maven import TARGET, class_path, shared_classes
from .process import Child

JVM_OPTIONS = (
    *("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
MAIN_CLASS = "org.apache.rocketmq.tools.command.MQAdminStartup"
COMMAND_DEADLINE_S = 180.0
AT_ONCE_MAX = 6
# mqadmin waits 3 s for a connection and 5 s for an answer, its start included: on a busy machine that says nothing
# about the broker.
TIMED_OUT = re.compile(r"Remoting(Timeout|Connect|SendRequest|TooMuchRequest)Exception")
TRIES_MAX = 4


@dataclass(frozen=True, slots=True)
class Printed:
    """What one command printed: standard output and standard error together, as on a terminal."""

    command: tuple[str, ...]
    text: str
    exit_code: int

    def rows(self) -> list[list[str]]:
        """The lines that are not headings, split at blanks."""
        return [line.split() for line in self.text.splitlines() if line.strip() and not line.startswith("#")]


def _options(home: Path) -> list[str]:
    return [*JVM_OPTIONS, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"]


class Mqadmin:
    """The mqadmin of one release. *directory* takes its home and the outputs."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self._home = write_home(directory / f"mqadmin-{version}", ["tools"])
        self._runs = itertools.count(1)
        jars = class_path("tools", version)
        # Nobody listens on port 1, so this loads what any command loads and ends.
        rehearsal = [
            *_options(write_home(TARGET / "mqadmin", ["tools"])),
            MAIN_CLASS,
            "clusterList",
            "-n",
            "127.0.0.1:1",
        ]
        archive = shared_classes(f"mqadmin-{version}", jars, rehearsal)
        self._java = ["java", f"-XX:SharedArchiveFile={archive}", *_options(self._home), "-cp", jars, MAIN_CLASS]

    def _start(self, name_server: str, command: Sequence[str]) -> Child:
        log = self._home / f"{next(self._runs):03d}-{command[0]}.out"
        return Child([*self._java, *command, "-n", name_server], log=log)

    def run(self, name_server: str, *command: str) -> Printed:
        """Run one command, such as run(ns, "topicRoute", "-t", "Topic")."""
        return self.run_all(name_server, [command])[0]

    def run_all(self, name_server: str, commands: Sequence[Sequence[str]]) -> list[Printed]:
        """Run independent commands, a few at once, since each sleeps for seconds; results in the order given."""
        printed: list[Printed] = []
        for first in range(0, len(commands), AT_ONCE_MAX):
            printed += self._run_at_once(name_server, commands[first : first + AT_ONCE_MAX])
        return [self._again_if_too_slow(name_server, output) for output in printed]

    def _again_if_too_slow(self, name_server: str, printed: Printed) -> Printed:
        for _ in range(TRIES_MAX - 1):
            if TIMED_OUT.search(printed.text) is None:
                break
            (printed,) = self._run_at_once(name_server, [printed.command])
        return printed

    def _run_at_once(self, name_server: str, commands: Sequence[Sequence[str]]) -> list[Printed]:
        children = [self._start(name_server, command) for command in commands]
        try:
            codes = [child.wait(COMMAND_DEADLINE_S) for child in children]
        finally:
            for child in children:
                child.kill()
        return [
            Printed(tuple(command), child.log.read_text(errors="replace"), code)
            for command, child, code in zip(commands, children, codes, strict=True)
        ]
