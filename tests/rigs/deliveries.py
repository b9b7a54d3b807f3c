"""The promises about messages, checked on what producers and consumers report."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from tests.waiting import wait_until

from . import wire
from .reports import SEND_OK, QueueName, ReceivedMessage, SentMessage
from .talkers import Produced

SHOWN_MAX = 5
COMMIT_DEADLINE_S = 120.0


def _some(items: Iterable[object]) -> str:
    """The first few of many, for an error message."""
    items = list(items)
    more = f" and {len(items) - SHOWN_MAX} more" if len(items) > SHOWN_MAX else ""
    return f"{items[:SHOWN_MAX]}{more}"


def sent_by_key(produced: Produced) -> dict[str, SentMessage]:
    """All messages of a run in which every send succeeded, in queues whose offsets run from 0 without gaps."""
    failed = [message for message in produced.sent if message.status != SEND_OK]
    assert not failed, f"{len(failed)} sends failed: {_some(failed)}"
    assert produced.accepted == produced.messages == len(produced.sent)
    by_key = {message.key: message for message in produced.sent}
    assert len(by_key) == produced.messages, "keys are not unique"
    offsets: dict[QueueName, set[int]] = defaultdict(set)
    for message in produced.sent:
        queue, offset = message.place
        offsets[queue].add(offset)
    for queue, found in offsets.items():
        assert found == set(range(len(found))), f"the offsets of {queue} are not 0 to {len(found) - 1}"
    assert sum(map(len, offsets.values())) == produced.messages, "two messages have the same place"
    return by_key


class Committer(Protocol):
    """A member of a group that commits when it is told to."""

    def commit(self) -> object: ...


def await_committed(broker: str, group: str, topic: str, queues: int, members: Sequence[Committer] = ()) -> None:
    """Wait until *group* has committed all that is in *topic*; *members* are told to, others do so by themselves.

    A member that leaves hands its queues over where it has committed. Before this an heir may be given messages again,
    as RocketMQ allows; afterwards nothing may come twice.
    """

    def is_committed(queue_id: int) -> bool:
        end = wire.max_offset(broker, topic, queue_id)
        return (wire.consumer_offset(broker, group, topic, queue_id) or 0) == end

    def look() -> bool:
        for member in members:
            member.commit()
        return all(map(is_committed, range(queues)))

    wait_until(look, COMMIT_DEADLINE_S, f"{group} has committed all of {topic}")


def check_each_exactly_once(wanted: Iterable[str], received: Iterable[ReceivedMessage]) -> None:
    """Each wanted key was delivered once, and nothing else was."""
    times = Counter(message.key for message in received)
    missing = [key for key in wanted if key not in times]
    assert not missing, f"{len(missing)} messages never came: {_some(missing)}"
    repeated = [key for key, count in times.items() if count > 1]
    assert not repeated, f"{len(repeated)} messages came more than once: {_some(repeated)}"
    unknown = times.keys() - set(wanted)
    assert not unknown, f"{len(unknown)} messages were not to come: {_some(unknown)}"


def check_intact(
    lines: Sequence[bytes],
    sent: dict[str, SentMessage],
    received: Iterable[ReceivedMessage],
    *,
    prefix: str = "L",
    ids: bool = True,
) -> None:
    """Each delivery has the body of its line, the place that its producer was told and, with *ids*, the message id."""
    for message in received:
        line = lines[int(message.key.removeprefix(prefix))]
        assert message.body_size == len(line), f"body size of {message}"
        assert message.body_sha1 == hashlib.sha1(line).hexdigest(), f"body of {message}"
        origin = sent[message.key]
        assert (message.queue_id, message.queue_offset) == (origin.queue_id, origin.queue_offset), f"place of {message}"
        assert not ids or message.message_id == origin.message_id, f"id of {message}, sent as {origin}"


def check_queue_order(received: Iterable[ReceivedMessage]) -> set[int]:
    """One consumer got each of its queues in order and without gaps; gives their ids."""
    last: dict[int, int] = {}
    for message in received:
        before = last.get(message.queue_id)
        assert before is None or message.queue_offset == before + 1, f"after offset {before} came {message}"
        last[message.queue_id] = message.queue_offset
    return set(last)
