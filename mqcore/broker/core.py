"""The broker process's decisions in one object: requests in, responses out, and what has to happen by itself.

``BrokerCore`` owns the managers and the request processors, and stands on the ports it is given. It opens no socket but
through the *caller* that reaches the name servers, and starts no process.
Source: RocketMQ broker/BrokerController.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqcore import clock
from mqcore.broker.audit import Audit
from mqcore.broker.client_housekeeping import SCAN_INTERVAL_S, ClientHousekeeping
from mqcore.broker.config_file import ConfigFile
from mqcore.broker.consumer_filters import ConsumerFilters
from mqcore.broker.consumers import ConsumerManager
from mqcore.broker.context import BrokerContext
from mqcore.broker.failover.metadata import Metadata
from mqcore.broker.groups import SubscriptionGroupManager
from mqcore.broker.live_settings import LiveSettings, Publisher, keep_to_oneself
from mqcore.broker.offsets import ConsumerOffsetManager
from mqcore.broker.periodic import PeriodicTasks
from mqcore.broker.ports import (
    NO_TIMERS,
    Caller,
    Channel,
    Clock,
    Counters,
    GroupControl,
    GroupLog,
    Guard,
    MessageSink,
    OffsetTable,
    PoolView,
    PullBinding,
    PullDispatcher,
    PullHeader,
    QueueDropper,
    Replica,
    ReplicationView,
    StoreView,
    TimerPort,
    TopicBoard,
    wall_clock_ms,
)
from mqcore.broker.processors.admin_acl import AdminAclProcessor
from mqcore.broker.processors.admin_config import AdminConfigProcessor
from mqcore.broker.processors.admin_consumer import AdminConsumerProcessor
from mqcore.broker.processors.admin_group import AdminGroupProcessor
from mqcore.broker.processors.admin_ha import AdminHaProcessor, runtime_rows
from mqcore.broker.processors.admin_offset import AdminOffsetProcessor
from mqcore.broker.processors.admin_stats import AdminStatsProcessor
from mqcore.broker.processors.admin_store import AdminStoreProcessor
from mqcore.broker.processors.admin_topic import AdminTopicProcessor
from mqcore.broker.processors.client_manage import ClientManageProcessor
from mqcore.broker.processors.consumer_manage import ConsumerManageProcessor
from mqcore.broker.processors.pull import PullProcessor
from mqcore.broker.processors.query import QueryProcessor
from mqcore.broker.processors.reply import ReplyProcessor
from mqcore.broker.processors.send import SendProcessor
from mqcore.broker.processors.send_back import SendBackProcessor
from mqcore.broker.processors.table import TABLE, row_for
from mqcore.broker.processors.timers import TimerProcessor
from mqcore.broker.processors.transaction import TransactionProcessor
from mqcore.broker.producers import ProducerManager
from mqcore.broker.queue_locks import QueueLocks
from mqcore.broker.registration import Registration
from mqcore.broker.remarks import NOT_MASTER_OF_GROUP
from mqcore.broker.runtime_info import SAMPLE_INTERVAL_S, RuntimeInfo
from mqcore.broker.security.guard import WATCH_INTERVAL_S
from mqcore.broker.security.validator import AclError, refusal
from mqcore.broker.services.delay_levels import ScheduleMessageService
from mqcore.broker.services.slave_synchronize import (
    FIRST_SYNC_S,
    LEARN_INTERVAL_S,
    SYNC_INTERVAL_S,
    SlaveSynchronize,
)
from mqcore.broker.services.table_copies import COPIED_TABLES, TableCopies
from mqcore.broker.services.timers import TimerMessages
from mqcore.broker.services.transactions import TransactionService
from mqcore.broker.slow_consumers import LOOK_INTERVAL_S, SlowConsumers
from mqcore.broker.statistics import (
    DAY_INTERVAL_S,
    HOUR_INTERVAL_S,
    MINUTE_INTERVAL_S,
    BrokerStatsManager,
    next_midnight_ms,
)
from mqcore.broker.subscription_conflicts import SubscriptionConflicts
from mqcore.broker.topics import TopicConfigManager
from mqcore.codes import ResponseCode
from mqcore.config import Settings
from mqcore.errors import MQError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.unsupported import not_supported_by_broker
from mqcore.store.paths import StorePaths

logger = logging.getLogger(__name__)

Handler = Callable[[Channel, RemotingCommand], Awaitable[RemotingCommand | None]]

FIRST_PERSIST_S: Final = 10.0
FILTER_PERSIST_S: Final = 10.0
BEHIND_LOG_INTERVAL_S: Final = 60.0
BUSY_CHECK_INTERVAL_S: Final = 0.01
"""How long the answer to "is the store busy" is believed; RocketMQ's fast failure looks as often."""

