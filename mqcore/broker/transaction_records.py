"""The messages of which a transaction consists: half, message, op, the half put again, the half given up.

Source: RocketMQ broker/transaction/queue/TransactionalMessageBridge.java, TransactionalMessageServiceImpl.java,
DefaultTransactionalMessageCheckListener.java, broker/processor/EndTransactionProcessor.java.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mqcore.broker.ports import InnerMessage
from mqcore.codes import TRANSACTION_MASK, SysFlag
from mqcore.protocol.message import HostAddress, MessageExt
from mqcore.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from mqcore.protocol.properties import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    encode_properties,
)
from mqcore.protocol.transactions import HALF_QUEUE_ID, MOVED_MARK, OP_PROPERTIES, OP_PROPERTIES_TEXT

DISCARDED_QUEUE_COUNT: Final = 1


def is_half(properties: dict[str, str]) -> bool:
    """Tell whether a message that is sent with *properties* opens a transaction."""
    return properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"


def half_message(message: InnerMessage) -> InnerMessage:
    """Return *message* as it waits for its transaction to end. WAIT comes back into the stored text, as upstream."""
    properties = message.properties | {
        PROPERTY_REAL_TOPIC: message.topic,
        PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
    }
    return replace(
        message,
        topic=TRANS_HALF_TOPIC,
        queue_id=HALF_QUEUE_ID,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties=_of_its_queue_alone(properties),
        properties_text=_text(properties),
    )


def _of_its_queue_alone(properties: dict[str, str]) -> dict[str, str]:
    """Return what the broker sees of *properties* while a message is not to be seen in the queues that it lists.

    They get it when it is committed. RocketMQ shows it there at once, and again whenever the half is put again.
    """
    return {name: value for name, value in properties.items() if name != PROPERTY_INNER_MULTI_DISPATCH}


def _text(properties: dict[str, str]) -> str:
    """Return what is stored: all but places in other queues, which it does not have, or had in RocketMQ."""
    return encode_properties(
        {name: value for name, value in properties.items() if name != PROPERTY_INNER_MULTI_QUEUE_OFFSET}
    )


def committed_message(half: MessageExt) -> InnerMessage | None:
    """Return the message of *half* on its way to its topic; None if *half* does not say which that is.

    The stored text keeps TRAN_MSG, REAL_TOPIC and REAL_QID, as upstream; the broker itself no longer sees them.
    """
    topic, queue_id = half.properties.get(PROPERTY_REAL_TOPIC), half.properties.get(PROPERTY_REAL_QUEUE_ID)
    if topic is None or queue_id is None or not queue_id.isdecimal():
        return None
    gone = (PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID, PROPERTY_TRANSACTION_PREPARED)
    return replace(
        _copy(half, topic, half.properties),
        queue_id=int(queue_id),
        sys_flag=half.sys_flag & ~TRANSACTION_MASK | int(SysFlag.TRANSACTION_COMMIT),
        properties={name: value for name, value in half.properties.items() if name not in gone},
        prepared_transaction_offset=half.physical_offset,
        wait_store_ok=True,
    )


def renewed_half(half: MessageExt, check_times: int) -> InnerMessage:
    """Return *half* as it is put behind the others again: with the place where it was first, and *check_times*, if any.

    RocketMQ forgets the flag of the message here, and notes its first place only while it may not be asked about.
    """
    properties = {PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: str(half.queue_offset)} | half.properties
    if check_times > 0:
        properties[PROPERTY_TRANSACTION_CHECK_TIMES] = str(check_times)
    copy = _copy(half, TRANS_HALF_TOPIC, properties)
    return replace(copy, properties=_of_its_queue_alone(properties))


def discarded_half(half: MessageExt) -> InnerMessage:
    """Return *half* as it is kept for people, once nobody is asked about it any more."""
    copy = _copy(half, TRANS_CHECK_MAX_TIME_TOPIC, half.properties)
    return replace(copy, properties=_of_its_queue_alone(half.properties))


def op_message(half_offset: int, store_host: HostAddress, now: int, *, is_moved: bool = False) -> InnerMessage:
    """Return the message which says that the half at queue offset *half_offset* is done with.

    *is_moved*: because it lies elsewhere now, and not because its transaction has ended.
    """
    return InnerMessage(
        topic=TRANS_OP_HALF_TOPIC,
        queue_id=HALF_QUEUE_ID,
        body=f"{MOVED_MARK if is_moved else ''}{half_offset}".encode(),
        born_timestamp=now,
        born_host=store_host,
        store_host=store_host,
        properties=dict(OP_PROPERTIES),
        properties_text=OP_PROPERTIES_TEXT,
        wait_store_ok=False,
    )


def _copy(half: MessageExt, topic: str, properties: dict[str, str]) -> InnerMessage:
    return InnerMessage(
        topic=topic,
        queue_id=HALF_QUEUE_ID,
        body=half.body,
        flag=half.flag,
        sys_flag=half.sys_flag,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_host=half.store_host,
        properties=properties,
        properties_text=_text(properties),
        reconsume_times=half.reconsume_times,
        wait_store_ok=False,
    )
