"""What a load is, and one load on one broker: connections, repetitions, and the check that the broker kept its word."""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.harness import frames
from benchmarks.harness.control import Address, ControlClient, ControlError
from benchmarks.harness.histogram import Histogram
from benchmarks.harness.native import Engine, core_distance_ns
from benchmarks.harness.procstat import CpuReading, CpuUse
from mqcore._fast.tls.library import mapped_library
from mqcore.codes import STORED_CODES, ResponseCode, SerializeType

PROCESSORS: Final = sorted(os.sched_getaffinity(0))
"""What this process was given when it started; it may pin itself later."""
CONNECT_TIMEOUT_S: Final = 10.0
PERCENTILES: Final = (50.0, 99.0, 99.9)
GAIN_MIN: Final = 1.03
SETTLED_SLICES: Final = 3
"""A broker is warm when so many slices in a row were not faster than the best before them by GAIN_MIN."""
FILL_SECONDS_MAX: Final = 600.0

LOAD_TEXT: Final = re.compile(
    r"(?P<sealed>tls-)?(?P<kind>send|batch|pull|transaction):(?P<connections>\d+)x(?P<window>\d+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One kind of traffic. A batch is a send with several messages in each request.

    A transaction is a half message and, once that is answered, its commit; both answers make one message.
    """

    kind: str
    connections: int
    is_sealed: bool = False
    """Its connections have TLS."""
    window: int
    body_size: int = 1024
    queue_count: int = 8
    batch_size: int = 1
    pull_size: int = 32
    serialize_type: SerializeType = SerializeType.JSON
    fill_messages: int = 200_000
    """What a pull's topic is filled with; readers start again at the first message when they reach the last."""

    @classmethod
    def parse(cls, text: str, *, batch_size: int = 32, **settings: Any) -> Load:
        """Read `send:8x32`, `batch:8x4` or `pull:8x1`: kind, connections, requests in flight on each."""
        match = LOAD_TEXT.fullmatch(text)
        if match is None:
            raise ValueError(
                f"load: got {text!r}, wanted kind:CONNECTIONSxWINDOW, kind send, batch, pull or transaction, or"
                " tls- and one of these"
            )
        connections, window = int(match["connections"]), int(match["window"])
        if connections < 1 or window < 1:
            raise ValueError(f"load: got {text!r}, wanted at least one connection and one request in flight")
        return cls(
            kind=match["kind"],
            is_sealed=match["sealed"] is not None,
            connections=connections,
            window=window,
            batch_size=batch_size if match["kind"] == "batch" else 1,
            **settings,
        )

    def __str__(self) -> str:
        return f"{'tls-' if self.is_sealed else ''}{self.kind}:{self.connections}x{self.window}"

    @property
    def is_pull(self) -> bool:
        return self.kind == "pull"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One repetition. CPU is per message that was answered with SUCCESS, drained requests included."""

    load: str
    messages: int
    elapsed_s: float
    messages_per_s: float
    megabytes_per_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    broker_cpu_us: float | None
    replica_cpu_us: float | None
    """Of all of its replicas; None if it has none."""
    load_cpu_us: float
    others_share: float
    kernel_share: float
    core_distances_ns: tuple[float, ...]
    """Before and after; empty if the probe could not run."""
    refused: dict[int, int] = field(default_factory=dict)
    """Answers by code, other than SUCCESS."""

    @property
    def refused_share(self) -> float:
        """Of all requests that were answered, those that were refused, 0 to 1."""
        refused = sum(self.refused.values())
        return refused / (refused + self.messages) if refused else 0.0

    @property
    def all_cpu_us(self) -> float | None:
        """Of the broker and its replicas."""
        return None if self.broker_cpu_us is None else self.broker_cpu_us + (self.replica_cpu_us or 0.0)


class Connections:
    """Open non-blocking sockets to one broker."""

    def __init__(self, address: Address, count: int) -> None:
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                connection = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
                self._sockets.append(connection)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setblocking(False)
        except OSError:
            self.close()
            raise

    @property
    def fds(self) -> list[int]:
        """Their file descriptors, for an engine."""
        return [connection.fileno() for connection in self._sockets]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close them all."""
        for connection in self._sockets:
            connection.close()


class LoadSession:
    """One load on one topic of one broker, ready to be repeated. The topic is created and, for pulls, filled first.

    *broker_pid* is the root of the broker's process tree; without it no CPU of the broker is measured. *replica_pids*
    are those of the brokers that copy its log. Between repetitions no connection is open: brokers close those that were
    idle for two minutes, and the other side may take longer.
    """

    def __init__(
        self,
        address: Address,
        load: Load,
        topic: str,
        *,
        broker_pid: int | None = None,
        replica_pids: Sequence[int] = (),
    ) -> None:
        self.load = load
        self.topic = topic
        self.broker_pid = broker_pid
        self.replica_pids = replica_pids
        self._address = address
        self._repetition = 0
        with ControlClient(address) as control:
            control.create_topic(topic, load.queue_count)
            self._end_offsets = control.max_offsets(topic, load.queue_count)
        if load.is_pull and self.stored < load.fill_messages:
            filler = LoadSession(address, replace(load, kind="send", connections=8, window=32), topic)
            filler.measure(FILL_SECONDS_MAX, request_limit=load.fill_messages - self.stored)
            self._end_offsets = filler._end_offsets

    @property
    def stored(self) -> int:
        """Messages that the topic's queues have been given so far."""
        return sum(self._end_offsets)

    def _engine(self, connections: Connections) -> Engine:
        """Return an engine for the next repetition; its sends have keys that no other repetition has used."""
        load = self.load
        self._repetition += 1
        if load.is_pull:
            templates = frames.pull_templates(
                self.topic,
                queue_count=load.queue_count,
                message_count_max=load.pull_size,
                serialize_type=load.serialize_type,
            )
        elif load.kind == "transaction":
            templates = frames.transaction_templates(
                self.topic,
                queue_count=load.queue_count,
                body=frames.body_of(load.body_size),
                repetition=self._repetition,
            )
        else:
            templates = frames.send_templates(
                self.topic,
                queue_count=load.queue_count,
                body=frames.body_of(load.body_size),
                batch_size=load.batch_size,
                serialize_type=load.serialize_type,
                repetition=self._repetition,
            )
        end_offsets = self._end_offsets if load.is_pull else []
        return Engine(
            connections.fds,
            load.window,
            templates,
            end_offsets,
            load.queue_count,
            load.batch_size,
            load.kind == "transaction",
            library() if load.is_sealed else None,
        )

    def _account_for(self, codes: dict[int, int]) -> None:
        """Check that the queues have grown by what was acknowledged, and remember how long they are now."""
        acknowledged = sum(count for code, count in codes.items() if code in STORED_CODES) * self.load.batch_size
        with ControlClient(self._address) as control:
            self._end_offsets = control.await_total(self.topic, self.load.queue_count, self.stored + acknowledged)

    def warm_up(self, slice_seconds: float, seconds_max: float, others_share_max: float) -> None:
        """Load in slices until the broker has stopped getting faster, but not for more than about *seconds_max*.

        A Java broker needs a million messages for that; measured sooner, it looks up to twice as slow as it is. A slice
        in which others used more than *others_share_max* of the machine does not show that it has stopped.
        """
        best = 0.0
        slices_without_gain = 0
        deadline = time.monotonic() + seconds_max
        while slices_without_gain < SETTLED_SLICES and time.monotonic() < deadline:
            measurement = self.measure(slice_seconds)
            if measurement.messages_per_s > best * GAIN_MIN:
                slices_without_gain = 0
            elif measurement.others_share <= others_share_max:
                slices_without_gain += 1
            best = max(best, measurement.messages_per_s)

    def measure(self, seconds: float, *, request_limit: int = 0) -> Measurement:
        """Load for *seconds* or *request_limit* requests; return what was seen once everything sent is accounted for.

        Raises ControlError if a pull brought other messages than asked for, or if the queues have not grown by exactly
        what was acknowledged; ConnectionError as Engine.run.
        """
        distance_before = probe_core_distance()
        with Connections(self._address, self.load.connections) as connections:
            engine = self._engine(connections)
            first = CpuReading.take(self.broker_pid, self.replica_pids)
            counts = engine.run(seconds, request_limit)
            if not self.load.is_pull:
                self._account_for(counts["codes"])
            use = CpuUse.between(first, CpuReading.take(self.broker_pid, self.replica_pids))
        if counts["unsound"]:
            raise ControlError(f"{self.load}: {counts['unsound']} answers did not hold what was asked for")
        histogram = Histogram.of_counts(counts["buckets"], counts["slowest_ns"])
        p50_us, p99_us, p999_us = (histogram.percentile_ns(percent) / 1e3 for percent in PERCENTILES)
        elapsed_s = counts["elapsed_ns"] / 1e9
        answered = counts["all_messages"]
        return Measurement(
            load=str(self.load),
            messages=counts["messages"],
            elapsed_s=elapsed_s,
            messages_per_s=counts["messages"] / elapsed_s,
            megabytes_per_s=(counts["bytes_in"] + counts["bytes_out"]) / elapsed_s / 1e6,
            p50_us=p50_us,
            p99_us=p99_us,
            p999_us=p999_us,
            max_us=counts["slowest_ns"] / 1e3,
            broker_cpu_us=None if self.broker_pid is None else per_message_us(use.broker_seconds, answered),
            replica_cpu_us=per_message_us(use.replica_seconds, answered) if self.replica_pids else None,
            load_cpu_us=per_message_us(use.load_seconds, answered),
            others_share=use.others_share,
            kernel_share=use.kernel_share,
            core_distances_ns=tuple(
                distance for distance in (distance_before, probe_core_distance()) if distance is not None
            ),
            refused={code: n for code, n in counts["codes"].items() if code != ResponseCode.SUCCESS},
        )


def library() -> str:
    """The OpenSSL that the load takes: Python's, or the system's where Python has one built in."""
    return mapped_library() or "libssl.so.3"


def per_message_us(seconds: float, messages: int) -> float:
    """Return microseconds for each message; infinite if there was none."""
    return seconds * 1e6 / messages if messages else math.inf


def probe_core_distance() -> float | None:
    """Return the hand-over time between the first two processors, ns; None if there is one only, or no quiet moment."""
    return core_distance_ns(PROCESSORS[0], PROCESSORS[1]) if len(PROCESSORS) > 1 else None
