"""Apache's own filter module as a child process, asked what it makes of expressions. See FilterReferee.java."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from .apache import SMALL
from .maven import referee_class_path
from .process import DIE_WITH_OWNER

INT: Final = struct.Struct(">i")
RESULTS: Final[tuple[Any, ...]] = (False, True, None, "error")


class FilterReferee:
    """The filter of one release. A context manager; *log* takes what it complains about."""

    def __init__(self, version: str, log: Path) -> None:
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [*DIE_WITH_OWNER, str(os.getpid()), "java", *SMALL, "-cp", referee_class_path(version),
                 "interop.FilterReferee"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink,
            )  # fmt: skip

    def judge(self, questions: Sequence[tuple[str, Sequence[bytes]]]) -> list[str | list[Any]]:
        """Ask about expressions, each with properties texts: the refusal, or True, False, None or "error" for each.

        The answers of one call must fit a pipe's buffer.
        """
        assert self._process.stdin is not None
        parts: list[bytes] = []
        for expression, properties in questions:
            text = expression.encode()
            parts += [INT.pack(len(text)), text, INT.pack(len(properties))]
            for one in properties:
                parts += [INT.pack(len(one)), one]
        self._process.stdin.write(b"".join(parts))
        self._process.stdin.flush()
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
        assert self._process.stdin is not None
        text = key.encode()
        self._process.stdin.write(struct.pack(">iiii", -1, error_rate, count, len(text)) + text)
        self._process.stdin.flush()
        return self._integer(), [self._integer() for _ in range(self._integer())]

    def _integer(self) -> int:
        value: int = INT.unpack(self._read(4))[0]
        return value

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        assert len(data) == size, "the referee has ended, see its log"
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
