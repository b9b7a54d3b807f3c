"""What an administrator, or a consumer that keeps order, asks of the members of a group.

Most of it is passed on to the clients. Source: RocketMQ broker/processor/AdminBrokerProcessor.java,
broker/client/net/Broker2Client.java.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from mqcore.broker.consumers import ClientChannelInfo, channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.broker.remarks import NOT_SET
from mqcore.codes import LanguageCode, MQVersion, RemotingFlag, RequestCode, ResponseCode, version_name
from mqcore.errors import MQError, RemotingTimeoutError
from mqcore.protocol import headers
from mqcore.protocol.bodies import (
    GetConsumerStatusBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import MessageQueue, decode_offset_message_id

logger = logging.getLogger(__name__)

FORWARD_TIMEOUT_S: Final = 10.0
STATUS_TIMEOUT_S: Final = 5.0
LATEST: Final = -1
"""The timestamp that means the end of the queue."""


class AdminConsumerProcessor:
    """Locks queues, and forwards to clients."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def lock_queues(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 41 with the queues that the client holds now."""
        asked = LockBatchRequestBody.decode(request.body)
        held = self._broker.queue_locks.lock(asked.consumer_group, asked.client_id, asked.mq_set)
        return request.reply(body=LockBatchResponseBody(held).encode())

    async def unlock_queues(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 42."""
        asked = LockBatchRequestBody.decode(request.body)
        self._broker.queue_locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
        return request.reply()

    async def reset_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 222: tell every member where to go on, and the caller too.

        The broker's own offsets stay, unless one queue alone is asked for; the members commit the new ones.
        """
        header = headers.decode_request(request.code, request.ext_fields)
        topic, group, timestamp = header["topic"], header["group"], header["timestamp"]
        config = self._broker.topics.find(topic)
        if config is None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        if header["queue_id"] is not None and header["queue_id"] >= 0:
            return self._reset_queue(channel, request, header)
        offsets: dict[MessageQueue, int] = {}
        for queue_id in range(config.write_queue_nums):
            current = self._broker.offsets.query(group, topic, queue_id)
            if current < 0:
                return request.reply(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            target = self._target(topic, queue_id, timestamp)
            keep = not header["is_force"] and target >= current
            offsets[self._broker.queue(topic, queue_id)] = current if keep else target
        if group not in self._broker.consumers.groups:
            return request.reply(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}",
            )
        return self._push_reset(request, header, offsets)

    def _reset_queue(self, channel: Channel, request: RemotingCommand, header: dict[str, Any]) -> RemotingCommand:
        """Reset one queue, to an offset or by time, as tools of 5.x ask for it; a group may be offline then.

        A broker of 4.9 does not know these fields, and would reset every queue to a time that nobody meant. One of 5.x
        gives members the offset with their next pull. This takes its meaning and its refusal, and pushes as 4.9 does.
        """
        topic, group, queue_id, offset = header["topic"], header["group"], header["queue_id"], header["offset"]
        store = self._broker.store
        if offset is None or offset == LATEST:
            offset = self._target(topic, queue_id, header["timestamp"])
        else:
            first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            if 0 <= offset < first or not 0 <= offset <= end + 1:
                return request.reply(
                    ResponseCode.SYSTEM_ERROR, f"Target offset {offset} not in consume queue range [{first}-{end}]"
                )
        self._broker.offsets.commit(group, topic, queue_id, offset, channel_address(channel))
        return self._push_reset(request, header, {self._broker.queue(topic, queue_id): offset})

    def _push_reset(
        self, request: RemotingCommand, header: dict[str, Any], offsets: dict[MessageQueue, int]
    ) -> RemotingCommand:
        """Tell the members, if there are any, and the caller."""
        topic, group = header["topic"], header["group"]
        push = RemotingCommand(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            flag=int(RemotingFlag.ONEWAY),
            ext_fields=headers.encode_request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                topic=topic,
                group=group,
                timestamp=header["timestamp"],
                is_force=False,
            ),
            body=_reset_body(offsets, request.language),
        )
        members = self._broker.consumers.groups.get(group)
        for info in members.channels.values() if members is not None else ():
            if info.version < MQVersion.V3_0_7_SNAPSHOT:
                return request.reply(ResponseCode.SYSTEM_ERROR, _too_old(info))
            info.channel.send(push)
            logger.info("offset reset pushed group=%s topic=%s client=%s", group, topic, info.client_id)
        return request.reply(remark=NOT_SET, body=ResetOffsetBody(offsets).encode())

    def _target(self, topic: str, queue_id: int, timestamp: int) -> int:
        store = self._broker.store
        if timestamp == LATEST:
            return max(store.max_offset(topic, queue_id), 0)
        return max(store.offset_by_time(topic, queue_id, timestamp), 0)

    async def consumer_status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 223 with the offsets that the members hold; members that do not answer are left out."""
        header = headers.decode_request(request.code, request.ext_fields)
        topic, group, wanted = header["topic"], header["group"], (header["client_addr"] or "").strip()
        members = self._broker.consumers.groups.get(group)
        if members is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        ask = headers.encode_request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, topic=topic, group=group)
        table: dict[str, dict[MessageQueue, int]] = {}
        for info in list(members.channels.values()):
            if info.version < MQVersion.V3_0_7_SNAPSHOT:
                return request.reply(ResponseCode.SYSTEM_ERROR, _too_old(info))
            if not wanted or wanted == info.client_id:
                offsets = await _offsets_of(info, ask)
                if offsets is not None:
                    table[info.client_id] = offsets
        return request.reply(remark=NOT_SET, body=GetConsumerStatusBody(consumer_table=table).encode())

    async def running_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 307 with what the client answers."""
        header = headers.decode_request(request.code, request.ext_fields)
        return await self._forward(request, header, request.body)

    async def consume_directly(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 309 with what the client answers; the broker adds its name and the message."""
        header = headers.decode_request(request.code, request.ext_fields)
        request.ext_fields = dict(request.ext_fields or {})
        request.ext_fields["brokerName"] = self._broker.settings.broker.broker_name
        if header["msg_id"] is None:
            return await self._forward(request, header, request.body)
        offset = decode_offset_message_id(header["msg_id"]).physical_offset
        record = self._broker.store.look_message(offset)
        if record is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return await self._forward(request, header, record)

    async def _forward(self, request: RemotingCommand, header: dict[str, Any], body: bytes) -> RemotingCommand:
        group, client_id = header["consumer_group"], header["client_id"] or ""
        info = self._broker.consumers.find_client(group, client_id)
        if info is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if info.version < MQVersion.V3_1_8_SNAPSHOT:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(info.version)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        question = RemotingCommand(request.code, ext_fields=request.ext_fields, body=body)
        try:
            answer = await info.channel.invoke(question, FORWARD_TIMEOUT_S)
        except RemotingTimeoutError as error:
            return request.reply(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}")
        except MQError as error:
            return request.reply(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            )
        return request.reply(answer.code, answer.remark, answer.ext_fields, answer.body)


async def _offsets_of(info: ClientChannelInfo, ask: dict[str, str]) -> dict[MessageQueue, int] | None:
    question = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields=ask)
    try:
        answer = await info.channel.invoke(question, STATUS_TIMEOUT_S)
        if answer.code == ResponseCode.SUCCESS and answer.body:
            return GetConsumerStatusBody.decode(answer.body).message_queue_table
    except MQError as error:
        logger.warning("client did not tell its offsets client=%s error=%s", info.client_id, error)
    return None


def _too_old(info: ClientChannelInfo) -> str:
    return f"the client does not support this feature. version={info.version}"


def _reset_body(offsets: dict[MessageQueue, int], language: int) -> bytes:
    """Return the push's body: for a C++ caller the form that its clients can read, as upstream decides it."""
    if language != LanguageCode.CPP:
        return ResetOffsetBody(offsets).encode()
    rows = [MessageQueueForC(mq.topic, mq.broker_name, mq.queue_id, offset) for mq, offset in offsets.items()]
    return ResetOffsetBodyForC(rows).encode()
