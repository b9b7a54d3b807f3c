"""What is to be said of the address that a broker gives to its clients."""

from __future__ import annotations

import ipaddress
from pathlib import Path

CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))

DEFAULT_BRIDGES = tuple(ipaddress.IPv4Network(net) for net in ("172.17.0.0/16", "10.88.0.0/16"))  # docker0, podman
BRIDGE_POOL = ipaddress.IPv4Network("172.16.0.0/12")  # also used by clouds: suspicious only inside a container


def in_container() -> bool:
    return any(mark.exists() for mark in CONTAINER_MARKS)


def bridge_warning(address: str, inside_container: bool | None = None) -> str | None:
    """Why clients on other machines will probably not reach *address*, or None. Host names are believed."""
    try:
        parsed = ipaddress.ip_address(address.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    if inside_container is None:
        inside_container = in_container()
    if parsed.is_loopback:
        return f"{address} is a loopback address: only clients on this machine can reach the broker; set brokerIP1"
    networks = (*DEFAULT_BRIDGES, BRIDGE_POOL) if inside_container else DEFAULT_BRIDGES
    if any(parsed in network for network in networks):
        return (
            f"{address} looks like the address of a container bridge: clients outside it will get a route that they "
            "cannot connect to; set brokerIP1 to the address that they use"
        )
    return None
