"""Passwords that people type: where one is written down, and what it must have at least."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mqcore.errors import ConfigError

PASSWORD_LENGTH_MIN: Final = 8
CONSOLE_PASSWORD_VARIABLE: Final = "MQCORE_CONSOLE_PASSWORD"
"""What the console asks for, where no file has it."""


def read_password(what: str, file: Path | None, environment: str | None) -> str | None:
    """Return the first line of *file*, or else what the *environment* says; None if neither says one.

    Raises ConfigError, which begins with *what*, for a file that cannot be read.
    """
    if file is None:
        return environment or None
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: cannot read {file}: {error}") from error
    return lines[0] if lines else ""


def checked_password(what: str, password: str) -> str:
    """Return *password*. Raises ConfigError, which begins with *what*, if it is too short."""
    if len(password) < PASSWORD_LENGTH_MIN:
        raise ConfigError(f"{what}: got {len(password)} characters, wanted {PASSWORD_LENGTH_MIN} or more")
    return password
