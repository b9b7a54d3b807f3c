"""Handlers declared where they are written, and a client that runs them all.

mq = aio.Client("127.0.0.1:9876")

@mq.on("Orders", group="mail", concurrency=16, retry=Backoff(max_attempts=8))
async def send_mail(message): ...

asyncio.run(mq.run())
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, Unpack

from mqcore.client.errors import ClientStateError
from mqcore.client.model.subscription import Topics
from mqcore.client.settings.classes import ConsumerSettings
from mqcore.client.settings.options import ConsumerOptions

H = TypeVar("H", bound=Callable[..., object])
C = TypeVar("C", covariant=True)


class Startable(Protocol):
    """A consumer of an event loop, as far as it is known here."""

    async def start(self) -> None: ...

    async def wait_closed(self) -> None: ...


class Declared(Generic[C]):
    """The consumers that a client makes for its declared handlers, those not yet started apart."""

    def __init__(self, make: Callable[..., C]) -> None:
        """*make* is the method ``consumer`` of the client."""
        self._make = make
        self._waiting: list[C] = []
        self._started: list[C] = []

    def on(
        self,
        topics: Topics,
        *,
        group: str,
        batch: int | None = None,
        settings: ConsumerSettings | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> Callable[[H], H]:
        """Return a decorator that makes a function the handler of *topics* for *group*; the function stays as it is.

        With *batch* it is called with up to so many messages of a queue, and may return a Done. Other keyword arguments
        are the fields of ConsumerSettings.
        """

        def declare(handler: H) -> H:
            if batch is None:
                consumer = self._make(group, topics, handler=handler, settings=settings, **changes)
            else:
                options = {**changes, "batch_size": batch}
                consumer = self._make(group, topics, batch_handler=handler, settings=settings, **options)
            self._waiting.append(consumer)
            return handler

        return declare

    def take_waiting(self) -> list[C]:
        """Return the consumers that are to be started now."""
        waiting, self._waiting = self._waiting, []
        self._started += waiting
        return waiting

    def started(self) -> list[C]:
        """Return the consumers that have been started; ClientStateError when no handler was ever declared."""
        if not self._started:
            raise ClientStateError("no handler was declared: use the decorator on() before run()")
        return list(self._started)


async def start_declared(declared: Declared[Startable]) -> None:
    for consumer in declared.take_waiting():
        await consumer.start()


async def wait_declared(declared: Declared[Startable]) -> None:
    """Return when all have been closed."""
    await asyncio.gather(*(consumer.wait_closed() for consumer in declared.started()))
