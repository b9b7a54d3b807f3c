"""mqcore: a broker, a name server and a client library for Apache RocketMQ's protocol and store format.

import mqcore

with mqcore.Client("127.0.0.1:9876") as mq, mq.producer("orders") as producer:
    try:
        producer.send(mqcore.Message("Orders", b"{}"))
    except mqcore.errors.BrokerBusyError:
        ...

The everyday names of the client are here; all of them are in ``mqcore.client``, and for asyncio in ``mqcore.aio``. They
are imported when they are used: importing mqcore alone takes next to nothing.
"""

import logging
from typing import TYPE_CHECKING

from mqcore.lazy_names import lazy_names
from mqcore.version import __version__

if TYPE_CHECKING:
    from mqcore import aio, client, errors
    from mqcore.client import (
        Backoff,
        Client,
        Message,
        MessageQueue,
        ReceivedMessage,
        Reject,
        Retry,
        Rollback,
        SendReceipt,
        Sql,
    )
    from mqcore.errors import BrokerError, MisuseError, MQError, RemotingError

__all__ = [
    "Backoff",
    "BrokerError",
    "Client",
    "MQError",
    "Message",
    "MessageQueue",
    "MisuseError",
    "ReceivedMessage",
    "Reject",
    "RemotingError",
    "Retry",
    "Rollback",
    "SendReceipt",
    "Sql",
    "__version__",
    "aio",
    "client",
    "errors",
]

# A library says nothing unless the program sets up logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())

_MODULES = {"aio", "client", "errors"}
_ERRORS = {"BrokerError", "MQError", "MisuseError", "RemotingError"}
__getattr__ = lazy_names(
    globals(),
    dict.fromkeys(__all__, "mqcore.client") | dict.fromkeys(_ERRORS, "mqcore.errors") | dict.fromkeys(_MODULES, ""),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
