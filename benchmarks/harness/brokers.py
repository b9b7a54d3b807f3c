"""The brokers of a comparison, started for it and stopped after it, each on a store of its own.

They are named `apache:4.9.8`, `apache:5.3.3`, `mqcore` (this checkout, this interpreter), or
`mqcore:revision=REV,python=PATH`: another commit, another interpreter, or both. With `role=SYNC_MASTER` or
`role=ASYNC_MASTER` a broker has a slave of its own kind, with `slaves=2` besides two; with `group=3` it is the master
of a failover group of so many. Both sides get the same store settings, which are RocketMQ's defaults; the small files
and the small heap of the test rigs would slow Apache's broker down.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.harness.compare import Side
from benchmarks.harness.control import Address, ControlError
from benchmarks.harness.revisions import built_revision
from mqcore.version import __version__
from tests.compat import apache_requests as requests
from tests.fault.campaign.rig import Group
from tests.rigs.apache import SMALL, ApacheBroker, ApacheServer
from tests.rigs.maven import RELEASES
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.process import Child
from tests.rigs.wire import SUCCESS, create_topic
from tests.waiting import wait_until

APACHE_JVM: Final = (
    "-Xms3g",
    "-Xmx3g",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:+AlwaysPreTouch",
    "-XX:-UseLargePages",
)
"""What Apache's bin/runbroker.sh says, but for a heap that leaves a 24 GiB machine its page cache."""

STORE_PROPERTIES: Final = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
"""RocketMQ's defaults. Source: store/config/MessageStoreConfig.java."""

ROLES: Final = ("", "ASYNC_MASTER", "SYNC_MASTER")
OPTIONS: Final = {
    "apache": {"role", "slaves"},
    "mqcore": {"role", "slaves", "revision", "python"},
    "group": {"role", "group"},
}
"""What goes together."""
COUNTS: Final = ("slaves", "group")
PROBE: Final = "ReplicaProbe"
SLAVE_DEADLINE_S: Final = 60.0
HOLDER_START_DEADLINE_S: Final = 60.0
DISK_USED_MAX: Final = 0.8
"""Brokers begin to delete and to refuse not far above."""


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """Which broker to start."""

    kind: str
    version: str = ""
    revision: str = ""
    python: str = ""
    role: str = ""
    """Of a master with slaves."""
    slaves: str = "1"
    """How many, if it has any."""
    group: str = ""
    """Of how many brokers a failover group has, this one being its master."""

    @classmethod
    def parse(cls, text: str) -> BrokerSpec:
        """Read `apache:VERSION[,role=ROLE]` or `mqcore[:revision=REV][,python=PATH][,role=ROLE[,slaves=N]]`, or
        `mqcore:role=ROLE,group=N`.

        Raises ValueError for anything else.
        """
        kind, _, rest = text.partition(":")
        first, _, others = rest.partition(",")
        version = first if kind == "apache" else ""
        options = dict(option.partition("=")[::2] for option in (others if version else rest).split(",") if option)
        counts = [options[name] for name in COUNTS if name in options]
        has_counts = all(count.isdigit() for count in counts) and (not counts or "role" in options)
        is_known = kind == "mqcore" or version in RELEASES
        known = OPTIONS["group" if "group" in options and not version else kind] if is_known else set[str]()
        is_right = options.keys() <= known and all(options.values()) and options.get("role", "") in ROLES
        if is_known and is_right and has_counts:
            return cls(kind, version=version, **options)
        releases = ", ".join(f"apache:{version}" for version in RELEASES)
        raise ValueError(
            f"broker: got {text!r}, wanted {releases}, or mqcore[:revision=REV][,python=PATH], each with"
            " ,role=ROLE[,slaves=N]; or mqcore:role=ROLE,group=N"
        )

    @property
    def is_apache(self) -> bool:
        return self.kind == "apache"

    @property
    def label(self) -> str:
        """What the tables call it. Apache's names the release of the broker jar where that differs from the rest."""
        if self.group:
            return f"{self._name} {self.role} in a group of {self.group}"
        slaves = "a slave" if self.slaves == "1" else f"{self.slaves} slaves"
        return f"{self._name} {self.role} with {slaves}" if self.role else self._name

    @property
    def _name(self) -> str:
        if self.is_apache:
            server_version = RELEASES[self.version].server_version
            return f"apache {self.version}" + (
                f" (broker jar {server_version})" if server_version != self.version else ""
            )
        name = f"mqcore@{self.revision}" if self.revision else f"mqcore {__version__}"
        return f"{name} ({self.python})" if self.python else name


