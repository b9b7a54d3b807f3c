"""Lists of name servers, as they are given."""

from __future__ import annotations

from mqcore.address import parse_name_servers
from mqcore.errors import ConfigError


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return what ``parse_name_servers`` finds in *text*. Raises ConfigError when that is nothing, or no address."""
    try:
        found = parse_name_servers(text)
    except ValueError as error:
        raise ConfigError(f"name server address: got {text!r}, wanted {error}") from error
    if not found:
        raise ConfigError(f"name server address: got {text!r}, wanted host:port or host:port;host:port")
    return found
