"""Every kind of client that means harm at once, and one that does not: it is served, and no process dies or swells.

How long that lasts, in seconds, says MQCORE_HOSTILE_S, and how many there are, MQCORE_HOSTILE_CONNECTIONS. The times
that the well-behaved client needs are printed; on a machine that others use as well they say little of the broker.
"""

from __future__ import annotations

import math
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.command import RemotingCommand
from mqcore.workers.send import READ_BUDGET_BYTES, WRITE_BUDGET_BYTES
from tests.conftest import ROOT
from tests.fault import hostile
from tests.fault.history import History, make_body, read_all
from tests.fault.rig import DEADLINE_S, WORKER_KINDS, find_worker, new_history
from tests.fault.talker import Talker, pull_request, pulled, send_request
from tests.integration.bystander import lone_name_server
from tests.rigs import MqcoreBroker, wire
from tests.rigs.process import Child
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

MIB = 1 << 20
BAITS = 8
BAIT_SIZE = 60_000
PACE_S = 0.004
"""Between two messages of the client whose time is taken."""

QUIET_SHARE = 0.3
"""Of the time, before the others come."""

ROOM_BYTES = 96 * MIB
BUDGET_BYTES = READ_BUDGET_BYTES + WRITE_BUDGET_BYTES
LOOK_S = 0.5
PATIENCE_S = 120.0
"""What was acknowledged late on a busy machine has still been acknowledged."""

FRIEND = "127.0.0.1"
"""The address of who means well; it needs no key."""


class Pulse(threading.Thread):
    """Sends one message after the other, and takes the time until each is acknowledged."""

    def __init__(self, history: History, address: str) -> None:
        super().__init__(name=type(self).__name__.lower())
        self.history = history
        self.took_s: list[float] = []
        self.undisturbed = 0
        """How many of them are from before the others came."""
        self.failure: BaseException | None = None
        self._address = address
        self._is_over = threading.Event()

    def run(self) -> None:
        try:
            with Talker(self._address, PATIENCE_S) as talker:
                number = 0
                while not self._is_over.wait(PACE_S):
                    self._beat(talker, number)
                    number += 1
        except BaseException as error:  # told by halt
            self.failure = error

    def _beat(self, talker: Talker, number: int) -> None:
        body = make_body(self.history.run, 0, number, 200)
        self.history.note_sent([body])
        began = time.monotonic()
        answer = talker.call(send_request(self.history.topic, 0, body))
        self.took_s.append(time.monotonic() - began)
        if answer.code == ResponseCode.SUCCESS:
            assert answer.ext_fields is not None
            self.history.note_acked(0, int(answer.ext_fields["queueOffset"]), body)
        else:
            self.history.note_refused(answer.code)

    def halt(self) -> None:
        self._is_over.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the pulse does not end"
        if self.failure is not None:
            raise self.failure


class Listener(Pulse):
    """Receives what a pulse sends, and takes the time that each message took to come."""

    def run(self) -> None:
        try:
            with Talker(self._address, PATIENCE_S) as talker:
                offset = 0
                while not self._is_over.is_set():
                    found = pulled(talker.call(pull_request(self.history.topic, 0, offset, suspend_ms=200)))
                    now = time.monotonic()
                    for message in found:
                        self.history.note_read(message)
                        self.took_s.append(now - self.history.sent[message.body])
                        offset = message.queue_offset + 1
        except BaseException as error:  # told by halt
            self.failure = error


class Asker(Pulse):
    """Asks a name server for a route."""

    def _beat(self, talker: Talker, number: int) -> None:
        began = time.monotonic()
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": self.history.topic})
        assert talker.call(request).code == ResponseCode.SUCCESS
        self.took_s.append(time.monotonic() - began)


def high(times_s: list[float]) -> float:
    """What 99 of 100 stay below."""
    return sorted(times_s)[math.ceil(len(times_s) * 0.99) - 1] if times_s else math.nan


