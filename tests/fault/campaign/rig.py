"""A group of brokers, their etcd and a name server: on machines of their own where that can be, else all on one.

Machines are network namespaces behind one switch (``tests/rigs/network.py``), whose wires can be cut one way or both,
and be slow. Their disks can lose power (``tests/fault/ext4.py``), and their clocks be set (``clocks.py``). On one
machine everything else can still be broken.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeVar

from mqcore.address import parse_address
from mqcore.broker.failover.etcd import EtcdEngine
from mqcore.broker.failover.group_keys import GroupView
from mqcore.codes import RequestCode
from mqcore.errors import EngineError
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.paths import StorePaths
from tests.fault.campaign import points
from tests.fault.campaign.clocks import AHEAD, Clock
from tests.fault.campaign.evidence import Evidence, Lead, Outcome, Place, Replica, Send, last_lines, read_lines
from tests.fault.ext4 import Disk
from tests.fault.rig import COMMIT_LOG_FILE_SIZE, DEADLINE_S, GEOMETRY, SMALL_FILES
from tests.fault.store_scan import read_log
from tests.rigs import MqcoreBroker, wire
from tests.rigs.etcd import Etcd
from tests.rigs.network import Machine, Switch
from tests.rigs.ports import free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

Answer = TypeVar("Answer")

BROKERS: Final = 3
ENGINES: Final = 3

TOPIC: Final = "Campaign"
QUEUES: Final = 4
BLOCK_SIZE: Final = 1 << 12
ASK_TIMEOUT_S: Final = 1.0
OWN: Final = ("listenPort", "namesrvListenPort", "storePathRootDir", "storePathCommitLog")
"""What a broker shares with no other one on its machine."""

DISK_SIZE: Final = 96 << 20
AHEAD_S_MAX: Final = 10_000_000
LEADS: Final = re.compile(r"role=MASTER member=\d+ epoch=(\d+)")

EVERY_BROKER: Final = {**SMALL_FILES, "bindAddress": "0.0.0.0", "flushDiskType": "ASYNC_FLUSH"}


class Group:
    """All that is broken in a campaign. A context manager; it serves when the context is entered.

    Machines have the numbers of brokers, then those of etcd, then one for the name server and the clients, *outside*.
    A broker alone has no etcd: what a campaign does to it shows that the campaign itself is sound.
    """

    def __init__(
        self,
        home: Path,
        chance: random.Random,
        *,
        has_machines: bool,
        has_disks: bool = False,
        has_clocks: bool = False,
        has_times: bool = False,
        size: int = BROKERS,
        program: Sequence[str] = ("mqcore.broker",),
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """*properties* go over those that every broker has.

        *has_disks*: each store lies on a disk of its own, *has_clocks*: wall clocks can be set, *has_times*: monotonic
        clocks differ. The last one is for brokers that are run by ``program.py``.
        """
        self.home = home
        self.size = size
        self.engine_count = ENGINES if size > 1 else 0
        self.outside = size + self.engine_count
        self._program = program
        self._properties = properties
        self._has_disks, self._has_clocks = has_disks, has_clocks
        self._ahead_s = [chance.randrange(AHEAD_S_MAX) if has_times else 0 for _ in range(size)]
        self._stack = contextlib.ExitStack()
        self.switch = self._stack.enter_context(Switch(chance, self.outside + 1)) if has_machines else None
        self.engines: list[Etcd] = []
        self.brokers: list[MqcoreBroker] = []
        self.disks: list[Disk] = []
        self.clocks: list[Clock] = []
        self.name_server = f"{self._host(self.outside)}:{free_port()}"
        self._clients: Child | None = None

    @property
    def acks_flushed(self) -> bool:
        """Whether what is acknowledged is on the disks of all that are in sync."""
        return self._properties.get("haAckFlushed") == "true"

    def _machine(self, number: int) -> Machine | None:
        return None if self.switch is None else self.switch.machines[number]

    def _host(self, number: int) -> str:
        machine = self._machine(number)
        return "127.0.0.1" if machine is None else machine.address

    def on(self, number: int) -> contextlib.AbstractContextManager[None]:
        """Let this thread, and what it starts, be on a machine."""
        machine = self._machine(number)
        return contextlib.nullcontext() if machine is None else machine.entered()

    # Life cycle.

    def __enter__(self) -> Self:
        try:
            self._start_engines()
            self._start_name_server()
            for number in range(self.size):
                if self._has_disks:
                    self.disks.append(self._stack.enter_context(Disk(self.home / f"broker{number}", DISK_SIZE)))
                if self._has_clocks:
                    self.clocks.append(Clock(self.home / f"broker{number}.clock"))
                self.brokers.append(self._stack.enter_context(self._start_broker(number)))
            with self.on(self.outside):
                wire.create_topic(self.master().broker_address, TOPIC, queues=QUEUES)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start_engines(self) -> None:
        for number in range(self.engine_count):
            self.engines.append(Etcd(self.home, f"etcd{number}", host=self._host(self.size + number)))
            self._stack.callback(self.engines[-1].__exit__)
        for number in range(self.engine_count):
            self.start_engine(number)
        for number, engine in enumerate(self.engines):
            with self.on(self.size + number):
                engine.await_ready()

    def start_engine(self, number: int) -> None:
        with self.on(self.size + number):
            self.engines[number].start([engine.peer for engine in self.engines])

    def _start_name_server(self) -> None:
        host, _, port = self.name_server.rpartition(":")
        with self.on(self.outside):
            command = [sys.executable, "-m", "mqcore.namesrv", "--port", port, "--dir", self.home / "namesrv"]
            child = Child([*command, "--set", f"bindAddress={host}"], log=self.home / "namesrv.out")
            self._stack.callback(child.kill)
            wait_until(lambda: "boot success" in child.log.read_text(), DEADLINE_S, "the name server serves")

    def _start_broker(self, number: int) -> MqcoreBroker:
        host = self._host(number)
        properties = {
            **EVERY_BROKER,
            "brokerId": str(number),
            "brokerIP1": host,
            "brokerIP2": host,
            "namesrvAddr": self.name_server,
        }
        if self.engines:
            properties["failoverEtcd"] = ",".join(engine.client for engine in self.engines)
            properties["brokerRole"] = "SYNC_MASTER"
        env = {points.TOLD_BY: str(self.point_of(number)), AHEAD: str(self._ahead_s[number] or "")}
        if self.clocks:
            env |= self.clocks[number].env
        with self.on(number):
            return MqcoreBroker(
                self.home / f"broker{number}", {**properties, **self._properties}, env=env, program=self._program
            )

    def point_of(self, number: int) -> Path:
        """The file that tells a broker at which of its points to die."""
        return self.home / f"broker{number}.point"

    def start_again(self, number: int) -> None:
        with self.on(number):
            self.brokers[number].start_again()

    def start_copy(self, number: int, store: Path) -> MqcoreBroker:
        """Start a copy of a broker, over a copy of its store, on the machine of the next one."""
        beside = (number + 1) % self.size
        properties = {name: value for name, value in self.brokers[number].properties.items() if name not in OWN}
        properties |= {"brokerIP1": self._host(beside), "brokerIP2": self._host(beside)}
        with self.on(beside):
            return MqcoreBroker(store, properties, program=self._program)

    def start_the_ended(self) -> None:
        """Start each broker that has ended by itself."""
        for number, broker in enumerate(self.brokers):
            if not broker.child.is_alive:
                broker.kill()
                self.start_again(number)

    def others(self, than: int) -> list[int]:
        """The numbers of all brokers but one."""
        return [number for number in range(self.size) if number != than]

    # The clients.

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        addresses = [broker.broker_address for broker in self.brokers]
        command = [sys.executable, "-m", "tests.fault.campaign.clients", self.name_server, self.seen, TOPIC, *addresses]
        with self.on(self.outside), Child(command, log=self.home / "clients.out", talks=True) as clients:
            wait_until(lambda: self.seen.exists() and bool(self.seen.read_bytes()), DEADLINE_S, "clients are at work")
            yield
            assert clients.is_alive, clients.error("ended by itself")
            clients.end_input()
            wait_until(lambda: not clients.is_alive, DEADLINE_S, "the clients have ended")

    def await_service(self, since_s: float, within_s: float = DEADLINE_S) -> None:
        """Wait until a message is acknowledged that was sent after *since_s*."""

        def is_acknowledged() -> bool:
            sends = [line for line in last_lines(self.seen) if isinstance(line, Send)]
            return any(send.outcome == Outcome.OK and send.began_s > since_s for send in sends)

        wait_until(is_acknowledged, max(within_s, DEADLINE_S), "messages are acknowledged again")

    @property
    def seen(self) -> Path:
        return self.home / "seen.jsonl"

    # What the group says of itself.

    def said_by(self, number: int) -> dict[str, object]:
        """What a broker says of its log and its role; nothing if it does not answer."""
        try:
            with self.on(self.outside):
                answer = wire.call(
                    self.brokers[number].broker_address, RequestCode.GET_BROKER_EPOCH_CACHE, timeout_s=ASK_TIMEOUT_S
                )
            said: dict[str, object] = json.loads(answer.body)
        except (OSError, ValueError):
            return {}
        return said

    def master_number(self) -> int:
        """The number of the broker that leads the newest epoch, once there is one. A broker alone always leads."""
        if self.size == 1:
            return 0
        found = -1

        def look() -> bool:
            nonlocal found
            terms = {number: int(str(self.said_by(number).get("term") or 0)) for number in range(len(self.brokers))}
            found = max(terms, key=terms.__getitem__)
            return terms[found] > 0

        wait_until(look, DEADLINE_S, "a broker leads")
        return found

    def master(self) -> MqcoreBroker:
        return self.brokers[self.master_number()]

    def ask_engine(self, work: Callable[[EtcdEngine], Awaitable[Answer]]) -> Answer:
        """Do *work* with the group's keys in etcd. Raises EngineError."""

        async def do() -> Answer:
            properties = self.brokers[0].properties
            addresses = [parse_address(engine.client) for engine in self.engines]
            engine = EtcdEngine(addresses, properties["brokerClusterName"], properties["brokerName"])
            try:
                return await work(engine)
            finally:
                engine.close()

        with self.on(self.outside):
            return asyncio.run(do())

    def view(self) -> GroupView:
        """What etcd has of the group."""

        async def read(engine: EtcdEngine) -> GroupView:
            return GroupView.of(await engine.read_all())

        return self.ask_engine(read)

    def await_in_sync(self, count: int) -> GroupView:
        """Wait until so many brokers are in sync."""
        found = GroupView()

        def look() -> bool:
            nonlocal found
            with contextlib.suppress(EngineError):
                found = self.view()
            return found.state is not None and len(found.state.isr) == count

        wait_until(look, DEADLINE_S, f"{count} brokers are in sync")
        return found

    def member_of(self, number: int) -> int:
        """The id that a broker has in the group."""
        identity = FailoverFiles(StorePaths.at(self.brokers[number].store_dir)).read_identity()
        assert identity is not None
        assert identity.member is not None
        return identity.member

    def await_equal_ends(self) -> None:
        """Wait until all brokers answer and have logs of one length: nobody sends any more."""
        if self.size == 1:
            return

        def are_equal() -> bool:
            ends = [self.said_by(number).get("maxOffset") for number in range(self.size)]
            return None not in ends and len(set(ends)) == 1

        wait_until(are_equal, DEADLINE_S, "all brokers have the same log")

    def await_whole(self) -> None:
        """Wait until all brokers are in sync and have logs of one length: nobody sends any more."""
        if self.size > 1:
            self.await_in_sync(self.size)
        self.await_equal_ends()

    # Wires.

    def each_way(self, ones: Iterable[int], others: Iterable[int], change: Callable[..., None]) -> None:
        """Call *change* with every way from one of *ones* to one of *others*."""
        assert self.switch is not None  # faults of wires are left out where there are none
        others = tuple(others)
        for one in ones:
            for other in others:
                if one != other:
                    change(self.switch.ways[one, other])

    # The end.

    def stop_all(self) -> None:
        """End all brokers, at once; their stores are whole without a stop in order."""
        for broker in self.brokers:
            broker.kill()

    def keep_stores(self) -> None:
        """Leave a copy of each store that lies on a disk of its own, which is gone with its group."""
        for disk in self.disks:
            shutil.copytree(disk.path, disk.path.with_suffix(".store"))

    def evidence(self) -> Evidence:
        """All that was seen, and what the stores have, of brokers that have ended."""
        evidence = Evidence()
        evidence.add(read_lines(self.seen))
        for log in sorted(self.home.glob("*.mqcore/broker.out")):
            epochs = LEADS.findall(log.read_text(errors="replace"))
            evidence.leads += [Lead(int(epoch), log.parent.stem, str(at)) for at, epoch in enumerate(epochs)]
        for number, broker in enumerate(self.brokers):
            evidence.replicas.append(replica_of(f"broker{number}", broker.store_dir))
        return evidence


