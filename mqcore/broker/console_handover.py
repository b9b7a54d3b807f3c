"""What a broker says to the process that serves its console, on its standard input.

One line of JSON; the input ends when the console is to stop, and with the broker.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from mqcore.config import SettingValues


@dataclass(frozen=True, slots=True)
class ConsoleHandover:
    """Everything that the process needs. The *listener* is open there under the same number."""

    parent_pid: int
    listener: int
    host: str
    port: int
    name_servers: list[str]
    may_write: bool
    password: str | None = field(repr=False)
    settings: str = field(repr=False)

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def of_line(line: bytes) -> ConsoleHandover:
        return ConsoleHandover(**json.loads(line))

    def loaded_settings(self) -> SettingValues:
        return SettingValues.from_json(self.settings)
