"""Who has changed what of a broker, from where, how it was before and how it is now: a line for each such request.

The lines are those of the logger ``mqcore.audit``. What an administrator only looks at leaves none, and no secret
stands in one.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.broker.security.signature import ACCESS_KEY
from mqcore.codes import RequestCode as Code
from mqcore.config import find, parse_properties
from mqcore.config.table import Mark
from mqcore.errors import MQError
from mqcore.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupList
from mqcore.protocol.command import RemotingCommand

logger = logging.getLogger("mqcore.audit")

Handler = Callable[[Channel, RemotingCommand], Awaitable[RemotingCommand | None]]
Names = Callable[[RemotingCommand], Sequence[str]]


@dataclass(frozen=True, slots=True)
class AdminChange:
    """A kind of request that changes something: what, and how it is called in the request."""

    subject: str
    names: Names


def _field(name: str) -> Names:
    return lambda request: [found] if (found := (request.ext_fields or {}).get(name)) else []


def _nothing(request: RemotingCommand) -> Sequence[str]:
    return []


def _settings(request: RemotingCommand) -> Sequence[str]:
    return list(parse_properties(request.body.decode("utf-8", "replace")))


def _group(request: RemotingCommand) -> Sequence[str]:
    return [SubscriptionGroupConfig.decode(request.body).group_name]


def _groups(request: RemotingCommand) -> Sequence[str]:
    return [config.group_name for config in SubscriptionGroupList.decode(request.body).group_config_list]


CHANGES: Final[dict[int, AdminChange]] = {
    Code.UPDATE_BROKER_CONFIG: AdminChange("settings", _settings),
    Code.UPDATE_AND_CREATE_TOPIC: AdminChange("topic", _field("topic")),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: AdminChange("topics", _nothing),
    Code.DELETE_TOPIC_IN_BROKER: AdminChange("topic", _field("topic")),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: AdminChange("group", _group),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: AdminChange("group", _groups),
    Code.DELETE_SUBSCRIPTIONGROUP: AdminChange("group", _field("groupName")),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: AdminChange("offsets", _field("group")),
    Code.CLONE_GROUP_OFFSET: AdminChange("offsets", _field("destGroup")),
    Code.UPDATE_AND_CREATE_ACL_CONFIG: AdminChange("account", _field("accessKey")),
    Code.DELETE_ACL_CONFIG: AdminChange("account", _field("accessKey")),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: AdminChange("white addresses", _nothing),
    Code.CHANGE_FAILOVER_GROUP: AdminChange("failover group", _nothing),
    Code.RESUME_CHECK_HALF_MESSAGE: AdminChange("message", _field("msgId")),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: AdminChange("consume queues", _nothing),
    Code.CLEAN_UNUSED_TOPIC: AdminChange("consume queues", _nothing),
    Code.DELETE_EXPIRED_COMMITLOG: AdminChange("commit log", _nothing),
}
"""The requests that an administrator changes something with."""


class Audit:
    """Stands around the handlers of CHANGES."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    def around(self, code: int, handler: Handler) -> Handler:
        """Return *handler*, with a line written when it has answered if *code* is among CHANGES."""
        change = CHANGES.get(code)
        if change is None:
            return handler

        async def audited(channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
            names = _names(change, request)
            before = self._state(change, names)
            try:
                reply = await handler(channel, request)
            except MQError as error:
                self._write(change, names, channel, request, {}, error.response_code)
                raise
            after = self._state(change, names)
            moved = {name: (before.get(name), after.get(name)) for name in {**before, **after}}
            moved = {name: pair for name, pair in moved.items() if pair[0] != pair[1]}
            self._write(change, names, channel, request, moved, 0 if reply is None else reply.code)
            return reply

        return audited

    def refused(self, channel: Channel, request: RemotingCommand, code: int) -> None:
        """Somebody may not do what he asks for: write that, if it is among CHANGES."""
        change = CHANGES.get(request.code)
        if change is not None:
            self._write(change, _names(change, request), channel, request, {}, code)

    def _write(
        self,
        change: AdminChange,
        names: Sequence[str],
        channel: Channel,
        request: RemotingCommand,
        moved: dict[str, tuple[Any, Any]],
        code: int,
    ) -> None:
        before, after = ({name: pair[side] for name, pair in moved.items()} for side in (0, 1))
        logger.info(
            "administration request=%s subject=%s names=%s by=%r from=%s answer=%d before=%s after=%s",
            Code(request.code).name, change.subject, list(names), (request.ext_fields or {}).get(ACCESS_KEY),
            channel_address(channel), code, before, after,
        )  # fmt: skip

    def _state(self, change: AdminChange, names: Sequence[str]) -> dict[str, Any]:
        """Return how what is to be changed is now, as far as it is in a table: copied, since tables change in place."""
        broker = self._broker
        if change.subject == "settings":
            rows = [row for row in map(find, names) if row is not None and row.used and Mark.SECRET not in row.marks]
            values = broker.settings.current.used_values()
            return {row.key: values[row.key] for row in rows}
        tables: dict[str, Callable[[str], Any]] = {"topic": broker.topics.find, "group": broker.groups.find}
        look_up = tables.get(change.subject)
        if look_up is None:
            return {}
        return {name: None if (found := look_up(name)) is None else dataclasses.asdict(found) for name in names}


def _names(change: AdminChange, request: RemotingCommand) -> Sequence[str]:
    try:
        return change.names(request)
    except (MQError, ValueError):  # a body that cannot be read, which its handler will say
        return []
