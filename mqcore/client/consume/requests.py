"""Requests of brokers about the consumers of a session, taken to the consumer that they mean.

Source: RocketMQ ClientRemotingProcessor.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mqcore.client.session.session import Control, Session
from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.command import RemotingCommand
from mqcore.transport.connection import Connection

ControlAnswer = Callable[[Control], Awaitable[RemotingCommand]]


class ConsumerRequests:
    """Answers for all consumers of *session*."""

    def __init__(self, session: Session) -> None:
        self._session = session
        for code, handler in {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._on_reset_offset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._on_get_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._on_get_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._on_consume_directly,
        }.items():
            session.inbox.answer(code, handler)

    async def _on_members_changed(self, connection: Connection, command: RemotingCommand) -> None:
        for consumer in self._session.consumers.values():
            consumer.rebalance_soon()

    async def _on_reset_offset(self, connection: Connection, command: RemotingCommand) -> None:
        consumer = self._session.consumers.get(self._group_of(command, "group"))
        if consumer is not None:
            await consumer.control.reset_offset(command)

    async def _on_get_status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return await self._answer(command, "group", lambda control: control.status(command))

    async def _on_get_running_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return await self._answer(command, "consumerGroup", lambda control: control.running_info(command))

    async def _on_consume_directly(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return await self._answer(command, "consumerGroup", lambda control: control.consume_directly(command))

    async def _answer(self, command: RemotingCommand, group_field: str, answer: ControlAnswer) -> RemotingCommand:
        group = self._group_of(command, group_field)
        consumer = self._session.consumers.get(group)
        if consumer is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
        return await answer(consumer.control)

    def _group_of(self, command: RemotingCommand, field: str) -> str:
        return self._session.namespace.unwrap((command.ext_fields or {}).get(field, ""))
