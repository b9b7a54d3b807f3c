"""How fast a consumer's SQL92 filter goes over what is in the store, on mqcore's broker and Apache's in turn.

    python -m benchmarks.filtering [--count N] [--pairs P] [--seconds S] [--ext] [--apache RELEASE] [--check]

A queue of N messages of 1 KiB with seven properties is pulled from its start to its end, one pull after the other, by
the member of a group that has registered `price < P AND color = 'red'`. P lets 100, 10 and 0.1 percent through. Counted
are the messages that the broker has looked at per second, and its processor time for each; that just the wanted ones
came is checked. Both brokers run side by side, and repetitions alternate.
"""

from __future__ import annotations

import json
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.harness.brokers import BrokerSpec, Side, running_broker
from benchmarks.harness.control import ControlClient
from benchmarks.harness.procstat import tree_cpu_seconds
from mqcore.codes import PullSysFlag, RequestCode, ResponseCode
from mqcore.protocol.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, HeartbeatData, MessageModel
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_request
from mqcore.protocol.heartbeat import EXPRESSION_SQL92, SubscriptionData

TOPIC: Final = "Priced"
BODY: Final = bytes(range(256)) * 4
PER_MILLE: Final = (1000, 100, 1)
SIZES: Final = struct.Struct(">ii")
SENT_AT_ONCE: Final = 64
TIMEOUT_S: Final = 120.0


