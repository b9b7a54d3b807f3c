"""Handing messages to the application: what the ways of consuming share."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.errors import ClientStateError, Reject, Retry, Rollback
from mqcore.client.model.messages import DEAD_LETTER, ReceivedMessage, Settler
from mqcore.client.model.outcome import ALL_DONE, Abandoned, ConsumeCode, Done, Outcome
from mqcore.client.session.inside import CALL, HandlerCall
from mqcore.client.settings.classes import ConsumerSettings
from mqcore.client.telemetry.consumer_hooks import ConsumeContext

log = CauseLog(logging.getLogger(__name__))


Handler = Callable[[ReceivedMessage], Awaitable[object]]
BatchHandler = Callable[[Sequence[ReceivedMessage]], Awaitable[object]]


class ConsumeService(Protocol):
    """What becomes of messages after they were pulled. *settler* settles them; None when a handler's outcome does."""

    settler: Settler | None

    def start(self) -> None: ...

    def submit(self, held: HeldQueue, messages: Sequence[ReceivedMessage], dispatch: bool) -> None:
        """Take *messages*, which now lie in *held*; *dispatch* is what ``put`` returned."""

    def set_concurrency(self, concurrency: int) -> None:
        """Let so many handlers run at once from now on."""

    async def consume_directly(self, message: ReceivedMessage) -> Outcome:
        """Let the application consume *message* now, whatever its offset."""

    def let_go(self, held: HeldQueue) -> None:
        """Hand out nothing more of *held*, which was given up; what is in hand goes on."""

    def halt(self) -> None:
        """Hand out nothing more from now on, whatever else is submitted; what is in hand goes on."""

    async def close(self, timeout_s: float) -> None:
        """Halt, and wait at most *timeout_s* for what is in hand."""


class EachMessage:
    """A batch handler that calls a handler for one message; it is never given more than one at a time."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> object:
        (message,) = messages
        return await self.handler(message)


def batch_size_of(handler: BatchHandler, settings: ConsumerSettings) -> int:
    """Return how many messages *handler* gets at once."""
    return 1 if isinstance(handler, EachMessage) else settings.batch_size


def check_async(handler: Callable[..., object]) -> None:
    """Raise TypeError unless calling *handler* gives something to await."""
    if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(getattr(handler, "__call__", None)):  # noqa: B004
        raise TypeError("a consumer of mqcore.aio needs an async handler; mqcore.client takes plain functions")


async def run_handler(membership: Membership, handler: BatchHandler, messages: Sequence[ReceivedMessage]) -> Outcome:
    """Call *handler* between the hooks; every Exception is an outcome: one bad message must not stop the consumer.

    Only Abandoned is raised, which iteration over an orderly consumer knows.
    """
    started_s = clock.now_s()
    for message in messages:
        message.consume_started_s = started_s
    hooks, context = membership.hooks, None
    if hooks.any_around:
        context = ConsumeContext(group=membership.group, queue=messages[0].queue, messages=messages)
        await hooks.before_consume(context)
    begin = clock.monotonic_s()
    outcome = await _call(membership, handler, messages)
    cost_ms = (clock.monotonic_s() - begin) * 1000
    if context is not None:
        describe_outcome(context, outcome, cost_ms, membership.settings.consume_timeout_s)
        await hooks.after_consume(context)
    membership.consumed(messages[0].topic, outcome.done, len(messages) - outcome.done, (cost_ms,), outcome.error)
    return outcome


def describe_outcome(context: ConsumeContext, outcome: Outcome, cost_ms: float, timeout_s: float) -> None:
    """Fill in what the hooks that are called afterwards want to know."""
    context.cost_ms = cost_ms
    context.error = outcome.error
    if outcome.error is not None and not isinstance(outcome.error, Retry | Reject | Rollback):
        context.code = ConsumeCode.EXCEPTION
    elif cost_ms >= timeout_s * 1000:
        context.code = ConsumeCode.TIME_OUT
    elif outcome.error is not None or outcome.done < len(context.messages):
        context.code = ConsumeCode.FAILED
    else:
        context.code = ConsumeCode.SUCCESS


async def _call(membership: Membership, handler: BatchHandler, messages: Sequence[ReceivedMessage]) -> Outcome:
    call = HandlerCall(membership)
    before = CALL.set(call)
    try:
        result = await handler(messages)
    except Abandoned:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # the consumer is closing
        # Something that the handler waited for was cancelled: that is the handler's failure, and not the end of us.
        return _failed(membership, messages, error)
    except Exception as error:
        return _raised(membership, messages, error)
    finally:
        call.is_over = True
        CALL.reset(before)
    return _returned(membership, messages, result)


def run_plain_handler(
    membership: Membership,
    function: Callable[[Any], object],
    messages: Sequence[ReceivedMessage],
    *,
    is_each: bool,
) -> tuple[Outcome, float]:
    """Call a plain *function*, without hooks, in the thread that is there; return its outcome and its time, ms.

    With *is_each* it takes the one message there is.
    """
    started_s = clock.now_s()
    for message in messages:
        message.consume_started_s = started_s
    call = HandlerCall(membership)
    before = CALL.set(call)
    begin = clock.monotonic_s()
    result, raised = None, None
    try:
        result = function(messages[0] if is_each else messages)
    except BaseException as error:  # SystemExit too: a handler does not end the program's other threads
        raised = error
    finally:
        call.is_over = True
        CALL.reset(before)
    return outcome_of(membership, messages, result, raised), (clock.monotonic_s() - begin) * 1000


def outcome_of(
    membership: Membership, messages: Sequence[ReceivedMessage], result: object, error: BaseException | None
) -> Outcome:
    """What became of *messages* when a handler returned *result*, or raised *error*; that is logged."""
    return _returned(membership, messages, result) if error is None else _raised(membership, messages, error)


def _raised(membership: Membership, messages: Sequence[ReceivedMessage], error: BaseException) -> Outcome:
    if isinstance(error, Reject):
        return Outcome(0, error, DEAD_LETTER)
    if isinstance(error, Retry):
        return Outcome(0, error, error.delay_level, error.pause_s)
    if isinstance(error, Rollback) and membership.settings.orderly:
        return Outcome(0, error, pause_s=error.pause_s, rollback=True)
    return _failed(membership, messages, error)


def _returned(membership: Membership, messages: Sequence[ReceivedMessage], result: object) -> Outcome:
    if isinstance(result, Done):
        if not result.commit and not membership.settings.orderly:
            return _failed(membership, messages, ClientStateError("Done(commit=False) is for orderly consumers"))
        count = len(messages) if result.count is None else min(result.count, len(messages))
        if count < len(messages) or not result.commit:
            return Outcome(count, None, result.delay_level, commit=result.commit)
    return ALL_DONE[len(messages)] if len(messages) < len(ALL_DONE) else Outcome(len(messages))


def _failed(membership: Membership, messages: Sequence[ReceivedMessage], error: BaseException) -> Outcome:
    log.warning("handler failed", exc_info=error, group=membership.group, topic=messages[0].topic, message=messages[0])
    return Outcome(0, error)