def address_of(text: str) -> Address:
    """Read HOST:PORT. Raises ValueError if it is something else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"address: got {text!r}, wanted HOST:PORT")
    return host, int(port)


def environment_of(root: Path) -> dict[str, str]:
    """What makes an interpreter take mqcore from *root*: the current directory, this checkout, does not come before."""
    return {"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"}


def check_disk(directory: Path) -> None:
    """Raise ControlError if the stores have filled their disk so far that a broker would behave differently."""
    usage = shutil.disk_usage(directory)
    if usage.used > DISK_USED_MAX * usage.total:
        raise ControlError(
            f"{directory}: the disk is {usage.used / usage.total:.0%} full; use shorter or fewer repetitions"
        )


@contextmanager
def running_broker(spec: BrokerSpec, directory: Path, properties: Mapping[str, str]) -> Iterator[Side]:
    """Run the broker, and the name server it needs, with its store in *directory*; kill both on leaving."""
    store_dir = directory / "store"
    settings = {**STORE_PROPERTIES, **properties}
    if spec.role:
        settings |= {"brokerRole": spec.role, "brokerIP2": "127.0.0.1"}
    if spec.group:
        with running_group(spec, directory, settings) as side:
            yield side
        return
    if spec.is_apache:
        with (
            ApacheServer(spec.version, store_dir, settings, jvm_options=APACHE_JVM) as apache,
            running_slaves(spec, directory, settings, apache.name_server, apache.broker_address) as slaves,
        ):
            yield Side(spec.label, address_of(apache.broker_address), apache.broker.pid, slaves)
        return
    env = environment_of(built_revision(spec.revision, spec.python)) if spec.revision else None
    if spec.python:
        with held_broker(spec, store_dir, settings, env) as side:
            yield side
        return
    with (
        MqcoreBroker(store_dir, settings, env=env) as broker,
        running_slaves(spec, directory, settings, broker.name_server, broker.broker_address, env) as slaves,
    ):
        yield Side(spec.label, address_of(broker.broker_address), broker.pid, slaves)


@contextmanager
def running_slaves(
    spec: BrokerSpec,
    directory: Path,
    properties: Mapping[str, str],
    name_server: str,
    master: str,
    env: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, ...]]:
    """Run the slaves that the role asks for, if any; one has caught up when this yields their pids."""
    if not spec.role:
        yield ()
        return
    settings = {**properties, "brokerRole": "SLAVE", "haSendHeartbeatInterval": "1000"}
    pids: list[int] = []
    with ExitStack() as stack:
        for number in range(1, int(spec.slaves) + 1):
            own, home = {**settings, "brokerId": str(number)}, directory / f"slave{number}"
            if spec.is_apache:
                slave = ApacheBroker(spec.version, home, name_server, own, jvm_options=SMALL)
                stack.callback(slave.kill)
                slave.await_service()
                pids.append(slave.pid)
            else:
                pids.append(stack.enter_context(MqcoreBroker(home, {**own, "namesrvAddr": name_server}, env=env)).pid)
        create_topic(master, PROBE, queues=1)
        if spec.role == "SYNC_MASTER":
            wait_until(lambda: is_copied(master), SLAVE_DEADLINE_S, "the slave has what is sent")
        yield tuple(pids)


@contextmanager
def running_group(spec: BrokerSpec, directory: Path, properties: Mapping[str, str]) -> Iterator[Side]:
    """Run a failover group; all of it is in sync when this yields its master."""
    size = int(spec.group)
    with Group(directory, Random(), has_machines=False, size=size, properties=properties) as group:
        group.await_in_sync(size)
        master = group.master()
        replicas = tuple(broker.pid for broker in group.brokers if broker is not master)
        yield Side(spec.label, address_of(master.broker_address), master.pid, replicas)


def is_copied(master: str) -> bool:
    """Whether the master's slave has a message in time."""
    answer = requests.send(master, PROBE, 0, b"x", int(time.time() * 1000), {"WAIT": "true"})
    return answer.code == SUCCESS


@contextmanager
def held_broker(
    spec: BrokerSpec, store_dir: Path, settings: Mapping[str, str], env: Mapping[str, str] | None
) -> Iterator[Side]:
    """Run mqcore's broker under another interpreter: the rig starts it with its own, so the rig runs there too."""
    pairs = [f"{name}={value}" for name, value in settings.items()]
    command: list[str | Path] = [spec.python, "-m", "benchmarks.harness.hold_broker", store_dir, *pairs]
    log = store_dir.with_name("holder.log")
    with Child(command, log=log, env={**os.environ, **(env or {})}, talks=True) as holder:
        ready = holder.read_event("ready", HOLDER_START_DEADLINE_S)
        yield Side(spec.label, address_of(ready["address"]), ready["pid"])
        holder.end_input()
        holder.wait()
