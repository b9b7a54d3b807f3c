"""The address that a broker gives to its clients, and a client to brokers, when nobody chose one.

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
UNWANTED_PREFIXES = ("127.0", "192.168")
LOCAL_HOST = "127.0.0.1"
SOMEWHERE = ("192.0.2.1", 9)
"""An address that no machine has (RFC 5737), and a port that would drop what comes."""


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
    return f"[{version_6[0]}]" if version_6 else LOCAL_HOST


def local_address() -> str:
    """The address that other machines most likely reach this one by.

    Without psutil, which a program that only has clients may do without, it is the one that this machine calls from.
    """
    try:
        import psutil  # slow to import, and not needed by those who are told their address
    except ImportError:
        return outward_address()
    states = psutil.net_if_stats()
    return choose_address(
        address.address
        for name, addresses in psutil.net_if_addrs().items()
        if name in states and states[name].isup and not is_bridge(name)
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    )


def outward_address() -> str:
    """The address from which packets leave by the default route, if there is one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(SOMEWHERE)
        except OSError:
            return LOCAL_HOST
        return str(probe.getsockname()[0])


def is_bridge(interface: str) -> bool:
    return (NETWORK_INTERFACES / interface / "bridge").exists()
