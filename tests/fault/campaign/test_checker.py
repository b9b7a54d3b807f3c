"""Each promise broken by hand, once: the checker of the campaign has to find it, and nothing else."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fault.campaign import checker
from tests.fault.campaign.checker import check
from tests.fault.campaign.evidence import (
    Evidence,
    Fault,
    GroupOffset,
    Lead,
    Log,
    Outcome,
    Read,
    Replica,
    Send,
    message_id,
    read_lines,
)

COUNT = 6
SERVICE_WITHIN_S = 5.0


def good() -> Evidence:
    """Two replicas of six messages in one queue, one of them unknown to its producer, one refused, and a fail-over."""
    messages = {(0, offset): [message_id(1, 0, offset)] for offset in range(COUNT)}
    sends = [
        Send(1, 0, number, Outcome.OK, number, 10.0 + number, 10.5 + number) for number in range(COUNT) if number != 3
    ]
    sends += [Send(1, 0, 3, Outcome.UNKNOWN, -1, 13, 13.5), Send(1, 0, 99, Outcome.REFUSED, -1, 14, 14.1)]
    replicas = [
        Replica(name, 4000 + extra, ("aa", "bb"), ((1, 0), (2, 2000), *more), dict(messages))
        for name, extra, more in (("one", 0, ()), ("other", 100, ((3, 4000),)))
    ]
    return Evidence(
        sends,
        [Read("r", 0, offset, message_id(1, 0, offset), 20) for offset in range(COUNT)],
        [GroupOffset(1, 0, 2, 3, 11), GroupOffset(1, 0, 3, 3, 12.8), GroupOffset(2, 0, 2, 6, 14)],
        [Lead(1, "one", "x"), Lead(1, "one", "x"), Lead(2, "other", "y")],
        [Fault("kill", 13.0, 13.2, back_within_s=SERVICE_WITHIN_S)],
        replicas,
    )


def test_good_evidence_is_found_good() -> None:
    assert check(good()) == []


def test_a_new_master_may_not_know_yet_what_was_read_of_the_old_one() -> None:
    evidence = good()
    evidence.reads.append(Read("r", 0, COUNT - 1, message_id(1, 0, COUNT - 1), 14.9))
    evidence.group_offsets.append(GroupOffset(2, 0, COUNT, COUNT - 1, 15))
    assert check(evidence) == []


def lose_a_message(evidence: Evidence) -> None:
    del evidence.replicas[1].messages[0, COUNT - 1]
    evidence.reads.pop()


def put_a_message_elsewhere(evidence: Evidence) -> None:
    evidence.sends.append(Send(1, 0, 100, Outcome.UNKNOWN, -1, 16, 17))
    evidence.replicas[0].messages[0, COUNT] = [message_id(1, 0, 100)]
    evidence.replicas[1].messages[0, COUNT] = [message_id(1, 0, 101)]


def store_a_message_twice(evidence: Evidence) -> None:
    for replica in evidence.replicas:
        replica.messages[0, COUNT] = [message_id(1, 0, 3)]


def store_what_was_refused(evidence: Evidence) -> None:
    for replica in evidence.replicas:
        replica.messages[0, COUNT] = [message_id(1, 0, 99)]


def turn_two_messages_round(evidence: Evidence) -> None:
    one, other = evidence.sends[0], evidence.sends[1]
    evidence.sends[:2] = [replace(one, offset=other.offset), replace(other, offset=one.offset)]
    evidence.reads.clear()
    for replica in evidence.replicas:
        replica.messages[0, 0], replica.messages[0, 1] = replica.messages[0, 1], replica.messages[0, 0]


def forget_what_was_read(evidence: Evidence) -> None:
    evidence.reads.append(Read("r", 0, COUNT, message_id(2, 0, 1), 20))


def pass_a_message_over(evidence: Evidence) -> None:
    last = evidence.reads[-1]
    evidence.reads[2:3] = [replace(last, at_s=last.at_s + checker.SKIPPED_S)]


def leave_a_gap(evidence: Evidence) -> None:
    for replica in evidence.replicas:
        del replica.messages[0, 3]
    del evidence.reads[3]


def commit_beyond_the_end(evidence: Evidence) -> None:
    evidence.group_offsets.append(GroupOffset(2, 0, 7, 6, 15))


def commit_backwards_in_an_epoch(evidence: Evidence) -> None:
    evidence.group_offsets.append(GroupOffset(2, 0, 1, 6, 15))


def lose_an_old_commit(evidence: Evidence) -> None:
    evidence.group_offsets[-1] = GroupOffset(2, 0, 1, 6, 14)


def change_a_byte(evidence: Evidence) -> None:
    evidence.replicas[0] = replace(evidence.replicas[0], blocks=("aa", "cc"))


def disagree_about_an_epoch(evidence: Evidence) -> None:
    evidence.replicas[0] = replace(evidence.replicas[0], epochs=((1, 0), (2, 2100)))


def have_two_masters(evidence: Evidence) -> None:
    evidence.leads.append(Lead(2, "one", "z"))


def have_two_lives_of_one_master(evidence: Evidence) -> None:
    evidence.leads.append(Lead(2, "other", "z"))


def serve_no_more(evidence: Evidence) -> None:
    evidence.faults.append(Fault("kill", 15.0, 16.0, back_within_s=SERVICE_WITHIN_S))


BROKEN: dict[Callable[[Evidence], None], str] = {
    lose_a_message: checker.acknowledged_messages_are_where_they_were_said_to_be.__name__,
    put_a_message_elsewhere: checker.a_place_has_one_message_and_a_message_one_place.__name__,
    store_a_message_twice: checker.a_place_has_one_message_and_a_message_one_place.__name__,
    store_what_was_refused: checker.what_was_refused_is_not_there.__name__,
    turn_two_messages_round: checker.what_one_producer_sent_to_a_queue_is_in_its_order.__name__,
    forget_what_was_read: checker.what_was_read_stays.__name__,
    pass_a_message_over: checker.readers_are_given_everything.__name__,
    leave_a_gap: checker.queues_have_no_gaps.__name__,
    commit_beyond_the_end: checker.what_a_group_has_committed_is_kept.__name__,
    commit_backwards_in_an_epoch: checker.what_a_group_has_committed_is_kept.__name__,
    lose_an_old_commit: checker.what_a_group_has_committed_is_kept.__name__,
    change_a_byte: checker.replicas_have_the_same_bytes.__name__,
    disagree_about_an_epoch: checker.replicas_have_the_same_bytes.__name__,
    have_two_masters: checker.an_epoch_has_one_master.__name__,
    have_two_lives_of_one_master: checker.an_epoch_has_one_master.__name__,
    serve_no_more: checker.service_comes_back.__name__,
}


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_what_is_broken_is_found_by_its_rule_alone(breaks: Callable[[Evidence], None]) -> None:
    evidence = good()
    breaks(evidence)
    assert {violation.rule for violation in check(evidence)} == {BROKEN[breaks]}


def test_every_rule_has_been_broken() -> None:
    assert set(BROKEN.values()) == {rule.__name__ for rule in checker.RULES}


def test_what_a_fault_may_cost_is_no_violation_and_what_it_may_not_is_one() -> None:
    evidence = good()
    lose_a_message(evidence)
    evidence.faults.append(Fault("power", 16.0, 17.0, costs_from_s=15.5))  # the lost one was acknowledged at 15.5
    assert check(evidence) == []
    evidence.faults[-1] = replace(evidence.faults[-1], costs_from_s=15.6)
    assert {violation.rule for violation in check(evidence)} == {
        checker.acknowledged_messages_are_where_they_were_said_to_be.__name__
    }


def test_who_has_read_what_is_lost_has_to_be_given_what_comes_instead() -> None:
    evidence = good()
    end_s = 20 + checker.SKIPPED_S
    evidence.faults.append(Fault("power", 18.0, 19.0, costs_from_s=17.0))
    evidence.reads += [Read("r", 0, COUNT + 3, message_id(3, 0, 0), 18.5), Read("r", 0, 0, message_id(1, 0, 0), end_s)]
    evidence.sends.append(Send(1, 0, 50, Outcome.OK, COUNT, 19.5, 20))
    for replica in evidence.replicas:
        replica.messages[0, COUNT] = [message_id(1, 0, 50)]
    assert {violation.rule for violation in check(evidence)} == {checker.readers_are_given_everything.__name__}
    evidence.reads.append(Read("r", 0, COUNT, message_id(1, 0, 50), end_s))
    assert check(evidence) == []


def test_lines_are_read_as_they_were_written_but_for_one_that_was_cut_off(tmp_path: Path) -> None:
    lines = [*good().sends, *good().reads, *good().group_offsets, *good().leads, *good().faults]
    text = io.StringIO()
    log = Log(text)
    for line in lines:
        log.write(line)
    path = tmp_path / "log"
    path.write_text(text.getvalue() + '["Read", "r", 0')
    assert read_lines(path) == lines
