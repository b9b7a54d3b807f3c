"""What the broker's deciding part needs from the world, as Protocols.

Nothing in ``mqcore.broker`` outside the boot code knows shared memory, sockets or worker processes: it is handed
objects of these shapes. Every method is called from the broker process's event loop and may not block it; what has to
wait is ``async``. Times are milliseconds since the epoch, sizes are bytes.

Each port has its module; the values that cross it live with the nouns they belong to, and can be had here as well.
"""

from mqcore.broker.counts import BrokerTotals, GetCount, PutCount
from mqcore.broker.pools import PoolFacts
from mqcore.broker.ports.caller import Caller
from mqcore.broker.ports.channel import Channel
from mqcore.broker.ports.counters import Counters
from mqcore.broker.ports.group import GroupLog
from mqcore.broker.ports.group_control import GroupControl
from mqcore.broker.ports.guard import Guard
from mqcore.broker.ports.offset_table import OffsetTable
from mqcore.broker.ports.pool_view import PoolView
from mqcore.broker.ports.pull_dispatcher import PullDispatcher
from mqcore.broker.ports.queue_dropper import QueueDropper
from mqcore.broker.ports.replica import Replica, ReplicationView
from mqcore.broker.ports.sink import MessageSink
from mqcore.broker.ports.store_view import StoreView
from mqcore.broker.ports.time import Clock, wall_clock_ms
from mqcore.broker.ports.timers import NO_TIMERS, TimerFacts, TimerPort
from mqcore.broker.ports.topic_board import TopicBoard
from mqcore.broker.pulls import PullBinding, PullHeader
from mqcore.broker.replication import ReplicationFacts, SlaveFacts
from mqcore.store.disk import DiskSpace
from mqcore.store.facts import StoreFacts
from mqcore.store.puts import STORED_STATUSES, InnerMessage, PutResult, PutStatus
from mqcore.store.queries import QueryResult
from mqcore.store.queues.units import QueueUnit

__all__ = [
    "NO_TIMERS",
    "BrokerTotals",
    "Caller",
    "Channel",
    "Clock",
    "Counters",
    "DiskSpace",
    "GetCount",
    "GroupLog",
    "GroupControl",
    "Guard",
    "InnerMessage",
    "MessageSink",
    "OffsetTable",
    "PoolFacts",
    "PoolView",
    "PullBinding",
    "PullDispatcher",
    "PullHeader",
    "PutCount",
    "PutResult",
    "PutStatus",
    "QueryResult",
    "QueueDropper",
    "QueueUnit",
    "Replica",
    "ReplicationFacts",
    "ReplicationView",
    "STORED_STATUSES",
    "SlaveFacts",
    "StoreFacts",
    "StoreView",
    "TimerFacts",
    "TimerPort",
    "TopicBoard",
    "wall_clock_ms",
]
