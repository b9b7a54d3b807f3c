"""What a broker may ask of a consumer on behalf of a tool: reports, resets, and to consume one message now.

Source: RocketMQ ClientRemotingProcessor.java, DefaultMQPushConsumerImpl.java, consumerRunningInfo.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import fields

from mqcore import clock
from mqcore.client.consume.handling import ConsumeService
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.pull_loop import IDLE_WAIT_S, MIB
from mqcore.client.errors import ClientStateError, Reject, Retry
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.outcome import Outcome
from mqcore.codes import CURRENT_VERSION, version_name
from mqcore.protocol import fastjson
from mqcore.protocol.admin_bodies import PAUSED_QUEUES, paused_text
from mqcore.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ConsumeType,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import decode_request
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.message_decoder import decode_message

logger = logging.getLogger(__name__)

Forget = Callable[[HeldQueue], Awaitable[None]]


class RemoteControl:
    """Answers a broker's requests about one consumer. *forget* lets the next rebalance take a queue anew."""

    def __init__(self, membership: Membership, service: ConsumeService, forget: Forget) -> None:
        self._membership = membership
        self._service = service
        self._forget = forget

    async def running_info(self, command: RemotingCommand) -> RemotingCommand:
        membership, names = self._membership, self._membership.hub.namespace
        wants_stacks = decode_request(command.code, command.ext_fields)["jstack_enable"]
        info = ConsumerRunningInfo(
            properties=self._properties(),
            subscription_set=list(map(names.wrap_subscription, membership.subscriptions.values())),
            mq_table={names.wrap_queue(queue): self._queue_info(held) for queue, held in membership.held.items()},
            status_table={
                names.wrap(topic): ConsumeStatus.from_json(membership.statistics[topic].figures())
                for topic in membership.subscriptions
            },
            jstack=task_stacks() if wants_stacks else None,
        )
        return command.reply(body=info.encode())

    async def status(self, command: RemotingCommand) -> RemotingCommand:
        names = self._membership.hub.namespace
        topic = names.unwrap(decode_request(command.code, command.ext_fields)["topic"])
        offsets = {
            names.wrap_queue(queue): offset
            for queue in self._membership.held
            if queue.topic == topic and (offset := self._membership.offsets.known(queue)) is not None
        }
        return command.reply(body=GetConsumerStatusBody(message_queue_table=offsets).encode())

    async def consume_directly(self, command: RemotingCommand) -> RemotingCommand:
        """Consume the message in the request's body now. No offset moves."""
        values = decode_request(command.code, command.ext_fields)
        ext = decode_message(command.body)
        ext.broker_name = values["broker_name"] or ""
        queue = self._membership.hub.namespace.unwrap_queue(ext.queue)
        message = ReceivedMessage(ext, queue, topic=self._membership.topic_shown(ext))
        begin = clock.monotonic_s()
        outcome = await self._service.consume_directly(message)
        result = ConsumeMessageDirectlyResult(
            order=self._membership.settings.orderly,
            auto_commit=outcome.commit and not outcome.rollback,
            consume_result=consume_result(outcome),
            remark=None if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}",
            spent_time_millis=int((clock.monotonic_s() - begin) * 1000),
        )
        return command.reply(body=result.encode())

    async def reset_offset(self, command: RemotingCommand) -> None:
        """Take the queues in the request's body anew from the offsets given there."""
        topic, offsets = self._read_reset(command)
        affected = [held for queue, held in self._membership.held.items() if queue.topic == topic and queue in offsets]
        logger.info("offsets are reset group=%s queues=%s", self._membership.group, [held.queue for held in affected])
        for held in affected:
            held.dropped = True
        await asyncio.gather(*(held.wait_idle(IDLE_WAIT_S) for held in affected))
        for held in affected:
            self._membership.offsets.update(held.queue, offsets[held.queue], increase_only=False)
        await self._membership.offsets.persist([held.queue for held in affected])
        for held in affected:
            await self._forget(held)

    def _read_reset(self, command: RemotingCommand) -> tuple[str, dict[MessageQueue, int]]:
        names = self._membership.hub.namespace
        topic = decode_request(command.code, command.ext_fields)["topic"]
        offsets = read_reset_offsets(command.body)
        return names.unwrap(topic), {names.unwrap_queue(queue): offset for queue, offset in offsets.items()}

    def _properties(self) -> dict[str, str]:
        membership = self._membership
        settings = membership.settings
        properties = {row.name: setting_text(getattr(settings, row.name)) for row in fields(settings)}
        addresses = "".join(f"{address};" for address in membership.hub.name_servers.addresses)
        return properties | {
            "consumerGroup": membership.hub.namespace.wrap(membership.group),
            "PROP_NAMESERVER_ADDR": addresses,
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.name,
            "PROP_CLIENT_VERSION": version_name(CURRENT_VERSION),
            "PROP_CONSUMEORDERLY": "true" if membership.settings.orderly else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(membership.settings.concurrency),
            "PROP_CONSUMER_START_TIMESTAMP": str(membership.started_ms),
            PAUSED_QUEUES: paused_text(map(membership.hub.namespace.wrap_queue, self._paused())),
        }

    def _paused(self) -> Iterable[MessageQueue]:
        """The queues of which nothing is pulled, as the program wants it."""
        return self._membership.held if self._membership.paused else ()

    def _queue_info(self, held: HeldQueue) -> ProcessQueueInfo:
        taken = held.taken_offsets
        committed = self._membership.offsets.known(held.queue)
        return ProcessQueueInfo(
            commit_offset=-1 if committed is None else committed,
            cached_msg_min_offset=max(0, held.first_offset),
            cached_msg_max_offset=max(0, held.last_offset),
            cached_msg_count=held.count - len(taken),
            cached_msg_size_in_mib=held.size // MIB,
            transaction_msg_min_offset=min(taken, default=0),
            transaction_msg_max_offset=max(taken, default=0),
            transaction_msg_count=len(taken),
            locked=held.locked,
            try_unlock_times=held.try_unlock_times,
            last_lock_timestamp=int(held.last_lock_s * 1000),
            dropped=held.dropped,
            last_pull_timestamp=int(held.last_pull_s * 1000),
            last_consume_timestamp=int(held.last_consume_s * 1000),
        )


