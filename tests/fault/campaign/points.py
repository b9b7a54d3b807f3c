"""Points of an election and of a cut where a broker dies when it is told to: before or behind a step of it.

A broker is told by a file, which names the point. It is gone when the broker is.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mqcore.broker import group_server
from mqcore.broker.failover.etcd import EtcdEngine
from mqcore.broker.segment.group_log import SharedGroupLog
from mqcore.broker.server import BrokerServer
from mqcore.store import log_cut
from mqcore.store.failover_files import FailoverFiles

TOLD_BY: Final = "MQCORE_CAMPAIGN_POINT"
"""The environment variable that names the file."""

STEPS: Final[dict[str, tuple[Any, str]]] = {
    "the swap": (EtcdEngine, "swap"),
    "the announcement": (EtcdEngine, "announce"),
    "the epoch entry": (FailoverFiles, "write_epochs"),
    "the identity": (FailoverFiles, "write_identity"),
    "the required set": (SharedGroupLog, "require"),
    "leading": (SharedGroupLog, "lead"),
    "the promotion": (BrokerServer, "promote"),
    "the demotion": (SharedGroupLog, "stop_leading"),
    "the cut": (group_server, "cut_log"),
    "the queues' cut": (log_cut, "cut"),
    "the zeros": (log_cut, "zero_from"),
}


def mark(told_by: Path) -> None:
    """Let this process die at the point that the file names, from now on."""
    for step, (owner, name) in STEPS.items():
        setattr(owner, name, _marked(getattr(owner, name), step, told_by))


def _marked(work: Callable[..., Any], step: str, told_by: Path) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(work):

        @functools.wraps(work)
        async def wait(*arguments: Any, **named: Any) -> Any:
            _pass(f"before {step}", told_by)
            result = await work(*arguments, **named)
            _pass(f"behind {step}", told_by)
            return result

        return wait

    @functools.wraps(work)
    def call(*arguments: Any, **named: Any) -> Any:
        _pass(f"before {step}", told_by)
        result = work(*arguments, **named)
        _pass(f"behind {step}", told_by)
        return result

    return call


def _pass(point: str, told_by: Path) -> None:
    if told_by.exists() and told_by.read_text() == point:
        told_by.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
