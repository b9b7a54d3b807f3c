"""How soon the first messages of new queues can be pulled, on mqcore's broker and Apache's in turn.

    python -m benchmarks.first_messages [--rounds N] [--apache RELEASE] [--revision REV] [--existing] [--check]

Each round makes a topic of 8 queues, sends 20 messages one after the other, and as soon as the last one is acknowledged
pulls every queue at once, again and again until all 20 have come. Counted is the time from that last answer to the
last message, and whether the first pulls had brought all. With ``--existing`` the topic is the same in every round, so
that its queues have their files: what is left then is the way of any message. The brokers run side by side, with
RocketMQ's default file sizes, and the rounds alternate; each waits until the machine is idle, as what the broker before
has left to do, or its compiler, is none of this one's delay. ``--revision`` adds mqcore as it was at another commit.

What no broker has to do with is told beside them: in each round a token goes along a chain of processes and back, as a
pull's question does from the client over the workers to the broker process, each of which works for a while on the way.
That is how long this machine takes for as many turns; a tail that it has, too, is the machine's.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import Process
from pathlib import Path
from typing import Final

import click

from benchmarks.harness.brokers import BrokerSpec, running_broker
from benchmarks.harness.control import Address, ControlClient
from benchmarks.harness.frames import send_templates
from benchmarks.harness.procstat import machine_busy_seconds
from mqcore.codes import PullSysFlag, RequestCode, SerializeType
from mqcore.protocol.command import RemotingCommand

QUEUES: Final = 8
MESSAGES: Final = 20
BODY: Final = bytes(range(256)) * 4
BAR_P99_MS: Final = 2.0
ANSWER_TIMEOUT_S: Final = 10.0
IDLE_S: Final = 0.04
IDLE_WAIT_S: Final = 1.0
RELAYS: Final = 3
"""The send, pull and broker processes: what is asked first of a new topic goes through all of them, and back."""
RELAY_WORK_S: Final = 80e-6


@dataclass(slots=True)
class Seen:
    """What the rounds of one broker gave."""

    label: str
    delays_ms: list[float] = field(default_factory=list)
    incomplete: int = 0

    def quantile(self, share: float) -> float:
        ordered = sorted(self.delays_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Connection:
    """One blocking connection that writes frames made before and reads whole answers."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> dict[str, object]:
        """Return the header of the next answer."""
        while len(self._data) < 8 or len(self._data) < 4 + struct.unpack_from(">i", self._data)[0]:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise click.ClickException("the broker closed the connection")
            self._data += chunk
        size, marked = struct.unpack_from(">ii", self._data)
        header = json.loads(self._data[8 : 8 + (marked & 0xFFFFFF)])
        self._data = self._data[4 + size :]
        return header


def relay(incoming: socket.socket, onward: socket.socket | None) -> None:
    """Give each token that comes to the next process, and what comes back from it to the one before."""
    while token := incoming.recv(1):
        work()
        if onward is not None:
            onward.send(token)
            token = onward.recv(1)
            work()
        incoming.send(token)


def work() -> None:
    until = time.perf_counter() + RELAY_WORK_S
    while time.perf_counter() < until:
        pass


@contextmanager
def chain() -> Iterator[socket.socket]:
    """A chain of RELAYS processes: what is written to the socket comes back when it has been through all of them."""
    first, end = socket.socketpair()
    processes = []
    for number in range(RELAYS):
        incoming, (onward, next_end) = end, socket.socketpair()
        is_last = number == RELAYS - 1
        processes.append(Process(target=relay, args=(incoming, None if is_last else onward), daemon=True))
        processes[-1].start()
        incoming.close()
        onward.close()
        end = next_end
    end.close()
    try:
        yield first
    finally:
        first.close()
        for process in processes:
            process.terminate()
            process.join()


def time_chain(first: socket.socket, seen: Seen) -> None:
    """One round of the machine alone."""
    began = time.perf_counter()
    first.send(b"t")
    first.recv(1)
    seen.delays_ms.append((time.perf_counter() - began) * 1000)


