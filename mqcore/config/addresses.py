"""The address that a broker gives to its clients when nobody chose one.

RocketMQ's rule, over interfaces that are neither bridges nor loopback: the first IPv4 address that does not begin with
127.0 or 192.168, else the last IPv4 address, else the first IPv6 address in brackets, else the local host.
Source: RocketMQ remoting/common/RemotingUtil.java, getLocalAddress.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from pathlib import Path

NETWORK_INTERFACES = Path("/sys/class/net")
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))

DEFAULT_BRIDGES = tuple(ipaddress.IPv4Network(net) for net in ("172.17.0.0/16", "10.88.0.0/16"))  # docker0, podman
BRIDGE_POOL = ipaddress.IPv4Network("172.16.0.0/12")  # also used by clouds: suspicious only inside a container
UNWANTED_PREFIXES = ("127.0", "192.168")


def choose_address(addresses: Iterable[str]) -> str:
    """The address that RocketMQ's rule takes from *addresses*, IPv4 and IPv6 texts in the order of the interfaces."""
    version_4: list[str] = []
    version_6: list[str] = []
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        if not address.is_loopback:
            (version_4 if address.version == 4 else version_6).append(str(address))
    for text in version_4:
        if not text.startswith(UNWANTED_PREFIXES):
            return text
    if version_4:
        return version_4[-1]
    return f"[{version_6[0]}]" if version_6 else "127.0.0.1"


def local_address() -> str:
    """The address that other machines most likely reach this one by."""
    import psutil  # slow to import, and only a broker without brokerIP1 needs it

    states = psutil.net_if_stats()
    return choose_address(
        address.address
        for name, addresses in psutil.net_if_addrs().items()
        if name in states and states[name].isup and not is_bridge(name)
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    )


def is_bridge(interface: str) -> bool:
    return (NETWORK_INTERFACES / interface / "bridge").exists()


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
