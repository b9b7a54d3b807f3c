"""What an application can hang into the sending of messages: look, add properties, refuse, measure.

Hooks run in the event loop, in the order in which they were added, once per attempt. They may be plain methods, which
must not block, or coroutines, whose time counts as time of the send. What a hook raises is logged and goes no further;
only ``check_forbidden`` can stop a send.
Source: RocketMQ client/hook/SendMessageHook.java, CheckForbiddenHook.java, EndTransactionHook.java.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mqcore.cause_log import CauseLog, name_of
from mqcore.client.errors import SendForbiddenError
from mqcore.client.model.messages import MessageKind
from mqcore.protocol.message import MessageQueue

if TYPE_CHECKING:
    from mqcore.client.model.transaction import TransactionState
    from mqcore.client.session.broker_api import SendResponse

log = CauseLog(logging.getLogger(__name__))


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One attempt to send a message or a batch.

    *body* is what travels: compressed, or the encoded batch. *properties* may be added to before the send: they travel
    too. *msg_id* is the ids joined by commas for a batch. After the send either *response* or *error* is set; after a
    one-way send neither may be. *attributes* are the hooks' own, for what one method wants to tell another.
    """

    group: str
    topic: str
    queue: MessageQueue
    broker_address: str
    body: bytes
    properties: dict[str, str]
    msg_id: str
    kind: MessageKind
    is_batch: bool
    is_oneway: bool
    response: SendResponse | None = None
    error: BaseException | None = None
    attributes: dict[object, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionContext:
    """A decision about a transaction, as it is sent to the broker; *from_check* when the broker had asked for it."""

    group: str
    topic: str
    properties: dict[str, str]
    broker_address: str
    msg_id: str
    transaction_id: str | None
    state: TransactionState
    from_check: bool


class ProducerHook:
    """Base of hooks: override what is of interest. Each method may be ``async``."""

    def check_forbidden(self, context: SendContext) -> Awaitable[None] | None:
        """Raise anything to refuse the send: it fails with SendForbiddenError, whose cause is what was raised."""
        return None

    def before_send(self, context: SendContext) -> Awaitable[None] | None:
        """Called when everything about the attempt is known and nothing is sent."""
        return None

    def after_send(self, context: SendContext) -> Awaitable[None] | None:
        """Called when the attempt has ended, well or not."""
        return None

    def end_transaction(self, context: EndTransactionContext) -> Awaitable[None] | None:
        """Called before the decision about a transaction is sent."""
        return None


ContextT = TypeVar("ContextT")
Call = Callable[[ContextT], Awaitable[None] | None]


class Hooks:
    """The hooks of one producer, by what they override."""

    def __init__(self) -> None:
        self._forbidden: list[Call[SendContext]] = []
        self._before: list[Call[SendContext]] = []
        self._after: list[Call[SendContext]] = []
        self._end: list[Call[EndTransactionContext]] = []
        self.any_of_sends = False
        """Whether a send has to do anything about hooks."""

    def add(self, hook: ProducerHook) -> None:
        kind = type(hook)
        if kind.check_forbidden is not ProducerHook.check_forbidden:
            self._forbidden.append(hook.check_forbidden)
        if kind.before_send is not ProducerHook.before_send:
            self._before.append(hook.before_send)
        if kind.after_send is not ProducerHook.after_send:
            self._after.append(hook.after_send)
        if kind.end_transaction is not ProducerHook.end_transaction:
            self._end.append(hook.end_transaction)
        self.any_of_sends = bool(self._forbidden or self._before or self._after)

    async def check_forbidden(self, context: SendContext) -> None:
        """Raise SendForbiddenError when a hook refuses the send."""
        for call in self._forbidden:
            try:
                await _finish(call(context))
            except Exception as error:
                raise SendForbiddenError(context.topic, f"{type(error).__name__}: {error}") from error

    async def before_send(self, context: SendContext) -> None:
        await _run(self._before, context)

    async def after_send(self, context: SendContext) -> None:
        await _run(self._after, context)

    async def end_transaction(self, context: EndTransactionContext) -> None:
        await _run(self._end, context)


async def _run(calls: list[Call[ContextT]], context: ContextT) -> None:
    for call in calls:
        try:
            await _finish(call(context))
        except Exception as error:  # somebody else's code must not cost the message
            log.error("hook failed", exc_info=error, name=name_of(call))


async def _finish(result: Awaitable[None] | None) -> None:
    if inspect.isawaitable(result):
        await result
