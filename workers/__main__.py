"""Start of a worker process: ``python -m mqcore.workers KIND DESCRIPTOR``; only the broker process calls this,
where there is no nursery (``nursery.py``).
"""

from __future__ import annotations

import gc
import signal
import sys

if __name__ == "__main__":
    # A Ctrl-C reaches the whole process group, but the broker process decides who stops when.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # As in the broker process: what imports make stays for good, and is not looked through for garbage.
    gc.disable()

from mqcore.leaving import live
from mqcore.workers.handover import Handover
from mqcore.workers.start import KINDS, run_worker


def main(kind: str, descriptor: int) -> int:
    """Run the worker *kind* with the handover that is in *descriptor*; the exit status."""
    if kind not in KINDS:
        sys.exit(f"unknown worker {kind!r}: wanted one of {', '.join(KINDS)}")
    return run_worker(kind, Handover.read(descriptor))


if __name__ == "__main__":
    live(lambda: main(sys.argv[1], int(sys.argv[2])))
