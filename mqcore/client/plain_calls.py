"""How a plain object gets the methods of an asyncio one: each is named once, and keeps its signature."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from mqcore.client.loop_thread import LoopThread

Inner = TypeVar("Inner", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class PlainFace(Generic[Inner]):
    """An object of the event loop as seen from other threads."""

    def __init__(self, thread: LoopThread, inner: Inner) -> None:
        self._thread = thread
        self._inner = inner


def plain(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[PlainFace[Inner], P], R]:
    """Return the same method without ``async``: it runs in the event loop's thread, and its caller waits.

    What a subclass of the inner object overrides is called, as by any call of a method.
    """
    name = method.__name__

    def call(self: PlainFace[Inner], /, *arguments: P.args, **named: P.kwargs) -> R:
        work: Coroutine[Any, Any, R] = getattr(self._inner, name)(*arguments, **named)
        return self._thread.call(work)

    functools.update_wrapper(call, method)
    return call
