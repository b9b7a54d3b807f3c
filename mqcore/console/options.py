"""What the console is started with."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mqcore.config.passwords import checked_password
from mqcore.transport.exposure import is_loopback

PORT_DEFAULT: Final = 9880
PASSWORD: Final = "the console's password"
GENERATED_BYTES: Final = 15


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """Where the console listens, what it may do, and for whom. *password* None: nobody is asked for one."""

    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    may_write: bool = False
    password: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.has_tls else 'http'}://{host}:{self.port}/"

    def knows_host(self, header: str) -> bool:
        """Tell whether a request's Host is one of ours.

        A page of somebody else that lets its name resolve to our address (DNS rebinding) is recognised by that name;
        an address as Host cannot be one.
        """
        name = _without_port(header).rstrip(".").lower()
        if not name:
            return False
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            own = {"localhost", self.host.lower(), socket.gethostname().lower(), *map(str.lower, self.allowed_hosts)}
            return name in own
        return True


def password_for(host: str, given: str | None) -> tuple[str | None, bool]:
    """Return the password that is asked for, and whether it was made up here: beyond loopback there is always one.

    Raises ConfigError for one that is too short.
    """
    if given is not None:
        return checked_password(PASSWORD, given), False
    if is_loopback(host):
        return None, False
    return secrets.token_urlsafe(GENERATED_BYTES), True


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.rpartition(":")[0] if header.count(":") == 1 else header
