"""Groups whose members subscribe differently.

RocketMQ has one table of subscriptions a group, and the last heart-beat wins: members that want different topics take
each other's away, and a queue's messages are passed over by whoever holds it without wanting them. Nobody says so
there. Here what each member said is kept beside the table, and a difference that stands for a while is a *conflict*: it
is logged once, counted, shown to operators, and told to the group's clients. It changes nothing about who gets what.

A group that is changed member by member differs for as long as that takes, which is no mistake yet; *limit_ms* says
what is. The group's own retry topic does not count, as only push consumers subscribe to it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from mqcore.broker.ports import Clock
from mqcore.protocol.bodies import SubscriptionConflict, SubscriptionData
from mqcore.protocol.heartbeat import EXPRESSION_TAG, SUB_ALL, is_tag_type
from mqcore.protocol.names import retry_topic

logger = logging.getLogger(__name__)

LOG_INTERVAL_MS: Final = 600_000
"""A group whose members cannot agree for long is named in the log so often at most."""

Wish = tuple[str, str]
"""Type and expression, put so that what means the same is the same."""

Wishes = frozenset[tuple[str, Wish]]
"""What one member wants: topics and how."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """What one connection of a group said last."""

    client_id: str
    wishes: Wishes


@dataclass(slots=True)
class _Group:
    members: dict[int, Subscriber] = field(default_factory=dict)
    counts: Counter[Wishes] = field(default_factory=Counter)
    differs_since: int | None = None
    stands: bool = False
    """Whether the difference has stood for so long that it is a conflict."""


class SubscriptionConflicts:
    """What the members of all groups want, and which groups are in conflict."""

    def __init__(self, clock: Clock, limit_ms: Callable[[], int]) -> None:
        self.total = 0
        """Conflicts found since the start; a group that agrees and differs again counts again."""
        self._clock = clock
        self._limit_ms = limit_ms
        self._groups: dict[str, _Group] = {}
        self._logged: dict[str, int] = {}

    def heard(self, group: str, channel_id: int, client_id: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take what a member's heart-beat says."""
        entry = self._groups.setdefault(group, _Group())
        member = Subscriber(client_id, wishes_of(group, subscriptions))
        known = entry.members.get(channel_id)
        if known != member:
            if known is None:
                # A client that has come back on another connection is one member; the old one may take long to close.
                for other in [other for other, old in entry.members.items() if old.client_id == client_id]:
                    _remove(entry, other)
            else:
                _remove(entry, channel_id)
            entry.members[channel_id] = member
            entry.counts[member.wishes] += 1
        self._look(group, entry)

    def left(self, group: str, channel_id: int) -> None:
        """A member has gone."""
        entry = self._groups.get(group)
        if entry is None or channel_id not in entry.members:
            return
        _remove(entry, channel_id)
        if entry.members:
            self._look(group, entry)
        else:
            del self._groups[group]

    def scan(self) -> None:
        """Look at every group that differs; to be called now and then."""
        for group, entry in self._groups.items():
            if entry.differs_since is not None:
                self._look(group, entry)
        horizon = self._clock() - LOG_INTERVAL_MS
        self._logged = {group: logged for group, logged in self._logged.items() if logged > horizon}

    def of(self, group: str) -> SubscriptionConflict | None:
        """Return what *group* disagrees about: one topic, and two members; None if it is not in conflict."""
        entry = self._groups.get(group)
        return _conflict(group, entry) if entry is not None and entry.stands else None

    @property
    def groups(self) -> list[str]:
        """The groups that are in conflict now."""
        return sorted(group for group, entry in self._groups.items() if entry.stands)

    def _look(self, group: str, entry: _Group) -> None:
        now = self._clock()
        if len(entry.counts) < 2:
            if entry.stands:
                logger.info("subscription conflict over group=%s", group)
            entry.differs_since, entry.stands = None, False
            return
        if entry.differs_since is None:
            entry.differs_since = now
        if not entry.stands and now - entry.differs_since >= self._limit_ms():
            entry.stands = True
            self.total += 1
            self._log(group, entry, now)

    def _log(self, group: str, entry: _Group, now: int) -> None:
        if now - self._logged.get(group, now - LOG_INTERVAL_MS) < LOG_INTERVAL_MS:
            return
        self._logged[group] = now
        found = _conflict(group, entry)
        logger.warning(
            "subscription conflict, messages may be passed over group=%s topic=%s client=%s wants=%s other=%s wants=%s",
            group, found.topic, found.first_client, found.first, found.second_client, found.second,
        )  # fmt: skip


def _remove(entry: _Group, channel_id: int) -> None:
    member = entry.members.pop(channel_id)
    entry.counts[member.wishes] -= 1
    if not entry.counts[member.wishes]:
        del entry.counts[member.wishes]


def _conflict(group: str, entry: _Group) -> SubscriptionConflict:
    """Return one difference: between a member of the most and one of the others, about the first topic by name."""
    most = max(entry.counts, key=lambda wishes: (entry.counts[wishes], sorted(wishes)))
    members = sorted(entry.members.values(), key=lambda member: member.client_id)
    first = next(member for member in members if member.wishes == most)
    second = next(member for member in members if member.wishes != most)
    topic = min(topic for topic, _ in first.wishes ^ second.wishes)
    return SubscriptionConflict(
        group, topic, first.client_id, _words(first, topic), second.client_id, _words(second, topic)
    )


def _words(member: Subscriber, topic: str) -> str:
    wish = dict(member.wishes).get(topic)
    return " ".join(wish) if wish is not None else "nothing"


def wishes_of(group: str, subscriptions: Iterable[SubscriptionData]) -> Wishes:
    """Return what *subscriptions* say, the order of tags and RocketMQ's ways to write "all" left aside."""
    own_retry = retry_topic(group)
    return frozenset((data.topic, _wish(data)) for data in subscriptions if data.topic != own_retry)


def _wish(data: SubscriptionData) -> Wish:
    text = data.sub_string.strip()
    if not is_tag_type(data.expression_type):
        return (data.expression_type, text)
    tags = {tag.strip() for tag in text.split("||")} - {""}
    return (EXPRESSION_TAG, " || ".join(sorted(tags)) if tags else SUB_ALL)
