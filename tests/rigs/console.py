"""``mqcore console`` as a child process, and a client of its pages that sees what a browser sees."""

from __future__ import annotations

import html
import http.client
import re
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode, urljoin

from tests.waiting import wait_until

from .ports import free_port
from .process import Child

START_DEADLINE_S: Final = 60.0
TIMEOUT_S: Final = 60.0
FORM_TYPE: Final = "application/x-www-form-urlencoded"
TOKEN: Final = re.compile(r'name="csrf" value="([0-9a-f]+)"')


class ConsoleServer:
    """`mqcore console` on a free port of loopback; it serves when the constructor returns. A context manager."""

    def __init__(
        self,
        directory: Path,
        name_server: str,
        *options: str,
        env: Mapping[str, str] | None = None,
        has_tls: bool = False,
    ) -> None:
        self.port = free_port()
        self._has_tls = has_tls
        self.child = Child(
            [sys.executable, "-m", "mqcore", "-n", name_server, "console", "--port", str(self.port), *options],
            log=directory / f"console-{self.port}.out",
            env=env,
        )
        try:
            wait_until(self._serves, START_DEADLINE_S, "the console serves")
        except BaseException:
            self.child.kill()
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serves(self) -> bool:
        if not self.child.is_alive:
            raise self.child.error("has ended")
        try:
            return PageClient(self.port, has_tls=self._has_tls).get("/healthz").status == 200
        except OSError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.child.kill()


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """A page as it came."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def text(self) -> str:
        """What is to be read on it: without tags, blanks once, what was escaped as it is meant."""
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", self.html)).split())

    @property
    def token(self) -> str:
        found = TOKEN.search(self.html)
        assert found is not None, f"a form with a token: {self.html[:2000]}"
        return found[1]


@dataclass(slots=True)
class PageClient:
    """Keeps the cookies of one browser."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    has_tls: bool = False

    def get(self, path: str, headers: Mapping[str, str] | None = None, /, **parameters: object) -> PageAnswer:
        query = urlencode(parameters)
        return self.ask("GET", f"{path}?{query}" if query else path, headers)

    def post(
        self, path: str, fields: Mapping[str, str] | list[tuple[str, str]], headers: Mapping[str, str] | None = None
    ) -> PageAnswer:
        own = {"Content-Type": FORM_TYPE, "Origin": f"http://127.0.0.1:{self.port}"}
        return self.ask("POST", path, {**own, **(headers or {})}, urlencode(fields).encode())

    def follow(self, answer: PageAnswer, path: str) -> PageAnswer:
        """Go where a redirect leads."""
        assert answer.status == 303, answer.text
        return self.get(urljoin(path, answer.headers["Location"]))

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> PageAnswer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        if self.has_tls:  # whose certificate it is, is not what is looked at
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT_S, context=context)
        try:
            cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
            connection.request(method, path, body or None, {**(cookies if self.cookies else {}), **(headers or {})})
            answer = connection.getresponse()
            found = PageAnswer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()
        for header in found.headers.get_all("Set-Cookie") or ():
            name, _, value = header.partition(";")[0].partition("=")
            self.cookies[name] = value
        return found
