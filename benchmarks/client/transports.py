"""What TLS and keys cost a synchronous send: one thread, one message after the other, at one broker, in one run.

    python -m benchmarks.client.transports [--count 2000] [--rounds 7]

``short`` is the way that a plain ``send`` takes, on a socket of its thread; ``long`` the same by the event loop, which
sends with hooks take, and all with TLS or keys took once. The producers are open all the time and take turns; the order
turns round with each round. Ratios are of the medians, to a send that is neither sealed nor signed, on the same way.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from benchmarks.client.loads import BODY_SIZE, cpu_s
from mqcore.client import Client, Message, Producer
from mqcore.client.settings.options import ClientOptions
from mqcore.client.telemetry.producer_hooks import ProducerHook, SendContext
from tests.rigs.certificates import trusting
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import create_topic

TOPIC: Final = "transports"
WARM_UP: Final = 200
KEYS: Final[ClientOptions] = {"access_key": "benchmark", "secret_key": "benchmark secret"}
KINDS: Final[dict[str, ClientOptions]] = {
    "plain": {},
    "keys": KEYS,
    "TLS": {"tls": trusting()},
    "TLS and keys": {"tls": trusting(), **KEYS},
}


class Watch(ProducerHook):
    """Sees every send, and does nothing."""

    def before_send(self, context: SendContext) -> None:
        pass


class Side:
    """One producer and what its rounds took, microseconds for each message."""

    def __init__(self, stack: ExitStack, name_server: str, kind: str, way: str) -> None:
        self.kind, self.way = kind, way
        self.wall_us: list[float] = []
        self.cpu_us: list[float] = []
        client = stack.enter_context(Client(name_server, **KINDS[kind]))
        self._producer: Producer = stack.enter_context(client.producer("benchmark"))
        if way == "long":
            self._producer.add_hook(Watch())
        self._message = Message(TOPIC, os.urandom(BODY_SIZE))

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.send(self._message)

    def run(self, count: int) -> None:
        begin_s, begin_cpu_s = time.perf_counter(), cpu_s()
        self.send(count)
        self.wall_us.append((time.perf_counter() - begin_s) / count * 1e6)
        self.cpu_us.append((cpu_s() - begin_cpu_s) / count * 1e6)
        expected = 0 if self.way == "long" else 1
        assert self._producer._short_way.connections == expected, "it went the other way"

    def line(self, base: Side) -> str:
        wall_us, cpu_us = statistics.median(self.wall_us), statistics.median(self.cpu_us)
        ratio = wall_us / statistics.median(base.wall_us)
        cpu_ratio = cpu_us / statistics.median(base.cpu_us)
        return (
            f"{self.kind:13} {self.way:6} {1e6 / wall_us:8,.0f} messages/s  {wall_us:7.1f} us ({ratio:.2f})"
            f"  {cpu_us:6.1f} us client CPU ({cpu_ratio:.2f})"
        )


@click.command()
@click.option("--count", type=click.IntRange(100), default=2000, show_default=True, help="Messages of one round.")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
def main(count: int, rounds: int) -> None:
    """Measure synchronous sends, plain, with keys, with TLS and with both, on either way."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        broker = stack.enter_context(MqcoreBroker(place / "store"))
        create_topic(broker.broker_address, TOPIC, queues=4)
        sides = [Side(stack, broker.name_server, kind, way) for way in ("short", "long") for kind in KINDS]
        for side in sides:
            side.send(WARM_UP)
        for number in range(rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                side.run(count)
    for side in sides:
        click.echo(side.line(next(base for base in sides if base.kind == "plain" and base.way == side.way)))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.client.transports")
