"""How the members of a group divide the queues of a topic.

Every member computes the whole division for itself and takes its own part, so all of them, in whatever language, must
sort and divide exactly alike. This module is pure: names in, queues out. Applying a result is assignment.py's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mqcore.errors import ConfigError
from mqcore.protocol.message import MessageQueue

Strategy = Callable[[int, Sequence[MessageQueue], int], list[MessageQueue]]
"""(own index, sorted queues, member count) -> own queues, in order."""


def java_order(text: str) -> bytes:
    """Return a key that sorts as Java compares strings: by UTF-16 code unit, not by code point."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sort by topic, then broker name, then queue id as a number. Source: RocketMQ MessageQueue.java, compareTo."""
    return sorted(queues, key=lambda queue: (java_order(queue.topic), java_order(queue.broker_name), queue.queue_id))


def allocate_averagely(index: int, queues: Sequence[MessageQueue], members: int) -> list[MessageQueue]:
    """Give every member one run of neighbouring queues; the first members get the odd ones.

    Source: RocketMQ AllocateMessageQueueAveragely.java.
    """
    odd = len(queues) % members
    gets_odd = odd > 0 and index < odd
    if len(queues) <= members:
        size = 1
    else:
        size = len(queues) // members + (1 if gets_odd else 0)
    start = index * size if gets_odd else index * size + odd
    return list(queues[start : start + size])


def allocate_by_circle(index: int, queues: Sequence[MessageQueue], members: int) -> list[MessageQueue]:
    """Deal the queues like cards. Source: RocketMQ AllocateMessageQueueAveragelyByCircle.java."""
    return list(queues[index::members])


STRATEGIES: dict[str, Strategy] = {"AVG": allocate_averagely, "AVG_BY_CIRCLE": allocate_by_circle}


def strategy_named(name: str) -> Strategy:
    """Return the strategy that RocketMQ calls *name*; ConfigError when there is none."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise ConfigError(f"setting strategy: got {name!r}, wanted one of {', '.join(STRATEGIES)}") from None


def allocate(
    strategy: Strategy, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> list[MessageQueue]:
    """Return the queues of *client_id* among *client_ids*, in order.

    Both are sorted here. Nothing when there are no queues, or when the group does not know *client_id* (yet). An id
    that stands twice counts twice, as it does for the members in other languages.
    """
    members = sorted(client_ids, key=java_order)
    if client_id not in members:
        return []
    return strategy(members.index(client_id), sorted_queues(queues), len(members))
