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
from mqcore.client.backoff import Backoff
from mqcore.client.batches import MessageBatch
from mqcore.client.batching import SendFuture
from mqcore.client.codecs import JSON, Codec
from mqcore.client.consume_hooks import ConsumeContext, ConsumerHook, FilterContext
from mqcore.client.consumer import Consumer
from mqcore.client.consuming import Done
from mqcore.client.counters import ClientCounts, ConsumerCounts, ProducerCounts
from mqcore.client.errors import Reject, Retry, Rollback
from mqcore.client.fault_strategy import BrokerFault
from mqcore.client.hooks import EndTransactionContext, ProducerHook, SendContext
from mqcore.client.messages import Message, ReceivedMessage, SendReceipt, SendStatus
from mqcore.client.producer import Producer
from mqcore.client.pull_api import PullResult, PullStatus
from mqcore.client.pull_consumer import PullConsumer
from mqcore.client.pull_consumer_settings import PullConsumerSettings
from mqcore.client.rebalance import ConsistentHash, FixedQueues, MachineRooms, NearbyRooms
from mqcore.client.request_reply import create_reply, is_request
from mqcore.client.selectors import select_by_hash, select_by_machine_room, select_by_random
from mqcore.client.settings import ClientSettings, ConsumeFromWhere, ConsumerSettings, MessageModel, ProducerSettings
from mqcore.client.subscription import Sql
from mqcore.client.transactions import TransactionProducer, TransactionReceipt, TransactionState
from mqcore.lazy_names import lazy_names
from mqcore.protocol.message import MessageQueue

if TYPE_CHECKING:
    from mqcore.client.admin import Admin

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

# Few programs administer, and its bodies take as long to import as half of the rest.
__getattr__ = lazy_names(globals(), {"Admin": "mqcore.client.admin"})
