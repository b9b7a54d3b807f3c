"""One broker process: boards and recovery, workers and links, and the deciding part between them.

``BrokerServer`` is what ``python -m mqcore.broker`` runs and what tests embed. Source: RocketMQ
broker/BrokerController.java.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqcore import clock, layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.tls.library import load as load_library
from mqcore.address import HA_PORT_DISTANCE, host_and_port
from mqcore.broker import fast_failure
from mqcore.broker.channels import WorkerChannel, is_response, sender_of
from mqcore.broker.console_process import ConsoleProcess, wanted_console
from mqcore.broker.consumer_filters import ConsumerFilter
from mqcore.broker.core import BrokerCore, Ports
from mqcore.broker.embedded_name_server import EmbeddedNameServer
from mqcore.broker.links import WorkerLink
from mqcore.broker.listeners import Listeners, open_listeners
from mqcore.broker.metrics.broker_facts import Observed
from mqcore.broker.metrics.wanted import start_endpoint
from mqcore.broker.ports import Channel, GroupControl, PullBinding, PullHeader, wall_clock_ms
from mqcore.broker.security.acl_files import AclFiles
from mqcore.broker.security.guard import AclGuard
from mqcore.broker.security.permissions import ACCESS_CODES, ADMIN_CODES
from mqcore.broker.segment.group_log import SharedGroupLog
from mqcore.broker.segment.pressure import PressureFigures
from mqcore.broker.segment.process_rows import ProcessRows
from mqcore.broker.segment.queue_drops import QueueDrops
from mqcore.broker.segment.replica import SharedReplica, SharedReplication
from mqcore.broker.segment.send_quotas import SendQuotas
from mqcore.broker.segment.shared_figures import SharedFigures
from mqcore.broker.segment.shared_ports import (
    SharedCounters,
    SharedOffsetTable,
    SharedPools,
    SharedSink,
    SharedTopicBoard,
)
from mqcore.broker.segment.shared_timers import SharedTimers
from mqcore.broker.segment.store_view import SharedStoreView
from mqcore.broker.store_boot import StoreBoot
from mqcore.broker.supervisor import BROKER_ROW, Supervisor, Worker
from mqcore.codes import RequestCode, ResponseCode, SerializeType
from mqcore.config import BrokerRole, Program, Settings, TlsMode
from mqcore.errors import ProtocolError
from mqcore.process_log import use_levels
from mqcore.protocol import headers
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import TIMER_TOPIC
from mqcore.store.lock_file import LockFile
from mqcore.transport.client import RemotingClient
from mqcore.transport.exposure import warn_if_exposed
from mqcore.transport.tls import ServerMaterial, client_context, is_served
from mqcore.transport.tls_watch import CertificateWatch

if TYPE_CHECKING:
    from mqcore.broker.metrics.endpoint import MetricsEndpoint
    from mqcore.broker.nursery import Nursery

logger = logging.getLogger(__name__)

KIND = layout.constants("WorkerKind")
LINK_KIND = layout.constants("LinkKind")
STORE_FLAG = layout.constants("StoreFlag")
REQUESTS_MAX = 20_000
HOUSEKEEPING_S = 1.0
TAG_CODE = struct.Struct("=i")
OVERLOAD = (
    "[OVERLOAD]system busy, start flow control for a while, cause: queue, too many requests are under way in the "
    "broker process"
)


class BrokerServer:
    """Make it, ``start`` it, ``stop`` it, from one event loop; after stop nothing of it is left but the store."""

    def __init__(
        self,
        settings: Settings,
        config_path: Path | None = None,
        group: GroupControl | None = None,
        lock: LockFile | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        """*group* and the store's *lock* are given by who has this broker live in a failover group; workers come out of
        the *nursery*, where there is one.
        """
        self.settings = settings
        self._group = group
        self._group_log: SharedGroupLog | None = None
        self._config_path = config_path
        self._nursery = nursery
        self._segment = SharedSegment.create()
        self._segment.describe_worker(BROKER_ROW, KIND["BROKER"], 0)
        self._channels: dict[int, WorkerChannel] = {}
        self._links: dict[str, WorkerLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._filters_sent: dict[int, tuple[str, list[ConsumerFilter]]] = {}  # by request, until they are taken
        self._request_count = 0
        self._wakes_later = False
        self._store_boot = StoreBoot(settings, self._segment, lock)
        self._name_server: EmbeddedNameServer | None = None
        self._supervisor: Supervisor | None = None
        self._core: BrokerCore | None = None
        self._sink: SharedSink | None = None
        self._store_view: SharedStoreView | None = None
        self._client: RemotingClient | None = None
        self._listeners: Listeners | None = None
        self._replication: SharedReplication | None = None
        self._housekeeping: asyncio.Task[None] | None = None
        self._certificate_watch: asyncio.Task[None] | None = None
        self._guard: AclGuard | None = None
        self._quotas = SendQuotas(settings, self._segment)
        self._metrics: MetricsEndpoint | None = None
        self._console: ConsoleProcess | None = None
        self._figures: SharedFigures | None = None
        self._is_serving = False

    @property
    def segment(self) -> SharedSegment:
        return self._segment

    @property
    def supervisor(self) -> Supervisor:
        assert self._supervisor is not None
        return self._supervisor

    @property
    def core(self) -> BrokerCore:
        assert self._core is not None
        return self._core

    @property
    def address(self) -> str:
        """Where it answers requests."""
        return str(self.core.broker.address)

    @property
    def name_server_addresses(self) -> list[str]:
        return self.core.broker.registration.name_servers

    @property
    def is_registered(self) -> bool:
        """Whether a name server has taken what this broker has."""
        return self.core.broker.registration.is_known

    def observe(self) -> Observed | None:
        """Return what metrics and health are told from; None before there is anything to be told of."""
        if self._core is None or self._figures is None:
            return None
        return Observed(self._core.broker, self._figures, self._is_serving)

    async def follow_settings(self, fresh: Settings) -> None:
        """Let what may change be as in *fresh*, read from the files anew. Raises as ``LiveSettings.follow_files``."""
        await self.core.broker.settings.follow_files(fresh)

    # Starting ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the store, recover it, start the workers, register. On failure everything is undone, and it raises."""
        try:
            await self._start()
        except BaseException:
            await self._abandon()
            raise

    async def _start(self) -> None:
        if self._group is None:
            # Before the store is recovered, which may take long: probes are told so meanwhile.
            self._metrics = await start_endpoint(self.settings, self.observe)
            self._console = wanted_console(self.settings)
        if self.settings.broker.acl_enable:
            files = AclFiles(Path(self.settings.broker.rocketmq_home), self.settings.mqcore.acl_plain_file)
            admin_codes = ADMIN_CODES | (ACCESS_CODES if self.settings.mqcore.acl_changes_need_admin else set())
            self._guard = AclGuard(
                files,
                wall_clock_ms,
                admin_codes,
                trusts_certificates=self.settings.mqcore.acl_account_by_certificate,
            )
            await asyncio.to_thread(self._guard.load)
            self._segment.set("acl_version", self._guard.version)
            self._guard.on_change, self._guard.on_admitted = self._rules_changed, self._grant
        # Before anything is touched: what is named and cannot be used stops the start.
        material = ServerMaterial.read(self.settings.tls) if is_served(self.settings.tls) else ServerMaterial()
        if not material.is_self_signed or self.settings.tls.server_mode is TlsMode.ENFORCING:
            load_library()
        calls = client_context(self.settings.tls)
        recovered = await asyncio.to_thread(self._store_boot.open)
        self._listeners = open_listeners(self.settings)
        port = self._listeners.port
        warn_if_exposed(self.settings, Program.BROKER, f"{self.settings.mqcore.bind_address}:{port}")
        address = HostAddress(self.settings.broker.broker_ip1, port)
        self._segment.set_store_host(address.packed, port)
        self._segment.set("keeps_metadata", int(self.settings.failover.is_group))
        if not self.settings.namesrv_addresses and not self.settings.namesrv_page:
            self._name_server = EmbeddedNameServer(self.settings)
            self.settings = await self._name_server.bind()
        self._client = RemotingClient(tls=calls)
        self._sink = SharedSink(self.settings, self._segment, address)
        asyncio.get_running_loop().add_reader(self._sink.wake, self._sink.on_wake)
        self._supervisor = Supervisor(
            self.settings, self._segment, self._listeners, self._on_worker_started, self._sink.wake, self._nursery
        )
        self._supervisor.show(material)
        self._timers = SharedTimers(self.settings, self._segment, self._start_timers)
        self._sink.on_append = self._on_own_append
        drops = QueueDrops(self.settings, self._segment, recovered.incarnations, self._wake_reput)
        self._core = BrokerCore(
            self.settings, self._make_ports(drops), config_path=self._config_path, address=address,
            ha_address=f"{self.settings.broker.broker_ip2}:{port + 1}",
        )  # fmt: skip
        self._figures = SharedFigures(self._segment, self._supervisor.workers, self.settings)
        self._core.broker.settings.on_change(self._use)
        self._core.broker.runtime_info.show(PressureFigures(self._segment))
        self._core.broker.runtime_info.show_details(ProcessRows(self._figures))
        if self._name_server is not None:
            self._name_server.follow(self._core.broker.settings)
        self._core.broker.filters.on_change = self._filters_changed
        self._core.load()
        self._store_boot.begin()
        await self._supervisor.start()
        # A slave delivers nothing by itself: what its master delivers is in the log that it copies.
        if self._group is None:
            await self._start_old_timers()
        if self._name_server is not None:
            # Who finds it finds this broker, which registers next.
            await self._name_server.serve()
        await self._core.start()
        if self.settings.store.broker_role is BrokerRole.ASYNC_MASTER and self._group is None:
            asyncio.get_running_loop().add_reader(self._listeners.slaves, self._on_first_slave)
        self._housekeeping = asyncio.create_task(self._keep_house())
        if not material.is_self_signed:
            watch = CertificateWatch(self.settings.tls, material, self._show_anew)
            self._certificate_watch = asyncio.create_task(watch.run())
        if self._console is not None:
            self._console.start(self.name_server_addresses)
        self._is_serving = True

    async def _start_old_timers(self) -> None:
        if self._timers.are_there(has_topic=self.core.broker.topics.find(TIMER_TOPIC) is not None):
            await self._timers.start()

    async def _show_anew(self, material: ServerMaterial) -> None:
        """Let the send workers show other certificates. The embedded name server looks by itself."""
        self.supervisor.show(material)
        await self.core.broker.settings.publish_again()

    def _on_first_slave(self) -> None:
        """A slave is at the door: who lets it in is not there before the first one comes."""
        assert self._listeners is not None
        asyncio.get_running_loop().remove_reader(self._listeners.slaves)
        self.supervisor.want("ha")

    def _make_replication(self) -> SharedReplication:
        (worker,) = self.supervisor.of_kind("ha")
        self._replication = SharedReplication(self._segment, wall_clock_ms, worker.row)
        return self._replication

    def _make_ports(self, drops: QueueDrops) -> Ports:
        assert self._sink is not None
        assert self._client is not None
        rows = {kind: [w.row for w in self.supervisor.of_kind(kind)] for kind in ("send", "pull")}
        self._store_view = SharedStoreView(self.settings, self._segment, wall_clock_ms, drops, self._sink.light_queues)
        return Ports(
            store=self._store_view,
            sink=self._sink,
            offset_table=SharedOffsetTable(self._segment),
            board=SharedTopicBoard(self._segment),
            counters=SharedCounters(self._segment),
            pools=SharedPools(self._segment, rows),
            pulls=self,
            caller=self._client,
            publish=self.supervisor.publish,
            replica=self._make_replica(),
            replication=self._make_replication(),
            timers=self._timers,
            guard=self._guard,
            drops=drops,
            group=self._group,
            group_log=self.group_log if self._group is not None else None,
        )

    def _make_replica(self) -> SharedReplica | None:
        if self.settings.store.broker_role is not BrokerRole.SLAVE and self._group is None:
            return None
        (worker,) = self.supervisor.of_kind("ha")
        assert self._store_view is not None
        file_size = self.settings.store.mapped_file_size_commit_log
        return SharedReplica(self._segment, self._store_view, file_size, lambda: self.supervisor.wake(worker))

    def _use(self, before: Settings, after: Settings) -> None:
        """Let what lives in this process beside the deciding part go by changed settings."""
        self.settings = after
        use_levels(after.mqcore.log_levels)
        self._quotas.use(after)
        for port in (self._sink, self._store_view):
            assert port is not None
            port.use(after)

    def _on_own_append(self) -> None:
        """Wake who waits for more of the log, once for all that is appended in this turn of the event loop."""
        if not self._wakes_later:
            self._wakes_later = True
            asyncio.get_running_loop().call_soon(self._wake_for_more)

    def _wake_for_more(self) -> None:
        self._wakes_later = False
        for kind in ("flush", "reput", "ha"):
            for worker in self.supervisor.of_kind(kind):
                if self._segment.worker_word(worker.row, "sleeping"):
                    self.supervisor.wake(worker)

    async def _start_timers(self) -> None:
        await self.supervisor.start_kind("timer")

    def _wake_reput(self) -> None:
        for worker in self.supervisor.of_kind("reput"):
            self.supervisor.wake(worker)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            self._segment.set_worker_word(BROKER_ROW, "heartbeat", wall_clock_ms())
            if self._sink is not None:
                self._sink.trim()
            if self._supervisor is not None:
                self._supervisor.check()
            if self._replication is not None:
                self._replication.sample()

    # Links ------------------------------------------------------------------------------------------------------

    def _on_worker_started(self, worker: Worker, end: socket.socket) -> None:
        self._spawn(self._open_link(worker, end))

    async def _open_link(self, worker: Worker, end: socket.socket) -> None:
        link = await WorkerLink.open(worker.name, end, self._on_message, self._on_link_lost)
        self._links[worker.name] = link
        if worker.kind == "send" and self._guard is not None:
            link.write(LINK_KIND["ACL_TABLE"], 0, self._guard.encoded())
        if worker.kind == "reput" and self._core is not None:
            for topic in self._core.broker.filters.by_topic:
                self._send_filters(link, topic)

    def _rules_changed(self) -> None:
        """From now on nobody goes by other rules: send workers serve nothing by themselves until they have these."""
        assert self._guard is not None
        self._segment.set("acl_version", self._guard.version)
        table = self._guard.encoded()
        for worker in self.supervisor.of_kind("send"):
            link = self._links.get(worker.name)
            if link is not None:
                link.write(LINK_KIND["ACL_TABLE"], 0, table)

    def _grant(self, channel_id: int, grant: bytes) -> None:
        link = self._links.get(f"send-{sender_of(channel_id)}")
        if link is not None:
            link.write(LINK_KIND["ACL_GRANT"], channel_id, grant)

    def _on_link_lost(self, link: WorkerLink) -> None:
        """A worker is gone, and with a send worker all its connections."""
        for channel in [channel for channel in self._channels.values() if channel.belongs_to(link)]:
            self._close_channel(channel)

    def _on_message(self, link: WorkerLink, kind: int, connection_id: int, payload: bytes) -> None:
        if kind == LINK_KIND["REQUEST"]:
            self._on_frame(connection_id, payload)
        elif kind == LINK_KIND["CONNECTED"]:
            self._channels[connection_id] = WorkerChannel.introduced(link, connection_id, payload)
        elif kind == LINK_KIND["CLOSED"]:
            channel = self._channels.get(connection_id)
            if channel is not None:
                self._close_channel(channel)
        elif kind == LINK_KIND["RESOLVE"]:
            self._spawn(self._resolve(link, connection_id, payload))
        elif kind == LINK_KIND["OFFSET_MOVED"]:
            self._spawn(self._offset_moved(payload))
        elif kind == LINK_KIND["LATE_PULL"]:
            self._late_pull(payload)
        elif kind == LINK_KIND["FILTERS_TAKEN"]:
            request_id, from_offset = layout.FILTERS_TAKEN.struct.unpack(payload)
            topic, asked = self._filters_sent.pop(request_id, ("", []))
            if from_offset >= 0:
                self.core.broker.filters.bits_known_from(topic, asked, from_offset)

    def _filters_changed(self, topic: str) -> None:
        for worker in self.supervisor.of_kind("reput"):
            link = self._links.get(worker.name)
            if link is not None:
                self._send_filters(link, topic)

    def _send_filters(self, link: WorkerLink, topic: str) -> None:
        """Have the reput worker make the bitmaps of *topic* by the filters that there are now."""
        settings = self.settings
        if not settings.broker.enable_calc_filter_bit_map or not settings.store.enable_consume_queue_ext:
            return
        groups = [entry for entry in self.core.broker.filters.by_topic.get(topic, {}).values() if entry.compiled]
        self._request_count += 1
        self._filters_sent[self._request_count] = (topic, groups)
        link.write(LINK_KIND["TOPIC_FILTERS"], 0, encode_filters(self._request_count, topic, groups))

    def _close_channel(self, channel: WorkerChannel) -> None:
        self._channels.pop(channel.channel_id, None)
        channel.on_closed()
        if self._core is not None:
            self._core.on_channel_closed(channel)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Requests ---------------------------------------------------------------------------------------------------

    def _on_frame(self, connection_id: int, payload: bytes) -> None:
        channel = self._channels.get(connection_id)
        if channel is None:
            return
        since_ms, is_charged, _ = layout.REQUEST_HEAD.struct.unpack_from(payload)
        try:
            command = RemotingCommand.decode(payload[layout.REQUEST_HEAD.size :])
        except ProtocolError as error:
            logger.warning(
                "bad header, connection closed peer=%s:%d error=%s", channel.remote_ip, channel.remote_port, error
            )
            channel.close()
            return
        if is_response(command):
            channel.on_response(command)
        elif not self._has_waited_too_long(channel, command, since_ms):
            self._begin(channel, command, is_charged=bool(is_charged))

    def _has_waited_too_long(self, channel: WorkerChannel, command: RemotingCommand, since_ms: int) -> bool:
        """Refuse *command* if it has."""
        waited_ms = int(clock.monotonic_s() * 1000) - since_ms
        remark = fast_failure.refusal(self.settings.broker, command.code, channel.is_vip, waited_ms, len(self._tasks))
        if remark is None:
            return False
        self._count("timed_out")
        if not command.is_oneway:
            channel.send(command.reply(ResponseCode.SYSTEM_BUSY, remark))
        return True

    def _begin(self, channel: WorkerChannel, command: RemotingCommand, *, is_charged: bool) -> None:
        if len(self._tasks) < REQUESTS_MAX:
            asks = not is_charged and self._quotas.count(command.code)
            self._spawn(self._handle_charged(channel, command) if asks else self._handle(channel, command))
        elif not command.is_oneway:
            channel.send(command.reply(ResponseCode.SYSTEM_BUSY, OVERLOAD))

    def _count(self, word: str) -> None:
        self._segment.set_worker_word(BROKER_ROW, word, self._segment.worker_word(BROKER_ROW, word) + 1)

    async def _handle_charged(self, channel: WorkerChannel, command: RemotingCommand) -> None:
        remark = await self._quotas.admit(channel, command)
        if remark is None:
            await self._handle(channel, command)
            return
        self._count("quota_refused")
        if not command.is_oneway:
            channel.send(command.reply(ResponseCode.SYSTEM_BUSY, remark))

    async def _handle(self, channel: WorkerChannel, command: RemotingCommand) -> None:
        reply = await self.core.handle(channel, command)
        if reply is not None:
            channel.send(reply)

    async def _resolve(self, link: WorkerLink, connection_id: int, payload: bytes) -> None:
        """Answer a pull worker's question whether a pull may be served."""
        (resolve_id,) = layout.RESOLVE.struct.unpack_from(payload)
        header, opaque, serialize_type, code = read_pull_request(payload[layout.RESOLVE.size :])
        epoch = self._epoch_of(header)
        channel = self._channels.get(connection_id)
        if channel is None:
            # A consumer heart-beats before it pulls, a tool may not: its connection is not known here yet.
            channel = self._unknown_channel(connection_id)
        request = RemotingCommand(code=code, opaque=opaque, serialize_type=serialize_type)
        answer = await self.core.resolve_pull(channel, header, request)
        if isinstance(answer, PullBinding):
            link.write(LINK_KIND["BINDING"], connection_id, encode_binding(resolve_id, epoch, answer))
            return
        channel.send(answer)
        link.write(LINK_KIND["BINDING"], connection_id, encode_refusal(resolve_id))

    def _epoch_of(self, header: PullHeader) -> int:
        if UNREADABLE in header.topic + header.group:
            # The pull worker looks at other bytes than those that were decoded to this, and would miss a change.
            return GOOD_FOR_ONCE
        return self._segment.pull_epoch(header.topic.encode(), header.group.encode())

    def _unknown_channel(self, connection_id: int) -> WorkerChannel:
        return WorkerChannel(self._links[f"send-{sender_of(connection_id)}"], connection_id, "0.0.0.0", 0, False)

    def _late_pull(self, payload: bytes) -> None:
        row, _, took_ms = layout.LATE_PULL.struct.unpack(payload)
        group, topic, queue_id = self._segment.offset_key(row)
        self.core.on_late_pull(group.decode(), topic.decode(), queue_id, took_ms)

    async def _offset_moved(self, payload: bytes) -> None:
        moved = layout.OFFSET_MOVED
        requested, corrected, queue_id, topic_size, group_size = moved.struct.unpack_from(payload)
        topic = payload[moved.size : moved.size + topic_size].decode()
        group = payload[moved.size + topic_size : moved.size + topic_size + group_size].decode()
        await self.core.on_offset_moved(group, topic, queue_id, requested, corrected)

    def dispatch(self, channel: Channel, command: RemotingCommand, header: PullHeader, binding: PullBinding) -> None:
        """ports.PullDispatcher: put the pull into words that the send worker reads, and give it back to it."""
        assert isinstance(channel, WorkerChannel)
        fields = headers.decode_request(RequestCode.PULL_MESSAGE, command.ext_fields)
        plain = RemotingCommand(
            code=command.code,
            opaque=command.opaque,
            flag=command.flag,
            version=command.version,
            serialize_type=command.serialize_type,
            ext_fields=headers.encode_request(RequestCode.PULL_MESSAGE, **fields),
        )
        channel.inject(plain)

    # A life in a failover group ---------------------------------------------------------------------------------

    @property
    def group_log(self) -> SharedGroupLog:
        if self._group_log is None:
            (ha,) = self.supervisor.of_kind("ha")
            self._group_log = SharedGroupLog(
                self.settings, self._segment, ha.row, lambda: self.supervisor.wake(ha), self._wake_for_clients
            )
        return self._group_log

    def _wake_for_clients(self) -> None:
        assert self._sink is not None
        self._sink.on_wake()
        for kind in ("send", "pull"):
            for worker in self.supervisor.of_kind(kind):
                self.supervisor.wake(worker)

    @property
    def log_start(self) -> int:
        return self._segment.get("min_offset")

    @property
    def lost_from(self) -> int | None:
        has_failed = self._segment.get("store_flags") & STORE_FLAG["SYNC_FAILED"]
        return self._segment.get("flushed_offset") if has_failed else None

    @property
    def caller(self) -> RemotingClient:
        assert self._client is not None
        return self._client

    @property
    def addresses(self) -> tuple[str, str]:
        assert self._listeners is not None
        broker = self.core.broker
        ha = host_and_port(self.settings.broker.broker_ip2, self._listeners.port + HA_PORT_DISTANCE)
        return str(broker.address), ha

    def follow(self, address: str, ha_address: str) -> None:
        self.core.follow(address, ha_address)

    async def prepare_to_lead(self) -> None:
        await self.core.prepare_to_lead()

    async def promote(self, epoch_start: int) -> None:
        self.core.promote(epoch_start)
        self._spawn(self._start_old_timers())

    def demote(self) -> None:
        self.core.demote()

    def refuse_sends(self, is_refused: bool) -> None:
        if is_refused:
            self._segment.set_flags(STORE_FLAG["NOT_ENOUGH_REPLICAS"])
        else:
            self._segment.clear_flags(STORE_FLAG["NOT_ENOUGH_REPLICAS"])

    def register_anew(self) -> None:
        self.core.broker.registration.register_soon()

    def refuse_new_sends(self, is_refused: bool) -> None:
        if is_refused:
            self._segment.set_flags(STORE_FLAG["SHUTTING_DOWN"])
        else:
            self._segment.clear_flags(STORE_FLAG["SHUTTING_DOWN"])

    # Stopping ---------------------------------------------------------------------------------------------------

    async def stop(self, *, leaves: bool = True) -> None:
        """Stop in RocketMQ's order: servers, what runs by itself, store; then the lock and the abort file.

        Unless it *leaves*, name servers are not told: the next life of this broker tells them what it is.
        """
        self._is_serving = False
        self._stop_looking()
        if self._console is not None:
            self._console.ask_to_stop()
        supervisor = self.supervisor
        await supervisor.drain("send")
        await self._drain_tasks()
        await self.core.shutdown(leaves=leaves)
        await supervisor.stop("send")
        await supervisor.stop("pull")
        # Nothing is delivered any more; how far that is on disk, the flush says.
        await supervisor.drain("timer")
        # Nothing is appended any more: what slaves have not got yet, they get now.
        await supervisor.stop("ha")
        self._segment.set_flags(STORE_FLAG["SHUTTING_DOWN"])
        is_caught_up = await self._store_boot.wait_for_dispatch()
        await supervisor.stop("reput")
        await supervisor.stop("flush")
        await supervisor.stop("timer")
        await asyncio.to_thread(self._store_boot.close, is_caught_up)
        await self._abandon()

    def _stop_looking(self) -> None:
        for task in (self._housekeeping, self._certificate_watch):
            if task is not None:
                task.cancel()

    async def _drain_tasks(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=3.0)
        for task in list(self._tasks):
            task.cancel()

    async def _abandon(self) -> None:
        """Give back what is still held; the abort file stays if the store was not closed."""
        self._stop_looking()
        if self._metrics is not None:
            await self._metrics.stop()
            self._metrics = None
        if self._console is not None:
            await self._console.stop()
            self._console = None
        self._figures = None
        for link in list(self._links.values()):
            link.close()
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None
        if self._sink is not None:
            asyncio.get_running_loop().remove_reader(self._sink.wake)
            self._sink.close()
            self._sink = None
        if self._client is not None:
            await self._client.close()
            self._client = None
        if self._name_server is not None:
            await self._name_server.stop()
            self._name_server = None
        if self._listeners is not None:
            asyncio.get_running_loop().remove_reader(self._listeners.slaves)
            self._listeners.close()
            self._listeners = None
        self._store_boot.release()
        with contextlib.suppress(OSError):
            os.close(self._segment.fd)


