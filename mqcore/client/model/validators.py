"""The rules for names and messages that a client checks before it sends. Source: RocketMQ client/Validators.java."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from mqcore.client.errors import InvalidMessageError
from mqcore.errors import ArgumentError
from mqcore.protocol.names import GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX, is_forbidden_topic, is_system_topic
from mqcore.protocol.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, RESERVED_NAMES

LEGAL_NAME = re.compile(r"^[%|a-zA-Z0-9_-]+$", re.ASCII)
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
RESERVED_GROUPS = {DEFAULT_PRODUCER_GROUP: "producerGroup", DEFAULT_CONSUMER_GROUP: "consumerGroup"}
"""Groups that nobody may use, and what the refusal calls them."""


def check_group(group: str, reserved: str) -> str:
    """Return *group* if it is a legal group name and not *reserved*; raise ArgumentError otherwise."""
    if not group.strip():
        raise ArgumentError("the specified group is blank")
    if len(group) > GROUP_LENGTH_MAX:
        raise ArgumentError(f"the specified group is longer than group max length {GROUP_LENGTH_MAX}.")
    if LEGAL_NAME.fullmatch(group) is None:
        raise ArgumentError(
            f"the specified group[{group}] contains illegal characters, allowing only {LEGAL_NAME.pattern}"
        )
    if group == reserved:
        raise ArgumentError(f"{RESERVED_GROUPS[reserved]} can not equal {reserved}, please specify another one.")
    return group


def check_topic(topic: str) -> str:
    """Return *topic* if it is a legal topic name; raise ArgumentError otherwise."""
    if not topic.strip():
        raise ArgumentError("The specified topic is blank")
    if len(topic) > TOPIC_LENGTH_MAX:
        raise ArgumentError(f"The specified topic is longer than topic max length {TOPIC_LENGTH_MAX}.")
    if LEGAL_NAME.fullmatch(topic) is None:
        raise ArgumentError(
            f"The specified topic[{topic}] contains illegal characters, allowing only {LEGAL_NAME.pattern}"
        )
    return topic


def check_count(name: str, count: int) -> None:
    """Raise ArgumentError unless an application asks for at least one thing."""
    if count < 1:
        raise ArgumentError(f"{name}: got {count!r}, wanted 1 or more")


def check_new_topic(topic: str) -> str:
    """Return *topic* if a topic of that name may be created; raise ArgumentError otherwise."""
    check_topic(topic)
    if is_system_topic(topic):
        raise ArgumentError(f"The topic[{topic}] is conflict with system topic.")
    return topic


@lru_cache(maxsize=1024)
def _check_sendable(topic: str) -> None:
    check_topic(topic)
    if is_forbidden_topic(topic):
        raise ArgumentError(f"Sending message to topic[{topic}] is forbidden.").at(topic=topic)


def check_message(topic: str, body: bytes, size_max: int) -> None:
    """Raise ArgumentError or InvalidMessageError unless a message with *topic* and *body* may be sent."""
    _check_sendable(topic)
    if not body:
        raise InvalidMessageError("the message body length is zero").at(topic=topic)
    if len(body) > size_max:
        raise InvalidMessageError(f"the message body size over max value, MAX: {size_max}").at(topic=topic)


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise ArgumentError if an application's property has a reserved name, is blank, or holds a separator."""
    for name, value in properties.items():
        if name in RESERVED_NAMES:
            raise ArgumentError(f"The Property<{name}> is used by system, input another please")
        if not isinstance(value, str) or not name.strip() or not value.strip():
            raise ArgumentError(
                f"The name or value of property can not be null or blank string! Got {value!r} for {name!r}"
            )
        if any(mark in text for mark in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR) for text in (name, value)):
            raise ArgumentError(f"The property {name!r} holds the separator 0x01 or 0x02")
