"""Start of a worker process: ``python -m mqcore.workers KIND DESCRIPTOR``; only the broker process calls this."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys

if __name__ == "__main__":
    # A Ctrl-C reaches the whole process group, but the broker process decides who stops when.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # As in the broker process: what imports make stays for good, and is not looked through for garbage.
    gc.disable()

from mqcore._fast.base.process import die_with_parent, end_on_sigbus, name_process
from mqcore._fast.segment.boards import SharedSegment
from mqcore.process_log import log_to_stderr
from mqcore.workers.handover import Handover

KINDS = ("send", "pull", "reput", "flush", "ha", "timer")


def main(kind: str, descriptor: int) -> int:
    """Run the worker *kind* until it is told to stop; the exit status."""
    if kind not in KINDS:
        sys.exit(f"unknown worker {kind!r}: wanted one of {', '.join(KINDS)}")
    handover = Handover.read(descriptor)
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
    worker = importlib.import_module(f"mqcore.workers.{kind}")
    gc.freeze()
    gc.enable()
    worker.run(settings, segment, handover)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
