"""Fixtures for pytest; they are there as soon as mqcore is installed, and cost nothing unless they are used.

``mqcore_broker`` is one broker for the whole run; ``mqcore_topic``, ``mqcore_group`` and ``mqcore_client`` are new for
each test, so that tests do not disturb each other. Override ``mqcore_broker_settings`` to change the broker's settings.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mqcore import aio
    from mqcore.client import Client
    from mqcore.testing.broker import RunningBroker, SettingValue

NAME_SIZE_MAX = 100
"""Characters of a test's name that go into its topic; a topic may have 127."""

_serial = itertools.count(1)


@pytest.fixture(scope="session")
def mqcore_broker_settings() -> Mapping[str, SettingValue]:
    """The settings of ``mqcore_broker``, by property name: none but those of every broker for tests."""
    return {}


@pytest.fixture(scope="session")
def mqcore_broker(mqcore_broker_settings: Mapping[str, SettingValue]) -> Iterator[RunningBroker]:
    """A broker with its name server, for the whole run."""
    from mqcore.testing.broker import running_broker

    with running_broker(settings=mqcore_broker_settings) as broker:
        yield broker


@pytest.fixture
def mqcore_topic(mqcore_broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with four queues, made of the test's name."""
    topic = own_name(request)
    mqcore_broker.create_topic(topic)
    return topic


@pytest.fixture
def mqcore_group(request: pytest.FixtureRequest) -> str:
    """The name of a group that nobody has used."""
    return own_name(request) + "_group"


@pytest.fixture
def mqcore_client(mqcore_broker: RunningBroker) -> Iterator[Client]:
    """A client of ``mqcore_broker``, open for the time of the test."""
    from mqcore.client import Client

    with Client(mqcore_broker.name_server) as client:
        yield client


@pytest.fixture
def mqcore_aio_client(mqcore_broker: RunningBroker) -> aio.Client:
    """A client of ``mqcore_broker`` for an event loop, not open yet: use it in ``async with``."""
    from mqcore import aio

    return aio.Client(mqcore_broker.name_server)


def own_name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test of this run gets."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", request.node.name)[:NAME_SIZE_MAX]
    return f"{name}_{next(_serial)}"