GOOD_FOR_ONCE = -1
UNREADABLE = "\ufffd"


def read_pull_request(payload: bytes) -> tuple[PullHeader, int, SerializeType, int]:
    """Read a PULL_REQUEST and its strings: the header, opaque, serialize type and code."""
    names = [member.name for member in layout.PULL_REQUEST.fields]
    values = dict(zip(names, layout.PULL_REQUEST.struct.unpack_from(payload), strict=True))
    at = layout.PULL_REQUEST.size
    texts: list[str | None] = []
    for name in ("topic_size", "group_size", "subscription_size", "expression_type_size"):
        size = values[name]
        texts.append(None if size < 0 else payload[at : at + size].decode("utf-8", "replace"))
        at += max(size, 0)
    topic, group, subscription, expression_type = texts
    header = PullHeader(
        group=group or "",
        topic=topic or "",
        queue_id=values["queue_id"],
        queue_offset=values["queue_offset"],
        max_msg_nums=values["max_msg_nums"],
        sys_flag=values["sys_flag"],
        commit_offset=values["commit_offset"],
        suspend_timeout_ms=values["suspend_timeout_ms"],
        subscription=subscription,
        sub_version=values["sub_version"],
        expression_type=expression_type,
        principal=values["principal"],
    )
    return header, values["opaque"], SerializeType(values["serialize_type"]), values["code"]


