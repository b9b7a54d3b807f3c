"""The rules for names and messages that a client checks before it sends. Source: RocketMQ client/Validators.java."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mqcore.client.errors import InvalidMessageError
from mqcore.errors import ClientError
from mqcore.protocol.names import GROUP_LENGTH_MAX, is_forbidden_topic, validate_topic
from mqcore.protocol.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, RESERVED_NAMES

LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"


def check_group(group: str, reserved: str) -> str:
    """Return *group* if it is a legal group name and not *reserved*; raise ClientError otherwise."""
    if not group.strip():
        raise ClientError("the specified group is blank")
    if len(group) > GROUP_LENGTH_MAX:
        raise ClientError(f"the specified group is longer than {GROUP_LENGTH_MAX}: got {len(group)}")
    if LEGAL_NAME.fullmatch(group) is None:
        raise ClientError(f"the specified group[{group}] contains illegal characters, not {LEGAL_NAME.pattern}")
    if group == reserved:
        raise ClientError(f"group can not equal {reserved}, please specify another one")
    return group


def check_topic(topic: str) -> str:
    """Return *topic* if it is a legal topic name; raise ClientError otherwise."""
    reason = validate_topic(topic)
    if reason is not None:
        raise ClientError(f"{reason}: got {topic!r}")
    return topic


def check_message(topic: str, body: bytes, size_max: int) -> None:
    """Raise ClientError or InvalidMessageError unless a message with *topic* and *body* may be sent."""
    check_topic(topic)
    if is_forbidden_topic(topic):
        raise ClientError(f"Sending message to topic[{topic}] is forbidden.")
    if not body:
        raise InvalidMessageError("the message body length is zero")
    if len(body) > size_max:
        raise InvalidMessageError(f"the message body size over max value, MAX: {size_max}: got {len(body)}")


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise ClientError if an application's property has a reserved name, is blank, or holds a separator."""
    for name, value in properties.items():
        if name in RESERVED_NAMES:
            raise ClientError(f"The Property<{name}> is used by system, input another please")
        if not isinstance(value, str) or not name.strip() or not value.strip():
            raise ClientError(f"The name or value of property {name!r} can not be blank string: got {value!r}")
        if any(mark in text for mark in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR) for text in (name, value)):
            raise ClientError(f"The property {name!r} holds the separator 0x01 or 0x02")
