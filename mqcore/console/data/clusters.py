"""Brokers: how each is, how logs are copied, and the rates of all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mqcore.client.admin import Admin, BrokerPlace
from mqcore.client.admin.group_report import GroupReport, Survey, survey
from mqcore.console.data.asking import each
from mqcore.errors import MQError
from mqcore.protocol.group_bodies import MemberStatus

SPAN_S = 10
"""The rates are those of the brokers' own tables: over the last ten seconds."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One broker, and its runtime table; *error* says why there is none."""

    place: BrokerPlace
    table: Mapping[str, str] = field(default_factory=dict)
    error: MQError | None = None

    @property
    def version(self) -> str:
        return self.table.get("brokerVersionDesc", "")

    @property
    def in_per_s(self) -> float | None:
        return first_number(self.table.get("putTps"))

    @property
    def out_per_s(self) -> float | None:
        return first_number(self.table.get("getTransferedTps") or self.table.get("getTransferredTps"))

    @property
    def disk_ratio(self) -> float | None:
        """How full the disk of the commit log is, 0 to 1."""
        found = first_number(self.table.get("commitLogDiskRatio"))
        return found if found is not None and 0 <= found <= 1 else None

    @property
    def boot_ms(self) -> int | None:
        return whole_number(self.table.get("bootTimestamp"))

    @property
    def put_today(self) -> int | None:
        """Messages stored since midnight."""
        now, morning = (whole_number(self.table.get(f"msgPutTotalToday{when}")) for when in ("Now", "Morning"))
        return None if now is None or morning is None else now - morning

    @property
    def dispatch_behind_bytes(self) -> int | None:
        return whole_number(self.table.get("dispatchBehindBytes"))

    @property
    def conflicts(self) -> list[str]:
        """Groups whose members contradict each other, as the broker has noticed: its own key, which RocketMQ lacks."""
        return [name for name in self.table.get("subscriptionConflictGroups", "").split(",") if name]

    @property
    def log_bytes(self) -> int | None:
        first, end = (whole_number(self.table.get(f"commitLog{which}Offset")) for which in ("Min", "Max"))
        return None if first is None or end is None else end - first


@dataclass(frozen=True, slots=True)
class Rates:
    """What the brokers that answer take and give together, messages per second."""

    in_per_s: float
    out_per_s: float


def first_number(text: str | None) -> float | None:
    """Return the first number of a rate, which brokers give for 10, 60 and 600 seconds; None if there is none yet."""
    words = (text or "").split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None


def whole_number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


async def broker_states(admin: Admin) -> list[BrokerState]:
    """Ask every broker that the name server knows how it is. Raises NotFoundError if it knows none."""
    places = await admin.brokers()
    answers = await each([place.address for place in places], admin.broker_runtime)
    return [_state(place, answers[place.address]) for place in places]


def _state(place: BrokerPlace, answer: Mapping[str, str] | MQError) -> BrokerState:
    return BrokerState(place, error=answer) if isinstance(answer, MQError) else BrokerState(place, answer)


def rates_of(states: Sequence[BrokerState]) -> Rates:
    """Add up what masters take and what all give: what slaves take are copies."""
    taken = sum(state.in_per_s or 0.0 for state in states if state.place.is_master)
    return Rates(taken, sum(state.out_per_s or 0.0 for state in states))


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member of a failover group, as it says itself or, if it does not answer, as others know it."""

    known: MemberStatus
    role: str
    phase: str
    epoch: int
    end: int | None
    behind_bytes: int | None
    why: str

    @property
    def answers(self) -> bool:
        return self.phase != ""


async def replicas(admin: Admin, states: Sequence[BrokerState]) -> Survey:
    """Ask all brokers how their logs are copied."""
    return await survey(admin, [state.place.address for state in states])


def members_of(group: GroupReport) -> list[MemberRow]:
    rows = []
    for known in group.statuses():
        own = group.own(known.member)
        behind = known.behind_bytes if known.acked >= 0 else None
        if own is None:
            rows.append(MemberRow(known, "", "", known.last_epoch, known.end if known.end >= 0 else None, behind, ""))
        else:
            role = "master" if own.is_master else "slave"
            rows.append(MemberRow(known, role, own.phase, own.epoch, own.end, behind, own.why))
    return rows
