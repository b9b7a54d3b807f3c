"""What tests say about messages: they wait for what should come, and fail with what came instead.

Topics are read queue by queue, without a group, so nothing that the tested program does is disturbed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mqcore.client import Client, MessageQueue, ReceivedMessage
from mqcore.protocol.names import dlq_topic

DEADLINE_S = 30.0
POLL_S = 0.02
SHOWN_MAX = 20

Body = bytes | str


class Reachable(Protocol):
    """Something with a name server: a RunningBroker or an AsyncRunningBroker."""

    @property
    def name_server(self) -> str: ...


Where = Reachable | str
"""A running broker, or the ``host:port`` of a name server."""


def received(where: Where, topic: str, *, tag: str | None = None) -> list[ReceivedMessage]:
    """Return every message of *topic* (with *tag*) that can be read now, in the order of storing."""
    with _client(where) as mq:
        return _read_all(mq, topic, tag)


def assert_received(
    where: Where,
    topic: str,
    bodies: Iterable[Body],
    *,
    tag: str | None = None,
    exactly: bool = True,
    in_order: bool = False,
    timeout_s: float = DEADLINE_S,
) -> list[ReceivedMessage]:
    """Wait until *topic* (its messages with *tag*) holds *bodies*, and return those messages.

    Equal bodies count. With *exactly* false there may be others too; with *in_order* they must have been stored in
    this order. AssertionError after *timeout_s*, and at once when something is there that must not be.
    """
    wanted = [as_bytes(body) for body in bodies]
    with _client(where) as mq:
        return _wait(
            lambda: _read_all(mq, topic, tag),
            lambda messages: _difference(wanted, messages, exactly=exactly, in_order=in_order),
            f"topic {topic}" + (f", tag {tag}" if tag else ""),
            timeout_s,
        )


def assert_nothing_received(where: Where, topic: str, *, tag: str | None = None) -> None:
    """Fail if *topic* holds a message (with *tag*) now. What is still on its way is not waited for."""
    found = received(where, topic, tag=tag)
    if found:
        raise AssertionError(f"topic {topic}: wanted nothing, got {_shown(message.body for message in found)}")


def assert_dead_letters(
    where: Where, group: str, bodies: Iterable[Body], *, timeout_s: float = DEADLINE_S
) -> list[ReceivedMessage]:
    """Wait until the dead letters of *group* are *bodies*, and return them."""
    return assert_received(where, dlq_topic(group), bodies, timeout_s=timeout_s)


def assert_consumed(where: Where, group: str, topic: str, *, timeout_s: float = DEADLINE_S) -> None:
    """Wait until *group* has committed all of *topic*, its retries apart. Members commit every few seconds."""
    end = time.monotonic() + timeout_s
    with _client(where) as mq:
        while True:
            behind = {queue: lag for queue in mq.queues(topic) if (lag := _lag(mq, group, queue))}
            if not behind:
                return
            if time.monotonic() >= end:
                queues = ", ".join(f"queue {queue.queue_id}: {lag}" for queue, lag in behind.items())
                raise AssertionError(
                    f"group {group} has not consumed all of {topic} in {timeout_s:g} s; left: {queues}"
                )
            time.sleep(POLL_S)


def as_bytes(body: Body) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _client(where: Where) -> Client:
    return Client(where if isinstance(where, str) else where.name_server)


def _lag(mq: Client, group: str, queue: MessageQueue) -> int:
    return mq.max_offset(queue) - (mq.committed_offset(group, queue) or 0)


def _read_all(mq: Client, topic: str, tag: str | None) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    for queue in mq.queues(topic):
        offset, end = mq.min_offset(queue), mq.max_offset(queue)
        while offset < end:
            result = mq.pull(queue, offset, expression=tag or "*")
            messages += result.messages
            if result.next_offset <= offset:
                break
            offset = result.next_offset
    return sorted(messages, key=lambda message: (message.store_timestamp, message.ext.physical_offset))


def _wait(
    read: Callable[[], list[ReceivedMessage]],
    difference: Callable[[Sequence[ReceivedMessage]], tuple[str, bool]],
    what: str,
    timeout_s: float,
) -> list[ReceivedMessage]:
    end = time.monotonic() + timeout_s
    while True:
        messages = read()
        wrong, may_come = difference(messages)
        if not wrong:
            return messages
        if not may_come:
            raise AssertionError(f"{what}: {wrong}")
        if time.monotonic() >= end:
            raise AssertionError(f"{what}: {wrong}, after {timeout_s:g} s")
        time.sleep(POLL_S)


def _difference(
    wanted: Sequence[bytes], messages: Sequence[ReceivedMessage], *, exactly: bool, in_order: bool
) -> tuple[str, bool]:
    """Return what is wrong, empty when nothing is, and whether waiting can mend it."""
    found = [message.body for message in messages]
    missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if exactly and extra:
        return f"got {_shown(extra.elements())} besides what was wanted", False
    if missing:
        return f"missing {_shown(missing.elements())}, got {_shown(found)}", True
    known = set(wanted)
    if in_order and [body for body in found if body in known] != list(wanted):
        return f"wanted the order {_shown(wanted)}, got {_shown(found)}", False
    return "", False


def _shown(bodies: Iterable[bytes]) -> str:
    texts = [repr(body) for body in bodies]
    more = f" and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return f"[{', '.join(texts[:SHOWN_MAX])}]{more}"
