"""Machines and the wires between each two of them: network namespaces whose packets pass through this process.

A namespace has no name and ends with its last process and descriptor, so nothing is left behind whoever dies, and no
packet of it reaches the machine's own interfaces. What crosses a wire is read from one tun device and written into
another: it may be lost, late, or go one way only, which neither side's kernel is told. Needs root and ip(8).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

TUN: Final = "/dev/net/tun"
NEW_NETWORK: Final = 0x40000000
SET_INTERFACE: Final = 0x400454CA
TUN_WITHOUT_HEAD: Final = 0x1001
DEVICE: Final = "wire0"
SUBNET: Final = "10.98.0"
PREFIX: Final = 24
TARGET_AT: Final = slice(16, 20)
"""Where an IPv4 packet has the address that it goes to."""
PACKET_SIZE_MAX: Final = 9000
PACKETS_PER_TURN: Final = 64
BACKLOG_S: Final = 0.5
"""What would wait for longer before a slow wire is lost."""

_libc = ctypes.CDLL(None, use_errno=True)


def missing_tools() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "needs root: network namespaces"
    if not Path(TUN).exists():
        return f"needs {TUN}"
    return "" if shutil.which("ip") else "needs ip(8), of iproute2"


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _own_namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Machine:
    """A network namespace with a loopback device, and one that leads to all other machines and has *address*."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._failure: BaseException | None = None
        # Leaving a namespace that was made by unshare(2) is left to the end of a thread.
        maker = threading.Thread(target=self._make)
        maker.start()
        maker.join()
        if self._failure is not None:
            raise self._failure

    def _make(self) -> None:
        try:
            _checked(_libc.unshare(NEW_NETWORK), "unshare")
            self._namespace = _own_namespace()
            self.device = os.open(TUN, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            fcntl.ioctl(self.device, SET_INTERFACE, struct.pack("16sH22x", DEVICE.encode(), TUN_WITHOUT_HEAD))
            orders = (
                "link set lo up",
                f"address add {self.address}/{PREFIX} dev {DEVICE}",
                f"link set {DEVICE} mtu {PACKET_SIZE_MAX} up",
            )
            subprocess.run(["ip", "-batch", "-"], input="\n".join(orders), text=True, check=True, capture_output=True)
        except BaseException as error:
            self._failure = error

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let this thread, and the processes and threads that it starts meanwhile, be on this machine."""
        home = _own_namespace()
        try:
            _checked(_libc.setns(self._namespace, NEW_NETWORK), "setns")
            yield
        finally:
            _checked(_libc.setns(home, NEW_NETWORK), "setns")
            os.close(home)

    def close(self) -> None:
        os.close(self.device)
        os.close(self._namespace)


@dataclass(slots=True)
class Direction:
    """What happens to packets that go one way; to be set while they do."""

    source: int
    target: int
    loss: float = 0.0
    """The share of packets that is lost; 1: the wire is cut."""
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    """How much passes; 0: all that comes."""
    busy_until_s: float = 0.0
    passed: int = 0
    lost: int = 0
    under_way: list[tuple[float, int, bytes]] = field(default_factory=list)

    def take(self, packet: bytes, now: float, chance: random.Random) -> None:
        if (self.loss and chance.random() < self.loss) or self.busy_until_s > now + BACKLOG_S:
            self.lost += 1
            return
        self.passed += 1
        if self.bytes_per_s:
            self.busy_until_s = max(self.busy_until_s, now) + len(packet) / self.bytes_per_s
        heapq.heappush(self.under_way, (max(self.busy_until_s, now) + self.delay_s, self.passed, packet))

    def deliver(self, now: float) -> None:
        while self.under_way and self.under_way[0][0] <= now:
            _, _, packet = heapq.heappop(self.under_way)
            # A receiver whose queue is full loses it, as one on a wire does.
            with contextlib.suppress(BlockingIOError):
                os.write(self.target, packet)


class Switch:
    """Machines, as a context; ``ways`` has what happens to packets from one to another, by their numbers."""

    def __init__(self, chance: random.Random, count: int) -> None:
        self._chance = chance
        self.machines = tuple(Machine(f"{SUBNET}.{number}") for number in range(1, count + 1))
        self.ways = {
            (one, other): Direction(self.machines[one].device, self.machines[other].device)
            for one, other in itertools.permutations(range(count), 2)
        }
        self._numbers = {machine.device: number for number, machine in enumerate(self.machines)}
        self._targets = {socket.inet_aton(machine.address): number for number, machine in enumerate(self.machines)}
        self._end, self._told_end = os.pipe()
        self._failure: BaseException | None = None
        self._carrier = threading.Thread(target=self._carry, name="wire", daemon=True)
        self._carrier.start()

    def cut(self) -> None:
        """Let nothing through any more, and tell nobody."""
        for way in self.ways.values():
            way.loss = 1.0

    def heal(self) -> None:
        """Let everything through at once again."""
        for way in self.ways.values():
            way.loss = way.delay_s = way.bytes_per_s = 0.0

    def _carry(self) -> None:
        try:
            while self._end not in self._turn():
                pass
        except BaseException as error:
            self._failure = error

    def _turn(self) -> list[int]:
        due = min((way.under_way[0][0] for way in self.ways.values() if way.under_way), default=None)
        patience_s = None if due is None else max(0.0, due - time.monotonic())
        ready: list[int] = select.select([self._end, *self._numbers], [], [], patience_s)[0]
        for device in ready:
            if device in self._numbers:
                self._take(device)
        for way in self.ways.values():
            if way.under_way:
                way.deliver(time.monotonic())
        return ready

    def _take(self, device: int) -> None:
        now = time.monotonic()
        for _ in range(PACKETS_PER_TURN):
            try:
                packet = os.read(device, PACKET_SIZE_MAX)
            except BlockingIOError:
                return
            target = self._targets.get(packet[TARGET_AT])
            way = None if target is None else self.ways.get((self._numbers[device], target))
            if way is not None:  # else it goes to nobody: a machine talks to more than its peers, such as multicast
                way.take(packet, now, self._chance)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._told_end)
        self._carrier.join()
        os.close(self._end)
        for machine in self.machines:
            machine.close()
        if self._failure is not None:
            raise self._failure


class Network(Switch):
    """Two machines; *there* leads from the first one to the second, *back* the other way."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance, 2)
        self.there, self.back = self.ways[0, 1], self.ways[1, 0]