def setting_text(value: object) -> str:
    """Return how a setting is shown: a strategy that is a function or an object by its name only."""
    return getattr(value, "__name__", type(value).__name__) if callable(value) else str(value)


def consume_result(outcome: Outcome) -> CMResult:
    """Return what tools show for the outcome of a handler."""
    if outcome.error is None:
        return CMResult.CR_SUCCESS if outcome.done else CMResult.CR_LATER
    if outcome.rollback:
        return CMResult.CR_ROLLBACK
    wants_it_later = isinstance(outcome.error, ClientStateError | Retry | Reject)
    return CMResult.CR_LATER if wants_it_later else CMResult.CR_THROW_EXCEPTION


def read_reset_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Read either form of a reset's body: queues as member names, or a list for clients that cannot parse those."""
    value = fastjson.loads(body)
    if isinstance(value, dict) and isinstance(value.get("offsetTable"), list):
        rows = ResetOffsetBodyForC.from_json(value).offset_table
        return {MessageQueue(row.topic, row.broker_name, row.queue_id): row.offset for row in rows}
    return ResetOffsetBody.from_json(value).offset_table


def task_stacks() -> str:
    """Return where every task of the event loop stands: what Java's thread dump is to a Java client."""
    lines: list[str] = []
    for task in asyncio.all_tasks():
        lines.append(f"TASK {task.get_name()}")
        lines += [
            f"    {frame.f_code.co_qualname} {frame.f_code.co_filename}:{frame.f_lineno}" for frame in task.get_stack()
        ]
    return "\n".join(lines)
