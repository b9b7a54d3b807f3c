"""Addresses as the protocol writes them: ``host:port``, and lists of them."""

from __future__ import annotations

from typing import Final

from mqcore.errors import ConfigError

PORT_MAX: Final = 65535


def parse_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port``; raise ConfigError saying what is wrong with it."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > PORT_MAX:
        raise ConfigError(f"bad address: got {address!r}, wanted host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def format_address(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address_list(text: str) -> list[str]:
    """Split a ``;``-separated list of addresses, as name servers are given; blanks and empty entries are dropped."""
    addresses = [entry.strip() for entry in text.split(";") if entry.strip()]
    for address in addresses:
        parse_address(address)
    return addresses
