"""How the processes of a server log: lines on standard error, which whoever starts them sends where he likes."""

from __future__ import annotations

import logging
import sys


def log_to_stderr(process: str = "") -> None:
    """Log INFO and above from now on; *process* stands in each line, where several processes write to one log."""
    said = f"{process} " if process else ""
    line = f"%(asctime)s %(levelname)s {said}%(name)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=line, stream=sys.stderr)
