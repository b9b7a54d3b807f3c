"""Apache's own access control as a child process, asked about files and requests. See AclReferee.java."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .apache import SMALL
from .maven import acl_referee_class_path
from .process import DIE_WITH_OWNER

INT: Final = struct.Struct(">i")
PORT: Final = 1234


class AclReferee:
    """The access control of one release over the files under *home*. A context manager; *log* takes its complaints."""

    def __init__(self, version: str, home: Path, log: Path) -> None:
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [*DIE_WITH_OWNER, str(os.getpid()), "java", *SMALL, f"-Drocketmq.home.dir={home}",
                 f"-Duser.home={home}", "-cp", acl_referee_class_path(version), "interop.AclReferee"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink,
            )  # fmt: skip

    def load(self) -> str | None:
        """Have it read its files anew; what it complains about, or None. With a complaint it goes by the old ones."""
        return self._ask(INT.pack(-1))

    def judge(self, address: str, payload: bytes) -> str | None:
        """Why the request in the frame *payload*, without its length, may not be served; None if it may."""
        text = f"{address}:{PORT}".encode()
        return self._ask(INT.pack(len(text)) + text + INT.pack(len(payload)) + payload)

    def _ask(self, question: bytes) -> str | None:
        assert self._process.stdin is not None
        self._process.stdin.write(question)
        self._process.stdin.flush()
        size = INT.unpack(self._read(4))[0]
        return None if size < 0 else self._read(size).decode()

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
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(30)
