"""The command ``mqcore`` in this process: for tests that run many commands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from mqcore.admin.command_line import cli


@dataclass
class CommandLine:
    """Runs ``mqcore`` in this process."""

    name_server: str

    def run(self, *arguments: str, stdin: bytes | None = None) -> tuple[int, str, str]:
        """Return the exit code, and what went to standard output and standard error."""
        done = CliRunner().invoke(cli, ["-n", self.name_server, *arguments], input=stdin)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr

    def output(self, *arguments: str) -> str:
        """Return the standard output of a command that must succeed."""
        code, out, err = self.run(*arguments)
        assert code == 0, err
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.output(*arguments, "--output", "json"))

    def rows(self, *arguments: str) -> list[list[str]]:
        """Return the words of each line of a table, without its heading."""
        return [line.split() for line in self.output(*arguments).splitlines()[1:]]
