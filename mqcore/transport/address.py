"""Addresses as peers write them: ``host:port``, with or without brackets around IPv6, and a port that may be 0."""

from __future__ import annotations

from mqcore.address import PORT_MAX
from mqcore.errors import ConfigError


def parse_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port``; raise ConfigError saying what is wrong with it."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > PORT_MAX:
        raise ConfigError(f"bad address: got {address!r}, wanted host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
