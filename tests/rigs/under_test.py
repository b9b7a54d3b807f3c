"""Which broker the interoperability tests run against: mqcore's, or Apache's own to prove that the tests are right.

The environment variable MQCORE_TEST_BROKER chooses: "mqcore" (or nothing), "apache" (release 4.9.8) or "apache-5.3.3".
"""

from __future__ import annotations

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.waiting import wait_until

from . import wire
from .apache import ApacheServer
from .mqcore_broker import MqcoreBroker

APACHE_RELEASES = {"apache": "4.9.8", "apache-5.3.3": "5.3.3"}

SHORT_DELAYS = {"messageDelayLevel": " ".join(["1s", "2s", *["1s"] * 16])}
"""A broker's setting by which what waits for another delivery waits for a second, and level 2 is not level 1."""

TOPIC_NAME_MAX = 100
"""Room is left for what tests put before and behind it."""

_topics: dict[str, Iterator[int]] = defaultdict(itertools.count)


class RunningBroker(Protocol):
    """A broker with its name server, as tests see it."""

    name_server: str
    store_dir: Path

    @property
    def broker_address(self) -> str: ...

    @property
    def apache_version(self) -> str:
        """The release of Apache's broker, empty for mqcore's."""

    def pids(self) -> list[int]:
        """The processes that were started for it, without those that they started themselves."""

    def cpu_time_s(self) -> float: ...

    def restart(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


StartBroker = Callable[[Mapping[str, str]], RunningBroker]


def chosen_broker() -> str:
    """The value of MQCORE_TEST_BROKER, checked."""
    name = os.environ.get("MQCORE_TEST_BROKER") or "mqcore"
    if name != "mqcore" and name not in APACHE_RELEASES:
        raise ValueError(f"MQCORE_TEST_BROKER: got {name!r}, wanted mqcore or one of {list(APACHE_RELEASES)}")
    return name


def start_broker_under_test(store_dir: Path, properties: Mapping[str, str] | None = None) -> RunningBroker:
    """Start the chosen broker on *store_dir*; it serves when this returns."""
    release = APACHE_RELEASES.get(chosen_broker())
    return ApacheServer(release, store_dir, properties) if release else MqcoreBroker(store_dir, properties)


def make_topic(broker: RunningBroker, wanted: str, queues: int = 4) -> str:
    """Create a topic that nobody else has, whose name is like *wanted*, and wait until the name server knows it."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", wanted)[:TOPIC_NAME_MAX]
    count = next(_topics[name])
    name += f"_{count}" if count else ""
    wire.create_topic(broker.broker_address, name, queues=queues)
    wait_until(lambda: wire.has_route(broker.name_server, name), describe=f"route to {name}")
    return name
