"""Rigs for tests against others: Apache's Java and Go clients, brokers and mqadmin, npm's ali-ons, a real corpus."""

from .ali_ons import AliOns
from .apache import ApacheBroker, ApacheNamesrv, ApacheServer
from .corpus import Corpus, gather
from .go_client import GoClient
from .java import JavaConsumer, JavaDriver, JavaProducer, allocated
from .mqadmin import Mqadmin, Printed
from .mqcore_broker import MqcoreBroker
from .normal import normalised
from .ports import free_broker_ports, free_port
from .process import Child, ChildError
from .reports import QueueName, ReceivedMessage, SentMessage
from .talkers import Produced
from .under_test import SHORT_DELAYS, RunningBroker, StartBroker, make_topic, start_broker_under_test

__all__ = [
    "AliOns",
    "ApacheBroker",
    "ApacheNamesrv",
    "ApacheServer",
    "Child",
    "ChildError",
    "Corpus",
    "GoClient",
    "JavaConsumer",
    "JavaDriver",
    "JavaProducer",
    "MqcoreBroker",
    "Mqadmin",
    "Printed",
    "Produced",
    "QueueName",
    "ReceivedMessage",
    "RunningBroker",
    "SHORT_DELAYS",
    "SentMessage",
    "StartBroker",
    "allocated",
    "free_broker_ports",
    "free_port",
    "gather",
    "make_topic",
    "normalised",
    "start_broker_under_test",
]
