"""Addresses: what settings and options accept, and what peers write."""

from __future__ import annotations

import pytest

from mqcore.address import Address, parse_address, parse_addresses, parse_peer_address
from mqcore.errors import ConfigError

NO_ADDRESSES = ["", "host", "host:", ":1", "host:x", "host:-1", "host:65536", "host:1 1", "host:\u0661"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9876", Address("127.0.0.1", 9876)),
        ("[::1]:1", Address("::1", 1)),
        (" broker-a:65535 ", Address("broker-a", 65535)),
    ],
)
def test_an_address_is_read_and_written_back(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_peer_address(text) == address
    assert str(address) == text.strip()


def test_a_peer_may_have_no_port_yet_and_no_brackets() -> None:
    assert parse_peer_address("broker-a:0") == Address("broker-a", 0)
    assert parse_peer_address("fe80::1:10911") == Address("fe80::1", 10911)
    for text in ("broker-a:0", "fe80::1:10911"):
        with pytest.raises(ValueError, match=r"host:port with a port|brackets"):
            parse_address(text)


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)
    with pytest.raises(ConfigError, match=r"bad address: got .*, wanted host:port"):
        parse_peer_address(text)


def test_lists_are_separated_by_semicolons() -> None:
    assert parse_addresses("a:1;[::1]:2;") == (Address("a", 1), Address("::1", 2))
    assert parse_addresses(" ") == ()
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses("a:1,b:2")
