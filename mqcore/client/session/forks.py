"""What becomes of clients when the process forks.

A client that has not been started yet is whole in the child, with an identity of its own: a server that makes a client
before it forks its workers may start it in each of them. A started one stays the parent's: its connections must not be
shared, so in the child every call of it raises ClientStateError that says what to do.
"""

from __future__ import annotations

import os
from typing import NoReturn, Protocol
from weakref import WeakSet

from mqcore.client.errors import ClientStateError


class Forked(Protocol):
    """What is told in a child that it has been forked."""

    def after_fork(self, parent_pid: int) -> None: ...


class OfTheParent:
    """Stands in a forked child for something that belongs to its parent."""

    def __init__(self, parent_pid: int) -> None:
        self._parent_pid = parent_pid

    def __getattr__(self, name: str) -> NoReturn:
        raise belongs_to(self._parent_pid)


_living: WeakSet[Forked] = WeakSet()
_kept: list[object] = []


def watch(client: Forked) -> None:
    """Tell *client* when it finds itself in a forked child."""
    _living.add(client)


def keep(*things: object) -> None:
    """In a forked child: do not let what is the parent's be closed by the garbage collection."""
    _kept.extend(things)


def belongs_to(parent_pid: int) -> ClientStateError:
    """Return the error of using a client of process *parent_pid* in its forked child."""
    return ClientStateError(
        f"this client belongs to process {parent_pid} and cannot be used in its forked child {os.getpid()}: "
        "make a new client after the fork, or start it only there"
    )


def _after_fork_in_child() -> None:
    for client in list(_living):
        client.after_fork(os.getppid())


os.register_at_fork(after_in_child=_after_fork_in_child)