def pull_frame(topic: str, queue_id: int, offset: int) -> bytes:
    """A pull that does not wait; its opaque is the queue's number."""
    fields = {
        "consumerGroup": "first_messages",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(int(PullSysFlag.SUBSCRIPTION)),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return RemotingCommand(code=RequestCode.PULL_MESSAGE, opaque=queue_id, ext_fields=fields).encode()


def await_idle() -> None:
    """Wait until no processor has worked for a tick in IDLE_S, or IDLE_WAIT_S have gone."""
    deadline = time.monotonic() + IDLE_WAIT_S
    is_idle = False
    while not is_idle and time.monotonic() < deadline:
        before = machine_busy_seconds()
        time.sleep(IDLE_S)
        is_idle = machine_busy_seconds() == before


def play(address: Address, topic: str, before: list[int], seen: Seen) -> None:
    """One round: send, pull until everything is there; *before* are the queues' offsets, moved by what is sent."""
    sends = [
        template.data
        for template in send_templates(
            topic, queue_count=QUEUES, body=BODY, batch_size=1, serialize_type=SerializeType.JSON, repetition=0
        )
    ]
    pulls = [pull_frame(topic, queue_id, before[queue_id]) for queue_id in range(QUEUES)]
    wanted = list(before)
    producer, consumer = Connection(address), Connection(address)
    for number in range(MESSAGES):
        producer.write(sends[number % QUEUES].replace(b"1987654321098", b"%013d" % int(time.time() * 1000)))
        answer = producer.read()
        if answer["code"] != 0:
            raise click.ClickException(f"{seen.label}: a send was answered with {answer['code']}: {answer['remark']}")
        wanted[number % QUEUES] += 1
    acknowledged = time.perf_counter()
    missing = set(range(QUEUES))
    is_first = True
    while missing:
        consumer.write(b"".join(pulls[queue_id] for queue_id in missing))
        for _ in range(len(missing)):
            answer = consumer.read()
            queue_id = answer["opaque"]
            fields = answer["extFields"]
            assert isinstance(queue_id, int)
            assert isinstance(fields, dict)
            if int(fields["nextBeginOffset"]) >= wanted[queue_id]:
                missing.discard(queue_id)
        seen.incomplete += is_first and bool(missing)
        is_first = False
    seen.delays_ms.append((time.perf_counter() - acknowledged) * 1000)
    before[:] = wanted


@click.command(help=__doc__)
@click.option("--rounds", default=200, show_default=True, type=click.IntRange(min=1))
@click.option("--apache", default="4.9.8", show_default=True, help="Release of the other broker; empty for none.")
@click.option("--revision", default="", help="A commit of mqcore to be compared, too.")
@click.option("--existing", is_flag=True, help="The same topic in every round.")
@click.option("--directory", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where stores go.")
@click.option("--check", is_flag=True, help=f"Exit with 1 if mqcore's p99 is {BAR_P99_MS:g} ms or more.")
def main(rounds: int, apache: str, revision: str, existing: bool, directory: Path | None, check: bool) -> None:
    others = [f"mqcore:revision={revision}"] * bool(revision) + [f"apache:{apache}"] * bool(apache)
    with ExitStack() as stack:
        machine, relays = Seen("this machine, no broker"), stack.enter_context(chain())
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory, prefix="benchmark-")))
        specs = [BrokerSpec.parse(text) for text in ("mqcore", *others)]
        sides = []
        for number, spec in enumerate(specs):
            folder = root / str(number)
            folder.mkdir()
            sides.append(stack.enter_context(running_broker(spec, folder, {})))
        results = [Seen(side.label) for side in sides]
        controls = [stack.enter_context(ControlClient(side.address)) for side in sides]
        offsets = [[0] * QUEUES for _ in sides]
        for number in range(rounds + 1):
            for side, control, seen, before in zip(sides, controls, results, offsets, strict=True):
                topic = "FirstMessages" if existing else f"FirstMessages{number}"
                if not existing:
                    before[:] = [0] * QUEUES
                await_idle()
                if number == 0 or not existing:
                    control.create_topic(topic, QUEUES)
                # The first round brings the group and the index file, once for all.
                play(side.address, topic, before, seen if number else Seen(seen.label))
            await_idle()
            time_chain(relays, machine if number else Seen(machine.label))
    click.echo(f"{'broker':24} {'rounds':>6} {'first pulls incomplete':>23} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
    for seen in (*results, machine):
        click.echo(
            f"{seen.label:24} {rounds:6} {seen.incomplete:23} {seen.quantile(0.5):8.2f} {seen.quantile(0.99):8.2f} "
            f"{max(seen.delays_ms):8.2f}"
        )
    if check and results[0].quantile(0.99) >= BAR_P99_MS:
        sys.exit(1)


if __name__ == "__main__":
    main()
