"""Addresses as settings and options have them and as peers write them: ``host:port``, and lists of them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from mqcore.errors import ConfigError

PORT_MAX: Final = 65_535
NAME_SERVER_PORT: Final = 9876
PAGE_PORT: Final = 8080
"""Of a host that has a page with the addresses of name servers."""
HA_PORT_DISTANCE: Final = 1
"""How far above the listen port the one for slaves lies."""
FAST_PORT_DISTANCE: Final = 2
"""How far below the listen port the fast (VIP) one lies; clients compute it."""
HOST_FORM: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.%a-z0-9]+\]|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*")
PAGE_FORM: Final = re.compile(r"https?://[^\s/;,]+/+[^\s/;,][^\s;,]*")


class Address(NamedTuple):
    """A host name or address, and a port. *host* carries no brackets; ``str()`` puts them around IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def host_and_port(host: str, port: int) -> str:
    """ "host:port" with brackets around an IPv6 host that has none yet."""
    return str(Address(host.removeprefix("[").removesuffix("]"), port))


def beside(address: Address, distance: int) -> Address:
    """The address *distance* ports above: the ports of a broker hang together."""
    return Address(address.host, address.port + distance)


def parse_address(text: str) -> Address:
    """Return the address in "host:port" or "[IPv6]:port". Raises ValueError with what was wanted."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"host:port with a port from 1 to {PORT_MAX}")
    if not HOST_FORM.fullmatch(host):
        raise ValueError("host:port with a host name or address")
    if host.startswith("["):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("brackets around an IPv6 address, as in [::1]:9876")
    return Address(host, int(port))


def parse_peer_address(text: str) -> Address:
    """Return the address that a peer gave: brackets around IPv6 may be missing, and the port may be 0.

    What Java joins with a colon. Raises ConfigError with what was got.
    """
    host, _, port = text.strip().rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > PORT_MAX:
        raise ConfigError(f"bad address: got {text!r}, wanted host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Return the addresses in "host:port;host:port"; empty text has none, and a trailing ; does not count.

    As RocketMQ writes lists of name servers. Raises ValueError with what was wanted.
    """
    text = text.strip().rstrip(";")
    return tuple(parse_address(part) for part in text.split(";")) if text else ()


def page_of(domain: str, subgroup: str) -> str:
    """Return the URL that RocketMQ makes of ``rocketmq.namesrv.domain`` and ``rocketmq.namesrv.domain.subgroup``."""
    has_port = ":" in domain.rpartition("]")[2]
    return f"http://{domain if has_port else f'{domain}:{PAGE_PORT}'}/rocketmq/{subgroup}"


def is_address_page(text: str) -> bool:
    """Whether *text* is the URL of a page that names the name servers: http, a host, and a path that says something."""
    return PAGE_FORM.fullmatch(text.strip()) is not None


def parse_name_servers(text: str) -> tuple[str, ...]:
    """Return the same as people write it: commas too, each address once, 9876 where a port is missing.

    An "http://" without a path is dropped, which RocketMQ's clients put there. With a path, and alone, it is a page
    that names them (``is_address_page``), and returned as it is. Raises ValueError with what was wanted; that something
    must be there is for the caller to say.
    """
    if is_address_page(text):
        return (text.strip(),)
    found = []
    for part in re.split("[;,]", text):
        if is_address_page(part):
            raise ValueError("addresses, or one URL of a page that names them")
        address = part.strip().removeprefix("http://").removeprefix("https://").split("/")[0]
        if address:
            has_port = ":" in address.rpartition("]")[2]
            found.append(str(parse_address(address if has_port else f"{address}:{NAME_SERVER_PORT}")))
    return tuple(dict.fromkeys(found))
