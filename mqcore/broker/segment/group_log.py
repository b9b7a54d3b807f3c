"""The port of a failover group's log on the shared segment."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mqcore import clock, layout
from mqcore._fast.log.append import CommitLogWriter
from mqcore._fast.queues.log_tail import LogTail
from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.failover.facts import LeaderFacts, MemberFacts
from mqcore.config import BrokerRole, Settings
from mqcore.errors import StoreError
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.paths import StorePaths
from mqcore.store.queues.dispatch import DispatchStatus

HA_ROLE = layout.constants("HaRole")
MASTER_STATE = layout.constants("MasterState")
SLAVE_STATE = layout.constants("SlaveState")
STORE_FLAG = layout.constants("StoreFlag")
LOCK_TIMEOUT_MS = 5_000
CHECK_S = 0.005
SILENT_MS = 1_000
"""Whoever was not heard for so long is not connected, whatever the kernel says; members report four times as often."""


@dataclass(slots=True)
class Hearing:
    """What is known of a member, by the monotonic clock, ms. *target*: where the log ended, *target_ms*: when."""

    heard_ms: float
    caught_up_ms: float
    target: int
    target_ms: float
    acked: int = -1
    acked_at: int = 0


class SharedGroupLog:
    """Tells the ha worker what to do by the board, and reads there what it does."""

    def __init__(
        self,
        settings: Settings,
        segment: SharedSegment,
        ha_row: int,
        wake: Callable[[], None],
        wake_others: Callable[[], None],
    ) -> None:
        """*wake* wakes the ha worker, whose row is *ha_row*; *wake_others* all who append or answer."""
        self._segment = segment
        self._ha_row = ha_row
        self._wake = wake
        self._wake_others = wake_others
        self._paths = StorePaths.of(settings.store)
        self._geometry = StoreGeometry.of(settings.store)
        self._file_size = settings.store.mapped_file_size_commit_log
        self._writer = CommitLogWriter(segment, self._paths.log, self._file_size, 0, LOCK_TIMEOUT_MS)
        self._waits_for_nobody = settings.store.broker_role is BrokerRole.ASYNC_MASTER
        self._led_since_ms = 0.0
        self._hearings: dict[int, Hearing] = {}

    @property
    def end(self) -> int:
        return self._segment.get("wrote_offset")

    @property
    def confirmed(self) -> int:
        return self._segment.get("confirmed_offset")

    @property
    def master_seen_ms(self) -> int:
        heard = self._segment.get("master_heard")
        return -1 if heard == 0 or not self.is_followed_up else max(0, int(_now_ms()) - heard)

    @property
    def is_followed_up(self) -> bool:
        get = self._segment.get
        return (
            get("ha_role") == HA_ROLE["SLAVE"]
            and get("followed_version") == get("master_version")
            and get("master_state") == MASTER_STATE["COPYING"]
        )

    # Whom it is copied from --------------------------------------------------------------------------------------

    def introduce(self, member: int, nonce: int) -> None:
        self._segment.set("ha_member", member)
        self._segment.set("ha_nonce", nonce)

    def know(self, nonces: Mapping[int, int]) -> None:
        for member in range(layout.GROUP_MEMBERS_MAX):
            self._segment.set_nonce(member, nonces.get(member, 0))

    def follow(self, host: str, port: int, term: int, start: int) -> None:
        self._segment.set_master(ipaddress.ip_address(host).packed, port, start, term)
        self._wake()

    @property
    def doubts_ms(self) -> int:
        return max(0, self._segment.get("doubts_until") - int(_now_ms()))

    def doubt(self, duration_ms: int, *, has_some_of_it: bool) -> None:
        self._segment.doubt(duration_ms, has_some_of_it)
        self._wake_others()

    async def stop_following(self) -> None:
        version = self._segment.forget_master()
        self._wake()
        # One that has died reports nothing, and its successor begins without a master.
        while self._segment.get("followed_version") < version and self._segment.worker_word(self._ha_row, "pid"):
            await asyncio.sleep(CHECK_S)

    # Leading -----------------------------------------------------------------------------------------------------

    async def lead(self, term: int, *, may_lack: bool = False) -> int:
        end, tail = self.end, await asyncio.to_thread(self._read_tail)
        start = await asyncio.to_thread(self._writer.begin_epoch, term, tail, may_lack, self._waits_for_nobody)
        assert start == end, "nobody appends between two masterships"
        self._led_since_ms = _now_ms()
        self._wake()
        # The pull workers have to look at what they hold.
        self._wake_others()
        return start

    def _read_tail(self) -> list[tuple[int, int]]:
        """Return the queues of records that units may not tell of yet, and the offsets behind theirs."""
        # Units of what is dispatched meanwhile are seen as units, or here.
        at, end = max(self._segment.get("dispatched_offset"), self._segment.get("min_offset")), self.end
        tail = LogTail(self._paths, self._geometry)
        tail.attach(self._segment)
        files = MappedFileQueue(self._paths.log, self._file_size)
        files.refresh()
        try:
            while at < end:
                start, view = files.file_view(at)
                outcome = tail.dispatch(view[at - start : end - start], at)
                at += outcome.consumed
                if outcome.status is DispatchStatus.BLANK:
                    at = start + self._file_size
                elif at < end and at < start + self._file_size:
                    raise StoreError(f"the log cannot be read to its end: {outcome.status.name} at {at}, end {end}")
            return tail.next_offsets()
        finally:
            files.close()
            tail.close()

    def epoch_offset(self, topic: str, queue_id: int) -> int:
        row = self._segment.queue_row(topic.encode(), queue_id)
        return self._segment.queue_word(row, "epoch_offset") if row >= 0 else 0

    def require(self, generation: int, members: frozenset[int]) -> None:
        self._segment.require(generation, sum(1 << member for member in members))
        self._wake()

    async def stop_leading(self) -> None:
        await asyncio.to_thread(self._writer.stop_appends)
        self._segment.set("ha_role", HA_ROLE["NONE"])
        self._wake()
        self._wake_others()

    # What the members have ---------------------------------------------------------------------------------------

    def leader_facts(self, isr: frozenset[int]) -> LeaderFacts:
        # In this order: what the set in use lets through after it was seen is in confirmed, and acked is not older.
        required_seen = self._segment.get("required_seen")
        confirmed = self._segment.get("confirmed_offset")
        now, end = _now_ms(), self.end
        rows = {row["member"]: row for row in self._segment.slaves() if row["member"] >= 0}
        own = self._segment.get("ha_member")
        members = {}
        for member in sorted((isr | rows.keys()) - {own}):
            row = rows.get(member)
            is_connected = row is not None and row["state"] == SLAVE_STATE["COPYING"]
            hearing = self._hear(member, row, now, end)
            silent_ms = int(now - hearing.heard_ms)
            members[member] = MemberFacts(
                acked=hearing.acked,
                connected=is_connected and silent_ms <= SILENT_MS,
                silent_ms=silent_ms,
                behind_ms=int(now - hearing.caught_up_ms),
            )
        return LeaderFacts(self._segment.get("epoch_start"), confirmed, required_seen, members)

    def _hear(self, member: int, row: dict[str, int] | None, now: float, end: int) -> Hearing:
        """Take what the row of a member says; None: it has none."""
        since = self._led_since_ms
        hearing = self._hearings.setdefault(member, Hearing(since, since, end, now))
        if row is None:
            return hearing
        if row["acked_at"] != hearing.acked_at:
            hearing.heard_ms, hearing.acked_at = now, row["acked_at"]
        hearing.acked = row["acked"]
        # It had everything at the time when the log ended where it has come to since.
        if hearing.acked >= hearing.target:
            hearing.caught_up_ms = hearing.target_ms
            hearing.target, hearing.target_ms = end, now
        if hearing.acked >= end:
            hearing.caught_up_ms = now
        return hearing


def _now_ms() -> float:
    return clock.monotonic_s() * 1000
