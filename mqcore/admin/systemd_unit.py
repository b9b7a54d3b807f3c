"""The unit of a broker or a name server for systemd: where things lie, who runs it, and what it is kept from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from mqcore.version import __version__

STATE_ROOT: Final = PurePosixPath("/var/lib")
HIDDEN_HOMES: Final = ("/home", "/root", "/run/user")
STOP_S: Final = 120
"""Longer than a stop in order takes, in which each kind of worker has ten seconds."""

OPEN_FILES: Final = 1_048_576

HARDENING: Final = """\
# It can write where it keeps its state, and nowhere else.
ProtectSystem=strict
ProtectHome={home}
PrivateTmp=yes
PrivateDevices=yes
DevicePolicy=closed
UMask=0027
# It gets no rights that it does not have, and has none of root's.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
# The kernel is nothing of its business; load and pressure of the machine it looks at (/metrics).
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RemoveIPC=yes
"""


class Server(StrEnum):
    """Which of the two, by the name of its module."""

    BROKER = "broker"
    NAMESRV = "namesrv"

    @property
    def called(self) -> str:
        return "broker" if self is Server.BROKER else "name server"

    @property
    def config(self) -> str:
        return f"/etc/mqcore/{self}.conf"

    @property
    def state(self) -> str:
        return f"/var/lib/mqcore/{self}"


@dataclass(frozen=True, slots=True)
class Unit:
    """What differs from one unit to the next. Paths are absolute."""

    server: Server
    python: str
    config: str
    state: str
    user: str = "mqcore"
    memory: str | None = None
    """As systemd takes it: 4G, 50%."""

    @property
    def is_hidden(self) -> bool:
        """Whether the interpreter lies where services as a rule see nothing."""
        # That of a virtual environment is a link to one that may lie there.
        places = (self.python, str(Path(self.python).resolve()))
        return any(place.startswith(tuple(f"{home}/" for home in HIDDEN_HOMES)) for place in places)

    @property
    def changes(self) -> str:
        """The file of what administrators change while it runs: the other one is yours, and cannot be written by it."""
        return f"{self.state}/changed.conf"

    def command(self) -> list[str]:
        start = [self.python, "-m", f"mqcore.{self.server}", "-c", self.config]
        if self.server is Server.BROKER:
            return [*start, "-c", self.changes, "--store", f"{self.state}/store"]
        return [*start, "--dir", self.state]

    def text(self) -> str:
        """The unit."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        name = f"mqcore-{self.server}"
        yield f"# A {self.server.called} of mqcore {__version__}, as `mqcore systemd-unit {self.server}` prints it."
        yield f"#   useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin {self.user}"
        yield f"#   systemctl daemon-reload && systemctl enable --now {name}"
        yield from ("[Unit]", f"Description=mqcore {self.server.called}")
        yield from ("Wants=network-online.target", "After=network-online.target", "", "[Service]")
        yield "# Ready is said when clients are served; a reload reads the files again (SIGHUP)."
        yield from ("Type=notify", "NotifyAccess=main")
        if self.server is Server.BROKER:
            yield f"ExecStartPre=/usr/bin/touch {quoted(self.changes)}"
        yield f"ExecStart={' '.join(map(quoted, self.command()))}"
        yield "ExecReload=/bin/kill -HUP $MAINPID"
        yield from (f"User={self.user}", f"Group={self.user}", f"SyslogIdentifier={name}")
        yield from self._state_lines()
        yield from ("# 253: the settings cannot stand, and will not the next time.", "Restart=on-failure")
        yield from ("RestartSec=2", "RestartPreventExitStatus=253")
        yield "# A long log takes its time to be recovered after a crash."
        yield "TimeoutStartSec=infinity"
        yield "# The main process stops the others in their order; a worker that dies it starts again."
        yield from ("KillMode=mixed", f"TimeoutStopSec={STOP_S}", "OOMPolicy=continue")
        yield "# A descriptor for each connection."
        yield f"LimitNOFILE={OPEN_FILES}"
        if self.memory:
            yield "# With the pages of the log that it keeps in memory; it goes by this limit (commitLogHotBytes)."
            yield f"MemoryMax={self.memory}"
        yield HARDENING.format(home="read-only" if self.is_hidden else "yes")
        yield from ("[Install]", "WantedBy=multi-user.target")

    def _state_lines(self) -> Iterator[str]:
        state = PurePosixPath(self.state)
        if state.is_relative_to(STATE_ROOT) and state != STATE_ROOT:
            yield f"StateDirectory={quoted(str(state.relative_to(STATE_ROOT)))}"
            yield "StateDirectoryMode=0750"
        else:
            yield f"# Make it first, for {self.user}."
            yield f"ReadWritePaths={quoted(self.state)}"


def quoted(word: str) -> str:
    """Return *word* as one word of a unit's line, where %, $ and quotes mean something else."""
    escaped = word.replace("%", "%%").replace("$", "$$")
    return escaped if escaped.isascii() and not set(escaped) & set(" \t\"'\\;") else json.dumps(escaped)


def problem_with(path: str) -> str:
    """Why *path* cannot stand in a unit, empty if it can."""
    if not path.startswith("/") or ".." in Path(path).parts:
        return "wanted an absolute path without .."
    return "" if path.isprintable() else "wanted no control characters"
