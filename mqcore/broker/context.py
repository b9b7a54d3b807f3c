"""What the request processors share: the managers of one broker and the ports they stand on."""

from __future__ import annotations

from dataclasses import dataclass

from mqcore.broker.client_housekeeping import ClientHousekeeping
from mqcore.broker.consumer_filters import ConsumerFilters
from mqcore.broker.consumers import ConsumerManager
from mqcore.broker.failover.metadata import Metadata
from mqcore.broker.groups import SubscriptionGroupManager
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.offsets import ConsumerOffsetManager
from mqcore.broker.ports import Clock, GroupControl, Guard, MessageSink, PullDispatcher, ReplicationView, StoreView
from mqcore.broker.producers import ProducerManager
from mqcore.broker.queue_locks import QueueLocks
from mqcore.broker.registration import Registration
from mqcore.broker.runtime_info import RuntimeInfo
from mqcore.broker.services.delay_levels import ScheduleMessageService
from mqcore.broker.services.slave_synchronize import SlaveSynchronize
from mqcore.broker.services.timers import TimerMessages
from mqcore.broker.services.transactions import TransactionService
from mqcore.broker.statistics import BrokerStatsManager
from mqcore.broker.topics import TopicConfigManager
from mqcore.codes import PermName
from mqcore.config import BrokerRole
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.message_id import HostAddress


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """The parts of one broker. Processors keep no state of their own beside it."""

    settings: LiveSettings
    clock: Clock
    address: HostAddress
    """What clients connect to, and what stored messages carry as their store host."""
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    filters: ConsumerFilters
    producers: ProducerManager
    housekeeping: ClientHousekeeping
    queue_locks: QueueLocks
    statistics: BrokerStatsManager
    runtime_info: RuntimeInfo
    schedule: ScheduleMessageService
    timers: TimerMessages
    transactions: TransactionService
    registration: Registration
    sink: MessageSink
    store: StoreView
    pulls: PullDispatcher
    replication: ReplicationView | None = None
    rules: Guard | None = None
    """With aclEnable only."""
    slave: SlaveSynchronize | None = None
    """Of a slave only."""
    group: GroupControl | None = None
    """Of a broker in a failover group only."""
    metadata: Metadata | None = None
    """Of a broker in a failover group only."""

    @property
    def is_slave(self) -> bool:
        """Whether it is a slave just now: in a failover group that may change while it runs."""
        if self.group is not None:
            return not self.group.is_master
        return self.settings.store.broker_role == BrokerRole.SLAVE

    @property
    def is_readable(self) -> bool:
        return PermName.is_readable(self.settings.broker.broker_permission)

    @property
    def is_writeable(self) -> bool:
        return PermName.is_writeable(self.settings.broker.broker_permission)

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        """Return a queue of this broker."""
        return MessageQueue(topic, self.settings.broker.broker_name, queue_id)
