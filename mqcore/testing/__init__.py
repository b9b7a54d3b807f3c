"""A real broker for tests: with its name server, on free ports of this machine, with a store that goes away.

    with running_broker(topics={"Orders": 4}) as broker, Client(broker.name_server) as mq:
        ...
        assert_received(broker, "Orders", ["paid"])

``async with running_broker()`` gives the same broker with methods to await. Nothing is imitated: it is the broker that
``python -m mqcore.broker`` runs, in a process of its own, which ends when the test process does, however that ends.
``message(b"...")`` makes a received message for a test of a handler that needs no broker.
``broker.advance(minutes=30)`` lets delayed messages and retries come due without waiting. With pytest the fixtures
``mqcore_broker``, ``mqcore_topic``, ``mqcore_group`` and ``mqcore_client`` are there as soon as mqcore is installed.
"""

from mqcore.testing.assertions import (
    assert_consumed,
    assert_dead_letters,
    assert_nothing_received,
    assert_received,
    received,
)
from mqcore.testing.broker import BrokerStartError, BrokerToRun, RunningBroker, running_broker
from mqcore.testing.broker_async import AsyncRunningBroker
from mqcore.testing.clock import ClientClock, client_clock
from mqcore.testing.messages import MadeMessage, Settled, message

__all__ = [
    "AsyncRunningBroker",
    "BrokerToRun",
    "BrokerStartError",
    "ClientClock",
    "MadeMessage",
    "RunningBroker",
    "Settled",
    "assert_consumed",
    "assert_dead_letters",
    "assert_nothing_received",
    "assert_received",
    "client_clock",
    "message",
    "received",
    "running_broker",
]
