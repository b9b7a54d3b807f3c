"""The asyncio client. ``mqcore.client`` has the same names for programs without an event loop.

async with aio.Client("127.0.0.1:9876") as mq:
    async with mq.producer("orders") as producer:
        receipt = await producer.send(aio.Message("Orders", b"{}", tag="new", keys=["42"]))
    async with mq.consumer("billing", {"Orders": "new || paid"}) as consumer:
        async for message in consumer:
            ...
"""

from mqcore.client.asynchronous import Client
from mqcore.client.consumer import Consumer
from mqcore.client.errors import Reject, Retry
from mqcore.client.messages import Message, ReceivedMessage, SendReceipt, SendStatus
from mqcore.client.producer import Producer
from mqcore.client.pull_api import PullResult, PullStatus
from mqcore.client.settings import ClientSettings, ConsumeFromWhere, ConsumerSettings, MessageModel, ProducerSettings
from mqcore.client.subscription import Sql
from mqcore.protocol.message import MessageQueue

__all__ = [
    "Client",
    "ClientSettings",
    "ConsumeFromWhere",
    "Consumer",
    "ConsumerSettings",
    "Message",
    "MessageModel",
    "MessageQueue",
    "Producer",
    "ProducerSettings",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "Reject",
    "Retry",
    "SendReceipt",
    "SendStatus",
    "Sql",
]