def anonymous_bytes(pid: int) -> int:
    """The memory that is a process's own: neither a file's nor shared."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


@dataclass
class Ground:
    """A broker with access control, a name server of its own, and those who use them."""

    broker: MqcoreBroker
    name_server: Child
    name_server_address: str
    history: History
    friends: list[Pulse] = field(default_factory=list)

    def pids(self) -> dict[str, int]:
        workers = {kind: find_worker(self.broker, kind).pid for kind in WORKER_KINDS}
        return {"broker": self.broker.pid, **workers, "name server": self.name_server.pid}

    def memory(self) -> dict[str, int]:
        return {name: anonymous_bytes(pid) for name, pid in self.pids().items()}

    def targets(self) -> list[str]:
        """All ports that clients know."""
        host, _, port = self.broker.broker_address.rpartition(":")
        fast = f"{host}:{int(port) - 2}"
        return [self.broker.broker_address, fast, self.broker.name_server, self.name_server_address]


@contextmanager
def ground(directory: Path) -> Iterator[Ground]:
    insider = {
        "accessKey": hostile.INSIDER.key,
        "secretKey": hostile.INSIDER.secret,
        "defaultTopicPerm": "SUB",
        "defaultGroupPerm": "SUB",
    }
    (directory / "conf").mkdir()
    (directory / "conf" / "plain_acl.yml").write_text(
        yaml.safe_dump({"globalWhiteRemoteAddresses": [FRIEND], "accounts": [insider]})
    )
    properties = {"bindAddress": FRIEND, "aclEnable": "true", "rocketmqHome": str(directory)}
    with MqcoreBroker(directory / "store", properties) as broker, lone_name_server(directory) as (child, address):
        bait(broker.broker_address)
        yield Ground(broker, child, address, new_history(broker, "Pulse", "pulse", queues=1))
        broker.stop()
        assert "Traceback" not in broker.child.log.read_text() + child.log.read_text()


def bait(address: str) -> None:
    """Messages that those who read slowly ask for."""
    wire.create_topic(address, hostile.TOPIC, queues=2)
    with Talker(address) as talker:
        for _ in range(BAITS):
            assert talker.call(send_request(hostile.TOPIC, 0, bytes(BAIT_SIZE))).code == ResponseCode.SUCCESS


def go_through(place: Ground, seconds: float, connections: int, seed: int) -> tuple[dict[str, int], dict[str, int]]:
    """An undisturbed while, and then the others. Gives how much each process grew at most, and what the others did."""
    before, pids = place.memory(), place.pids()
    address = place.broker.broker_address
    wait_until(lambda: wire.has_route(place.broker.name_server, place.history.topic), DEADLINE_S, "there is a route")
    place.friends += [
        Pulse(place.history, address),
        Listener(place.history, address),
        Asker(place.history, place.broker.name_server),
    ]
    for friend in place.friends:
        friend.start()
    try:
        time.sleep(seconds * QUIET_SHARE)
        for friend in place.friends:
            friend.undisturbed = len(friend.took_s)
        with foes(place, connections, seed) as child:
            grown = watch(place, before, seconds * (1 - QUIET_SHARE))
            child.end_input()
            tally = child.read_event("tally", PATIENCE_S)
    finally:
        for friend in place.friends:
            friend.halt()
    assert place.pids() == pids, "a process has died"
    del tally["event"]
    return grown, tally


def foes(place: Ground, connections: int, seed: int) -> Child:
    command = [sys.executable, "-m", "tests.fault.hostile", ",".join(place.targets()), str(connections), str(seed)]
    log = place.broker.store_dir.with_name("foes.log")
    return Child(command, log=log, talks=True, directory=ROOT)


def watch(place: Ground, before: dict[str, int], seconds: float) -> dict[str, int]:
    """How much each process has grown at most within *seconds*."""
    grown = dict.fromkeys(before, 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(LOOK_S)
        for name, size in place.memory().items():
            grown[name] = max(grown[name], size - before[name])
    return grown


def report(place: Ground, grown: dict[str, int], tally: dict[str, int]) -> str:
    lines = []
    for friend in place.friends:
        quiet, loud = friend.took_s[: friend.undisturbed], friend.took_s[friend.undisturbed :]
        lines.append(
            f"{friend.name}: p99 {high(quiet) * 1000:.2f} ms of {len(quiet)} undisturbed, "
            f"{high(loud) * 1000:.2f} ms of {len(loud)} among the others, {high(loud) / high(quiet):.1f} times"
        )
    lines.append("grown by " + ", ".join(f"{name} {size / MIB:.0f} MiB" for name, size in grown.items()))
    lines.append("lives " + ", ".join(f"{name} {count}" for name, count in sorted(tally.items())))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("seconds", "connections"),
    [
        pytest.param(10, 400, id="short"),
        pytest.param(
            float(os.environ.get("MQCORE_HOSTILE_S", 300)),
            int(os.environ.get("MQCORE_HOSTILE_CONNECTIONS", 10_000)),
            marks=[pytest.mark.slow, pytest.mark.timeout(4 * 3600)],
            id="long",
        ),
    ],
)
def test_one_who_means_well_is_served_among_all_who_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chance: random.Random, seconds: float, connections: int
) -> None:
    with ground(tmp_path) as place:
        grown, tally = go_through(place, seconds, connections, chance.randrange(1 << 32))
        with capsys.disabled():
            print(f"\n{report(place, grown, tally)}")
        kinds = {kind.life.__name__ for kind in hostile.KINDS}
        assert kinds <= {name.partition(":")[0] for name in tally}, "every kind has been there"
        assert max(grown.values()) < ROOM_BYTES + BUDGET_BYTES
        assert sum(grown.values()) < 2 * ROOM_BYTES + BUDGET_BYTES
        assert place.history.refused == {}
        place.history.check(read_all(place.history, place.broker.broker_address, PATIENCE_S))
