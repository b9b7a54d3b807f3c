"""The asyncio client. ``mqcore.client`` has the same names for programs without an event loop.

async with aio.Client("127.0.0.1:9876") as mq:
    async with mq.producer("orders") as producer:
        receipt = await producer.send(aio.Message("Orders", b"{}", tag="new", keys=["42"]))
    async with mq.consumer("billing", {"Orders": "new || paid"}) as consumer:
        async for message in consumer:
            ...
"""

from typing import TYPE_CHECKING

from mqcore.client.asynchronous import Client
from mqcore.client.consume.polled.pull_api import PullResult, PullStatus
from mqcore.client.consume.push.batches import MessageBatch
from mqcore.client.consume.push.consumer import Consumer
from mqcore.client.errors import Reject, Retry, Rollback
from mqcore.client.model.backoff import Backoff
from mqcore.client.model.codecs import JSON, Codec
from mqcore.client.model.counters import ClientCounts, ConsumerCounts, ProducerCounts
from mqcore.client.model.latency import Latency
from mqcore.client.model.messages import Message, ReceivedMessage
from mqcore.client.model.outcome import Done
from mqcore.client.model.rebalance import ConsistentHash, FixedQueues, MachineRooms, NearbyRooms
from mqcore.client.model.receipt import SendReceipt, SendStatus
from mqcore.client.model.selectors import select_by_hash, select_by_machine_room, select_by_random
from mqcore.client.model.subscription import Sql
from mqcore.client.model.transaction import TransactionReceipt, TransactionState
from mqcore.client.produce.batching import SendFuture
from mqcore.client.produce.fault_strategy import BrokerFault
from mqcore.client.produce.producer import Producer
from mqcore.client.produce.request_reply import create_reply, is_request
from mqcore.client.produce.transactions import TransactionProducer
from mqcore.client.settings.classes import (
    ClientSettings,
    ConsumeFromWhere,
    ConsumerSettings,
    MessageModel,
    ProducerSettings,
)
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.client.telemetry.consumer_hooks import ConsumeContext, ConsumerHook, FilterContext, SendBackContext
from mqcore.client.telemetry.producer_hooks import EndTransactionContext, ProducerHook, SendContext
from mqcore.lazy_names import lazy_names
from mqcore.protocol.message import MessageQueue

if TYPE_CHECKING:
    from mqcore.client.admin import Admin
    from mqcore.client.consume.polled.consumer import PullConsumer

__all__ = [
    "JSON",
    "Admin",
    "Backoff",
    "BrokerFault",
    "Client",
    "ClientCounts",
    "ClientSettings",
    "Codec",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFromWhere",
    "Consumer",
    "ConsumerCounts",
    "ConsumerHook",
    "ConsumerSettings",
    "Done",
    "EndTransactionContext",
    "FilterContext",
    "FixedQueues",
    "Latency",
    "MachineRooms",
    "Message",
    "MessageBatch",
    "MessageModel",
    "MessageQueue",
    "NearbyRooms",
    "Producer",
    "ProducerCounts",
    "ProducerHook",
    "ProducerSettings",
    "PullConsumer",
    "PullConsumerSettings",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "Reject",
    "Retry",
    "Rollback",
    "SendBackContext",
    "SendContext",
    "SendFuture",
    "SendReceipt",
    "SendStatus",
    "Sql",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "create_reply",
    "is_request",
    "select_by_hash",
    "select_by_machine_room",
    "select_by_random",
]

# Few programs administer, and its bodies take as long to import as half of the rest; not everybody polls.
__getattr__ = lazy_names(
    globals(), {"Admin": "mqcore.client.admin", "PullConsumer": "mqcore.client.consume.polled.consumer"}
)
