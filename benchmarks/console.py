"""What the console costs: a look at each page, and a broker under load while somebody looks at its overview.

    python benchmarks/console.py [--groups 100] [--looks 20] [--load send:8x32] [--rounds 7] [--seconds 4]

CPU is that of all processes of the broker, and of the console. The overview is looked at as its script does it, each
three seconds; other pages are of another topic or group with each look, so that none is made of what was found lately.
Under load one broker takes turns with and without somebody who looks.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.loads import Load
from benchmarks.harness.procstat import tree_cpu_seconds
from benchmarks.metrics import STORE, Side
from mqcore.client import Client, Message
from mqcore.codes import SerializeType
from tests.rigs import wire
from tests.rigs.console import ConsoleServer, PageClient
from tests.rigs.mqcore_broker import MqcoreBroker

LOOK_S: Final = 3.0
"""The overview's script asks for it so often."""

QUEUES: Final = 8
MESSAGES: Final = 40


class LookedSide(Side):
    """A broker under load while somebody looks at the overview of *console*."""

    console: PageClient

    @contextmanager
    def _scraped(self) -> Iterator[None]:
        stop = threading.Event()

        def look() -> None:
            while True:
                assert self.console.get("/", part=1).status == 200
                if stop.wait(LOOK_S):
                    return

        thread = threading.Thread(target=look)
        thread.start()
        yield
        stop.set()
        thread.join()


def fill(broker: MqcoreBroker, count: int) -> None:
    """Make so many topics with messages, each read by a group."""
    with Client(broker.name_server) as mq, mq.producer("filling") as producer:
        for number in range(count):
            wire.create_topic(broker.broker_address, f"T{number}", queues=QUEUES)
            for body in range(MESSAGES):
                producer.send(Message(f"T{number}", b'{"number": %d}' % body, keys=[f"k{body}"]))
            mq.admin.create_group(f"G{number}")
            mq.admin.reset_offsets(f"G{number}", f"T{number}", 0)


def each_page(broker: MqcoreBroker, server: ConsoleServer, groups: int, looks: int) -> None:
    client = PageClient(server.port)
    print(f"{'page':34} {'broker ms':>9} {'console ms':>10} {'bytes':>8}")
    before = tree_cpu_seconds(broker.pid)
    time.sleep(looks * LOOK_S)
    print(f"{'nobody looks, for as long':34} {(tree_cpu_seconds(broker.pid) - before) / looks * 1000:9.2f}")
    for path, pause_s in (
        ("/?part=1", LOOK_S), ("/topic?name=T{}", 0.0), ("/messages?name=T{}", 0.0),
        ("/messages?name=T{}&by=key&value=k7", 0.0), ("/message?topic=T{}&broker=broker-a&queue=1&offset=0", 0.0),
        ("/group?name=G{}", 0.0), ("/trace?id=T{}", 0.0),
    ):  # fmt: skip
        client.get(path.format(0))
        before = tree_cpu_seconds(broker.pid), tree_cpu_seconds(server.child.pid)
        size = 0
        count = looks if pause_s else min(10 * looks, groups)
        for number in range(count):
            time.sleep(pause_s)
            answer = client.get(path.format(number))
            assert answer.status == 200, answer.text
            size = len(answer.body)
        after = tree_cpu_seconds(broker.pid), tree_cpu_seconds(server.child.pid)
        spent = [(late - early) / count * 1000 for early, late in zip(before, after, strict=True)]
        print(f"{path.partition('&broker')[0]:34} {spent[0]:9.2f} {spent[1]:10.2f} {size:8}")


def under_load(broker: MqcoreBroker, server: ConsoleServer, load: Load, rounds: int, seconds: float) -> None:
    alone, looked = Side("nobody looks", broker, load), LookedSide("somebody looks", broker, load)
    looked.console = PageClient(server.port)
    found = (alone, looked)
    for side in found:
        side.run(seconds)
        side.cpu_us.clear()
        side.rates.clear()
    for _ in range(rounds):
        for side in found:
            side.run(seconds)
    for side in found:
        ratio = statistics.median(a / b for a, b in zip(side.cpu_us, alone.cpu_us, strict=True))
        print(
            f"{side.name:16} {statistics.median(side.rates):10,.0f} messages/s "
            f"{statistics.median(side.cpu_us):7.3f} us CPU/message {ratio:6.3f} of nobody"
        )
        side.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--looks", type=int, default=20)
    parser.add_argument("--load", default="send:8x32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with MqcoreBroker(directory / "store", STORE) as broker:
            fill(broker, given.groups)
            with ConsoleServer(directory, broker.name_server) as server:
                each_page(broker, server, given.groups, given.looks)
                if given.rounds:
                    under_load(
                        broker,
                        server,
                        Load.parse(given.load, serialize_type=SerializeType.JSON),
                        given.rounds,
                        given.seconds,
                    )


if __name__ == "__main__":
    main()
