"""A master takes no sends for the moment in which another one takes its place, as an operator wants it."""

from __future__ import annotations

import asyncio
from typing import Final

from mqcore import clock
from mqcore.errors import UnfitMemberError

from .life import LivingBroker

REST_S: Final = 1.0
"""How long is waited until all that are in sync have the whole log."""

CHECK_S: Final = 0.005


class SendPause:
    """Without it who copies from this broker would get more of its log than the one who is named, and have to cut it.

    That takes a new life, and for so long the next master would wait for its acknowledgements.
    """

    def __init__(self, host: LivingBroker) -> None:
        self._host = host
        self.is_on = False

    async def begin(self) -> None:
        """Take no sends any more, and return when all that was taken is confirmed.

        Raises UnfitMemberError if that takes too long; then, too, it lasts until it is ended.
        """
        self.is_on = True
        self._host.refuse_new_sends(True)
        log, until_s = self._host.group_log, clock.monotonic_s() + REST_S
        while log.confirmed < log.end:
            if clock.monotonic_s() >= until_s:
                behind = log.end - log.confirmed
                raise UnfitMemberError(
                    f"those in sync do not come up with the log within {REST_S:g} s, by {behind} bytes"
                )
            await asyncio.sleep(CHECK_S)

    def end(self) -> None:
        """Take sends again."""
        self.is_on = False
        self._host.refuse_new_sends(False)
