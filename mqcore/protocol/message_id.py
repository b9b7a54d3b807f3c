"""The two ids of a message.

The *offset id* is made by the broker and says where the record lies: store host and physical offset. The *unique id* is
made by the client before sending, travels as property UNIQ_KEY, and survives retries and transactions.
Both are upper-case hexadecimal. Source: RocketMQ common/message/MessageDecoder.java, MessageClientIDSetter.java.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import struct
import time
from functools import lru_cache
from typing import Final, NamedTuple

from mqcore import clock
from mqcore.errors import ProtocolError

_PORT_AND_OFFSET: Final = struct.Struct(">iq")
_PID_AND_LOADER: Final = struct.Struct(">HI")
# Unsigned, as Java's reader takes it: a month has more milliseconds than a signed integer can count.
_TIME_AND_COUNTER: Final = struct.Struct(">IH")

IPV4_SIZE: Final = 4
IPV6_SIZE: Final = 16

UNIQUE_ID_TAIL_SIZE: Final = _PID_AND_LOADER.size + _TIME_AND_COUNTER.size
assert UNIQUE_ID_TAIL_SIZE == 12


class HostAddress(NamedTuple):
    """An address as a record holds it."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"

    @property
    def packed(self) -> bytes:
        """The four or sixteen address bytes, without the port."""
        return packed_ip(self.ip)


@lru_cache(4096)
def packed_ip(ip: str) -> bytes:
    """Return the four or sixteen bytes of *ip*. Raises ValueError."""
    return ipaddress.ip_address(ip).packed


class OffsetMessageId(NamedTuple):
    """What an offset id says."""

    store_host: HostAddress
    physical_offset: int


def encode_offset_message_id(store_host: HostAddress, physical_offset: int) -> str:
    """Return the offset id: 32 characters for an IPv4 store host, 56 for IPv6."""
    return (store_host.packed + _PORT_AND_OFFSET.pack(store_host.port, physical_offset)).hex().upper()


def decode_offset_message_id(message_id: str) -> OffsetMessageId:
    """Read an offset id; raise ProtocolError if it is not 32 or 56 hexadecimal characters."""
    data = _id_bytes(message_id)
    port, physical_offset = _PORT_AND_OFFSET.unpack(data[-_PORT_AND_OFFSET.size :])
    host = data[: -_PORT_AND_OFFSET.size]
    return OffsetMessageId(HostAddress(str(ipaddress.ip_address(host)), port), physical_offset)


def _id_bytes(message_id: str) -> bytes:
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        data = b""
    # Both kinds of id have twelve bytes after the address.
    if len(data) not in (IPV4_SIZE + UNIQUE_ID_TAIL_SIZE, IPV6_SIZE + UNIQUE_ID_TAIL_SIZE):
        raise ProtocolError(f"bad message id: got {message_id!r}, wanted 32 or 56 hexadecimal characters")
    return data


class _Process(NamedTuple):
    """What the ids of one process share."""

    pid: int
    prefix: str
    counter: itertools.count[int]


class UniqueIdGenerator:
    """Makes unique ids. One per process is enough: threads may share it, and a forked child goes on with its own pid.

    Layout: address, int16 pid, int32 in place of the class loader's hash, int32 ms since the month began (local time),
    int16 counter. The loader bytes are random for each process, so that two containers with the same address and pid 1
    do not meet. There is no lock, which a fork could leave locked: each state is one object, replaced at once.
    """

    def __init__(self, ip: str) -> None:
        self._address = ipaddress.ip_address(ip).packed
        self._process = self._start_process(os.getpid())
        self._month_ms = (0, 0)
        self._last_ms = 0

    def _start_process(self, pid: int) -> _Process:
        prefix = self._address + _PID_AND_LOADER.pack(pid & 0xFFFF, int.from_bytes(os.urandom(4)))
        return _Process(pid, prefix.hex().upper(), itertools.count(int.from_bytes(os.urandom(2))))

    def next_id(self) -> str:
        """Return a new id: 32 characters for an IPv4 address, 56 for IPv6."""
        process = self._process
        pid = os.getpid()
        if process.pid != pid:
            process = self._process = self._start_process(pid)
        # The clock may be set back; time and counter together must not come again.
        now_ms = self._last_ms = max(self._last_ms, clock.now_ms())
        start_ms, end_ms = self._month_ms
        if not start_ms <= now_ms < end_ms:
            start_ms, end_ms = self._month_ms = _month_bounds_ms(now_ms)
        tail = _TIME_AND_COUNTER.pack(now_ms - start_ms, next(process.counter) & 0xFFFF)
        return process.prefix + tail.hex().upper()


def _month_bounds_ms(now_ms: int) -> tuple[int, int]:
    """Return the local start of the month of *now_ms* and that of the next month, in ms since 1970."""
    now = time.localtime(now_ms // 1000)
    start = time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((now.tm_year, now.tm_mon + 1, 1, 0, 0, 0, 0, 0, -1))  # mktime takes month 13
    return int(start) * 1000, int(end) * 1000


def unique_id_time_ms(message_id: str, now_ms: int) -> int:
    """Return when a unique id was made, in ms since 1970, supposing that this was less than a month before *now_ms*.

    Raises ProtocolError if *message_id* is not a unique id.
    """
    data = _id_bytes(message_id)
    elapsed_ms, _ = _TIME_AND_COUNTER.unpack(data[-_TIME_AND_COUNTER.size :])
    month_start_ms, _ = _month_bounds_ms(now_ms)
    if month_start_ms + elapsed_ms > now_ms:
        month_start_ms, _ = _month_bounds_ms(month_start_ms - 1)
    return month_start_ms + int(elapsed_ms)


def unique_id_ip(message_id: str) -> str:
    """Return the address of the client that made a unique id; raise ProtocolError if it is not one."""
    return str(ipaddress.ip_address(_id_bytes(message_id)[:-UNIQUE_ID_TAIL_SIZE]))
