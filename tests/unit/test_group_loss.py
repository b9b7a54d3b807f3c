"""What an unclean election would lose, as far as the logs of a group's members are known."""

from __future__ import annotations

from typing import Any

import pytest

from mqcore.admin.group_loss import Loss, loss_of
from mqcore.client.admin.group_report import GroupReport
from mqcore.errors import ClientError, RemotingConnectError
from mqcore.protocol.group_bodies import GroupFacts, MemberStatus
from mqcore.protocol.ha_bodies import EpochCache, EpochStart, HARuntimeInfo

BEHIND = EpochCache(epoch_list=[EpochStart(1, 0), EpochStart(3, 400)], max_offset=1000, min_offset=0)
AHEAD = EpochCache(
    epoch_list=[EpochStart(1, 0), EpochStart(3, 400), EpochStart(4, 1500)], max_offset=2000, min_offset=0
)
BRANCHED = EpochCache(epoch_list=[EpochStart(1, 0), EpochStart(2, 400)], max_offset=5000, min_offset=0)


class Logs:
    """The one call of ``Admin`` that is needed; who is not there does not answer."""

    def __init__(self, **caches: EpochCache) -> None:
        self._caches = caches

    async def epoch_cache(self, address: str) -> EpochCache:
        if address not in self._caches:
            raise RemotingConnectError(f"connect to {address} failed")
        return self._caches[address]


def report_of(*in_sync: int, answers: dict[int, str], announced: dict[int, int] | None = None) -> GroupReport:
    said = announced or {}
    members = {*in_sync, *answers, *said}
    statuses = [MemberStatus(member, last_epoch=4 * (member in said), end=said.get(member, -1)) for member in members]
    facts = GroupFacts(me=min(answers), epoch=4, in_sync=frozenset(in_sync), member_statuses=statuses)
    answer = HARuntimeInfo(failover_group=facts)
    return GroupReport("C", "broker-a", dict.fromkeys(answers, answer), answers)


async def loss(report: GroupReport, member: int, **caches: EpochCache) -> Loss:
    admin: Any = Logs(**caches)
    return await loss_of(admin, report, member)


async def test_what_an_in_sync_member_that_answers_has_more_is_the_most_that_can_be_lost() -> None:
    found = await loss(report_of(1, 2, answers={1: "one", 3: "three"}), 3, one=AHEAD, three=BEHIND)
    assert found.bytes_max == 1000
    assert found.in_one_sentence == "lose what was acknowledged in the last 1000 bytes"
    assert list(found.in_words()) == [
        "member 3 would lead with its log up to 1000, of epoch 3; the group is at epoch 4",
        "member 1 (in sync) ends at 2000, epoch 4: 1000 bytes and 1 epochs lie between",
        "member 2 (in sync) does not answer, and nobody knows where its log ends",
    ]


async def test_logs_are_compared_by_their_epochs_and_not_by_their_lengths() -> None:
    found = await loss(report_of(1, answers={1: "one", 3: "three"}), 3, one=AHEAD, three=BRANCHED)
    assert [gap.lost_bytes for gap in found.gaps] == [2000 - 400]
    assert found.bytes_max == 1600


async def test_what_those_who_are_gone_announced_last_is_the_least_that_is_lost() -> None:
    found = await loss(report_of(1, answers={3: "three"}, announced={1: 1800}), 3, three=BEHIND)
    assert found.bytes_max is None
    assert found.in_one_sentence == "lose acknowledged messages, nobody knows how many: 800 bytes of log at least"
    assert list(found.in_words())[1] == (
        "member 1 (in sync) does not answer; it announced last that its log ends at 1800, epoch 4: "
        "800 bytes and 1 epochs lie between, at least"
    )


async def test_of_whom_nobody_knows_anything_it_says_that() -> None:
    found = await loss(report_of(1, 2, answers={3: "three"}), 3, three=BEHIND)
    assert found.in_one_sentence == "lose acknowledged messages, nobody knows how many"


async def test_who_is_not_in_sync_does_not_make_the_loss_smaller() -> None:
    found = await loss(report_of(1, answers={2: "two", 3: "three"}), 3, two=BEHIND, three=BEHIND)
    assert [(gap.member, gap.is_in_sync, gap.lost_bytes) for gap in found.gaps] == [(1, True, 0), (2, False, 0)]
    assert found.bytes_max is None


async def test_nothing_is_lost_where_the_member_has_all_that_one_in_sync_has() -> None:
    found = await loss(report_of(1, answers={1: "one", 3: "three"}), 3, one=BEHIND, three=AHEAD)
    assert (found.bytes_max, found.in_one_sentence) == (0, "lose nothing")


async def test_a_member_that_does_not_answer_cannot_be_judged() -> None:
    with pytest.raises(ClientError, match="member 2 does not answer"):
        await loss(report_of(1, answers={1: "one"}), 2, one=AHEAD)
    with pytest.raises(RemotingConnectError):
        await loss(report_of(1, answers={1: "one", 3: "three"}), 3, one=AHEAD)
