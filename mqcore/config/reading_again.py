"""What becomes of a running program's settings when its files are read again."""

from __future__ import annotations

import logging
from typing import Final

from mqcore.config.settings import EMBEDDED, Settings
from mqcore.config.table import format_value

logger = logging.getLogger(__name__)

READ_AGAIN: Final = "the files, read again"


def read_again(current: Settings, fresh: Settings) -> Settings:
    """Return *current* with what may change while it runs as in *fresh*; *current* itself if nothing does.

    What waits for the next start is logged. That a name server was found inside the broker is no difference.
    """
    before, after = current.used_values(), fresh.used_values()
    changed = [key for key in after if after[key] != before[key] and current.source(key) != EMBEDDED]
    fixed = current.unchangeable_among(changed)
    for key in fixed:
        logger.warning("%s: changed in the files, which the next start will heed (%s)", key, fresh.source(key))
    changes = {key: format_value(after[key]) for key in changed if key not in fixed}
    logger.info("settings read again changed=%s", ", ".join(changes) or "none")
    return current.update(changes, READ_AGAIN) if changes else current
