"""Whether a call comes from inside a handler, which must not wait for its own end.

A handler that closes its consumer, or its client, would wait for the messages in hand, and its own is one of them. So
closing goes on in the background then: the handler returns, its message counts, and closing ends as it always does.
A handler's own tasks are inside too; threads that it starts are not.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, Protocol


class HasHub(Protocol):
    """A consumer as a member of its group; *hub* is the session whose it is."""

    @property
    def hub(self) -> object: ...


class HandlerCall:
    """One call of a handler; *is_over* when it has returned, whatever tasks it has left behind."""

    __slots__ = ("is_over", "membership")

    def __init__(self, membership: HasHub) -> None:
        self.membership = membership
        self.is_over = False


CALL: contextvars.ContextVar[HandlerCall | None] = contextvars.ContextVar("mqcore handler call", default=None)
"""The call that this code runs in."""


def is_inside(membership: HasHub) -> bool:
    """Whether a handler of *membership* is calling."""
    call = CALL.get()
    return call is not None and not call.is_over and call.membership is membership


def is_inside_any(hub: object) -> bool:
    """Whether a handler of any consumer of *hub* is calling."""
    call = CALL.get()
    return call is not None and not call.is_over and call.membership.hub is hub


def in_background(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run *work* outside of the handler that is calling; the caller keeps the task."""
    outside = contextvars.copy_context()
    outside.run(CALL.set, None)
    return asyncio.get_running_loop().create_task(work, name=f"mqcore {name}", context=outside)
