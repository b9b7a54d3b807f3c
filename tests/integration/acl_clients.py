"""What clients of a guarded broker do in the tests: are refused, and receive."""

from __future__ import annotations

import pytest

from mqcore.client import Client, Message
from mqcore.errors import MQError

PATIENCE_S = 60.0


def refusal_of(mq: Client, topic: str) -> str:
    """What a send to *topic* is refused with."""
    with mq.producer("some_producers", retries=0) as producer, pytest.raises(MQError) as caught:
        producer.send(Message(topic, b"x"), queue=producer.queues(topic)[0])
    return str(caught.value)


def received(mq: Client, group: str, topic: str, count: int) -> list[bytes]:
    """The bodies of so many messages."""
    bodies: list[bytes] = []
    with mq.consumer(group, topic, from_where="earliest") as consumer:
        while len(bodies) < count:
            for message in consumer.receive(timeout_s=PATIENCE_S):
                bodies.append(message.body)
                message.ack()
    return bodies
