"""What the console's tests look at: a topic, groups that read it, quarrel about it and give it up, and traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from mqcore.client import Client, Message
from mqcore.protocol.names import TRACE_TOPIC
from tests.waiting import wait_until

from .under_test import RunningBroker, make_topic

DEADLINE_S: Final = 60.0
ORDERS: Final = 24
GIVEN_UP: Final = 3
CITIES: Final = ("Lisbon", "Oslo", "Turin", "Graz")


@dataclass(frozen=True, slots=True)
class Scene:
    """Names, and what was sent."""

    topic: str
    reader: str
    """A group that has read all but the last eight messages, and is offline."""
    quarrel: str
    """A group whose two members want different tags."""
    loser: str
    """A group that has given up GIVEN_UP messages."""
    first_id: str
    """Of the first message, which was traced when it was sent and when it was read."""


@contextmanager
def console_scene(broker: RunningBroker, topic: str, prefix: str = "") -> Iterator[Scene]:
    """Set the scene in the topic *topic* of *broker*; groups have *prefix* before their names."""
    topic = make_topic(broker, topic)
    names = [prefix + name for name in ("billing", "warehouse", "mailing")]
    with ExitStack() as stack:
        mq = stack.enter_context(Client(broker.name_server, offset_commit_interval_s=0.1))
        producer = stack.enter_context(mq.producer(prefix + "shop", trace=True))
        first_id = producer.send(order(topic, 0)).msg_id
        for number in range(1, ORDERS - 8):
            producer.send(order(topic, number))
        read_all(mq, names[0], topic, ORDERS - 8)
        for number in range(ORDERS - 8, ORDERS):
            producer.send(order(topic, number))
        give_up(mq, names[2], topic)
        other = stack.enter_context(Client(broker.name_server))
        for member, tags in ((mq, "new || paid"), (other, "new")):
            stack.enter_context(member.consumer(names[1], {topic: tags}, from_where="earliest"))
        wait_until(lambda: len(mq.admin.group_members(names[1])) == 2, DEADLINE_S, "both members are there")
        # The sender's and the reader's are two messages.
        wait_until(lambda: len(mq.admin.query_by_key(TRACE_TOPIC, first_id)) >= 2, DEADLINE_S, "traces are there")
        yield Scene(topic, *names, first_id)


def order(topic: str, number: int) -> Message:
    body = {"order": number, "city": CITIES[number % len(CITIES)], "items": [{"sku": f"A-{number:03}", "count": 2}]}
    tag = "new" if number % 3 else "paid"
    return Message(topic, json.dumps(body).encode(), tag=tag, keys=[f"order-{number}"], properties={"shop": "corner"})


def read_all(mq: Client, group: str, topic: str, count: int) -> None:
    """Read *count* messages, with traces, commit, and leave."""
    with mq.consumer(group, topic, from_where="earliest", trace=True) as consumer:
        for seen, message in enumerate(consumer, 1):
            message.ack()
            if seen == count:
                break

    def is_committed() -> bool:
        found = mq.admin.lag(group, topic)
        return sum(row.consumer_offset for row in found.queues) >= count

    wait_until(is_committed, DEADLINE_S, "all that was read is committed")


def give_up(mq: Client, group: str, topic: str) -> None:
    """Reject the first GIVEN_UP messages, and leave."""
    with mq.consumer(group, topic, from_where="earliest") as consumer:
        for seen, message in enumerate(consumer, 1):
            message.reject()
            if seen == GIVEN_UP:
                break
        wait_until(lambda: len(mq.admin.dead_letters(group)) >= GIVEN_UP, DEADLINE_S, "they are dead letters")
