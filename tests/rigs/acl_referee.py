"""Apache's own access control as a child process, asked about files and requests. See AclReferee.java."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .maven import acl_referee_class_path
from .referee import INT, Referee

PORT: Final = 1234


class AclReferee(Referee):
    """The access control of one release over the files under *home*. A context manager; *log* takes its complaints."""

    def __init__(self, version: str, home: Path, log: Path) -> None:
        homes = f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"
        super().__init__(acl_referee_class_path(version), "interop.AclReferee", log, *homes)

    def load(self) -> str | None:
        """Have it read its files anew; what it complains about, or None. With a complaint it goes by the old ones."""
        return self._ask(INT.pack(-1))

    def judge(self, address: str, payload: bytes) -> str | None:
        """Why the request in the frame *payload*, without its length, may not be served; None if it may."""
        text = f"{address}:{PORT}".encode()
        return self._ask(INT.pack(len(text)) + text + INT.pack(len(payload)) + payload)

    def _ask(self, question: bytes) -> str | None:
        self._write(question)
        size = self._integer()
        return None if size < 0 else self._read(size).decode()
