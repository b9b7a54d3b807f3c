"""Consumer groups: how far behind, who is in them, what each member wants, and putting them elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mqcore.client.admin import Admin, GroupLag, ResetReport, ResetTo
from mqcore.client.admin.groups import is_system_group
from mqcore.client.admin.offsets import Target
from mqcore.client.errors import NotFoundError
from mqcore.console.data.asking import each
from mqcore.errors import MQError
from mqcore.protocol.bodies import ClientConnection, ConsumerConnection, ConsumerRunningInfo, SubscriptionGroupConfig
from mqcore.protocol.connection_bodies import SubscriptionConflict

MEMBERS_ASKED_MAX: Final = 20
"""So many members are asked what they want: each question goes on to the member itself."""


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """How far behind a group is; *lag* is None where it has no offsets yet, *error* says why nothing is known."""

    name: str
    lag: GroupLag | None = None
    members: int | None = None
    has_conflict: bool = False
    error: MQError | None = None


@dataclass(frozen=True, slots=True)
class MemberSays:
    """A member, and what it subscribes to by topic; None if it was not asked or does not tell."""

    client: ClientConnection
    wants: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One group. *connection* is None when nobody is online."""

    state: GroupStanding
    configs: Mapping[str, SubscriptionGroupConfig]
    connection: ConsumerConnection | None
    members: Sequence[MemberSays]

    @property
    def conflict(self) -> SubscriptionConflict | None:
        """What the broker has noticed itself."""
        return None if self.connection is None else self.connection.subscription_conflict

    @property
    def topics(self) -> list[str]:
        """All topics that somebody wants or of which there are offsets."""
        found = {topic for member in self.members for topic in member.wants or ()}
        if self.connection is not None:
            found.update(self.connection.subscription_table)
        if self.state.lag is not None:
            found.update(row.queue.topic for row in self.state.lag.queues)
        return sorted(found)

    def odd_ones(self, topic: str) -> frozenset[str]:
        """Return the members that want other things of *topic* than most, or all if there are no most; by client id."""
        told = {member.client.client_id: member.wants.get(topic) for member in self.members if member.wants is not None}
        ranks = Counter(told.values()).most_common(2)
        if len(ranks) < 2:
            return frozenset()
        usual = ranks[0][0] if ranks[0][1] > ranks[1][1] else None
        return frozenset(name for name, wanted in told.items() if usual is None or wanted != usual)

    @property
    def contradicts_itself(self) -> bool:
        return self.conflict is not None or any(self.odd_ones(topic) for topic in self.topics)


async def group_names(admin: Admin, *, everything: bool = False) -> list[str]:
    return [name for name in await admin.list_groups() if everything or not is_system_group(name)]


async def group_states(admin: Admin, names: Iterable[str]) -> list[GroupStanding]:
    """Ask how far behind each group is, and how many are in it: two questions for each group and master."""

    async def look(name: str) -> GroupStanding:
        lag = await _lag(admin, name)
        connection = await connection_of(admin, name)
        members = 0 if connection is None else len(connection.connection_set)
        conflict = connection is not None and connection.subscription_conflict is not None
        return GroupStanding(name, lag, members, conflict)

    return [_standing(name, found) for name, found in (await each(names, look)).items()]


async def groups_behind(admin: Admin, names: Iterable[str], count: int) -> tuple[list[GroupStanding], int]:
    """Return the *count* groups that are most behind, the first of them first, and the lag of all together.

    Only those are asked who is in them: of the others it is one question for each group and master.
    """

    async def look(name: str) -> GroupStanding:
        return GroupStanding(name, await _lag(admin, name))

    lags = {name: _standing(name, found) for name, found in (await each(names, look)).items()}
    behind = sorted(lags.values(), key=lambda group: (-_total(group), group.name))
    return await group_states(admin, [group.name for group in behind[:count]]), sum(map(_total, behind))


def _standing(name: str, found: GroupStanding | MQError) -> GroupStanding:
    return GroupStanding(name, error=found) if isinstance(found, MQError) else found


def _total(group: GroupStanding) -> int:
    return 0 if group.lag is None else group.lag.total


async def group_detail(admin: Admin, name: str) -> GroupDetail:
    """Return what there is to know of a group. Raises NotFoundError when no broker has it and nobody is in it."""
    connection = await connection_of(admin, name)
    try:
        configs = await admin.group_configs(name)
    except NotFoundError:
        if connection is None:
            raise
        configs = {}
    (state,) = await group_states(admin, [name])
    clients = [] if connection is None else connection.connection_set
    asked = [client.client_id for client in clients[:MEMBERS_ASKED_MAX]]
    told = await each(asked, lambda member: admin.consumer_running_info(name, member))
    members = [MemberSays(client, _wants(told.get(client.client_id))) for client in clients]
    return GroupDetail(state, configs, connection, members)


async def reset(admin: Admin, group: str, topic: str, to: Target, *, dry_run: bool) -> ResetReport:
    """Put a group elsewhere in a topic, or with *dry_run* say what would be."""
    return await admin.reset_offsets(group, topic, to, dry_run=dry_run)


def target_of(text: str, when: datetime | None) -> Target | None:
    """Return where to reset to: ``earliest``, ``latest``, an offset, or *when*, as which *text* was read; or None."""
    if text in (ResetTo.EARLIEST, ResetTo.LATEST):
        return ResetTo(text)
    if text.isdecimal() and text.isascii() and len(text) < 19:
        return int(text)
    return when


async def connection_of(admin: Admin, name: str) -> ConsumerConnection | None:
    try:
        return await admin.group_connection(name)
    except NotFoundError:
        return None


async def _lag(admin: Admin, name: str) -> GroupLag | None:
    try:
        return await admin.lag(name)
    except NotFoundError:
        return None


def _wants(info: ConsumerRunningInfo | MQError | None) -> dict[str, str] | None:
    if info is None or isinstance(info, MQError):
        return None
    return {row.topic: _expression(row.expression_type, row.sub_string) for row in info.subscription_set}


def _expression(kind: str | None, text: str) -> str:
    return text if kind in (None, "", "TAG") else f"{kind}: {text}"
