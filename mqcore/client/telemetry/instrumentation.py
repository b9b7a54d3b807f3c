"""Where something that watches clients, such as ``mqcore.otel``, comes in: when they make producers and consumers.

What is watched is made of classes of the watcher's own, or has its hooks; what is not is as if there were no such
thing, and a message costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., object])


class Instrumentation:
    """Watches nothing. Those that do override what they need."""

    def make(self, kind: Callable[..., T], *arguments: object) -> T:
        """Return what ``kind(*arguments)`` returns, a producer or a consumer of either face, or one that is watched."""
        return kind(*arguments)

    def handler(self, group: str, handler: H, *, is_batch: bool) -> H:
        """Return what is to be called instead of *handler*, plain or asynchronous as it is."""
        return handler


NOT_INSTRUMENTED = Instrumentation()

_for_all = NOT_INSTRUMENTED


def instrumentation_of_new_clients() -> Instrumentation:
    """Return what watches clients from their beginning."""
    return _for_all


def watch_new_clients(instrumentation: Instrumentation) -> None:
    """Let *instrumentation* watch every client that is made from now on in this process."""
    global _for_all
    _for_all = instrumentation
