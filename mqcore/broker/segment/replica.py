"""The ports of replicas on the shared segment."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from mqcore import clock, layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.address import host_and_port
from mqcore.broker.ports import Clock, ReplicationFacts, SlaveFacts, StoreView
from mqcore.broker.segment.transfer_rates import TransferRates

MASTER_STATE = layout.constants("MasterState")
SLAVE_STATES = {number: name for name, number in layout.constants("SlaveState").items()}
RECEIVED = "received"
WALK_MAX = 10_000
"""Records looked at behind the newest one in a consume queue."""

CONNECT_LIMIT_S = 5.0
"""Within this time the ha worker says whether it got through."""


class SharedReplica:
    """Tells the ha worker what to do by the board, and reads there what it does."""

    def __init__(self, segment: SharedSegment, store: StoreView, file_size: int, wake: Callable[[], None]) -> None:
        """*file_size* is that of a commit log file."""
        self._segment = segment
        self._store = store
        self._file_size = file_size
        self._wake = wake
        self._told = 0
        self._told_until = 0.0

    @property
    def end(self) -> int:
        return self._segment.get("wrote_offset")

    @property
    def is_copying(self) -> bool:
        if self._segment.get("master_state") != MASTER_STATE["UNKNOWN"]:
            self._told_until = 0.0
            return True
        return clock.monotonic_s() < self._told_until

    @property
    def is_dispatched(self) -> bool:
        return self._segment.get("dispatched_offset") >= self._segment.get("wrote_offset")

    def newest_record(self) -> tuple[int, bytes] | None:
        # What follows the newest one in a consume queue is of topics that are gone.
        newest = self._newest_in_queues()
        at = self._segment.get("min_offset") if newest is None else newest[0] + len(newest[1])
        for _ in range(WALK_MAX):
            if at >= self.end:
                break
            record = self._store.look_message(at)
            if record is None:
                at += self._file_size - at % self._file_size
            else:
                newest = at, record
                at += len(record)
        return newest

    def _newest_in_queues(self) -> tuple[int, bytes] | None:
        rows = range(self._segment.queue_count())
        row = max(rows, key=lambda row: self._segment.queue_word(row, "max_physical"), default=None)
        if row is None:
            return None
        topic, queue_id = self._segment.queue_key(row)
        _, end = self._segment.queue_bounds(row)
        units = self._store.read_units(topic.decode(), queue_id, end - 1, 1) if end > 0 else ()
        if not units:
            return None
        record = self._store.look_message(units[0].physical_offset, units[0].record_size)
        return None if record is None else (units[0].physical_offset, record)

    def follow(self, host: str, port: int, start: int) -> None:
        self._segment.set_master(ipaddress.ip_address(host).packed, port, start)
        self._told_until = clock.monotonic_s() + CONNECT_LIMIT_S
        self._wake()


class SharedReplication:
    """What the ha worker says on the board."""

    def __init__(self, segment: SharedSegment, clock: Clock, ha_row: int) -> None:
        """*ha_row* is the row of the ha worker, which counts there what it has sent, or received."""
        self._segment = segment
        self._clock = clock
        self._ha_row = ha_row
        self._rates = TransferRates()

    def sample(self) -> None:
        """Note what has been copied so far. To be called every second."""
        sent = {connection(row): row["sent_bytes"] for row in self._segment.slaves()}
        self._rates.sample(sent | {RECEIVED: self._segment.worker_word(self._ha_row, "bytes")})

    def facts(self) -> ReplicationFacts:
        get = self._segment.get
        end = get("wrote_offset")
        return ReplicationFacts(
            end=end,
            replicated_end=get("replicated_offset"),
            slaves=tuple(self._slave(row, end) for row in self._segment.slaves()),
            is_copying=get("master_state") == MASTER_STATE["COPYING"],
            master_seen_ms=get("master_seen"),
            master_end=get("master_end"),
            bytes_per_second=self._rates.of(RECEIVED),
        )

    def _slave(self, row: dict[str, Any], end: int) -> SlaveFacts:
        acked = row["acked"]
        behind_ms = 0
        if acked < end:
            behind_ms = max(0, self._clock() - (row["caught_up_at"] or row["connected_at"]))
        return SlaveFacts(
            address=host_and_port(str(ipaddress.ip_address(row["host"])), row["port"]),
            state=SLAVE_STATES[row["state"]],
            acked=acked,
            sent=row["sent"],
            sent_bytes=row["sent_bytes"],
            behind_bytes=end - max(0, acked),
            behind_ms=behind_ms,
            bytes_per_second=self._rates.of(connection(row)),
        )


def connection(row: dict[str, Any]) -> tuple[bytes, int, int]:
    """What tells a slave's connection from others, its own earlier ones included."""
    return row["host"], row["port"], row["connected_at"]
