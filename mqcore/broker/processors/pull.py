"""PULL_MESSAGE and LITE_PULL_MESSAGE: who may read what. The reading itself is the pull worker's.

The worker keeps the answer of the checks, a ``PullBinding``, until the epoch of its topic and group changes, so these
run once per topic and group and not once per pull. Whatever a check looks at bumps an epoch when it changes.
Source: RocketMQ broker/processor/PullMessageProcessor.java.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from mqcore.broker.consumers import ConsumerGroupInfo, channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.filters import matches_all, not_supported_remark
from mqcore.broker.ports import Channel, InnerMessage, PullBinding, PullHeader
from mqcore.broker.processors.refused import Refused
from mqcore.broker.remarks import group_not_exist, topic_not_exist
from mqcore.codes import PermName, PullSysFlag, RequestCode, ResponseCode
from mqcore.errors import FilterSyntaxError, ProtocolError
from mqcore.protocol import headers
from mqcore.protocol.bodies import MessageModel, OffsetMovedEvent, SubscriptionData, SubscriptionGroupConfig
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.heartbeat import is_tag_type
from mqcore.protocol.names import OFFSET_MOVED_EVENT, RETRY_GROUP_TOPIC_PREFIX, is_lmq, is_retry_topic
from mqcore.protocol.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    encode_properties,
)
from mqcore.refusals import help_on

logger = logging.getLogger(__name__)

LEFT_OUT: Final = {"commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
"""What RocketMQ's broker takes of fields that must be there, and that it does not miss."""


