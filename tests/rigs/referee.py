"""A module of Apache's as a child process that is asked by bytes, one answer for each question."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .apache import SMALL
from .process import DIE_WITH_OWNER

INT: Final = struct.Struct(">i")
ENDING_S: Final = 30.0


class Referee:
    """The Java program *main_class*. A context manager; *log* takes its complaints."""

    def __init__(self, class_path: str, main_class: str, log: Path, *options: str) -> None:
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [*DIE_WITH_OWNER, str(os.getpid()), "java", *SMALL, *options, "-cp", class_path, main_class],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink,
            )  # fmt: skip

    def _write(self, question: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(question)
        self._process.stdin.flush()

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
        self._process.communicate(timeout=ENDING_S)
