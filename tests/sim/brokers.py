"""Brokers and name servers of a simulated cluster.

The deciding parts are the product's: ``BrokerCore`` with all its managers, processors, delay levels and registration,
and the whole ``NameServer``. In memory are the store and what the workers do: appending, and reading and holding pulls,
which keeps to ``_fast/pull_loop.pyx``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mqcore import clock
from mqcore.broker.core import BrokerCore, Ports
from mqcore.broker.ports import Channel, InnerMessage, PullBinding, PullHeader, PutResult, QueueUnit
from mqcore.codes import PullSysFlag, RequestCode, ResponseCode
from mqcore.config import Program, Settings, load
from mqcore.namesrv.server import NameServer
from mqcore.protocol.bodies import TopicConfig
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_response
from mqcore.protocol.message_id import HostAddress
from mqcore.transport.client import RemotingClient
from mqcore.transport.connection import Connection
from mqcore.transport.server import RemotingServer
from tests.sim.loop import Host
from tests.sim.network import Network
from tests.unit.broker_ports import MemoryBoard, MemoryCounters, MemoryOffsets, MemoryPools, MemoryStore

BROKER_PORT = 10911
NAMESRV_PORT = 9876
CHANNEL = "simulated channel"


class SimStore(MemoryStore):
    """A commit log that survives its broker. ``on_append`` hears of each queue that grew."""

    def __init__(self, levels_ms: Sequence[int]) -> None:
        super().__init__(clock.now_ms, levels_ms=levels_ms)
        self.on_append: Callable[[str, int], None] = lambda topic, queue_id: None

    def _append(self, message: InnerMessage) -> PutResult:
        result = super()._append(message)
        self.puts.clear()
        self.on_append(message.topic, message.queue_id)
        return result

    def read_units(self, topic: str, queue_id: int, first: int, count_max: int) -> Sequence[QueueUnit]:
        at = first - self.first_offsets.get((topic, queue_id), 0)
        return self.queues.get((topic, queue_id), [])[at : at + count_max] if at >= 0 else []


class SimOffsets(MemoryOffsets):
    """An offset table that tells of each commit: group, topic, queue id, offset."""

    def __init__(self) -> None:
        super().__init__()
        self.on_put: Callable[[str, str, int, int], None] = lambda group, topic, queue_id, offset: None

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        super().put(group, topic, queue_id, offset)
        self.on_put(group, topic, queue_id, offset)


class SimChannel:
    """A client's connection, as the broker's deciding part knows it."""

    _ids = itertools.count(1)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.channel_id = next(self._ids)
        ip, _, port = connection.remote_address.rpartition(":")
        self.remote_ip, self.remote_port = ip, int(port)
        self.is_vip = False
        self.certified_name = ""

    @property
    def is_open(self) -> bool:
        return not self._connection.is_closed

    def send(self, command: RemotingCommand) -> bool:
        self._connection.send(command)
        return self.is_open

    def close(self) -> None:
        self._connection.close()

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        return await self._connection.invoke(replace(command), timeout_s)


@dataclass(eq=False)
class HeldPull:
    """A pull, maybe held. ``timer`` answers it when its time is over."""

    channel: Channel
    command: RemotingCommand
    header: PullHeader
    binding: PullBinding
    timer: asyncio.TimerHandle | None = None


class SimPulls:
    """The pull worker's part: commits what pulls bring, reads, holds what finds nothing until something arrives."""

    def __init__(self, store: SimStore, offsets: SimOffsets) -> None:
        self._store = store
        self._offsets = offsets
        self._held: defaultdict[tuple[str, int], list[HeldPull]] = defaultdict(list)
        store.on_append = self._on_append

    @property
    def held_count(self) -> int:
        return sum(len(held) for held in self._held.values())

    def dispatch(self, channel: Channel, command: RemotingCommand, header: PullHeader, binding: PullBinding) -> None:
        if header.sys_flag & PullSysFlag.COMMIT_OFFSET:
            self._offsets.put(header.group, header.topic, header.queue_id, header.commit_offset)
        self._serve(HeldPull(channel, command, header, binding), may_hold=True)

    def _on_append(self, topic: str, queue_id: int) -> None:
        for held in self._held.pop((topic, queue_id), []):
            assert held.timer is not None
            held.timer.cancel()
            asyncio.get_running_loop().call_soon(self._serve, held, False)

    def _on_time_over(self, held: HeldPull) -> None:
        self._held[held.header.topic, held.header.queue_id].remove(held)
        self._serve(held, may_hold=False)

    def _serve(self, held: HeldPull, may_hold: bool) -> None:
        header = held.header
        code, next_offset, records = self._read(held)
        if code == ResponseCode.PULL_NOT_FOUND and may_hold and header.sys_flag & PullSysFlag.SUSPEND:
            limit_ms = held.binding.suspend_limit_ms
            hold_ms = header.suspend_timeout_ms if limit_ms is None else limit_ms
            held.timer = asyncio.get_running_loop().call_later(hold_ms / 1000, self._on_time_over, held)
            self._held[header.topic, header.queue_id].append(held)
            return
        fields = encode_response(
            RequestCode.PULL_MESSAGE,
            suggest_which_broker_id=held.binding.broker_id,
            next_begin_offset=next_offset,
            min_offset=max(0, self._store.min_offset(header.topic, header.queue_id)),
            max_offset=self._store.max_offset(header.topic, header.queue_id),
        )
        held.channel.send(held.command.reply(code, ext_fields=fields, body=records))

    def _read(self, held: HeldPull) -> tuple[ResponseCode, int, bytes]:
        header, binding, store = held.header, held.binding, self._store
        wanted, end = header.queue_offset, store.max_offset(header.topic, header.queue_id)
        first = max(0, store.min_offset(header.topic, header.queue_id))
        if end == 0:
            return (ResponseCode.PULL_OFFSET_MOVED if wanted else ResponseCode.PULL_NOT_FOUND), 0, b""
        if not first <= wanted <= end:
            return ResponseCode.PULL_OFFSET_MOVED, min(max(first, wanted), end), b""
        if wanted == end:
            return ResponseCode.PULL_NOT_FOUND, wanted, b""
        units = store.read_units(header.topic, header.queue_id, wanted, min(header.max_msg_nums, 32))
        found = [unit for unit in units if binding.match_all or unit.tags_code in binding.tag_codes]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        return code, wanted + len(units), b"".join(store.records[unit.physical_offset] for unit in found)


