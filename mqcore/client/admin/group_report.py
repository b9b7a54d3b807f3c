"""What the members of a failover group say of it: all of them are asked, since each knows itself best."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from mqcore.client.admin import Admin
from mqcore.client.admin.base import BrokerPlace, answers_of
from mqcore.client.errors import NotFoundError
from mqcore.errors import ClientError, MQError, NotSupportedError
from mqcore.protocol.group_bodies import GroupFacts, MemberStatus
from mqcore.protocol.ha_bodies import HARuntimeInfo

ANSWER_S: Final = 3.0
"""A member that has not answered for so long counts as one that does not."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator looks: in a cluster, for a broker's name, or at the address of one broker."""

    cluster: str | None = None
    broker: str | None = None
    address: str | None = None

    async def find(self, admin: Admin) -> dict[str, BrokerPlace | None]:
        """Return the brokers there, masters or not, by address; None for one that no name server was asked about.

        Raises NotFoundError when there is none.
        """
        address = self.broker if self.broker is not None and ":" in self.broker else self.address
        if address is not None:
            return {address: None}
        found = [place for place in await admin.brokers(self.cluster) if self.broker in (None, place.name)]
        if not found:
            raise NotFoundError(f"the name server knows no broker named {self.broker!r}")
        return {place.address: place for place in found}


@dataclass(slots=True)
class GroupReport:
    """One group, as its members see it: their *answers* and *addresses*, by member."""

    cluster: str
    broker_name: str
    answers: dict[int, HARuntimeInfo] = field(default_factory=dict)
    addresses: dict[int, str] = field(default_factory=dict)

    def views(self) -> list[GroupFacts]:
        """What each member that has answered knows, first who knows the most: of the newest epoch, the master."""
        found = [facts for answer in self.answers.values() if (facts := answer.failover_group) is not None]
        return sorted(found, key=lambda facts: (-facts.epoch, not facts.is_master, facts.me))

    @property
    def facts(self) -> GroupFacts:
        """What is known best."""
        return self.views()[0]

    def own(self, member: int) -> GroupFacts | None:
        """What *member* says; None if it did not answer."""
        answer = self.answers.get(member)
        return None if answer is None else answer.failover_group

    def statuses(self) -> list[MemberStatus]:
        """What the others know of each member, by id; those that were removed are left out."""
        return [status for status in self.facts.member_statuses if not status.is_removed]

    def announced_end(self, member: int) -> tuple[int, int]:
        """Return the newest epoch and the end that *member* has announced last; the end is -1 if nobody knows."""
        said = [status for view in self.views() for status in view.member_statuses if status.member == member]
        return max(((status.last_epoch, status.end) for status in said), default=(0, -1))

    def known_addresses(self) -> set[str]:
        """Where members are, as they or others say."""
        return {status.address for view in self.views() for status in view.member_statuses if not status.is_removed} - {
            ""
        }


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found at a place: groups, and by address what brokers of none say, or why a broker says nothing."""

    groups: list[GroupReport]
    others: Mapping[str, HARuntimeInfo]
    silent: Mapping[str, MQError]
    untold: Sequence[str] = ()
    """Where brokers are that do not know the question, as RocketMQ's before release 5."""


async def survey(admin: Admin, addresses: Iterable[str]) -> Survey:
    """Ask the brokers at *addresses* how they are, and all members of the groups that they are in."""
    groups: dict[tuple[str, str], GroupReport] = {}
    others: dict[str, HARuntimeInfo] = {}
    silent: dict[str, MQError] = {}
    untold: list[str] = []
    asked: set[str] = set()
    waiting = list(dict.fromkeys(addresses))
    while waiting:
        asked.update(waiting)
        for address, answer in (await answers_of(waiting, lambda where: ask(admin.ha_status, where))).items():
            if isinstance(answer, NotSupportedError):
                untold.append(address)
            elif isinstance(answer, MQError):
                silent[address] = answer
            elif (facts := answer.failover_group) is None:
                others[address] = answer
            else:
                group = groups.setdefault(
                    (facts.cluster, facts.broker_name), GroupReport(facts.cluster, facts.broker_name)
                )
                group.answers[facts.me], group.addresses[facts.me] = answer, address
        waiting = sorted({address for group in groups.values() for address in group.known_addresses()} - asked)
    return Survey([groups[name] for name in sorted(groups)], others, silent, untold)


async def the_group(admin: Admin, place: Place) -> GroupReport:
    """Return the one group at *place*. Raises NotFoundError if there is none, ClientError if there are several."""
    found = await survey(admin, await place.find(admin))
    if len(found.groups) > 1:
        names = ", ".join(group.broker_name for group in found.groups)
        raise ClientError(f"there are several failover groups: {names}; say which by --broker")
    if not found.groups:
        silent = "".join(f"; no answer from {address} ({error})" for address, error in found.silent.items())
        raise NotFoundError(f"no broker of a failover group answers there{silent}")
    return found.groups[0]


async def ask(question: Callable[[str], Awaitable[T]], address: str) -> T | MQError:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await question(address)
    except TimeoutError:
        return ClientError(f"has not answered within {ANSWER_S:.0f} s")
    except MQError as error:
        return error
