"""Cython kernels, in rooms from the ground up; each has a plain Python twin under the same noun elsewhere in mqcore.

MQ_DEBUG=1 takes those of the debug build, which checks what must hold (base/checks.pxd), instead of those in the tree.
"""

import os
from pathlib import Path

if os.environ.get("MQ_DEBUG") == "1":
    debug_build = Path(__file__).resolve().parents[2] / "build/debug/mqcore/_fast"
    if not debug_build.is_dir():
        raise ImportError(f"MQ_DEBUG=1 wants the debug build in {debug_build}; make debug-build makes it")
    __path__.insert(0, str(debug_build))
