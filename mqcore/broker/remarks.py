"""Remarks that more than one processor gives, in RocketMQ's words, since operators search for them."""

from __future__ import annotations

from typing import Final

from mqcore.protocol import transactions
from mqcore.protocol.names import NOT_MASTER
from mqcore.refusals import help_on

NOT_SET: Final = transactions.NOT_SET
"""What a reply carries whose handler sets the code only; some successful replies do."""

SLAVE_IS_READ_ONLY: Final = (
    "Can't modify topic or subscription group from slave broker, please execute it from master broker."
)

NOT_MASTER_OF_GROUP: Final = f"nothing was done: this broker is {NOT_MASTER} of its group"


def sending_forbidden(broker_ip: str) -> str:
    return f"the broker[{broker_ip}] sending message is forbidden"


def transaction_forbidden(broker_ip: str) -> str:
    return f"the broker[{broker_ip}] sending transaction message is forbidden"


def topic_not_exist(topic: str, before_help: str = "") -> str:
    return f"topic[{topic}] not exist, apply first please!{before_help}{help_on('topic-does-not-exist')}"


def group_not_exist(group: str) -> str:
    return f"subscription group [{group}] does not exist, {help_on('group-does-not-exist')}"


def system_topic(topic: str) -> str:
    return f"The topic[{topic}] is conflict with system topic."
