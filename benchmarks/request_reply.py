"""How fast questions get their answers, on mqcore's broker and Apache's in turn.

    python -m benchmarks.request_reply [--count N] [--window W] [--pairs P] [--apache RELEASE] [--check]

One asker and one answerer speak the protocol at its barest, in this process: a question is sent (310) and acknowledged,
pulled by the answerer, answered (325), pushed to the asker (326), taken by it, and the answerer is told so. W questions
are under way at a time. Counted are the whole round trips per second, the time from a question to its answer, and the
broker's processor time for each. Both brokers run side by side, and repetitions alternate.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.harness.brokers import BrokerSpec, Side, running_broker
from benchmarks.harness.control import Address, ControlClient
from benchmarks.harness.procstat import tree_cpu_seconds
from mqcore.codes import PullSysFlag, RequestCode, ResponseCode
from mqcore.protocol.bodies import HeartbeatData, ProducerData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_request

TOPIC: Final = "Questions"
REPLY_TOPIC: Final = "DefaultCluster_REPLY_TOPIC"
ASKER: Final = "192.0.2.1@asker"
BODY: Final = bytes(range(256)) * 4
HEADER_SIZE: Final = struct.Struct(">ii")
CORRELATION: Final = re.compile(rb"CORRELATION_ID\x01(\d{9})")
CORRELATION_TEXT: Final = re.compile(r"CORRELATION_ID\x01(\d{9})")
RUN_TIMEOUT_S: Final = 300.0
WARM_UP: Final = 2000
"""Round trips before the first counted ones, so that a JVM has compiled what it runs."""


class Line(asyncio.Protocol):
    """One connection: *heard* gets header and body of each frame."""

    def __init__(self, heard: Callable[[dict[str, Any], bytes], None]) -> None:
        self._heard = heard
        self._data = b""
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, address: Address, heard: Callable[[dict[str, Any], bytes], None]) -> Line:
        _, line = await asyncio.get_running_loop().create_connection(lambda: cls(heard), *address)
        return line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        at = 0
        while len(data) - at >= HEADER_SIZE.size:
            size, marked = HEADER_SIZE.unpack_from(data, at)
            if len(data) - at < 4 + size:
                break
            body_at = at + 8 + (marked & 0xFFFFFF)
            self._heard(json.loads(data[at + 8 : body_at]), data[body_at : at + 4 + size])
            at += 4 + size
        self._data = data[at:]

    def write(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


def send_frame(code: RequestCode, topic: str, number: int) -> bytes:
    """A question, or the answer to it."""
    properties = f"CORRELATION_ID\x01{number:09d}\x02REPLY_TO_CLIENT\x01{ASKER}\x02TTL\x0130000"
    if code == RequestCode.SEND_REPLY_MESSAGE_V2:
        properties += "\x02MSG_TYPE\x01reply"
    fields = encode_request(
        code, producer_group="bench", topic=topic, default_topic="TBW102", default_topic_queue_nums=1, queue_id=0,
        sys_flag=0, born_timestamp=time.time_ns() // 1_000_000, flag=0, properties=properties, reconsume_times=0,
        unit_mode=False, batch=False,
    )  # fmt: skip
    return RemotingCommand(code, opaque=number, ext_fields=fields, body=BODY).encode()


def pull_frame(offset: int) -> bytes:
    fields = encode_request(
        RequestCode.PULL_MESSAGE, consumer_group="bench_answerers", topic=TOPIC, queue_id=0, queue_offset=offset,
        max_msg_nums=32, sys_flag=int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND), commit_offset=0,
        suspend_timeout_millis=15_000, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, opaque=0, ext_fields=fields).encode()


@dataclass(slots=True)
class Run:
    """One repetition."""

    seconds: float
    cpu_s: float
    delays_s: list[float]


class Exchange:
    """An asker and an answerer at one broker."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._next = 0
        self._end = 0
        self._offset = 0
        self._sent_s: dict[int, float] = {}
        self._open: set[int] = set()
        self._delays_s: list[float] = []
        self._done: asyncio.Future[None] | None = None

    async def open(self, address: Address) -> None:
        self._asker = await Line.open(address, self._asker_heard)
        self._answerer = await Line.open(address, self._answerer_heard)
        heart_beat = HeartbeatData(ASKER, [ProducerData("bench")], []).encode()
        self._asker.write(RemotingCommand(RequestCode.HEART_BEAT, body=heart_beat).encode())
        self._answerer.write(pull_frame(0))

    def close(self) -> None:
        self._asker.close()
        self._answerer.close()

    async def run(self, count: int) -> list[float]:
        """Ask *count* questions; gives how long each waited for its answer."""
        self._done = asyncio.get_running_loop().create_future()
        self._end, self._delays_s = self._next + count, []
        for _ in range(min(self._window, count)):
            self._ask()
        await asyncio.wait_for(self._done, RUN_TIMEOUT_S)
        return self._delays_s

    def _ask(self) -> None:
        number = self._next
        self._next += 1
        self._open.add(number)
        self._sent_s[number] = time.perf_counter()
        self._asker.write(send_frame(RequestCode.SEND_MESSAGE_V2, TOPIC, number))

    def _asker_heard(self, header: dict[str, Any], body: bytes) -> None:
        if header["flag"] & 1:
            self._check(header, "question")
            return
        match = CORRELATION_TEXT.search(header["extFields"]["properties"])
        assert match is not None
        assert body == BODY
        self._asker.write(RemotingCommand(0, flag=1, opaque=header["opaque"]).encode())
        self._delays_s.append(time.perf_counter() - self._sent_s.pop(int(match[1])))

    def _answerer_heard(self, header: dict[str, Any], body: bytes) -> None:
        if header["opaque"] == 0 and "nextBeginOffset" in (header.get("extFields") or {}):
            if header["code"] == ResponseCode.SUCCESS:
                self._offset = int(header["extFields"]["nextBeginOffset"])
                for found in CORRELATION.findall(body):
                    self._answerer.write(send_frame(RequestCode.SEND_REPLY_MESSAGE_V2, REPLY_TOPIC, int(found)))
            self._answerer.write(pull_frame(self._offset))
            return
        self._check(header, "answer")
        self._open.discard(header["opaque"])
        if self._next < self._end:
            self._ask()
        elif not self._open and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _check(self, header: Mapping[str, Any], what: str) -> None:
        if header["code"] != ResponseCode.SUCCESS and self._done is not None and not self._done.done():
            reason = f"{what} refused: code {header['code']}, {header.get('remark')}"
            self._done.set_exception(click.ClickException(reason))