def encode_binding(resolve_id: int, epoch: int, binding: PullBinding) -> bytes:
    """The answer to RESOLVE that lets the pull worker go on."""
    suspend_limit = -1 if binding.suspend_limit_ms is None else binding.suspend_limit_ms
    head = layout.BINDING.struct.pack(
        resolve_id, epoch, suspend_limit, binding.broker_id, binding.slow_broker_id, int(binding.match_all),
        len(binding.tag_codes), 0, binding.suspend_max_ms, binding.bitmap_from, len(binding.program),
        binding.bitmap_bits, len(binding.bits), binding.queue_count,
    )  # fmt: skip
    return head + b"".join(map(TAG_CODE.pack, (*sorted(binding.tag_codes), *binding.bits))) + binding.program


def encode_filters(request_id: int, topic: str, filters: Sequence[ConsumerFilter]) -> bytes:
    """What the reput worker makes the bitmaps of *topic* by."""
    name = topic.encode()
    bit_count, bitmap_bits = (len(filters[0].bits), filters[0].bit_count) if filters else (0, 0)
    parts = [layout.TOPIC_FILTERS.struct.pack(request_id, len(name), len(filters), bitmap_bits, bit_count), name]
    for entry in filters:
        assert entry.compiled is not None
        parts += [struct.pack(f"={1 + bit_count}i", len(entry.compiled.program), *entry.bits), entry.compiled.program]
    return b"".join(parts)


def encode_refusal(resolve_id: int) -> bytes:
    """The answer to RESOLVE when the client has been answered."""
    return layout.BINDING.struct.pack(resolve_id, 0, 0, 0, 0, 0, 0, 1, 0, -1, 0, 0, 0, 0)
