"""What a worker does before its first line of work, however its process came to be."""

from __future__ import annotations

import gc
import importlib
import os
import time
from typing import Final

from mqcore._fast.base.process import die_with_parent, end_on_sigbus, name_process
from mqcore._fast.segment.boards import SharedSegment
from mqcore.errors import WorkerError
from mqcore.process_log import log_to_stderr
from mqcore.workers.handover import Handover

KINDS: Final = ("send", "pull", "reput", "flush", "ha", "timer")
CALL_DEADLINE_S: Final = 20.0
CALL_POLL_S: Final = 0.0005


def run_worker(kind: str, handover: Handover) -> int:
    """Be the worker *kind* until it is told to stop; the exit status."""
    die_with_parent(handover.parent_pid)
    name = f"{kind}-{handover.number}"
    name_process(f"mq-{name}")
    settings = handover.loaded_settings()
    log_to_stderr(name, settings.mqcore.log_format, settings.mqcore.log_levels)
    end_on_sigbus()
    processors = settings.mqcore.cpu_affinity.get(kind)
    if processors:
        os.sched_setaffinity(0, processors)
    segment = SharedSegment.attach(handover.shared_fd)
    if not is_called(segment, handover.row):
        return 0
    worker = importlib.import_module(f"mqcore.workers.{kind}")
    gc.freeze()
    gc.enable()
    worker.run(settings, segment, handover)
    return 0


def is_called(segment: SharedSegment, row: int) -> bool:
    """Whether the *row* on the board is that of this process; waits until there is one in it.

    Two workers in one row would tear what has one writer. The broker process puts into it whom it has started; one
    that it has not heard of, as the nursery was too slow to say so, is nobody. Raises WorkerError if nobody is called.
    """
    deadline = time.monotonic() + CALL_DEADLINE_S
    while (called := segment.worker_word(row, "pid")) == 0:
        if time.monotonic() >= deadline:
            raise WorkerError(f"nobody was called to row {row} for {CALL_DEADLINE_S:g} s")
        time.sleep(CALL_POLL_S)
    return called == os.getpid()
