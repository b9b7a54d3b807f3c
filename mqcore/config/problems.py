"""Gathering what is wrong, so that one start names all of it: who mends one setting a start loses patience."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mqcore.errors import ConfigError


class Problems:
    """What could not stand so far: each step of a check goes on behind a problem, and the last one raises them all."""

    def __init__(self) -> None:
        self._found: list[ConfigError] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keep a ConfigError of the block for later."""
        try:
            yield
        except ConfigError as error:
            self._found.append(error)

    def raise_all(self) -> None:
        """Raise what was noted: the error itself if it is one, else one with a line for each."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise ConfigError("\n".join(map(str, self._found)))
