"""The client for programs without an event loop; ``mqcore.aio`` has the same names for those with one.

with Client("127.0.0.1:9876") as mq:
    with mq.producer("orders") as producer:
        receipt = producer.send(Message("Orders", b"{}", tag="new", keys=["42"]))
    with mq.consumer("billing", {"Orders": "new || paid"}) as consumer:
        for message in consumer:
            ...
"""

from mqcore.client.errors import Reject, Retry
from mqcore.client.messages import Message, ReceivedMessage, SendReceipt, SendStatus
from mqcore.client.plain import Client, Producer
from mqcore.client.plain_consumer import Consumer
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
