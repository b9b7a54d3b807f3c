"""The asyncio face of administration: all calls in one object."""

from __future__ import annotations

from typing import Protocol

from mqcore.client.admin.brokers import BrokerCalls
from mqcore.client.admin.dead_letters import DeadLetterCalls
from mqcore.client.admin.groups import GroupCalls
from mqcore.client.admin.offsets import OffsetCalls
from mqcore.client.admin.topics import TopicCalls
from mqcore.client.session.session import Session


class HasInstance(Protocol):
    """A client, as far as administration needs one."""

    @property
    def instance(self) -> Session: ...


class Admin(TopicCalls, GroupCalls, OffsetCalls, BrokerCalls, DeadLetterCalls):
    """Administrative calls over the connections of *client*, an open ``mqcore.aio.Client``.

    Changes that go to several places return what became of each; questions that one place does not answer raise. What
    does not exist raises NotFoundError or NoRouteError.
    """

    def __init__(self, client: HasInstance) -> None:
        super().__init__(client.instance)
