"""SIGTERM and SIGINT as the wish that a program's handlers end in order."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from mqcore.client.session.tasks import cancel_and_wait

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(numbers: Iterable[int] | None, stop: Callable[[], object]) -> Iterator[None]:
    """Call *stop* at the first of the signals *numbers*, or of STOP_SIGNALS, that comes while this lasts.

    From then on all do again what they did before, so that a second one ends a program which takes too long. Without
    effect outside the main thread, which alone may say what signals do, and for those that the program ignores.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = {number: signal.getsignal(number) for number in (STOP_SIGNALS if numbers is None else numbers)}
    before = {number: action for number, action in found.items() if action not in (signal.SIG_IGN, None)}

    def restore() -> None:
        for number, action in before.items():
            signal.signal(number, action)

    def on_signal(number: int, frame: FrameType | None) -> None:
        restore()
        stop()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        restore()


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run *work* until it ends, raising what it raises, or until *stop* is set: then it is cancelled."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        await cancel_and_wait(working)
        stopping.cancel()
