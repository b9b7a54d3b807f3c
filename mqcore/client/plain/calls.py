"""How a plain object gets the methods of an asyncio one: each is named once, and keeps its signature and its words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from mqcore.client.errors import ClientClosedError, ClientStateError
from mqcore.client.session.loop_thread import LoopThread

Inner = TypeVar("Inner", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
Face = TypeVar("Face")


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


def until_closed(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[PlainFace[Inner], P], None]:
    """Return the same wait for an end without ``async``: the end of the client is that of all that it made."""
    wait = plain(method)

    @functools.wraps(method)
    def call(self: PlainFace[Inner], /, *arguments: P.args, **named: P.kwargs) -> None:
        with suppress(ClientClosedError):
            wait(self, *arguments, **named)

    return call


def run_here(work: Coroutine[Any, Any, R]) -> R:
    """Run *work* in this thread, which has no event loop; what it awaits does not wait, or blocks the thread.

    What would wait for an event loop all the same is told so by a ClientStateError, where it does.
    """
    try:
        work.send(None)
        while True:
            work.throw(ClientStateError("there is no event loop here to wait for: give a function that is not async"))
    except StopIteration as ended:
        result: R = ended.value
        return result


def in_loop(method: Callable[Concatenate[Inner, P], R]) -> Callable[Concatenate[PlainFace[Inner], P], R]:
    """Return the same method, which is no coroutine, for other threads: the event loop's calls it, and they wait."""
    name = method.__name__

    def call(self: PlainFace[Inner], /, *arguments: P.args, **named: P.kwargs) -> R:
        async def work() -> R:
            found: R = getattr(self._inner, name)(*arguments, **named)
            return found

        return self._thread.call(work())

    functools.update_wrapper(call, method)
    return call


def face_of(inner: type) -> Callable[[type[Face]], type[Face]]:
    """Return a decorator for the plain class of *inner*: what says nothing of itself says what *inner* says of it."""

    def fill(face: type[Face]) -> type[Face]:
        for name, member in vars(face).items():
            if not name.startswith("_") and hasattr(inner, name):
                member.__doc__ = in_plain_words(member.__doc__ or getattr(inner, name).__doc__)
        return face

    return fill


def in_plain_words(said: str | None) -> str | None:
    """Return what is said of an asyncio object as it is said of a plain one."""
    return None if said is None else said.replace("``async with``", "``with``").replace("``async for``", "``for``")