BUSY_TRY_INTERVAL_S: Final = 1.0
"""How often one send is let through all the same."""

BUSY = "[REJECTREQUEST]system busy, start flow control for a while, cause: disk, the commit log is written to slowly"


@dataclass(frozen=True, slots=True)
class Ports:
    """What the world gives the broker's deciding part."""

    store: StoreView
    sink: MessageSink
    offset_table: OffsetTable
    board: TopicBoard
    counters: Counters
    pools: PoolView
    pulls: PullDispatcher
    caller: Caller
    publish: Publisher = keep_to_oneself
    """Hands changed settings to the workers."""
    replica: Replica | None = None
    """Of a slave only."""
    replication: ReplicationView | None = None
    timers: TimerPort = NO_TIMERS
    guard: Guard | None = None
    """With aclEnable only."""
    group: GroupControl | None = None
    """Of a broker in a failover group only."""
    group_log: GroupLog | None = None
    """Of a broker in a failover group only."""
    drops: QueueDropper | None = None
    """With *group_log*."""


class BrokerCore:
    """One broker. Make it, ``load`` it, ``start`` it, hand it requests, ``shutdown`` it; all from one event loop."""

    def __init__(
        self,
        settings: Settings,
        ports: Ports,
        *,
        config_path: Path | None = None,
        address: HostAddress | None = None,
        ha_address: str | None = None,
        clock: Clock = wall_clock_ms,
    ) -> None:
        """*config_path* is the properties file that remote updates are written to.

        *address* and *ha_address* are to be given when the ports were chosen by the system, not by the settings.
        """
        live = LiveSettings(settings, clock, config_path, ports.publish)
        address = address or HostAddress(settings.broker.broker_ip1, settings.server.listen_port)
        files = StorePaths.of(settings.store).config
        topics = TopicConfigManager(live, ConfigFile(files / "topics.json"), ports.board, clock)
        consumers = ConsumerManager(
            clock,
            ports.board.bump_group,
            lambda: live.broker.notify_consumer_ids_changed_enable,
            SubscriptionConflicts(clock, lambda: live.current.mqcore.subscription_conflict_ms),
        )
        filters = ConsumerFilters(live, ConfigFile(files / "consumerFilter.json"), ports.board.bump_group, clock)
        consumers.on_left = filters.group_left
        producers = ProducerManager(clock)
        statistics = BrokerStatsManager(
            settings.broker.broker_cluster_name,
            settings.broker.enable_detail_stat,
            ports.counters,
            clock,
            lumps_light=settings.store.enable_lmq,
        )
        schedule = ScheduleMessageService(
            settings.store.delay_levels_ms,
            ConfigFile(files / "delayOffset.json"),
            ports.sink,
            ports.store,
            statistics,
            address,
            clock,
        )
        offsets = ConsumerOffsetManager(
            ports.offset_table,
            ConfigFile(files / "consumerOffset.json"),
            ConfigFile(files / "lmqConsumerOffset.json") if settings.store.enable_lmq else None,
        )
        groups = SubscriptionGroupManager(
            live, ConfigFile(files / "subscriptionGroup.json"), ports.board.bump_group, clock
        )
        copies = TableCopies(live, topics, groups, offsets, schedule, ports.caller)
        metadata: Metadata | None = None
        if ports.group_log is not None:
            assert ports.drops is not None
            metadata = Metadata(
                topics, groups, offsets, schedule, copies, ports.sink, ports.store, ports.drops, ports.group_log,
                StorePaths.of(settings.store).metadata, address, clock,
            )  # fmt: skip
        slave: SlaveSynchronize | None = None
        if ports.replica is not None:
            slave = SlaveSynchronize(live, copies, ports.replica)
        timers = TimerMessages(live, topics, ports.sink, ports.timers, clock)
        self.broker = BrokerContext(
            settings=live,
            clock=clock,
            address=address,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            filters=filters,
            producers=producers,
            housekeeping=ClientHousekeeping(consumers, producers),
            queue_locks=QueueLocks(clock),
            statistics=statistics,
            runtime_info=RuntimeInfo(
                live, ports.counters, ports.store, ports.pools, schedule, consumers.conflicts, timers, clock
            ),
            schedule=schedule,
            transactions=TransactionService(
                live, topics, offsets, producers, ports.sink, ports.store, statistics, address, clock
            ),
            timers=timers,
            registration=Registration(
                live, topics, ports.caller, str(address), ha_address or settings.ha_address, ports.group
            ),
            sink=ports.sink,
            store=ports.store,
            pulls=ports.pulls,
            replication=ports.replication,
            rules=ports.guard,
            slave=slave,
            group=ports.group,
            metadata=metadata,
        )
        if slave is not None and ports.group is None:
            self.broker.registration.on_master = slave.learn
        if ports.replication is not None:
            self.broker.runtime_info.show(lambda: runtime_rows(self.broker))
        self._slow_consumers = SlowConsumers(live, groups, ports.offset_table, clock)
        self.broker.runtime_info.show(self._slow_consumers.figures)
        self._guard = ports.guard
        if ports.guard is not None:
            self.broker.runtime_info.show(ports.guard.figures)
        self._group_log = ports.group_log
        self._audit = Audit(self.broker)
        self._pull = PullProcessor(self.broker)
        self._handlers = self._make_handlers()
        self._periodic = PeriodicTasks()
        self._is_loaded = False
        self._has_left = False
        self._is_store_busy = False
        self._ask_store_at = 0.0
        self._try_store_at = 0.0
        topics.on_created = self.broker.registration.register_soon
        live.on_change(self._use)

    def _make_handlers(self) -> dict[int, Handler]:
        processors = {
            "send": SendProcessor(self.broker),
            "send_back": SendBackProcessor(self.broker),
            "reply": ReplyProcessor(self.broker),
            "pull": self._pull,
            "query": QueryProcessor(self.broker),
            "client_manage": ClientManageProcessor(self.broker),
            "consumer_manage": ConsumerManageProcessor(self.broker),
            "admin_topic": AdminTopicProcessor(self.broker),
            "admin_group": AdminGroupProcessor(self.broker),
            "admin_consumer": AdminConsumerProcessor(self.broker),
            "admin_offset": AdminOffsetProcessor(self.broker),
            "admin_stats": AdminStatsProcessor(self.broker),
            "admin_config": AdminConfigProcessor(self.broker),
            "admin_store": AdminStoreProcessor(self.broker),
            "admin_ha": AdminHaProcessor(self.broker),
            "transaction": TransactionProcessor(self.broker),
            "timers": TimerProcessor(self.broker),
            "admin_acl": AdminAclProcessor(self.broker),
        }
        handlers: dict[int, Handler] = {}
        for row in TABLE.values():
            module, _, method = row.handler.partition(".")
            handlers[row.code] = self._audit.around(row.code, getattr(processors[module], method))
        if self.broker.metadata is not None:
            for code in COPIED_TABLES:
                handlers[code] = self.broker.metadata.marking(handlers[code])
        return handlers

    # Life cycle.

    def load(self) -> None:
        """Read the configuration tables, and fill the topic board and the offset table.

        To be called before any worker serves. Raises CorruptFileError if a table and its backup are broken.
        """
        self.broker.groups.load()
        self.broker.offsets.load()
        self.broker.filters.load()
        self.broker.schedule.load()
        self.broker.topics.load()
        if self.broker.metadata is not None:
            self.broker.metadata.load()
        self._is_loaded = True

    async def start(self) -> None:
        """Register with the name servers and start everything that runs by itself. The store must have recovered."""
        if not self._is_loaded:
            self.load()
        if self.broker.metadata is not None:
            self.broker.metadata.start()
        if self.broker.slave is None:
            self.broker.schedule.correct_offsets()
            self._deliver()
        await self.broker.registration.register_all(check_order=True, oneway=False, force=True)
        self._periodic.run(self.broker.registration.run(), "registration")
        self._start_periodic()
        if self.broker.slave is not None:
            self._periodic.every(SYNC_INTERVAL_S, self.broker.slave.copy_tables, "copy tables", first_s=FIRST_SYNC_S)
            if self.broker.group is None:
                self._periodic.run(self.broker.slave.keep_copying(), "copy the master's log")
                self._periodic.every(LEARN_INTERVAL_S, self._ask_for_master, "ask for the master")

    def _deliver(self) -> None:
        """Begin what a master does by itself with what is stored."""
        self.broker.schedule.start()
        self.broker.transactions.start()

    def follow(self, address: str, ha_address: str) -> None:
        """In a failover group: this broker copies its log from there, and its tables."""
        assert self.broker.slave is not None
        self.broker.slave.learn(address, ha_address)
        self._periodic.run(self.broker.slave.copy_tables(), "copy tables at once")

    async def prepare_to_lead(self) -> None:
        """Before it is master of its group: nothing is copied any more, and nothing is appended yet."""
        assert self.broker.slave is not None
        assert self.broker.metadata is not None
        self.broker.slave.forget()
        await self.broker.metadata.apply_all_to_end()

    def promote(self, epoch_start: int) -> None:
        """It is master of its group, whose log is of its epoch from *epoch_start* on: begin what only a master does."""
        assert self.broker.metadata is not None
        assert self._group_log is not None
        self.broker.metadata.lead(epoch_start)
        # Behind that, so that the others are told. What can be read here yet may end before.
        self.broker.schedule.lower_offsets(self._group_log.epoch_offset)
        self.broker.registration.register_soon()
        self._deliver()

    def demote(self) -> None:
        """Its mastership is over, and with it this life of the broker."""
        assert self.broker.metadata is not None
        self.broker.metadata.stop_leading()

    async def _ask_for_master(self) -> None:
        """A slave that was there before its master does not wait for the next registration to learn of it."""
        assert self.broker.slave is not None
        if not self.broker.slave.is_known:
            await self.broker.registration.register_all(check_order=False, oneway=False, force=True)

    def _start_periodic(self) -> None:
        broker, every = self.broker, self._periodic.every
        settings = broker.settings
        every(SAMPLE_INTERVAL_S, broker.runtime_info.sample, "sample totals", first_s=0)
        every(SAMPLE_INTERVAL_S, broker.timers.sample, "sample timers", first_s=0)
        every(MINUTE_INTERVAL_S, broker.statistics.sample_minutes, "sample minutes")
        every(HOUR_INTERVAL_S, broker.statistics.sample_hours, "sample hours")
        every(DAY_INTERVAL_S, broker.statistics.sample_days, "sample days")
        every(SCAN_INTERVAL_S, broker.housekeeping.scan, "scan clients")
        every(
            settings.broker.flush_consumer_offset_interval_ms / 1000,
            broker.offsets.persist,
            "persist consumer offsets",
            first_s=FIRST_PERSIST_S,
        )
        if self._guard is not None:
            every(WATCH_INTERVAL_S, self._guard.watch, "watch who may do what")
        every(FILTER_PERSIST_S, broker.filters.persist, "persist consumer filters", first_s=FIRST_PERSIST_S)
        every(settings.store.flush_delay_offset_interval_ms / 1000, broker.schedule.persist, "persist delay offsets")
        every(LOOK_INTERVAL_S, self._slow_consumers.look, "look for slow consumers")
        every(BEHIND_LOG_INTERVAL_S, self._log_behind, "log dispatch", first_s=FIRST_PERSIST_S)
        self._periodic.run(self._roll_days(), "roll day totals")
        self._accept_sends_later()

    def _use(self, before: Settings, after: Settings) -> None:
        # What may be sent to, and how long a pull may be held, is known elsewhere, and is asked for anew.
        self.broker.topics.follow_settings(before.broker, after.broker)
        self.broker.transactions.look_again()
        if (
            before.broker.start_accept_send_request_time_stamp_ms
            != after.broker.start_accept_send_request_time_stamp_ms
        ):
            self._accept_sends_later()

    def _accept_sends_later(self) -> None:
        accept_ms = self.broker.settings.broker.start_accept_send_request_time_stamp_ms - self.broker.clock()
        if accept_ms > 0:
            self._periodic.run(self._accept_sends_after(accept_ms / 1000), "accept sends")

    async def leave(self) -> None:
        """Tell the name servers that this broker goes away; may be called while it still serves."""
        if not self._has_left:
            self._has_left = True
            await self.broker.registration.close()
            await self.broker.registration.unregister_all()

    async def shutdown(self, *, leaves: bool = True) -> None:
        """Stop what runs by itself, leave the name servers if it *leaves*, and write what is not on disk.

        To be called once no request comes in any more, since consumer offsets are written last. A table that cannot be
        written is logged and keeps nothing else from being brought to rest.
        """
        await self._periodic.stop()
        await self.broker.transactions.stop()
        await _written(self.broker.schedule.stop(), "delay offsets")
        if self.broker.metadata is not None:
            await _written(self.broker.metadata.stop(), "metadata")
        if leaves:
            await self.leave()
        else:
            await self.broker.registration.close()
        await self.broker.topics.close()
        await self.broker.groups.close()
        await _written(self.broker.offsets.persist(), "consumer offsets")
        await _written(self.broker.filters.persist(), "consumer filters")

    async def _roll_days(self) -> None:
        while True:
            now = self.broker.clock()
            await asyncio.sleep((next_midnight_ms(now) - now) / 1000)
            self.broker.runtime_info.roll_day()

    async def _accept_sends_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.broker.topics.publish_all()

    def _log_behind(self) -> None:
        behind = self.broker.store.facts().dispatch_behind_bytes
        if behind:
            logger.info("dispatch behind the commit log bytes=%d", behind)

    # Requests.

    async def handle(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer one request; None when nothing is to be sent: a oneway request, or a pull that was passed on.

        Never raises but when cancelled. Two refusals do not look at the oneway bit, as upstream.
        """
        row = row_for(request.code, channel.is_vip)
        if row is not None and row.pool == "send" and self._is_rejecting():
            return request.reply(ResponseCode.SYSTEM_BUSY, BUSY)
        if self._guard is not None:
            try:
                await self._guard.admit(channel, request)
            except AclError as error:
                refused = refusal(request, error)
                self._audit.refused(channel, request, refused.code)
                return None if request.is_oneway else refused
        if row is None:
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported_by_broker(request.code))
        group = self.broker.group
        if row.needs_master and group is not None and not group.takes_changes:
            refused = request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_MASTER_OF_GROUP)
            return None if request.is_oneway else refused
        try:
            reply = await self._handlers[row.code](channel, request)
        except Exception as error:  # the top of a request: whatever it is, the client gets an answer
            reply = _failure(request, error)
        return None if request.is_oneway else reply

    def _is_rejecting(self) -> bool:
        """Tell whether sends are turned away unread. The store's facts are dear, so they are asked for now and then."""
        now = clock.monotonic_s()
        if now >= self._ask_store_at:
            self._ask_store_at = now + BUSY_CHECK_INTERVAL_S
            was_busy, facts = self._is_store_busy, self.broker.store.facts()
            self._is_store_busy = facts.is_page_cache_busy or facts.is_transient_pool_deficient
            if not was_busy:
                self._try_store_at = now + BUSY_TRY_INTERVAL_S
        if self._is_store_busy and now >= self._try_store_at:
            # Who had the put lock may be dead, and then whoever appends next takes it over.
            self._try_store_at = now + BUSY_TRY_INTERVAL_S
            return False
        return self._is_store_busy

    async def resolve_pull(
        self, channel: Channel, header: PullHeader, request: RemotingCommand
    ) -> PullBinding | RemotingCommand:
        """Make the checks of a pull for the pull worker: the binding to keep, or the reply that refuses *request*.

        Of *request* only the opaque and the serialize type are used. Never raises but when cancelled.
        """
        try:
            return await self._pull.resolve(channel, request, header)
        except Exception as error:  # the top of a request, as in handle
            return _failure(request, error)

    async def on_offset_moved(self, group: str, topic: str, queue_id: int, requested: int, new: int) -> None:
        """The pull worker has answered PULL_OFFSET_MOVED: leave a message about it."""
        await self._pull.on_offset_moved(group, topic, queue_id, requested, new)

    def on_late_pull(self, group: str, topic: str, queue_id: int, took_ms: int) -> None:
        """The pull worker has read for so long, a millisecond or more, for one answer."""
        self.broker.statistics.count_latency(topic, group, queue_id, took_ms)

    def on_channel_closed(self, channel: Channel) -> None:
        """A connection was closed, broke, or was idle for too long."""
        self.broker.housekeeping.channel_closed(channel)
        if self._guard is not None:
            self._guard.forget(channel)


async def _written(work: Awaitable[None], what: str) -> None:
    try:
        await work
    except OSError as error:
        logger.error("%s could not be written before the stop error=%s", what, error)


def _failure(request: RemotingCommand, error: Exception) -> RemotingCommand:
    if isinstance(error, MQError):
        logger.warning("request failed code=%d error=%s", request.code, error)
        return request.reply(error.response_code, f"{type(error).__name__}: {error}")
    logger.exception("request failed code=%d", request.code)
    return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