class PullProcessor:
    """Makes the checks of a pull, and writes what a pull leaves behind."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def pull_message(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer codes 11 and 361: a refusal, or None once the pull worker has been given the pull and its binding."""
        header = pull_header(request)
        binding = await self.resolve(channel, request, header)
        if isinstance(binding, RemotingCommand):
            return binding
        self._broker.pulls.dispatch(channel, request, header, binding)
        return None

    async def resolve(
        self, channel: Channel, request: RemotingCommand, header: PullHeader
    ) -> PullBinding | RemotingCommand:
        """Make every check of *header* in order; return the binding, or the refusal as a reply to *request*."""
        try:
            return await self._checked(channel, header)
        except Refused as refusal:
            return request.reply(refusal.code, refusal.remark, ext_fields={})

    async def _checked(self, channel: Channel, header: PullHeader) -> PullBinding:
        broker, settings = self._broker, self._broker.settings.broker
        if not broker.is_readable:
            raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{settings.broker_ip1}] pulling message is forbidden")
        group = await broker.groups.find_or_create(header.group)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, group_not_exist(header.group))
        if not group.consume_enable:
            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.group}")
        queue_count = self._check_queue(channel, header)
        own_expression = bool(header.sys_flag & PullSysFlag.SUBSCRIPTION)
        subscription = _parsed(header) if own_expression else self._registered(header, group)
        found = None
        if not is_tag_type(subscription.expression_type):
            found = await self._filter(header, subscription, own_expression)
        return PullBinding(
            group=header.group,
            topic=header.topic,
            queue_count=queue_count,
            match_all=found is not None or matches_all(subscription),
            tag_codes=tuple(sorted(subscription.code_set)),
            suspend_limit_ms=None if settings.long_polling_enable else settings.short_polling_time_ms,
            suspend_max_ms=broker.settings.current.mqcore.pull_hold_max_ms,
            broker_id=group.broker_id if settings.slave_read_enable else 0,
            slow_broker_id=group.which_broker_when_consume_slowly if settings.slave_read_enable else 0,
            sub_version=subscription.sub_version,
            expression=header.subscription or "" if own_expression else None,
            **({} if found is None or subscription.class_filter_mode else found),
        )

    async def _filter(self, header: PullHeader, subscription: SubscriptionData, own: bool) -> dict[str, Any]:
        """Return what a binding says of the filter, which is not one of tags."""
        broker, settings = self._broker, self._broker.settings.broker
        kind = subscription.expression_type
        known = None
        if not own:
            known = broker.filters.find(header.topic, header.group)
            if known is None or known.compiled is None:
                raise Refused(
                    ResponseCode.FILTER_DATA_NOT_EXIST,
                    "The broker's consumer filter data is not exist!Your expression may be wrong!",
                )
            if known.client_version < header.sub_version:
                raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        if not settings.enable_property_filter:
            raise Refused(ResponseCode.SYSTEM_ERROR, not_supported_remark(kind))
        if settings.filter_support_retry and is_retry_topic(header.topic):
            group = header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
            return {"program": await broker.filters.program_of_retries(group)}
        if known is not None:
            assert known.compiled is not None
            return {
                "program": known.compiled.program,
                "bits": known.bits,
                "bitmap_bits": known.bit_count,
                "bitmap_from": known.bitmap_from,
            }
        try:
            return {"program": (await broker.filters.compiler.compile(kind, subscription.sub_string)).program}
        except FilterSyntaxError as error:
            # Apache's broker takes an expression that it cannot read for one that everything matches.
            logger.warning("a pull's filter is not understood group=%s error=%s", header.group, error)
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed") from error

    def _check_queue(self, channel: Channel, header: PullHeader) -> int:
        """Return how many queues of the topic may be read; this one is among them."""
        topic, config = header.topic, self._broker.topics.find(header.topic)
        if config is None:
            logger.error("pull from a topic that does not exist topic=%s consumer=%s", topic, channel_address(channel))
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, topic_not_exist(topic, before_help=" "))
        store = self._broker.settings.store
        if is_lmq(topic) and store.enable_lmq and store.enable_multi_dispatch:
            count = self._broker.store.light_queue_count()
            if count > store.max_lmq_consume_queue_num:
                logger.warning("more light queues than maxLmqConsumeQueueNum, none is read count=%d", count)
                raise Refused(ResponseCode.SYSTEM_ERROR, "store getMessage return null")
        if not PermName.is_readable(config.perm):
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < config.read_queue_nums:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[/{channel_address(channel)}]",
            )
        return config.read_queue_nums

    def _registered(self, header: PullHeader, group: SubscriptionGroupConfig) -> SubscriptionData:
        """Return what the group said in its heart-beats about the topic."""
        members: ConsumerGroupInfo | None = self._broker.consumers.groups.get(header.group)
        if members is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist{help_on('group-is-not-known-yet')}",
            )
        if not group.consume_broadcast_enable and members.message_model is MessageModel.BROADCASTING:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the consumer group[{header.group}] can not consume by broadcast way"
            )
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            raise self._subscription_refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "not exist", header.group, help_on("subscription-is-not-known")
            )
        if subscription.sub_version < header.sub_version:
            raise self._subscription_refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "not latest", header.group)
        return subscription

    def _subscription_refused(self, code: ResponseCode, what: str, group: str, help_text: str = "") -> Refused:
        """Return the refusal that members get who take each other's topics away, which RocketMQ's clients log."""
        conflict = self._broker.consumers.conflicts.of(group)
        why = "" if conflict is None else f", {conflict}"
        return Refused(code, f"the consumer's subscription {what}{why}{help_text}")

    async def on_offset_moved(self, group: str, topic: str, queue_id: int, requested: int, new: int) -> None:
        """Leave a message about a consumer that was told to read elsewhere (reply PULL_OFFSET_MOVED)."""
        broker = self._broker
        event = OffsetMovedEvent(broker.queue(topic, queue_id), group, requested, new)
        # In the order of Java's hash map, and with the level that says that it is not delayed.
        properties = {PROPERTY_KEYS: group, PROPERTY_DELAY_TIME_LEVEL: "0", PROPERTY_TAGS: group}
        result = await broker.sink.put(
            InnerMessage(
                topic=OFFSET_MOVED_EVENT,
                queue_id=0,
                body=event.encode(),
                born_timestamp=broker.clock(),
                born_host=broker.address,
                store_host=broker.address,
                properties=properties,
                properties_text=encode_properties(properties),
            )
        )
        logger.warning(
            "offset moved group=%s topic=%s queue_id=%d requested=%d new=%d event=%s",
            group, topic, queue_id, requested, new, result.status,
        )  # fmt: skip


def pull_header(request: RemotingCommand) -> PullHeader:
    """Read the header of code 11 or 361; raise HeaderError if it is not complete."""
    values = headers.decode_request(RequestCode.PULL_MESSAGE, LEFT_OUT | (request.ext_fields or {}))
    return PullHeader(
        group=values["consumer_group"],
        topic=values["topic"],
        queue_id=values["queue_id"],
        queue_offset=values["queue_offset"],
        max_msg_nums=values["max_msg_nums"],
        sys_flag=values["sys_flag"],
        commit_offset=values["commit_offset"],
        suspend_timeout_ms=values["suspend_timeout_millis"],
        subscription=values["subscription"],
        sub_version=values["sub_version"],
        expression_type=values["expression_type"],
    )


def _parsed(header: PullHeader) -> SubscriptionData:
    """Return the expression that the pull brings with it."""
    try:
        return SubscriptionData.build(
            header.topic, header.subscription, header.expression_type, sub_version=header.sub_version
        )
    except ProtocolError as error:
        logger.warning("a pull's expression does not parse group=%s error=%s", header.group, error)
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed") from error