@dataclass(slots=True)
class Seen:
    """The repetitions of one broker."""

    side: Side
    exchange: Exchange
    runs: list[Run] = field(default_factory=list)

    async def repeat(self, count: int) -> None:
        cpu_s, began_s = tree_cpu_seconds(self.side.pid), time.perf_counter()
        delays_s = await self.exchange.run(count)
        seconds = time.perf_counter() - began_s
        self.runs.append(Run(seconds, tree_cpu_seconds(self.side.pid) - cpu_s, sorted(delays_s)))

    def row(self, count: int) -> str:
        rate = statistics.median(count / run.seconds for run in self.runs)
        cpu_us = statistics.median(run.cpu_s / count * 1e6 for run in self.runs)
        p50, p99 = (
            statistics.median(run.delays_s[int(share * (len(run.delays_s) - 1))] for run in self.runs) * 1e3
            for share in (0.5, 0.99)
        )
        return f"{self.side.label:32} {rate:12.0f} {cpu_us:14.0f} {p50:8.2f} {p99:8.2f}"

    @property
    def rate(self) -> float:
        return statistics.median(1 / run.seconds for run in self.runs)


async def compare(sides: list[Side], count: int, window: int, pairs: int) -> list[Seen]:
    seen = [Seen(side, Exchange(window)) for side in sides]
    for one in seen:
        await one.exchange.open(one.side.address)
        await one.exchange.run(WARM_UP)
    for number in range(pairs):
        for one in seen if number % 2 == 0 else reversed(seen):
            await one.repeat(count)
    for one in seen:
        one.exchange.close()
    return seen


@click.command(help=__doc__)
@click.option("--count", default=10_000, show_default=True, type=click.IntRange(min=1), help="Questions a repetition.")
@click.option("--window", default=32, show_default=True, type=click.IntRange(min=1), help="Questions under way.")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(min=1), help="Repetitions of each.")
@click.option("--apache", default="4.9.8", show_default=True, help="Release of the other broker; empty for none.")
@click.option(
    "--mqcore", "ours", default="mqcore", show_default=True, help="Our side; mqcore:revision=REV for another."
)
@click.option("--directory", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where stores go.")
@click.option("--check", is_flag=True, help="Exit with 1 if mqcore's broker is slower.")
def main(count: int, window: int, pairs: int, apache: str, ours: str, directory: Path | None, check: bool) -> None:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory, prefix="benchmark-")))
        specs = [BrokerSpec.parse(ours), *([BrokerSpec.parse(f"apache:{apache}")] if apache else [])]
        sides = []
        for number, spec in enumerate(specs):
            folder = root / str(number)
            folder.mkdir()
            sides.append(stack.enter_context(running_broker(spec, folder, {})))
        for side in sides:
            with ControlClient(side.address) as control:
                control.create_topic(TOPIC, 1)
        seen = asyncio.run(compare(sides, count, window, pairs))
    click.echo(f"{'broker':32} {'round trips/s':>12} {'broker CPU us':>14} {'p50 ms':>8} {'p99 ms':>8}")
    for one in seen:
        click.echo(one.row(count))
    if check and len(seen) > 1 and seen[0].rate < seen[1].rate:
        sys.exit(1)


if __name__ == "__main__":
    main()
