"""What an application can hang into the receiving of messages: filter what was pulled, look before and after handlers.

Hooks run in the event loop, in the order in which they were added. They may be plain methods, which must not block, or
coroutines, whose time counts as time of the pull or of the handler's turn. What a hook raises is logged and goes no
further. Source: RocketMQ client/hook/ConsumeMessageHook.java, FilterMessageHook.java.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mqcore.cause_log import CauseLog, name_of
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.outcome import ConsumeCode
from mqcore.protocol.message import MessageQueue

log = CauseLog(logging.getLogger(__name__))


@dataclass(slots=True, kw_only=True)
class ConsumeContext:
    """One call of a handler, or one message of an iteration; of a pull consumer what one pull brought.

    *code*, *error* and *cost_ms* are known after it. *attributes* are the hooks' own.
    """

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    code: ConsumeCode = ConsumeCode.SUCCESS
    error: BaseException | None = None
    cost_ms: float = 0.0
    attributes: dict[object, object] = field(default_factory=dict)

    @property
    def is_success(self) -> bool:
        """Whether all messages are done, however long it took."""
        return self.error is None and self.code in (ConsumeCode.SUCCESS, ConsumeCode.TIME_OUT)


@dataclass(slots=True, kw_only=True)
class FilterContext:
    """What one pull brought, after the subscription's own filter. A hook takes out of *messages* what nobody wants."""

    group: str
    queue: MessageQueue
    messages: list[ReceivedMessage]
    pull_time_ms: float = 0.0
    """What the pull took, with the time that the broker held it for want of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBackContext:
    """A message that failed, given back to its broker: to come again at *delay_level* (0 is the broker's choice).

    -1 is a dead letter. *is_taken* is false when no broker took it: it is handed out again by this consumer.
    """

    group: str
    message: ReceivedMessage
    delay_level: int
    is_taken: bool
    cost_ms: float


class ConsumerHook:
    """Base of hooks: override what is of interest. Each method may be ``async``.

    A pull consumer, whose application polls, calls all three when a pull has brought something.
    """

    def filter_messages(self, context: FilterContext) -> Awaitable[None] | None:
        """Called for what a pull brought. What is taken out counts as done."""
        return None

    def before_consume(self, context: ConsumeContext) -> Awaitable[None] | None:
        """Called just before the handler."""
        return None

    def after_consume(self, context: ConsumeContext) -> Awaitable[None] | None:
        """Called when the handler has ended, before anything is committed or sent back."""
        return None

    def after_send_back(self, context: SendBackContext) -> Awaitable[None] | None:
        """Called when a message that failed has been given back to its broker, or could not be."""
        return None


ContextT = TypeVar("ContextT")
Call = Callable[[ContextT], Awaitable[None] | None]


class ConsumerHooks:
    """The hooks of one consumer, by what they override."""

    def __init__(self) -> None:
        self._filter: list[Call[FilterContext]] = []
        self._before: list[Call[ConsumeContext]] = []
        self._after: list[Call[ConsumeContext]] = []
        self._send_back: list[Call[SendBackContext]] = []
        self.any_filter = False
        self.any_around = False
        """Whether a handler has to be surrounded by calls of hooks."""

    def add(self, hook: ConsumerHook) -> None:
        kind = type(hook)
        if kind.filter_messages is not ConsumerHook.filter_messages:
            self._filter.append(hook.filter_messages)
        if kind.before_consume is not ConsumerHook.before_consume:
            self._before.append(hook.before_consume)
        if kind.after_consume is not ConsumerHook.after_consume:
            self._after.append(hook.after_consume)
        if kind.after_send_back is not ConsumerHook.after_send_back:
            self._send_back.append(hook.after_send_back)
        self.any_filter = bool(self._filter)
        self.any_around = bool(self._before or self._after)

    @property
    def any(self) -> bool:
        return self.any_filter or self.any_around

    async def filter_messages(self, context: FilterContext) -> None:
        await _run(self._filter, context)

    async def before_consume(self, context: ConsumeContext) -> None:
        await _run(self._before, context)

    async def after_consume(self, context: ConsumeContext) -> None:
        await _run(self._after, context)

    async def after_send_back(self, context: SendBackContext) -> None:
        await _run(self._send_back, context)


async def _run(calls: Sequence[Call[ContextT]], context: ContextT) -> None:
    for call in calls:
        try:
            result = call(context)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # somebody else's code must not cost the message
            log.error("hook failed", exc_info=error, name=name_of(call))
