"""Whether the extensions are there. Installed without a compiler there are none: their Python twins do the work."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.util import find_spec
from typing import Final

logger = logging.getLogger(__name__)

BUILT: Final = find_spec("mqcore._fast.base.memory_views") is not None
"""All of them take this one; a build that lacks one leaves none."""
CHOSEN: Final = os.environ.get("MQ_PURE") == "1"
PURE: Final = CHOSEN or not BUILT


@cache
def say_if_missing() -> None:
    """Log, once, that a client does without the extensions, unless somebody wants that."""
    if PURE and not CHOSEN:
        logger.warning("the extensions are not built: their Python twins do the work, and take several times as long")


def require(who: str) -> None:
    """Exit when *who* cannot do without the extensions and has to."""
    if not BUILT:
        raise SystemExit(
            f"{who} needs the extensions, which are not built: install a C compiler, and mqcore anew without "
            "MQ_BUILD_EXTENSIONS=0"
        )
