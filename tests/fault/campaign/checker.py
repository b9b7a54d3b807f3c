"""Whether a group of brokers has kept what it promises, by the evidence of a campaign alone."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.fault.campaign.evidence import Evidence, Fault, GroupOffset, Outcome, Place, Read, Send

OFFSETS_LATE_S: Final = 1.0
"""Group offsets that were committed so long before a fault outlive it."""

SKIPPED_S: Final = 10.0
"""Who has read on for so long behind a message, and has not got it, does not get it any more."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. *rule* is the name of the function that found it."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def acknowledged_messages_are_where_they_were_said_to_be(evidence: Evidence) -> Iterator[str]:
    for send in evidence.sends:
        if send.outcome == Outcome.OK:
            for replica in evidence.replicas:
                found = replica.messages.get((send.queue, send.offset), [])
                if found != [send.message]:
                    yield f"{send} was acknowledged, {replica.name} has {found} there"


def a_place_has_one_message_and_a_message_one_place(evidence: Evidence) -> Iterator[str]:
    at_place: defaultdict[Place, set[str]] = defaultdict(set)
    of_message: defaultdict[str, set[Place]] = defaultdict(set)
    for place, message in _all_seen(evidence):
        at_place[place].add(message)
        of_message[message].add(place)
    for place, messages in at_place.items():
        if len(messages) > 1:
            yield f"queue and offset {place} had {sorted(messages)}"
    for message, places in of_message.items():
        if len(places) > 1:
            yield f"message {message} was sent once and lay at {sorted(places)}"


def _all_seen(evidence: Evidence) -> Iterator[tuple[Place, str]]:
    for send in evidence.sends:
        if send.outcome == Outcome.OK:
            yield (send.queue, send.offset), send.message
    for read in evidence.reads:
        yield (read.queue, read.offset), read.message
    for replica in evidence.replicas:
        for place, messages in replica.messages.items():
            for message in messages:
                yield place, message


def what_was_refused_is_not_there(evidence: Evidence) -> Iterator[str]:
    refused = {send.message: send for send in evidence.sends if send.outcome == Outcome.REFUSED}
    for place, message in dict.fromkeys(_all_seen(evidence)):
        if message in refused:
            yield f"{refused[message]} lies at {place}"


def what_one_producer_sent_to_a_queue_is_in_its_order(evidence: Evidence) -> Iterator[str]:
    sent: defaultdict[tuple[int, int], list[Send]] = defaultdict(list)
    for send in evidence.sends:
        if send.outcome == Outcome.OK:
            sent[send.producer, send.queue].append(send)
    for sends in sent.values():
        for earlier, later in itertools.pairwise(sorted(sends, key=lambda send: send.sequence)):
            if later.offset <= earlier.offset:
                yield f"{later} lies before {earlier}"


def what_was_read_stays(evidence: Evidence) -> Iterator[str]:
    for (queue, offset, message), reader in {
        (read.queue, read.offset, read.message): read.reader for read in evidence.reads
    }.items():
        for replica in evidence.replicas:
            if message not in replica.messages.get((queue, offset), []):
                yield f"{reader} has read {message} at {(queue, offset)}, {replica.name} has not got it"


def readers_are_given_everything(evidence: Evidence) -> Iterator[str]:
    """Nobody goes on behind a message that was acknowledged, whatever he has read of what was lost since."""
    reads: defaultdict[tuple[str, int], list[Read]] = defaultdict(list)
    for read in sorted(evidence.reads, key=lambda read: read.at_s):
        reads[read.reader, read.queue].append(read)
    for (reader, queue), found in reads.items():
        got = {read.message for read in found}
        for send in evidence.without_losses().sends:
            if send.outcome == Outcome.OK and send.queue == queue and send.message not in got:
                behind_s = next((read.at_s for read in found if read.offset > send.offset), math.inf)
                if found[-1].at_s >= max(behind_s, send.ended_s) + SKIPPED_S:
                    yield f"{reader} was never given {send}"


def queues_have_no_gaps(evidence: Evidence) -> Iterator[str]:
    for replica in evidence.replicas:
        offsets: defaultdict[int, list[int]] = defaultdict(list)
        for queue, offset in replica.messages:
            offsets[queue].append(offset)
        for queue, found in offsets.items():
            missing = set(range(max(found) + 1)) - set(found)
            if missing:
                yield f"{replica.name} has nothing at offsets {sorted(missing)[:5]} of queue {queue}"


