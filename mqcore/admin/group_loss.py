"""What is lost when a member leads that others of its group are ahead of, as far as their logs are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mqcore.broker.failover.negotiation import entries_of
from mqcore.client.admin import Admin
from mqcore.client.admin.group_report import GroupReport, ask
from mqcore.errors import ClientError, MQError
from mqcore.protocol.ha_bodies import EpochCache
from mqcore.store.epochs import common_point


@dataclass(frozen=True, slots=True)
class Gap:
    """What another member has, and the one that is to lead has not."""

    member: int
    is_in_sync: bool
    is_exact: bool
    """It was asked. Otherwise this is what it announced last, and it may have more."""
    epoch: int
    """The newest one in its log."""
    end: int
    """Of its log; -1 = nobody knows."""
    lost_bytes: int
    lost_epochs: int

    @property
    def is_known(self) -> bool:
        return self.end >= 0

    def in_words(self) -> str:
        who = f"member {self.member} ({'in sync' if self.is_in_sync else 'not in sync'})"
        if not self.is_known:
            return f"{who} does not answer, and nobody knows where its log ends"
        said = "ends" if self.is_exact else "does not answer; it announced last that its log ends"
        between = f"{self.lost_bytes} bytes and {self.lost_epochs} epochs lie between"
        return f"{who} {said} at {self.end}, epoch {self.epoch}: {between}{'' if self.is_exact else ', at least'}"


@dataclass(frozen=True, slots=True)
class Loss:
    """What may be lost if *member*, whose log ends at *end* in *epoch*, leads."""

    member: int
    epoch: int
    end: int
    group_epoch: int
    gaps: tuple[Gap, ...]

    @property
    def bytes_max(self) -> int | None:
        """No more than this was acknowledged: each of the in-sync set has all that was. None = not known."""
        known = [gap.lost_bytes for gap in self.gaps if gap.is_in_sync and gap.is_exact]
        return min(known) if known else None

    @property
    def in_one_sentence(self) -> str:
        if self.bytes_max is not None:
            return (
                f"lose what was acknowledged in the last {self.bytes_max} bytes" if self.bytes_max else "lose nothing"
            )
        least = max((gap.lost_bytes for gap in self.gaps if gap.is_in_sync), default=0)
        return "lose acknowledged messages, nobody knows how many" + (
            f": {least} bytes of log at least" if least else ""
        )

    def in_words(self) -> Iterator[str]:
        yield (
            f"member {self.member} would lead with its log up to {self.end}, of epoch {self.epoch}; "
            f"the group is at epoch {self.group_epoch}"
        )
        yield from (gap.in_words() for gap in self.gaps)


async def loss_of(admin: Admin, report: GroupReport, member: int) -> Loss:
    """Ask all members for their epochs, and compare. Raises ClientError if *member* does not answer."""
    if member not in report.addresses:
        raise ClientError(f"member {member} does not answer: what it has is not known, and it could not lead")
    caches = {other: await ask(admin.epoch_cache, address) for other, address in report.addresses.items()}
    mine = caches[member]
    if isinstance(mine, MQError):
        raise mine
    in_sync = report.facts.in_sync
    others = sorted({*in_sync, *(status.member for status in report.statuses())} - {member})
    gaps = (_gap(report, mine, other, caches.get(other), is_in_sync=other in in_sync) for other in others)
    return Loss(member, _epoch_of(mine), mine.max_offset, report.facts.epoch, tuple(gaps))


def _gap(
    report: GroupReport, mine: EpochCache, other: int, cache: EpochCache | MQError | None, *, is_in_sync: bool
) -> Gap:
    if isinstance(cache, EpochCache):
        point = common_point(entries_of(mine), mine.max_offset, entries_of(cache), cache.max_offset)
        first = cache.min_offset or 0
        epoch, end, common = _epoch_of(cache), cache.max_offset, first if point is None else point
    else:
        # Its log is taken for the same as far as the shorter one goes.
        epoch, end = report.announced_end(other)
        common = mine.max_offset
    lost_bytes = max(0, end - common) if end >= 0 else 0
    return Gap(
        other, is_in_sync, isinstance(cache, EpochCache), epoch, end, lost_bytes, max(0, epoch - _epoch_of(mine))
    )


def _epoch_of(cache: EpochCache) -> int:
    return cache.epoch_list[-1].epoch if cache.epoch_list else 0
