"""Giving messages that failed back to their broker, which delivers them again later or makes them dead letters."""

from __future__ import annotations

import logging

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.consume.membership import Membership
from mqcore.client.model.messages import DEAD_LETTER, ReceivedMessage
from mqcore.client.model.outgoing import Outgoing
from mqcore.client.produce.inner_producer import inner_producer
from mqcore.client.telemetry.consumer_hooks import SendBackContext
from mqcore.delay_levels import FIRST_RETRY_LEVEL
from mqcore.errors import MQError
from mqcore.protocol import properties as names
from mqcore.protocol.names import retry_topic

log = CauseLog(logging.getLogger(__name__))

SEND_BACK_TIMEOUT_S = 5.0


async def send_back(membership: Membership, message: ReceivedMessage, delay_level: int) -> bool:
    """Give a failed message back to its broker, to come again at *delay_level*; 0 lets the back-off or the broker say.

    When the broker cannot, the message is sent to the retry topic as a new one. Returns whether either worked.
    Source: RocketMQ DefaultMQPushConsumerImpl.java, sendMessageBack.
    """
    begin_s = clock.monotonic_s()
    is_taken = await _give_back(membership, message, delay_level)
    await tell_hooks(membership, message, delay_level, begin_s, is_taken=is_taken)
    return is_taken


async def tell_hooks(
    membership: Membership, message: ReceivedMessage, delay_level: int, begin_s: float, *, is_taken: bool
) -> None:
    """Tell of a message that was given back, or could not be, since *begin_s* of the monotonic clock."""
    await membership.hooks.after_send_back(
        SendBackContext(
            group=membership.group,
            message=message,
            delay_level=delay_level,
            is_taken=is_taken,
            cost_ms=(clock.monotonic_s() - begin_s) * 1000,
        )
    )


async def _give_back(membership: Membership, message: ReceivedMessage, delay_level: int) -> bool:
    hub, group, settings = membership.hub, membership.group, membership.settings
    times_max = settings.max_reconsume_times_effective
    if delay_level == 0 and settings.retry is not None:
        delay_level = settings.retry.delay_level(message.reconsume_times + 1)
    try:
        address = await hub.master_address(message.queue)
        await hub.api.send_back(address, group, message.ext, delay_level, times_max, SEND_BACK_TIMEOUT_S)
        return True
    except MQError as error:
        log.warning("send back failed, sending anew", group=group, queue=message.queue, message=message, error=error)
    times = times_max if delay_level == DEAD_LETTER else message.reconsume_times + 1
    try:
        await send_to_retry_topic(membership, message, times, delay_level)
        return True
    except MQError as error:
        log.warning("send to retry topic failed", group=group, queue=message.queue, message=message, error=error)
        return False


async def send_to_retry_topic(
    membership: Membership, message: ReceivedMessage, times: int, delay_level: int = 0
) -> None:
    """Send a copy of *message*, failed *times* times, to the retry topic; at the limit it becomes a dead letter."""
    times_max = membership.settings.max_reconsume_times_effective
    topic = membership.hub.namespace.wrap(message.topic)
    copy = retry_copy(message, membership.group, topic, times, times_max, delay_level)
    await membership.hub.shared(inner_producer).send(copy)


def retry_copy(
    message: ReceivedMessage, group: str, topic: str, times: int, times_max: int, delay_level: int = 0
) -> Outgoing:
    """Return *message*, failed *times* times of *times_max*, as a new one for the retry topic of *group*.

    *topic* is what brokers call the one that it was sent to.
    """
    ext = message.ext
    properties = dict(ext.properties)
    properties.pop(names.PROPERTY_TRANSACTION_PREPARED, None)
    properties.setdefault(names.PROPERTY_ORIGIN_MESSAGE_ID, message.msg_id)
    properties[names.PROPERTY_RETRY_TOPIC] = topic
    properties[names.PROPERTY_RECONSUME_TIME] = str(times)
    properties[names.PROPERTY_MAX_RECONSUME_TIMES] = str(times_max)
    level = delay_level if delay_level > 0 else FIRST_RETRY_LEVEL + ext.reconsume_times
    properties[names.PROPERTY_DELAY_TIME_LEVEL] = str(level)
    return Outgoing(retry_topic(group), ext.body, properties, ext.flag)