def what_a_group_has_committed_is_kept(evidence: Evidence) -> Iterator[str]:
    """Within an epoch it never goes back; a later epoch has what was there a second before the fault that led to it.

    A new master finds out anew how far its log can be read: what was read of the one before it may lie behind its end.
    """
    by_queue: defaultdict[int, list[GroupOffset]] = defaultdict(list)
    read_up_to: defaultdict[int, int] = defaultdict(int)
    lines: list[Read | GroupOffset] = [*evidence.reads, *evidence.group_offsets]
    for seen in sorted(lines, key=lambda line: line.at_s):
        if isinstance(seen, Read):
            read_up_to[seen.queue] = max(read_up_to[seen.queue], seen.offset + 1)
            continue
        by_queue[seen.queue].append(seen)
        if seen.offset > max(seen.end, read_up_to[seen.queue]):
            yield f"{seen} is beyond the end, and nobody has read there"
    for of_queue in by_queue.values():
        for epoch, seen_in_epoch in _by_epoch(of_queue).items():
            for earlier, later in itertools.pairwise(seen_in_epoch):
                if later.offset < earlier.offset:
                    yield f"{later} after {earlier}"
            first = seen_in_epoch[0]
            limit_s = _fault_before(evidence, first.at_s) - OFFSETS_LATE_S
            for before in of_queue:
                if before.epoch < epoch and before.at_s < limit_s and first.offset < before.offset:
                    yield f"{first} after {before}, long before the fault"


def _by_epoch(seen: list[GroupOffset]) -> dict[int, list[GroupOffset]]:
    epochs: defaultdict[int, list[GroupOffset]] = defaultdict(list)
    for each in seen:
        epochs[each.epoch].append(each)
    return epochs


def _fault_before(evidence: Evidence, at_s: float) -> float:
    return max((fault.began_s for fault in evidence.faults if fault.began_s < at_s), default=at_s)


def replicas_have_the_same_bytes(evidence: Evidence) -> Iterator[str]:
    for one, other in itertools.combinations(evidence.replicas, 2):
        for number, (mine, theirs) in enumerate(zip(one.blocks, other.blocks, strict=False)):
            if mine != theirs:
                yield f"the logs of {one.name} and {other.name} differ in block {number}"
                break
        end = min(one.end, other.end)
        mine_held = [entry for entry in one.epochs if entry[1] < end]
        theirs_held = [entry for entry in other.epochs if entry[1] < end]
        if mine_held != theirs_held:
            yield f"the epochs of {one.name} are {mine_held}, of {other.name} {theirs_held}"


def an_epoch_has_one_master(evidence: Evidence) -> Iterator[str]:
    lives: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    for lead in evidence.leads:
        lives[lead.epoch].add((lead.broker, lead.life))
    for epoch, masters in lives.items():
        if len(masters) > 1:
            yield f"epoch {epoch} was led by {sorted(masters)}"


def service_comes_back(evidence: Evidence) -> Iterator[str]:
    """After each fault is healed, a message is acknowledged in time."""
    for fault, away_s in times_without_service(evidence):
        if away_s > fault.back_within_s:
            yield f"{away_s:.1f} s after {fault.name} was healed, wanted {fault.back_within_s:.1f} s"


Rule = Callable[[Evidence], Iterator[str]]

RULES: Final[tuple[Rule, ...]] = (
    acknowledged_messages_are_where_they_were_said_to_be,
    a_place_has_one_message_and_a_message_one_place,
    what_was_refused_is_not_there,
    what_one_producer_sent_to_a_queue_is_in_its_order,
    what_was_read_stays,
    readers_are_given_everything,
    queues_have_no_gaps,
    what_a_group_has_committed_is_kept,
    replicas_have_the_same_bytes,
    an_epoch_has_one_master,
    service_comes_back,
)


OF_ALL_SEEN: Final = frozenset({readers_are_given_everything, service_comes_back})
"""These look at what clients saw while something was lost as well: that they were answered, and given a message."""


def times_without_service(evidence: Evidence) -> list[tuple[Fault, float]]:
    """How long after each heal it took until a message was acknowledged again; infinite if none was."""
    acknowledged = sorted(send.ended_s for send in evidence.sends if send.outcome == Outcome.OK)
    return [
        (fault, next((at_s for at_s in acknowledged if at_s > fault.healed_s), math.inf) - fault.healed_s)
        for fault in evidence.faults
    ]


def check(evidence: Evidence) -> list[Violation]:
    """Return what was broken of what must hold, whatever the faults may have cost."""
    kept = evidence.without_losses()
    return [
        Violation(rule.__name__, what) for rule in RULES for what in rule(evidence if rule in OF_ALL_SEEN else kept)
    ]