def replica_of(name: str, store_dir: Path) -> Replica:
    """Read the files of a broker that has ended."""
    scan = read_log(StorePaths.at(store_dir), GEOMETRY)
    messages: dict[Place, list[str]] = {}
    for record in scan.records:
        if record.topic == TOPIC.encode():
            messages.setdefault((record.queue_id, record.queue_offset), []).append(record.body.decode())
    epochs = FailoverFiles(StorePaths.at(store_dir)).read_epochs()
    blocks = tuple(_digests(store_dir / "commitlog", scan.end))
    return Replica(name, scan.end, blocks, tuple((entry.epoch, entry.start) for entry in epochs), messages)


def _digests(log: Path, end: int) -> Iterator[str]:
    """Digest each whole block of a log; the last one, which may not be whole, is left to what its records say."""
    first = min((int(path.name) for path in log.iterdir()), default=0)
    for start in range(first, end - BLOCK_SIZE + 1, BLOCK_SIZE):
        path = log / f"{start // COMMIT_LOG_FILE_SIZE * COMMIT_LOG_FILE_SIZE:020d}"
        with path.open("rb") as file:
            file.seek(start % COMMIT_LOG_FILE_SIZE)
            yield hashlib.blake2b(file.read(BLOCK_SIZE), digest_size=8).hexdigest()
