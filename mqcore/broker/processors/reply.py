"""SEND_REPLY_MESSAGE and its V2: an answer is pushed to who asked, over the connection of its heart-beats, and kept.

Who asked is a producer's client id in the property REPLY_TO_CLIENT. The answer is pushed whether or not it can be
stored, and stored whether or not it could be pushed; the reply's code speaks of the push alone.
Source: RocketMQ broker/processor/ReplyMessageProcessor.java.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel, InnerMessage
from mqcore.broker.processors.refused import Refused
from mqcore.broker.processors.send_checks import SendChecks, answer_fields, chosen_queue
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import MQError
from mqcore.layout import PUSH_TIMEOUT_MS
from mqcore.protocol import headers
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import SCHEDULE_TOPIC
from mqcore.protocol.properties import (
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_WAIT_STORE_MSG_OK,
    decode_properties,
    encode_properties,
)

logger = logging.getLogger(__name__)

PUSH_TIMEOUT_S: Final = PUSH_TIMEOUT_MS / 1000
"""For so long the asker may take to say that it has the answer."""

NOT_STORED: Final = "0"
"""The message id of an answer that was pushed and is not in the store; clients want one."""

COPIED: Final = (
    "producer_group", "topic", "default_topic", "default_topic_queue_nums", "queue_id", "sys_flag", "born_timestamp",
    "flag", "properties", "reconsume_times", "unit_mode",
)  # fmt: skip
"""What the push says as the answerer said it; the queue is the one asked for, even if it is none."""


class ReplyProcessor:
    """Carries answers to who asked."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._checks = SendChecks(broker)

    async def send_reply(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer codes 324 and 325."""
        header = headers.decode_request(request.code, request.ext_fields)
        reply = request.reply(ext_fields=answer_fields(self._broker))
        try:
            config = await self._checks.check(channel, header)
        except Refused as refusal:
            reply.code, reply.remark = refusal.code, refusal.remark
            return reply
        message = self._message(channel, header, chosen_queue(header, config), request.body)
        failure = await self._push(channel, header, message)
        assert reply.ext_fields is not None
        if failure is None:
            reply.ext_fields |= _place(NOT_STORED, message.queue_id, 0)
        else:
            reply.code, reply.remark = ResponseCode.SYSTEM_ERROR, failure
        if self._broker.settings.broker.store_reply_message_enable:
            reply.ext_fields |= await self._store(message)
        return reply

    def _message(self, channel: Channel, header: dict[str, Any], queue_id: int, body: bytes) -> InnerMessage:
        """Return what is stored: the text of the properties as it came, and without the system flags, as upstream.

        So an answer that was compressed does not say so in the store; only its push does.
        """
        properties = decode_properties(header["properties"])
        return InnerMessage(
            topic=header["topic"],
            queue_id=queue_id,
            body=body,
            flag=header["flag"],
            born_timestamp=header["born_timestamp"],
            born_host=HostAddress(channel.remote_ip, channel.remote_port),
            store_host=self._broker.address,
            properties=properties,
            properties_text=header["properties"] or "",
            reconsume_times=header["reconsume_times"] or 0,
            wait_store_ok=properties.get(PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true",
        )

    async def _push(self, channel: Channel, header: dict[str, Any], message: InnerMessage) -> str | None:
        """Hand the answer to who asked; return why that failed, None if it has taken it."""
        asker = message.properties.get(PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if asker is None:
            return f"reply message properties[{PROPERTY_MESSAGE_REPLY_TO_CLIENT}] is null"
        target = self._broker.producers.find_channel(asker)
        if target is None:
            return f"push reply message fail, channel of <{asker}> not found."
        now = self._broker.clock()
        message.properties[PROPERTY_PUSH_REPLY_TIME] = str(now)
        fields = {name: header[name] for name in COPIED} | {
            "properties": encode_properties(message.properties),
            "born_host": channel_address(channel),
            "store_host": str(message.store_host),
            "store_timestamp": now,
        }
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        push = RemotingCommand(code, ext_fields=headers.encode_request(code, **fields), body=message.body)
        try:
            answer = await target.invoke(push, PUSH_TIMEOUT_S)
        except MQError as error:
            why = str(error)
        else:
            if answer.code == ResponseCode.SUCCESS:
                self._broker.producers.let_answers_pass(asker)
                return None
            why = f"code {answer.code}, {answer.remark}"
        logger.warning("answer not taken asker=%s reason=%s", asker, why)
        return f"push reply message to {asker}fail."

    async def _store(self, message: InnerMessage) -> dict[str, str]:
        """Keep the answer; return its place. That it cannot be kept is logged only, since it has been pushed."""
        schedule, statistics = self._broker.schedule, self._broker.statistics
        stored = schedule.rewrite(message)
        result = await schedule.put(stored)
        if not result.is_stored:
            logger.warning("answer not stored topic=%s status=%s", message.topic, result.status)
            return {}
        statistics.count_broker_put(result.count)
        if stored.topic != SCHEDULE_TOPIC:
            statistics.count_topic_put(stored.topic, result.count, result.size)
        return _place(result.message_id, message.queue_id, result.queue_offset)


def _place(message_id: str, queue_id: int, queue_offset: int) -> dict[str, str]:
    return {"msgId": message_id, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
