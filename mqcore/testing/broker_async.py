"""The broker of a test, as seen from an event loop."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from mqcore.testing.broker import QUEUES, RunningBroker


class AsyncRunningBroker:
    """A RunningBroker whose calls are awaited, so that clients in the same loop go on meanwhile."""

    def __init__(self, broker: RunningBroker) -> None:
        self.plain = broker

    def __repr__(self) -> str:
        return f"Async{self.plain!r}"

    @property
    def name_server(self) -> str:
        return self.plain.name_server

    @property
    def address(self) -> str:
        return self.plain.address

    @property
    def store(self) -> Path:
        return self.plain.store

    @property
    def log(self) -> Path:
        return self.plain.log

    @property
    def pid(self) -> int:
        return self.plain.pid

    @property
    def is_running(self) -> bool:
        return self.plain.is_running

    async def start(self) -> None:
        """Start it, again after ``stop`` or ``kill``."""
        await asyncio.to_thread(self.plain.start)

    async def stop(self) -> None:
        """Stop it in order; the store stays."""
        await asyncio.to_thread(self.plain.stop)

    async def restart(self) -> None:
        """Stop it, unless it has been killed, and start it on the same store and ports."""
        await asyncio.to_thread(self.plain.restart)

    async def kill(self) -> None:
        """End the broker process by SIGKILL and wait until its workers have ended too."""
        await asyncio.to_thread(self.plain.kill)

    async def advance(
        self, by: timedelta | None = None, *, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let time pass for messages that wait; see ``RunningBroker.advance``."""
        await asyncio.to_thread(self.plain.advance, by, hours=hours, minutes=minutes, seconds=seconds)

    async def create_topic(self, topic: str, queues: int = QUEUES) -> None:
        """Create *topic*, or change its number of queues."""
        await asyncio.to_thread(self.plain.create_topic, topic, queues)
