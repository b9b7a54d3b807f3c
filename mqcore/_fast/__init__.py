"""Cython kernels, in rooms from the ground up; each has a plain Python twin under the same noun elsewhere in mqcore.

MQ_DEBUG=1 takes those of the debug build, which checks what must hold (base/checks.pxd), instead of those in the tree,
MQ_SANITIZE=1 those that are watched by AddressSanitizer, whose library must be there first (tests/fuzz).
"""

import os
from pathlib import Path

for variable, variant in ("MQ_SANITIZE", "sanitize"), ("MQ_DEBUG", "debug"):
    if os.environ.get(variable) == "1":
        build = Path(__file__).resolve().parents[2] / "build" / variant / "mqcore/_fast"
        if not build.is_dir():
            raise ImportError(f"{variable}=1 wants the {variant} build in {build}; make {variant}-build makes it")
        __path__.insert(0, str(build))
        break
