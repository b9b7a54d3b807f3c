"""What a broker said about a message that was sent to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from mqcore.codes import ResponseCode
from mqcore.protocol.message import MessageQueue

REGION_DEFAULT: Final = "DefaultRegion"
"""What a broker says that has been told no other."""


class SendStatus(IntEnum):
    """How safely a broker stored a message. All four mean stored; only SEND_OK means as safely as it was told to."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


@dataclass(frozen=True, slots=True)
class SendReceipt:
    """What a broker said about one stored message. *offset* is its queue offset."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str | None = None
    region_id: str = REGION_DEFAULT
    trace_on: bool = True
    recall_handle: str | None = None
    """By which ``Producer.recall`` takes a message back that waits for its time; None: this broker has no timers."""
