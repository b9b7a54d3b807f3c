"""The asyncio client. ``mqcore.client`` has the same names for programs without an event loop.

async with aio.Client("127.0.0.1:9876") as mq:
    async with mq.producer("orders") as producer:
        receipt = await producer.send(aio.Message("Orders", b"{}", tag="new", keys=["42"]))
    async with mq.consumer("billing", {"Orders": "new || paid"}) as consumer:
        async for message in consumer:
            ...
"""

from typing import TYPE_CHECKING, Final

from mqcore.lazy_names import by_name, lazy_names

if TYPE_CHECKING:
    from mqcore.client.admin import Admin
    from mqcore.client.asynchronous import Client
    from mqcore.client.consume.polled.consumer import PullConsumer
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
    from mqcore.protocol.message import MessageQueue

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

# Imported when they are used: who only sends does without what consumers are made of, and few administer. The imports
# above are for type checkers; tests/unit/test_client_imports.py holds the two to each other.
_PLACES: Final = {
    "mqcore.client.admin": "Admin",
    "mqcore.client.asynchronous": "Client",
    "mqcore.client.consume.polled.consumer": "PullConsumer",
    "mqcore.client.consume.polled.pull_api": "PullResult PullStatus",
    "mqcore.client.consume.push.batches": "MessageBatch",
    "mqcore.client.consume.push.consumer": "Consumer",
    "mqcore.client.errors": "Reject Retry Rollback",
    "mqcore.client.model.backoff": "Backoff",
    "mqcore.client.model.codecs": "JSON Codec",
    "mqcore.client.model.counters": "ClientCounts ConsumerCounts ProducerCounts",
    "mqcore.client.model.latency": "Latency",
    "mqcore.client.model.messages": "Message ReceivedMessage",
    "mqcore.client.model.outcome": "Done",
    "mqcore.client.model.rebalance": "ConsistentHash FixedQueues MachineRooms NearbyRooms",
    "mqcore.client.model.receipt": "SendReceipt SendStatus",
    "mqcore.client.model.selectors": "select_by_hash select_by_machine_room select_by_random",
    "mqcore.client.model.subscription": "Sql",
    "mqcore.client.model.transaction": "TransactionReceipt TransactionState",
    "mqcore.client.produce.batching": "SendFuture",
    "mqcore.client.produce.fault_strategy": "BrokerFault",
    "mqcore.client.produce.producer": "Producer",
    "mqcore.client.produce.request_reply": "create_reply is_request",
    "mqcore.client.produce.transactions": "TransactionProducer",
    "mqcore.client.settings.classes": "ClientSettings ConsumeFromWhere ConsumerSettings MessageModel ProducerSettings",
    "mqcore.client.settings.pull_consumer": "PullConsumerSettings",
    "mqcore.client.telemetry.consumer_hooks": "ConsumeContext ConsumerHook FilterContext SendBackContext",
    "mqcore.client.telemetry.producer_hooks": "EndTransactionContext ProducerHook SendContext",
    "mqcore.protocol.message": "MessageQueue",
}
__getattr__ = lazy_names(globals(), by_name(_PLACES))
