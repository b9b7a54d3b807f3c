"""The end of a server's process."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End this process with *status*, its words said.

    Its interpreter is not taken apart: that takes long, by what it has imported, and gives back what the kernel takes
    anyway. For those who have closed what they opened, and have no work left in threads.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = status or 1  # as an interpreter does that cannot say its last words
    os._exit(status)


def live(life: Callable[[], int]) -> NoReturn:
    """Do *life*, whose result is the status that this process ends with; 1 if it raises, which is told."""
    try:
        status = life()
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        status = 1
    leave(status)
