"""Machines and the wires between them, in memory: connections that are slow, stall, break, or are lost unnoticed.

It stands in where asyncio has sockets (``create_connection``, ``create_server``), so the remoting code above it is the
product's own. Bytes come in order or not at all, as with TCP; how long they take is drawn from the seed, for each
connection apart, so that one more request on one of them changes nothing on the others.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from tests.sim.loop import HOST, Host, VirtualLoop

Address = tuple[str, int]
LATENCY_S = (0.0001, 0.004)
FIRST_PORT = 40_001
END = object()
RESET = object()


class Wire(asyncio.Transport):
    """One end of a connection. What is written here arrives at ``peer``, unless the connection was lost."""

    def __init__(
        self, network: Network, host: Host, name: str, local: tuple[str, int], remote: tuple[str, int]
    ) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.host = host
        self.peer: Wire
        self.is_lost = False  # nothing arrives at the peer any more, and nobody is told
        self._network = network
        self._loop = network.loop
        self._random = random.Random(f"{network.seed} {name}")
        self._protocol: Any = None
        self._context: contextvars.Context | None = None
        self._on_their_way: deque[Any] = deque()
        self._last_arrival_s = 0.0
        self._waiting: deque[Any] = deque()  # arrived, but reading is paused or the wire is stalled
        self._is_reading = True
        self._is_closing = False
        self._has_ended = False

    def belong_to(self, protocol: Any, context: contextvars.Context) -> None:
        """Call *protocol* from now on, always in *context*: what it begins belongs to the host of this end."""
        self._protocol, self._context = protocol, context

    # What the protocol above calls.

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._send(bytes(data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._send(END)
            self._loop.call_soon(self._end, None, context=self._context)

    def abort(self) -> None:
        if not self._has_ended:
            self._is_closing = True
            self._send(RESET)
            self._loop.call_soon(self._end, None, context=self._context)

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """A peer that does not read is not simulated."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.let_through()

    # The way to the peer.

    def _send(self, item: Any) -> None:
        if not self.host.is_alive and item is not RESET:
            return
        now_s = self._loop.time()
        low, high = self._network.latency_s(self.host, self.peer.host)
        self._last_arrival_s = max(self._last_arrival_s, now_s + low + (high - low) * self._random.random())
        self._network.on_send(self.host, self.peer.host)
        self._on_their_way.append(item)
        self._loop.call_at(self._last_arrival_s, self.peer._arrive, context=self.peer._context)

    def _arrive(self) -> None:
        item = self.peer._on_their_way.popleft()  # each in its turn, however late its timer was
        if self.peer.is_lost or self._has_ended:
            return
        self._waiting.append(item)
        self._let_through()

    def let_through(self) -> None:
        """Hand on, soon, what has arrived."""
        self._loop.call_soon(self._let_through, context=self._context)

    def _let_through(self) -> None:
        while self._waiting and self._is_reading and not self._has_ended:
            if self._network.is_stalled(self.host, self.peer.host) or not self.host.is_alive:
                return
            item = self._waiting.popleft()
            if item is END:
                if not self._is_closing:
                    self.close()
            elif item is RESET:
                self._end(ConnectionResetError("reset by the peer"))
            elif not self._is_closing:
                self._receive(item)

    def _receive(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        at = 0
        while at < len(data) and not self._is_closing:
            room = protocol.get_buffer(-1)
            size = min(len(room), len(data) - at)
            room[:size] = data[at : at + size]
            protocol.buffer_updated(size)
            at += size

    def _end(self, error: Exception | None) -> None:
        if self._has_ended:
            return
        self._has_ended = self._is_closing = True
        self._network.wires[self.host].pop(self, None)
        self._protocol.connection_lost(error)

    def reset(self) -> None:
        """Let this end find, a moment from now, that the connection has broken. What is on its way to it is lost."""
        self.peer.is_lost = True
        delay_s = self._random.uniform(*LATENCY_S)
        self._loop.call_later(delay_s, self._end, ConnectionResetError("the connection broke"), context=self._context)


class Socket:
    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name


class Listener:
    """What ``create_server`` gives."""

    def __init__(self, network: Network, host: Host, factory: Callable[[], Any], name: tuple[str, int]) -> None:
        self.host = host
        self.factory = factory
        self.context = contextvars.copy_context()
        self.sockets = [Socket(name)]
        self.is_serving = False
        self._network = network
        self._name = name

    async def start_serving(self) -> None:
        """From now on who connects is let in; before, he is refused."""
        self.is_serving = True

    def close(self) -> None:
        if self._network.listeners.get(self._name) is self:
            del self._network.listeners[self._name]

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""


class Network:
    """All hosts of one run, and what is wrong between them."""

    def __init__(self, loop: VirtualLoop, seed: int | str) -> None:
        self.loop = loop
        self.seed = seed
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.wires: defaultdict[Host, dict[Wire, None]] = defaultdict(dict)
        self.on_send: Callable[[Host, Host], None] = lambda one, other: None
        self._hosts: dict[str, Host] = {}
        self._slow: dict[frozenset[Host], tuple[float, float]] = {}
        self._stalled: dict[frozenset[Host], asyncio.Event] = {}
        self._connects: defaultdict[tuple[str, str], int] = defaultdict(int)
        loop.network = self

    def host(self, name: str, address: str) -> Host:
        """Make a host, or start one anew that had died."""
        host = Host(name, address)
        self._hosts[address] = host
        return host

    # What is wrong.

    def latency_s(self, one: Host, other: Host) -> tuple[float, float]:
        return self._slow.get(frozenset((one, other)), LATENCY_S)

    def slow_down(self, one: Host, other: Host, latency_s: tuple[float, float]) -> None:
        """Let everything between two hosts take so long."""
        self._slow[frozenset((one, other))] = latency_s

    def is_stalled(self, one: Host, other: Host) -> bool:
        return frozenset((one, other)) in self._stalled

    def stall(self, one: Host, other: Host) -> None:
        """Let nothing through between two hosts, without a word; it is kept, as senders send it again."""
        self._stalled.setdefault(frozenset((one, other)), asyncio.Event())

    def heal(self, one: Host, other: Host) -> None:
        """End what slows or stalls two hosts; what was kept comes now."""
        self._slow.pop(frozenset((one, other)), None)
        event = self._stalled.pop(frozenset((one, other)), None)
        if event is not None:
            event.set()
            for wire in self._between(one, other):
                wire.let_through()
                wire.peer.let_through()

    def heal_all(self) -> None:
        for pair in [*self._slow, *self._stalled]:
            one, *rest = pair
            self.heal(one, rest[0] if rest else one)

    def _between(self, one: Host, other: Host) -> Iterator[Wire]:
        return iter([wire for wire in self.wires[one] if wire.peer.host is other])

    def cut(self, one: Host, other: Host) -> None:
        """Break the connections between two hosts; both notice soon. What is on its way is lost."""
        for wire in self._between(one, other):
            wire.reset()
            wire.peer.reset()

    def lose(self, one: Host, other: Host) -> None:
        """Let the connections between two hosts be dead without anybody noticing, as when a firewall forgets them."""
        for wire in self._between(one, other):
            wire.is_lost = wire.peer.is_lost = True

    def kill(self, host: Host, *, silently: bool = False) -> None:
        """End the process of *host* between two instructions. *silently* the machine goes too: nobody is told."""
        host.is_alive, host.is_gone = False, silently
        for listener in [listener for listener in self.listeners.values() if listener.host is host]:
            listener.close()
        for wire in list(self.wires[host]):
            if silently:
                wire.is_lost = True
            else:
                wire._send(RESET)
            wire._is_closing = True
            self.loop.call_soon(wire._end, None, context=wire._context)
        for task in list(host.tasks):
            task.cancel()

    # What asyncio asks.

    def listen(self, factory: Callable[[], Any], address: str, port: int) -> Listener:
        host = HOST.get()
        assert host is not None, "somebody listens who is on no host"
        if (address, port) in self.listeners:
            raise OSError(98, f"address in use: {address}:{port}")
        listener = self.listeners[address, port] = Listener(self, host, factory, (address, port))
        return listener

    async def connect(self, factory: Callable[[], Any], address: str, port: int) -> tuple[Wire, Any]:
        here = HOST.get()
        there = self._hosts.get(address)
        assert here is not None, "somebody connects who is on no host"
        if there is None:
            raise OSError(113, f"no route to {address}")
        number = self._connects[here.name, there.name] = self._connects[here.name, there.name] + 1
        name = f"{here.name}-{there.name}-{number}"
        await asyncio.sleep(random.Random(f"{self.seed} {name}").uniform(*self.latency_s(here, there)))
        while (event := self._stalled.get(frozenset((here, there)))) is not None:
            await event.wait()
        if not here.is_alive:
            raise OSError(5, "this process has died")
        if there.is_gone:
            await asyncio.Event().wait()  # nobody there to refuse it
        listener = self.listeners.get((address, port))
        if listener is None or not listener.is_serving:
            raise ConnectionRefusedError(111, f"nobody listens on {address}:{port}")
        local, remote = (here.address, FIRST_PORT + number), (address, port)
        mine = Wire(self, here, f"{name} to", local, remote)
        theirs = Wire(self, listener.host, f"{name} back", remote, local)
        mine.peer, theirs.peer = theirs, mine
        self.wires[here][mine] = self.wires[listener.host][theirs] = None
        theirs.belong_to(listener.context.copy().run(listener.factory), listener.context)
        mine.belong_to(factory(), contextvars.copy_context())
        listener.context.copy().run(theirs._protocol.connection_made, theirs)
        mine._protocol.connection_made(mine)
        return mine, mine._protocol
