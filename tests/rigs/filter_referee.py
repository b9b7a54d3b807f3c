"""Apache's own filter module as a child process, asked what it makes of expressions. See FilterReferee.java."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from .maven import referee_class_path
from .referee import INT, Referee

RESULTS: Final[tuple[Any, ...]] = (False, True, None, "error")


class FilterReferee(Referee):
    """The filter of one release. A context manager; *log* takes what it complains about."""

    def __init__(self, version: str, log: Path) -> None:
        super().__init__(referee_class_path(version), "interop.FilterReferee", log)

    def judge(self, questions: Sequence[tuple[str, Sequence[bytes]]]) -> list[str | list[Any]]:
        """Ask about expressions, each with properties texts: the refusal, or True, False, None or "error" for each.

        The answers of one call must fit a pipe's buffer.
        """
        parts: list[bytes] = []
        for expression, properties in questions:
            text = expression.encode()
            parts += [INT.pack(len(text)), text, INT.pack(len(properties))]
            for one in properties:
                parts += [INT.pack(len(one)), one]
        self._write(b"".join(parts))
        answers: list[str | list[Any]] = []
        for _, properties in questions:
            size = self._integer()
            if size < 0:
                answers.append([RESULTS[byte] for byte in self._read(len(properties))])
            else:
                answers.append(self._read(size).decode())
        return answers

    def bits(self, error_rate: int, count: int, key: str) -> tuple[int, list[int]]:
        """How many bits a bloom filter has, and which are those of *key*."""
        text = key.encode()
        self._write(struct.pack(">iiii", -1, error_rate, count, len(text)) + text)
        return self._integer(), [self._integer() for _ in range(self._integer())]
