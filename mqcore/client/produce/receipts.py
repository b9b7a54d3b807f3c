"""Receipts of what a broker has stored: one way to make them for every way to send."""

from __future__ import annotations

from typing import Final

from mqcore.client.model.receipt import REGION_DEFAULT, SendReceipt, SendStatus
from mqcore.client.produce.codec import Maker, Receipts
from mqcore.client.produce.core import Sent
from mqcore.protocol.message import MessageQueue
from mqcore.transport.exchange import SendAnswer

STATUSES: Final = {int(status): status for status in SendStatus}
TRACE_OFF: Final = "false"

_make = Maker(SendReceipt).make


def receipts_of(sent: Sent, ids: list[str]) -> Receipts:
    """Return the receipts of a request: its messages lie in one queue, one after the other, their offset ids joined by
    commas. Each receipt is made when it is asked for.
    """
    response = sent.response
    return Receipts(
        SendReceipt,
        ids,
        response.offset_msg_id.split(","),
        STATUSES[response.code],
        stored_queue(sent.queue, response.queue_id),
        response.queue_offset,
        response.transaction_id,
        response.region_id or REGION_DEFAULT,
        response.trace_on != TRACE_OFF,
        response.recall_handle,
    )


def receipt_of(answer: SendAnswer, queue: MessageQueue, msg_id: str) -> SendReceipt:
    """Return the receipt of one message that was sent to *queue* the short way, whose answers have no recall handle."""
    code, _, offset_msg_id, queue_id, queue_offset, transaction_id, region_id, trace_on = answer
    receipt: SendReceipt = _make(
        STATUSES[code],
        msg_id,
        offset_msg_id,
        stored_queue(queue, queue_id),
        queue_offset,
        transaction_id,
        region_id or REGION_DEFAULT,
        trace_on != TRACE_OFF,
        None,
    )
    return receipt


def stored_queue(queue: MessageQueue, queue_id: int) -> MessageQueue:
    """Return where a message for *queue* lies: a broker may have put it into another queue of the topic."""
    return queue if queue.queue_id == queue_id else MessageQueue(queue.topic, queue.broker_name, queue_id)
