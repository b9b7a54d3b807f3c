"""END_TRANSACTION where the send worker leaves it to this process, and the order to ask about a half message again.

Source: RocketMQ broker/processor/EndTransactionProcessor.java, AdminBrokerProcessor.java, resumeCheckHalfMessage.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import STORED_STATUSES, Channel, InnerMessage, PutResult, PutStatus
from mqcore.broker.processors.send import refusal_remark
from mqcore.broker.remarks import NOT_SET
from mqcore.broker.services.timers import TimerRefusedError
from mqcore.broker.transaction_records import committed_message, op_message, renewed_half
from mqcore.codes import ResponseCode, SysFlag
from mqcore.errors import HeaderError, MQError
from mqcore.protocol import headers
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import MessageExt
from mqcore.protocol.message_decoder import decode_message
from mqcore.protocol.message_id import decode_offset_message_id
from mqcore.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from mqcore.protocol.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
)
from mqcore.protocol.transactions import GROUP_WRONG, HALF_NOT_FOUND, HALF_QUEUE_ID, TABLE_OFFSET_WRONG

logger = logging.getLogger(__name__)

NOT_DECIDED: Final = 0
"""The third outcome of a transaction."""

FAILURE_CODES: Final = {
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
"""Every other failure to store is a SYSTEM_ERROR."""


class TransactionProcessor:
    """Ends transactions; the same as ``_fast/send/transaction`` for what is rare."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def end_transaction(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer code 37; a transaction that is not decided is not answered, and asked about later."""
        if self._broker.is_slave:
            return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, NOT_SET)
        header = headers.decode_request(request.code, request.ext_fields)
        outcome = header["commit_or_rollback"]
        if outcome == NOT_DECIDED:
            return None
        if outcome not in (SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK):
            raise HeaderError("commitOrRollback", str(outcome), "0 (not decided), 8 (commit) or 12 (rollback)")
        # Who is asked about a copy may answer before it is flushed.
        record = self._broker.store.look_written(header["commit_log_offset"])
        half = None if record is None else decode_message(record, decompress_body=False)
        if half is None or half.topic != TRANS_HALF_TOPIC or half.queue_id != HALF_QUEUE_ID:
            return request.reply(ResponseCode.SYSTEM_ERROR, HALF_NOT_FOUND)
        fault = _fault(half, header)
        if fault is not None:
            return request.reply(ResponseCode.SYSTEM_ERROR, fault)
        if outcome == SysFlag.TRANSACTION_ROLLBACK:
            return self._reply(request, await self._broker.sink.put(self._op(half)), NOT_SET)
        return self._reply(request, await self._commit(half), None)

    def _op(self, half: MessageExt) -> InnerMessage:
        op = op_message(half.queue_offset, self._broker.address, self._broker.clock())
        # The answer waits for it where answers wait for the flush.
        return replace(op, wait_store_ok=True)

    async def _commit(self, half: MessageExt) -> PutResult:
        """Store the message of *half*, and with it the word that *half* is done with."""
        broker = self._broker
        message = committed_message(half)
        if message is None:
            logger.error("a half message has no place to go physical_offset=%d", half.physical_offset)
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        try:
            message = broker.timers.rewrite(message)
        except TimerRefusedError as refusal:
            return PutResult(refusal.status)
        if message.topic == TIMER_TOPIC:
            await broker.timers.make_ready()
        message = broker.schedule.rewrite(message)
        result = await broker.sink.put_pair(message, self._op(half))
        if result.is_stored:
            self._count(message, result)
        return result

    def _count(self, message: InnerMessage, result: PutResult) -> None:
        """Count a committed message, as RocketMQ does from 5.0 on."""
        statistics = self._broker.statistics
        statistics.count_broker_put(result.count)
        if message.topic == SCHEDULE_TOPIC:
            self._broker.schedule.note_put(message, result)
        else:
            statistics.count_topic_put(message.topic, result.count, result.size)

    def _reply(self, request: RemotingCommand, result: PutResult, remark: str | None) -> RemotingCommand:
        if result.status in STORED_STATUSES:
            return request.reply(ResponseCode.SUCCESS, remark)
        code = FAILURE_CODES.get(result.status, ResponseCode.SYSTEM_ERROR)
        return request.reply(code, refusal_remark(self._broker, result.status))

    async def resume_check(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 323: put the message with that offset id among the half messages again, as never asked about."""
        header = headers.decode_request(request.code, request.ext_fields)
        try:
            place = decode_offset_message_id(header["msg_id"] or "")
        except MQError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        record = self._broker.store.look_message(place.physical_offset)
        if record is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, HALF_NOT_FOUND)
        half = decode_message(record, decompress_body=False)
        half.properties = {
            name: value for name, value in half.properties.items() if name != PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET
        } | {PROPERTY_TRANSACTION_CHECK_TIMES: "0"}
        message = renewed_half(half, 0)
        await self._broker.transactions.make_topics()
        result = await self._broker.sink.put(message)
        if not result.is_stored:
            logger.error("a half message could not be put back offset_id=%s status=%s", header["msg_id"], result.status)
            return request.reply(ResponseCode.SYSTEM_ERROR, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
        return request.reply()


def _fault(half: MessageExt, header: dict[str, Any]) -> str | None:
    """Return what of *header* contradicts *half*."""
    if half.properties.get(PROPERTY_PRODUCER_GROUP) != header["producer_group"]:
        return GROUP_WRONG
    if half.queue_offset != header["tran_state_table_offset"]:
        return TABLE_OFFSET_WRONG
    return None
