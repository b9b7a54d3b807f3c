"""Who is looking: sessions, the tokens that bind a form to one, and the door for those who have the password."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import Final

from mqcore import clock

KEY_BYTES: Final = 32
SESSIONS_MAX: Final = 1000
IDLE_S_MAX: Final = 2 * 3600.0
AGE_S_MAX: Final = 12 * 3600.0

GUESSES_AT_ONCE_MAX: Final = 8
GUESS_DELAY_S: Final = 0.2
GUESS_DELAY_S_MAX: Final = 10.0
FORGIVEN_AFTER_S: Final = 600.0


class Sessions:
    """Sessions of those who have logged in. They live in memory: a console that is started anew asks again."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)
        self._open: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @staticmethod
    def new_id() -> str:
        return secrets.token_urlsafe(KEY_BYTES)

    def open(self) -> str:
        """Begin a session and return its id, which is new: one that somebody has planted stays outside."""
        now, name = clock.monotonic_s(), self.new_id()
        self._open[name] = (now, now)
        while len(self._open) > SESSIONS_MAX:
            self._open.popitem(last=False)
        return name

    def is_open(self, name: str) -> bool:
        """Tell whether *name* has logged in, and count that as being there."""
        times = self._open.get(name)
        if times is None:
            return False
        now, (born, seen) = clock.monotonic_s(), times
        if now - seen > IDLE_S_MAX or now - born > AGE_S_MAX:
            del self._open[name]
            return False
        self._open[name] = (born, now)
        self._open.move_to_end(name)
        return True

    def close(self, name: str) -> None:
        self._open.pop(name, None)

    def token(self, name: str) -> str:
        """Return what a form of the session *name* must bring back."""
        return hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()

    def is_token(self, name: str, token: str) -> bool:
        return hmac.compare_digest(self.token(name).encode(), token.encode())


class TooManyGuessesError(Exception):
    """So many passwords are being looked at that this one is not."""


class Door:
    """Compares passwords, after each wrong one more slowly."""

    def __init__(self, password: str) -> None:
        self._digest = hashlib.sha256(password.encode()).digest()
        self._wrong = 0
        self._last_s = 0.0
        self._waiting = 0

    async def opens_for(self, password: str) -> bool:
        """Tell whether *password* is the one. Raises TooManyGuessesError."""
        if self._waiting >= GUESSES_AT_ONCE_MAX:
            raise TooManyGuessesError
        self._waiting += 1
        try:
            await asyncio.sleep(self._delay_s())
        finally:
            self._waiting -= 1
        is_right = hmac.compare_digest(hashlib.sha256(password.encode()).digest(), self._digest)
        self._wrong = 0 if is_right else self._wrong + 1
        self._last_s = clock.monotonic_s()
        return is_right

    def _delay_s(self) -> float:
        if self._wrong and clock.monotonic_s() - self._last_s > FORGIVEN_AFTER_S:
            self._wrong = 0
        return min(GUESS_DELAY_S * 2 ** (min(self._wrong, 10) - 1), GUESS_DELAY_S_MAX) if self._wrong else 0.0