@cache
def broker_settings(name: str, address: str, name_servers: str, root: Path, **properties: str) -> Settings:
    given = {
        "storePathRootDir": str(root / name),
        "bindAddress": address,
        "brokerIP1": address,
        "listenPort": str(BROKER_PORT),
        "brokerName": name,
        "namesrvAddr": name_servers,
    }
    return load(overrides=given | properties, environment={})


class SimBroker:
    """A master. ``start`` it on a host; after a ``kill`` of the host it can be started again on another one."""

    def __init__(
        self, network: Network, name: str, address: str, name_servers: str, root: Path, topics: dict[str, int],
        **properties: str,
    ) -> None:  # fmt: skip
        self.name = name
        self.address = address
        self.on_commit: Callable[[str, str, int, int], None] = lambda group, topic, queue_id, offset: None
        self.on_request: Callable[[Connection, RemotingCommand], None] = lambda connection, command: None
        self._network = network
        self._topics = topics
        self._settings_at = lambda address: broker_settings(name, address, name_servers, root, **properties)
        self._settings = self._settings_at(address)
        self.store = SimStore(self._settings.store.delay_levels_ms)
        self.host = network.host(name, address)
        self.core: BrokerCore
        self.pulls: SimPulls
        self._server: RemotingServer
        self.refuse_pulls_until_s = 0.0
        self.is_up = False
        """Whether it has started, and has not begun to stop."""

    def move(self, address: str) -> None:
        """Let the next start be at another address: another broker of the name has all that this one had."""
        self.address = address
        self._settings = self._settings_at(address)

    async def start(self) -> None:
        """Start on a new host, with the store and the written tables of before."""
        self.host = self._network.host(self.name, self.address)
        await self.host.spawn(self._start())

    async def _start(self) -> None:
        offsets = SimOffsets()
        self.pulls = SimPulls(self.store, offsets)
        caller = RemotingClient()
        ports = Ports(
            self.store, self.store, offsets, MemoryBoard(), MemoryCounters(), MemoryPools(), self.pulls, caller
        )
        self.core = BrokerCore(
            self._settings,
            ports,
            address=HostAddress(self.address, BROKER_PORT),
            ha_address=f"{self.address}:{BROKER_PORT + 1}",
            clock=clock.now_ms,
        )
        self.core.load()
        offsets.on_put = self.on_commit
        for topic, queues in self._topics.items():
            if self.core.broker.topics.find(topic) is None:
                await self.core.broker.topics.update(TopicConfig(topic, queues, queues))
        self._server = RemotingServer(self.address, BROKER_PORT, self._handle, on_close=self._on_close)
        await self._server.start()
        await self.core.start()
        self.is_up = True

    async def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        channel = connection.attributes.get(CHANNEL)
        if channel is None:
            channel = connection.attributes[CHANNEL] = SimChannel(connection)
        self.on_request(connection, command)
        if command.code == RequestCode.PULL_MESSAGE and clock.monotonic_s() < self.refuse_pulls_until_s:
            return command.reply(ResponseCode.FLOW_CONTROL, "busy")
        return await self.core.handle(channel, command)

    def _on_close(self, connection: Connection) -> None:
        channel = connection.attributes.get(CHANNEL)
        if channel is not None and self.host.is_alive:
            self.core.on_channel_closed(channel)

    def kill(self, *, silently: bool = False) -> None:
        self.is_up = False
        self.store.on_append = lambda topic, queue_id: None
        self._network.kill(self.host, silently=silently)

    async def stop(self) -> None:
        """Stop as the product does: no more requests, what runs by itself, the name servers, the tables."""
        self.is_up = False
        await self.host.spawn(self._server.stop())
        await self.host.spawn(self.core.shutdown())
        self.store.on_append = lambda topic, queue_id: None
        self._network.kill(self.host)


@cache
def name_server_settings(address: str, root: Path) -> Settings:
    overrides = {
        "bindAddress": address,
        "listenPort": str(NAMESRV_PORT),
        "kvConfigPath": str(root / "kvConfig.json"),
        "configStorePath": str(root / "namesrv.properties"),
    }
    return load(Program.NAMESRV, overrides=overrides, environment={})


class SimNameServer:
    """A name server. Its routes do not survive it: brokers register again."""

    def __init__(self, network: Network, name: str, address: str, root: Path) -> None:
        self.name = name
        self.address = address
        self._network = network
        self._settings = name_server_settings(address, root)
        self.host: Host
        self.server: NameServer

    @property
    def endpoint(self) -> str:
        return f"{self.address}:{NAMESRV_PORT}"

    async def start(self) -> None:
        self.host = self._network.host(self.name, self.address)
        await self.host.spawn(self._start())

    async def _start(self) -> None:
        self.server = NameServer(self._settings)
        # What comes here is plain, and there are no sockets whose first byte could be looked at.
        self.server._server._door = None
        await self.server.start()

    def kill(self) -> None:
        self._network.kill(self.host)