class Line:
    """One blocking connection."""

    def __init__(self, side: Side) -> None:
        self._socket = socket.create_connection(side.address, timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray(1 << 20)

    def write(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def read(self) -> tuple[dict[str, Any], memoryview]:
        """The next answer's header, and its body until the next call. What the broker asks is passed over."""
        while True:
            size, marked = SIZES.unpack(self._receive(8))
            rest = self._receive(size - 4)
            header_size = marked & 0xFFFFFF
            header: dict[str, Any] = json.loads(bytes(rest[:header_size]))
            if header["flag"] & 1:
                return header, rest[header_size:]

    def _receive(self, size: int) -> memoryview:
        if size > len(self._data):
            self._data = bytearray(size)
        view, got = memoryview(self._data)[:size], 0
        while got < size:
            received = self._socket.recv_into(view[got:])
            if received == 0:
                raise click.ClickException("the broker has closed the connection")
            got += received
        return view

    def close(self) -> None:
        self._socket.close()


def send_frame(number: int) -> bytes:
    properties = "\x02".join(
        f"{name}\x01{value}"
        for name, value in {
            "UNIQ_KEY": f"7F00000100002A9F4A0B{number:012X}", "KEYS": f"order-{number}", "TAGS": "orders",
            "customer": f"c{number % 997}", "price": str(number % 1000), "color": "red", "currency": "EUR",
        }.items()
    )  # fmt: skip
    fields = encode_request(
        RequestCode.SEND_MESSAGE_V2, producer_group="bench", topic=TOPIC, default_topic="TBW102",
        default_topic_queue_nums=1, queue_id=0, sys_flag=0, born_timestamp=time.time_ns() // 1_000_000, flag=0,
        properties=properties, reconsume_times=0, unit_mode=False, batch=False,
    )  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque=number, ext_fields=fields, body=BODY).encode()


def fill(side: Side, count: int) -> None:
    line = Line(side)
    for first in range(0, count, SENT_AT_ONCE):
        numbers = range(first, min(first + SENT_AT_ONCE, count))
        line.write(b"".join(map(send_frame, numbers)))
        for _ in numbers:
            header, _ = line.read()
            if header["code"] != ResponseCode.SUCCESS:
                raise click.ClickException(f"send refused: code {header['code']}, {header.get('remark')}")
    line.close()


class Member:
    """The only member of a group whose filter lets *per_mille* of a thousand through."""

    def __init__(self, side: Side, per_mille: int) -> None:
        self._line = Line(side)
        self._group = f"bench_{per_mille}"
        self._per_mille = per_mille
        wanted = SubscriptionData.build(
            TOPIC, f"price < {per_mille} AND color = 'red'", EXPRESSION_SQL92, sub_version=1
        )
        member = ConsumerData(
            self._group, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, [wanted],
        )  # fmt: skip
        beat = HeartbeatData(f"192.0.2.1@{per_mille}", [], [member]).encode()
        self._line.write(RemotingCommand(RequestCode.HEART_BEAT, body=beat).encode())
        self._line.read()

    def scan(self, count: int) -> None:
        """Pull everything from offset 0 to *count*."""
        offset = found = 0
        while offset < count:
            fields = encode_request(
                RequestCode.PULL_MESSAGE, consumer_group=self._group, topic=TOPIC, queue_id=0, queue_offset=offset,
                max_msg_nums=32, sys_flag=int(PullSysFlag.SUSPEND), commit_offset=0, suspend_timeout_millis=15_000,
                subscription=None, sub_version=1, expression_type=EXPRESSION_SQL92,
            )  # fmt: skip
            self._line.write(RemotingCommand(RequestCode.PULL_MESSAGE, opaque=offset, ext_fields=fields).encode())
            header, body = self._line.read()
            if header["code"] not in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
                raise click.ClickException(f"pull refused: code {header['code']}, {header.get('remark')}")
            offset = int(header["extFields"]["nextBeginOffset"])
            found += messages_in(body)
        if found != (wanted := sum(number % 1000 < self._per_mille for number in range(count))):
            raise click.ClickException(f"{found} messages came, wanted {wanted}")

    def close(self) -> None:
        self._line.close()


def messages_in(body: memoryview) -> int:
    count = at = 0
    while at < len(body):
        at += int.from_bytes(body[at : at + 4], "big")
        count += 1
    return count


@dataclass(slots=True)
class Seen:
    """The repetitions of one broker at one rate: messages looked at per second, and CPU us for each."""

    side: Side
    member: Member
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def repeat(self, count: int, least_s: float) -> None:
        """Scan as often as it takes to fill the time: one scan may be over before the kernel's next tick."""
        cpu_s, began_s = tree_cpu_seconds(self.side.pid), time.perf_counter()
        seconds, scans = 0.0, 0
        while seconds < least_s:
            self.member.scan(count)
            seconds, scans = time.perf_counter() - began_s, scans + 1
        self.rates.append(scans * count / seconds)
        self.cpu_us.append((tree_cpu_seconds(self.side.pid) - cpu_s) / (scans * count) * 1e6)


def compare(sides: Sequence[Side], count: int, pairs: int, per_mille: int, least_s: float) -> list[Seen]:
    seen = [Seen(side, Member(side, per_mille)) for side in sides]
    for one in seen:
        one.member.scan(count)  # not counted: a JVM compiles what it runs
    for number in range(pairs):
        for one in seen if number % 2 == 0 else reversed(seen):
            one.repeat(count, least_s)
    for one in seen:
        one.member.close()
    return seen


@click.command(help=__doc__)
@click.option("--count", default=100_000, show_default=True, type=click.IntRange(min=1000), help="Messages.")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(min=1), help="Repetitions of each.")
@click.option("--seconds", default=1.0, show_default=True, help="Of a repetition, at least.")
@click.option("--apache", default="4.9.8", show_default=True, help="Release of the other broker; empty for none.")
@click.option(
    "--mqcore", "ours", default="mqcore", show_default=True, help="Our side; mqcore:revision=REV for another."
)
@click.option("--ext", is_flag=True, help="With consume queue ext files and filter bitmaps.")
@click.option("--directory", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where stores go.")
@click.option("--check", is_flag=True, help="Exit with 1 if mqcore's broker is slower at any rate.")
def main(
    count: int, pairs: int, seconds: float, apache: str, ours: str, ext: bool, directory: Path | None, check: bool
) -> None:
    properties = {"enablePropertyFilter": "true"}
    if ext:
        properties |= {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory, prefix="benchmark-")))
        specs = [BrokerSpec.parse(ours), *([BrokerSpec.parse(f"apache:{apache}")] if apache else [])]
        sides = []
        for number, spec in enumerate(specs):
            folder = root / str(number)
            folder.mkdir()
            sides.append(stack.enter_context(running_broker(spec, folder, properties)))
        slower = False
        for side in sides:
            with ControlClient(side.address) as control:
                control.create_topic(TOPIC, 1)
            if ext:
                # Bitmaps are of filters that are known when a message comes.
                for per_mille in PER_MILLE:
                    Member(side, per_mille).close()
                time.sleep(2.0)
            fill(side, count)
        click.echo(f"{'broker':32} {'match %':>8} {'looked at/s':>12} {'broker CPU us':>14}")
        for per_mille in PER_MILLE:
            seen = compare(sides, count, pairs, per_mille, seconds)
            for one in seen:
                rate, cpu_us = statistics.median(one.rates), statistics.median(one.cpu_us)
                click.echo(f"{one.side.label:32} {per_mille / 10:8} {rate:12.0f} {cpu_us:14.2f}")
            slower |= len(seen) > 1 and statistics.median(seen[0].rates) < statistics.median(seen[1].rates)
    if check and slower:
        sys.exit(1)


if __name__ == "__main__":
    main()
