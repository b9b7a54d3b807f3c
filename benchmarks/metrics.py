"""What metrics cost: a broker without them, one that has the port, and one that is scraped, under the same load.

    python benchmarks/metrics.py [--load send:8x32] [--rounds 7] [--seconds 4] [--topics 0] [--scrapes 50] [--stops 10]

The brokers run at the same time, and take turns under load; CPU is that of all processes of a broker, for each message.
Behind that: what one scrape costs a broker without load, with so many topics that one group has read, and what share of
one processor it is at a scrape each 15 s, as Prometheus makes them. The scraper itself does not count.

And how long its event loop is kept waiting meanwhile (``--stops`` pairs of rounds, scraped without a pause and not at
all): a client asks it for something small without a pause, and the longest wait for an answer is the longest stop, or
longer. What others on this machine do is in it, in both rounds alike.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import frames
from benchmarks.harness.loads import Connections, Load
from benchmarks.harness.native import Engine
from benchmarks.harness.procstat import tree_cpu_seconds
from mqcore.client import Client
from mqcore.codes import RequestCode, SerializeType
from mqcore.protocol.command import RemotingCommand
from tests.rigs import wire
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.ports import free_port
from tests.rigs.scrapes import get

TOPIC = "Measured"
GROUP = "readers"
QUEUES = 8
LENGTH = struct.Struct(">i")
SCRAPES_PER_ROUND = 3
SCRAPE_INTERVAL_S = 15
"""Of Prometheus, where nobody says otherwise."""

STORE = {"mappedFileSizeCommitLog": str(1 << 30), "mappedFileSizeConsumeQueue": str(300_000 * 20)}
BOUNDS = {"metricsTopicsMax": "65536", "metricsGroupsMax": "65536"}


class Side:
    """One broker under load; with *every_s* it is scraped meanwhile."""

    def __init__(self, name: str, broker: MqcoreBroker, load: Load, port: int = 0, every_s: float = 0.0) -> None:
        self.name = name
        self._pid = broker.pid
        self._port = port
        self._every_s = every_s
        wire.create_topic(broker.broker_address, TOPIC, queues=QUEUES)
        properties = "WAIT\x01true\x02KEY_OF_ITS_OWN\x01" + frames.UNIQUE_PREFIX + "000000000000\x02"
        body = frames.body_of(load.body_size)
        requests = frames.send_requests(TOPIC, QUEUES, properties, body, SerializeType.JSON)
        host, _, number = broker.broker_address.partition(":")
        self._connections = Connections((host, int(number)), load.connections)
        templates = [frames.template_of(request) for request in requests]
        self._engine = Engine(self._connections.fds, load.window, templates, [], QUEUES)
        self.cpu_us: list[float] = []
        self.rates: list[float] = []

    def run(self, seconds: float) -> None:
        with self._scraped():
            before = tree_cpu_seconds(self._pid)
            counts = self._engine.run(seconds)
            assert counts["codes"].keys() <= {0}, counts
            self.cpu_us.append((tree_cpu_seconds(self._pid) - before) / counts["all_messages"] * 1e6)
        self.rates.append(counts["messages"] / counts["elapsed_ns"] * 1e9)

    @contextmanager
    def _scraped(self) -> Iterator[None]:
        stop = threading.Event()

        def scrape() -> None:
            while not stop.wait(self._every_s):
                assert get(self._port, "/metrics")[0] == 200

        thread = threading.Thread(target=scrape)
        if self._every_s:
            thread.start()
        yield
        stop.set()
        if self._every_s:
            thread.join()

    def close(self) -> None:
        self._connections.close()


@contextmanager
def sides(directory: Path, load: Load, every_s: float) -> Iterator[list[Side]]:
    with ExitStack() as stack:
        ports = free_port(), free_port()
        kinds = (("off", 0, 0.0), ("on", ports[0], 0.0), (f"scraped each {every_s:g} s", ports[1], every_s))
        found = []
        for number, (name, port, every) in enumerate(kinds):
            properties = {**STORE, "metricsPort": str(port)}
            broker = stack.enter_context(MqcoreBroker(directory / f"store{number}", properties))
            found.append(Side(name, broker, load, port, every))
            stack.callback(found[-1].close)
        yield found


def under_load(load: Load, rounds: int, seconds: float, every_s: float) -> None:
    with tempfile.TemporaryDirectory() as directory, sides(Path(directory), load, every_s) as found:
        for side in found:
            side.run(seconds)
            side.cpu_us.clear()
            side.rates.clear()
        for _ in range(rounds):
            for side in found:
                side.run(seconds)
        for side in found:
            ratio = statistics.median(a / b for a, b in zip(side.cpu_us, found[0].cpu_us, strict=True))
            print(
                f"{side.name:20} {statistics.median(side.rates):10,.0f} messages/s "
                f"{statistics.median(side.cpu_us):7.3f} us CPU/message {ratio:6.3f} of off"
            )


class Asker:
    """Asks the broker process for an offset, again and again, and knows how long each answer took, ms."""

    def __init__(self, broker: MqcoreBroker) -> None:
        host, _, number = broker.broker_address.partition(":")
        self._socket = socket.create_connection((host, int(number)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fields = {"consumerGroup": GROUP, "topic": "T0", "queueId": "0"}
        self._request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields).encode()

    def run(self, until: Callable[[], bool]) -> list[float]:
        waits = []
        while not until():
            began_s = time.perf_counter()
            self._socket.sendall(self._request)
            (size,) = LENGTH.unpack(self._read(LENGTH.size))
            self._read(size)
            waits.append((time.perf_counter() - began_s) * 1000)
        return waits

    def _read(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        assert len(data) == size
        return data

    def close(self) -> None:
        self._socket.close()


def stops(broker: MqcoreBroker, port: int, pairs: int) -> None:
    """Print how long the event loop was away at most, while it was scraped SCRAPES_PER_ROUND times and while not."""
    found: dict[str, list[list[float]]] = {"scraped": [], "not scraped": []}
    with closing(Asker(broker)) as asker:
        for _ in range(pairs):
            began_s = time.perf_counter()
            scraper = threading.Thread(target=lambda: [get(port, "/metrics") for _ in range(SCRAPES_PER_ROUND)])
            scraper.start()
            found["scraped"].append(asker.run(lambda thread=scraper: not thread.is_alive()))
            scraper.join()
            ends_s = 2 * time.perf_counter() - began_s  # as long without
            found["not scraped"].append(asker.run(lambda end=ends_s: time.perf_counter() >= end))
    for name, rounds in found.items():
        longest = sorted(max(waits) for waits in rounds)
        every = sorted(wait for waits in rounds for wait in waits)
        print(
            f"{name:12} {len(every):8,} answers: median {statistics.median(every):6.2f} ms, 99.9 % below "
            f"{every[int(len(every) * 0.999)]:6.2f} ms; longest of a round: least {longest[0]:6.2f}, "
            f"median {statistics.median(longest):6.2f}, most {longest[-1]:6.2f} ms"
        )


def one_scrape(topics: int, scrapes: int, pairs: int) -> None:
    port = free_port()
    properties = {**STORE, **BOUNDS, "metricsPort": str(port)}
    with (
        tempfile.TemporaryDirectory() as directory,
        MqcoreBroker(Path(directory) / "store", properties) as broker,
    ):
        with Client(broker.name_server) as client:
            client.admin.create_group(GROUP)
        for number in range(topics):
            wire.create_topic(broker.broker_address, f"T{number}", queues=1)
            wire.commit_offset(broker.broker_address, GROUP, f"T{number}", 0, 0)
        status, text = get(port, "/metrics")
        assert status == 200
        before = tree_cpu_seconds(broker.pid)
        for _ in range(scrapes):
            get(port, "/metrics")
        each_s = (tree_cpu_seconds(broker.pid) - before) / scrapes
        stops(broker, port, pairs)
    print(
        f"a scrape of {topics} topics: {text.count(chr(10)):,} lines, {each_s * 1000:.1f} ms of CPU, "
        f"{each_s / SCRAPE_INTERVAL_S:.3%} of a processor each {SCRAPE_INTERVAL_S} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", default="send:8x32")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between scrapes")
    parser.add_argument("--topics", type=int, default=0, help="topics of the broker whose scrape is measured")
    parser.add_argument("--scrapes", type=int, default=50, help="how often it is scraped")
    parser.add_argument("--stops", type=int, default=10, help="pairs of rounds that look how long its event loop stops")
    arguments = parser.parse_args()
    if arguments.rounds:
        load = Load.parse(arguments.load, body_size=arguments.body, serialize_type=SerializeType.JSON)
        under_load(load, arguments.rounds, arguments.seconds, arguments.every)
    one_scrape(arguments.topics, arguments.scrapes, arguments.stops)


if __name__ == "__main__":
    main()
